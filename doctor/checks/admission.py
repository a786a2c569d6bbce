"""Does the API server add slots and refuse what can never work? The decisive answers are dry runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from doctor.checks.scheduler import minor_of
from doctor.cluster import Admitted, Cluster, Refused, Rule, Unseen
from doctor.findings import Verdict, counted, fail, ok, skip, some, unseen, warn
from doctor.objects import missing_runtime_class
from gpushare.cards import UNLIMITED_SLOTS, NodeCards

POLICIES = {
    "mutatingadmissionpolicies": "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies": "validatingadmissionpolicybindings",
}
WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

_FENCE_SINCE = 32
"""Tokens of service accounts name their node since 1.32."""


def admission_installed(cluster: Cluster) -> Verdict:
    """Whether policies (with bindings) or webhooks of ours are there, both the mutating and the refusing."""
    rules = cluster.rules
    if isinstance(rules, Unseen):
        return unseen(rules)
    unbound = _unbound(rules)
    if unbound:
        return fail(
            "admission policies without a binding do nothing",
            remedy="helm upgrade (or apply the bindings that the chart renders)",
            objects=unbound,
        )
    kinds = {rule.kind for rule in rules}
    ways = [
        name
        for name, parts in (("policy", tuple(POLICIES)), ("webhook", WEBHOOKS))
        if kinds.issuperset(parts)
    ]
    if ways:
        return ok(f"by {' and '.join(ways)}")
    if _units_mode(cluster):
        return ok("none, and nothing has to be added to pods in units mode")
    return warn(
        "no admission of gpushare's: pods must name their slots themselves, and what can never work "
        "is not refused",
        remedy="set admission.mode to auto, policy or webhook",
    )


def _unbound(rules: tuple[Rule, ...]) -> list[str]:
    bound = {(rule.kind, rule.found.spec.policy_name) for rule in rules}
    return [
        f"{rule.kind}/{rule.name}"
        for rule in rules
        if rule.kind in POLICIES and (POLICIES[rule.kind], rule.name) not in bound
    ]


def admission_slot(cluster: Cluster) -> Verdict:
    """Whether a pod that asks for memory is given its slot."""
    units = _units_mode(cluster)
    match cluster.asks:
        case Unseen() as part:
            return unseen(part)
        case Refused(status=status, message=message):
            return _refused_by_all(status, message)
        case Admitted() if _is_exempt(cluster):
            return _exempt(cluster)
        case Admitted(pod=pod):
            slots = list(_limits(pod, cluster.names.slot))
    if units and slots:
        return fail(
            f"pods are given {cluster.names.slot}, and the nodes count memory itself (units mode): "
            "they stay pending",
            remedy="set devicePlugin.mode to what the plugins run with: the chart then adds no slots",
        )
    if units:
        return ok("no slot is added, as units mode wants it")
    if not slots:
        return fail(
            f"a pod that asks for {cluster.names.memory} alone is given no {cluster.names.slot}: "
            "kubelet would hand it no card",
            remedy="set admission.mode to auto, policy or webhook, or have every pod ask for its slots",
        )
    slotless = [name for name, cards in _shared(cluster).items() if cards.slots == UNLIMITED_SLOTS]
    if slotless:
        return warn(
            f"pods are given {cluster.names.slot}, and nodes that count memory itself (units mode, or "
            f"the classic plugin) have none: no new pods for {counted(len(slotless), 'node')}",
            remedy="run all device plugins in one devicePlugin.mode; nodes of the classic plugin: see "
            "docs/migrate-from-gpushare.md",
            objects=slotless,
        )
    named = pod.get("spec", {}).get("schedulerName")
    if cluster.is_external and named in cluster.schedulers:
        return ok(f"the slot is added (dry run); {named} asks the extender, as long as scheduler-config does")
    if named not in cluster.schedulers:
        return warn(
            f"the slot is added, the scheduler's name is not: such a pod goes to {named}",
            remedy="set admission.setSchedulerName, or have pods name schedulerName "
            f"{cluster.scheduler_name}",
        )
    return ok(f"slot and schedulerName {named} are added (dry run)")


def admission_refusal(cluster: Cluster) -> Verdict:
    """Whether a pod that can never work is refused at once."""
    match cluster.asks_bytes:
        case Unseen() as part:
            return unseen(part)
        case Refused(message=message) if "counts " in message:
            return ok("a request in bytes is refused with a hint (dry run)")
        case Refused(status=status, message=message):
            return _refused_by_all(status, message)
        case Admitted() if _is_exempt(cluster):
            return _exempt(cluster)
        case Admitted():
            return warn(
                "a request in bytes (10Gi) is taken: such a pod stays pending, and nobody is told "
                "why at apply",
                remedy="set admission.mode to auto, policy or webhook",
            )


def _refused_by_all(status: int, message: str) -> Verdict:
    """A pod was turned away for another reason than ours."""
    if "failed calling webhook" in message or status >= 500:
        return fail(
            f"pods that ask for GPU memory cannot be created: {message[:300]}",
            remedy="see extender-ready, the Service gpushare-admission and its certificate; with "
            "Kubernetes 1.36 admission.mode policy needs neither",
        )
    runtime = missing_runtime_class(message)
    if runtime:  # the trial pod names none itself
        return fail(
            f"GPU pods cannot be created: admission gives them the RuntimeClass {runtime}, which does not "
            "exist",
            remedy="make it (NVIDIA's container toolkit and the class: the GPU operator brings both), or "
            "clear admission.setRuntimeClassName",
        )
    return skip(
        f"the trial pod (dry run) was refused for another reason: {message[:300]}",
        remedy="name another namespace with --probe-namespace",
    )


def _is_exempt(cluster: Cluster) -> bool:
    """Whether the trial pods were in a namespace that admission leaves alone, as the chart sets it up."""
    rules = () if isinstance(cluster.rules, Unseen) else cluster.rules
    return any(cluster.probe_namespace in rule.found.exempt_namespaces for rule in rules)


def _exempt(cluster: Cluster) -> Verdict:
    return skip(
        f"admission leaves the namespace {cluster.probe_namespace} alone, on purpose, where it was tried",
        remedy="name one in which GPU pods run with --probe-namespace",
    )


def node_fence(cluster: Cluster) -> Verdict:
    """Whether a plugin's token is of use on its own node only."""
    if isinstance(cluster.rules, Unseen):
        return unseen(cluster.rules)
    fences = [
        rule for rule in cluster.rules if rule.kind == "validatingadmissionpolicies" and _is_fence(rule)
    ]
    unbound = _unbound(cluster.rules)
    if any(f"{rule.kind}/{rule.name}" not in unbound for rule in fences):
        return ok(f"{some([rule.name for rule in fences])}: a plugin's token changes its own node only")
    if (minor_of(cluster.version) or 0) < _FENCE_SINCE:
        return skip(f"needs Kubernetes 1.{_FENCE_SINCE}, this is {cluster.version}")
    return warn(
        "the device plugin's account may change every node and every pod's annotations",
        remedy="set nodeFence.enabled to auto",
    )


def _is_fence(rule: Rule) -> bool:
    return "node" in rule.name or "fence" in rule.name


def _units_mode(cluster: Cluster) -> bool:
    """Whether the nodes that share cards count memory instead of slots."""
    shared = _shared(cluster).values()
    return bool(shared) and all(each.slots == UNLIMITED_SLOTS for each in shared)


def _shared(cluster: Cluster) -> dict[str, NodeCards]:
    """The cards of nodes that have some, by the node's name."""
    return {
        name: cards for name, cards in cluster.cards.items() if isinstance(cards, NodeCards) and cards.cards
    }


def _limits(pod: Mapping[str, Any], resource: str) -> Iterator[str]:
    for container in pod.get("spec", {}).get("containers") or ():
        limits = (container.get("resources") or {}).get("limits") or {}
        if resource in limits:
            yield str(limits[resource])
