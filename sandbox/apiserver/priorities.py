"""Priority admission: a pod's number comes from its priority class (Kubernetes' Priority plugin, 1.36)."""

from sandbox.apiserver.errors import Forbidden
from sandbox.apiserver.kinds import Manifest, kind_of
from sandbox.apiserver.store import Store

PODS = kind_of("pods")
PRIORITY_CLASSES = kind_of("priorityclasses")
BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def resolve_priority(store: Store, pod: Manifest) -> None:
    """Set ``priority`` and ``preemptionPolicy``; raises Forbidden for an unknown class or another number."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    class_name = spec.get("priorityClassName", "")
    priority, policy = 0, "PreemptLowerPriority"
    if class_name:
        record = store.get(PRIORITY_CLASSES, namespace="", name=class_name)
        if record is None:
            why = f"no PriorityClass with name {class_name} was found"
            raise Forbidden.of(PODS, name=name, why=why)
        found = record.manifest()
        priority, policy = found["value"], found.get("preemptionPolicy", policy)
    else:
        found_classes = [record.manifest() for record in store.records(PRIORITY_CLASSES)]
        defaults = [item for item in found_classes if item.get("globalDefault")]
        if defaults:
            chosen = min(defaults, key=lambda item: int(item["value"]))
            spec["priorityClassName"] = chosen["metadata"]["name"]
            priority, policy = chosen["value"], chosen.get("preemptionPolicy", policy)
    if spec.get("priority", priority) != priority:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise Forbidden.of(PODS, name=name, why=why)
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", policy)
