"""Everything that can be wrong, check by check, with how bad that is and what the doctor has to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from doctor.cluster import Answer, Cluster, Refused, Told, Unseen
from doctor.findings import Status
from gpushare.cards import UNLIMITED_SLOTS
from tests.build import NAMES, card
from tests.doctor import snapshot
from tests.doctor.snapshot import broken, external, healthy, node, part, pod, replica

UNSCHEDULABLE = ("False", "Unschedulable", "0/2 nodes are available: 2 Insufficient aliyun.com/gpu-mem.")
REFUSED = (
    "False",
    "SchedulerError",
    'Post "http://127.0.0.1:39999/gpushare-scheduler/filter": dial tcp 127.0.0.1:39999: connect: refused',
)
BAD_CA = (
    "False",
    "SchedulerError",
    'Post "https://10.96.0.7:39999/gpushare-scheduler/filter": tls: failed to verify certificate: x509: '
    "certificate signed by unknown authority",
)
PLUGIN = "DaemonSet gpushare-system/gpushare-device-plugin"
UNIT_NODES = (node("n1", slots=UNLIMITED_SLOTS), node("n2", slots=UNLIMITED_SLOTS))

FAIL, WARN, SKIP, OK = Status.FAIL, Status.WARN, Status.SKIP, Status.OK
HIDDEN = Unseen(why="you may not list it", remedy="needs the right: kubectl auth can-i list it")

# check, what is wrong, how bad, what the line and its objects say
FAULTS: list[tuple[str, Callable[[], Cluster], Status, str]] = [
    ("kubernetes-version", lambda: broken(version="v1.22.17"), WARN, "scheduler-policy.json"),
    ("kubernetes-version", lambda: broken(version="quite new"), SKIP, "quite new"),
    ("extender-running", lambda: broken(deployments=()), FAIL, "namespace gpushare-system"),
    ("extender-running", lambda: broken(deployments=(snapshot.deployment(ready=0),)), FAIL, "0 of 2"),
    ("extender-running", lambda: broken(deployments=(snapshot.deployment(ready=1),)), WARN, "1 of 2"),
    (
        "extender-running",
        lambda: broken(
            deployments=(snapshot.deployment(ready=0),),
            parts=(part("s-0", component="scheduler", ready=False, waiting="ImagePullBackOff"),),
        ),
        FAIL,
        "s-0: ImagePullBackOff",
    ),
    (
        "extender-running",
        lambda: broken(deployments=(snapshot.deployment(), snapshot.deployment(external=True))),
        FAIL,
        "installed 2 times",
    ),
    (
        "extender-running",
        lambda: external(deployments=(snapshot.deployment(external=True, ready=0),)),
        FAIL,
        "gpushare-extender",
    ),
    (
        "extender-running",
        lambda: external(deployments=(snapshot.deployment(external=True, ready=1),)),
        WARN,
        "1 of 2 replicas ready",
    ),
    (
        "extender-reachable",
        lambda: with_extender(reached=Answer(status=0, text="no endpoints available for service")),
        FAIL,
        "no endpoints",
    ),
    (
        "extender-ready",
        lambda: with_extender(replicas=(replica(ready=Answer(status=503, text="nodes not synced")),)),
        FAIL,
        "nodes not synced",
    ),
    (
        "extender-ready",
        lambda: with_extender(
            replicas=(replica(), replica("s-1", ready=Answer(status=503, text="stopping")))
        ),
        WARN,
        "s-1: stopping",
    ),
    (
        "extender-ready",
        lambda: with_extender(
            replicas=tuple(replica(name, ready=Answer(status=200, text="standby")) for name in ("e-0", "e-1"))
        ),
        FAIL,
        "no extender leads",
    ),
    ("extender-ready", lambda: with_extender(replicas=()), SKIP, "extender-running"),
    ("scheduler-active", lambda: broken(lease=None), FAIL, "ever been active"),
    ("scheduler-active", lambda: broken(lease=snapshot.lease(renewed="")), FAIL, "held by nobody"),
    (
        "scheduler-active",
        lambda: broken(lease=snapshot.lease(renewed="2026-01-01T11:50:00.000000Z")),
        FAIL,
        "600 s ago, by s-0_1",
    ),
    ("scheduler-config", lambda: broken(config=None), FAIL, "does not exist"),
    (
        "scheduler-config",
        lambda: with_config(("ignorable: false", "ignorable: true")),
        FAIL,
        "ignorable is true",
    ),
    (
        "scheduler-config",
        lambda: with_config(
            ("name: aliyun.com/gpu-mem, ignoredByScheduler", "name: x/y, ignoredByScheduler")
        ),
        FAIL,
        "exactly aliyun.com/gpu-mem (are: x/y)",
    ),
    ("scheduler-config", lambda: with_config(("managedResources:", "others:")), FAIL, "every pod is sent"),
    ("scheduler-config", lambda: with_config(("bindVerb: bind", "")), FAIL, "bindVerb is missing"),
    ("scheduler-config", lambda: with_config(("extenders:", "others:")), FAIL, "no extender is listed"),
    (
        "scheduler-config",
        lambda: broken(scheduler_name="gpus"),
        FAIL,
        "no profile is called gpus (profiles: gpushare-scheduler)",
    ),
    ("scheduler-config", lambda: with_config(("profiles:", "\tprofiles:")), FAIL, "no YAML"),
    ("scheduler-config", lambda: with_config(("KubeSchedulerConfiguration", "Thing")), FAIL, "holds no"),
    (
        "scheduler-config",
        lambda: with_config(("percentageOfNodesToScore: 100", "percentageOfNodesToScore: 5")),
        WARN,
        "sample",
    ),
    ("scheduler-config", lambda: external(), SKIP, "cannot be read"),
    ("scheduler-config", lambda: external(parts=()), SKIP, "not visible"),
    (
        "scheduler-config",
        lambda: external(
            parts=(part("ks", component="", namespace="kube-system", labels={"component": "kube-scheduler"}),)
        ),
        FAIL,
        "kube-system/ks",
    ),
    ("scheduler-version", lambda: broken(version="v1.35.9"), FAIL, "newer than the API server (v1.35.9)"),
    ("scheduler-version", lambda: broken(version="v1.38.0"), WARN, "older"),
    ("scheduler-version", lambda: broken(parts=()), SKIP, "not to be seen"),
    ("extender-called", lambda: with_pods(pod("w")), FAIL, "default/w"),
    (
        "extender-called",
        lambda: with_pods(pod("w", scheduled=REFUSED, created="2026-01-01T11:59:59Z")),
        FAIL,
        "dial",
    ),
    (
        "extender-called",
        lambda: replace(
            with_pods(pod("w", scheduled=UNSCHEDULABLE)),
            extender=replace(healthy().extender, replicas=(replica(calls=0), replica("s-1", calls=0))),
        ),
        WARN,
        "Insufficient aliyun.com/gpu-mem",
    ),
    (
        "extender-called",
        lambda: replace(with_extender(replicas=()), pods=(pod("w", scheduled=UNSCHEDULABLE),)),
        SKIP,
        "extender-running",
    ),
    (
        "extender-called",
        lambda: external(pods=(pod("w", scheduler="default-scheduler", scheduled=BAD_CA),)),
        FAIL,
        "certificate signed by unknown authority",
    ),
    (
        "extender-called",
        lambda: external(pods=(pod("w", scheduler="default-scheduler"),)),
        FAIL,
        "no kube-scheduler looks at schedulerName default-scheduler: 1 waiting pod",
    ),
    ("admission-installed", lambda: broken(rules=()), WARN, "admission.mode"),
    (
        "admission-installed",
        lambda: broken(
            rules=tuple(each for each in snapshot.rules() if each.kind != "mutatingadmissionpolicybindings")
        ),
        FAIL,
        "mutatingadmissionpolicies/gpushare-pods",
    ),
    ("admission-slot", lambda: broken(asks=snapshot.admitted(slots=None)), FAIL, "no aliyun.com/gpu-slot"),
    (
        "admission-slot",
        lambda: broken(asks=snapshot.admitted(scheduler="default-scheduler")),
        WARN,
        "goes to default",
    ),
    ("admission-slot", lambda: external(asks=snapshot.admitted(scheduler="mine")), WARN, "goes to mine"),
    ("admission-slot", lambda: broken(nodes=UNIT_NODES), FAIL, "units mode"),
    ("admission-slot", lambda: broken(nodes=(node("n1"), UNIT_NODES[1])), WARN, "n2"),
    (
        "admission-slot",
        lambda: broken(asks=Refused(status=500, message='failed calling webhook "pods": EOF')),
        FAIL,
        "gpushare-admission",
    ),
    (
        "admission-slot",
        lambda: broken(asks=Refused(status=403, message="exceeded quota: q")),
        SKIP,
        "exceeded quota: q",
    ),
    *(
        (check, lambda: without_class(), FAIL, said)
        for check in ("admission-slot", "admission-refusal")
        for said in (
            "GPU pods cannot be created: admission gives them the RuntimeClass nvidia, which does not exist",
            "admission.setRuntimeClassName",
        )
    ),
    ("admission-refusal", lambda: broken(asks_bytes=snapshot.admitted(memory="10Gi")), WARN, "10Gi"),
    (
        "admission-refusal",
        lambda: broken(asks_bytes=Refused(status=500, message="failed calling webhook: EOF")),
        FAIL,
        "EOF",
    ),
    *(
        (check, lambda mode=mode, name=name: probed_in(name, mode=mode), SKIP, f"namespace {name} alone")
        for check in ("admission-slot", "admission-refusal")
        for mode, name in (
            ("policy", "kube-system"),
            ("webhook", "kube-system"),
            ("webhook", "gpushare-system"),
        )
    ),
    (
        "node-fence",
        lambda: broken(rules=tuple(each for each in snapshot.rules() if "fence" not in each.name)),
        WARN,
        "nodeFence",
    ),
    ("node-fence", lambda: broken(rules=(), version="v1.31.4"), SKIP, "1.32"),
    ("plugin-running", lambda: broken(daemonsets=()), FAIL, "devicePlugin.enabled"),
    (
        "plugin-running",
        lambda: broken(daemonsets=(snapshot.daemonset(wanted=0, ready=0),)),
        FAIL,
        "has counted no node, and 2 nodes have gpushare=true",
    ),
    (
        "plugin-running",
        lambda: broken(
            daemonsets=(snapshot.daemonset(wanted=0, ready=0),), nodes=(node("n1", labels={}),), parts=()
        ),
        FAIL,
        "kubectl label node NODE gpushare=true",
    ),
    (
        "plugin-running",
        lambda: broken(daemonsets=(snapshot.daemonset(wanted=0, ready=0),), nodes=HIDDEN),
        FAIL,
        "kubectl label node NODE gpushare=true",
    ),
    (
        "plugin-running",
        lambda: broken(
            daemonsets=(snapshot.daemonset(ready=1),),
            parts=(
                part("p-2", component="device-plugin", node="n2", ready=False, waiting="CrashLoopBackOff"),
            ),
        ),
        FAIL,
        "n2: CrashLoopBackOff",
    ),
    (
        "plugin-running",
        lambda: broken(daemonsets=(snapshot.daemonset(made=0, ready=0),), runtime_class=None),
        FAIL,
        "for 2 nodes no pod could be created, for there is no RuntimeClass nvidia",
    ),
    (
        "plugin-running",
        lambda: broken(
            daemonsets=(snapshot.daemonset(made=0, ready=0),),
            refused=(snapshot.refusal(PLUGIN, message='violates PodSecurity "baseline:latest": hostPath'),),
        ),
        FAIL,
        'violates PodSecurity "baseline:latest"',
    ),
    (
        "plugin-running",
        lambda: broken(
            daemonsets=(snapshot.daemonset(made=1, ready=1),), refused=HIDDEN, runtime_class=HIDDEN
        ),
        FAIL,
        "for 1 node no pod could be created",
    ),
    (
        "workloads-refused",
        lambda: broken(refused=(snapshot.refusal(),)),
        WARN,
        "ReplicaSet default/web-1, 2 min ago: container 'main': aliyun.com/gpu-mem: '10Gi' counts MiB",
    ),
    ("plugin-on-nodes", lambda: broken(nodes=(node("n1"), node("n2"), node("n3"))), FAIL, "n3"),
    ("plugin-on-nodes", lambda: broken(nodes=(node("n1"), node("n3", labels={}))), WARN, "n3"),
    ("plugin-on-nodes", lambda: broken(daemonsets=()), SKIP, "plugin-running"),
    ("node-cards", lambda: with_node(annotations={NAMES.cards: "{"}), FAIL, "cannot be read"),
    (
        "node-cards",
        lambda: with_node(annotations={NAMES.cards: None}, capacity={NAMES.count: None}),
        FAIL,
        "n1: publishes no aliyun.com/gpu-cards",
    ),
    ("node-cards", lambda: with_node(cards=()), FAIL, "publishes no card"),
    ("node-cards", lambda: broken(nodes=()), SKIP, "plugin-running"),
    ("node-capacity", lambda: with_node(capacity={NAMES.memory: None}), FAIL, "gpu-mem is missing"),
    (
        "node-capacity",
        lambda: with_node(capacity={NAMES.memory: "16000"}),
        FAIL,
        "is 16000, and healthy cards have 32000",
    ),
    ("node-capacity", lambda: with_node(capacity={NAMES.count: "1"}), FAIL, "gpu-count is 1, and 2 cards"),
    ("node-capacity", lambda: with_node(allocatable={NAMES.memory: None}), FAIL, "not allocatable"),
    (
        "node-slots",
        lambda: with_node(allocatable={NAMES.slot: "0"}),
        FAIL,
        "allocatable aliyun.com/gpu-slot is 0",
    ),
    ("node-slots", lambda: with_node(allocatable={NAMES.slot: None}), FAIL, "is missing"),
    (
        "node-slots",
        lambda: with_node(slots=UNLIMITED_SLOTS, allocatable={NAMES.memory: "0"}),
        FAIL,
        "allocatable aliyun.com/gpu-mem is 0",
    ),
    (
        "cards-healthy",
        lambda: with_node(cards=(16000, card(1, memory=16000, healthy=False))),
        WARN,
        "n1 card 1",
    ),
    ("unit", lambda: with_node(unit="GiB"), FAIL, "n1: GiB"),
    ("unit", lambda: with_told(Told(resource="x/y", unit="MiB")), FAIL, "--resource x/y"),
    ("unit", lambda: with_told(HIDDEN), SKIP, "nodes count MiB"),
    (
        "unit",
        lambda: replace(with_told(HIDDEN), nodes=(node("n1"), node("n2", unit="GiB"))),
        FAIL,
        "GiB and MiB",
    ),
    ("rival-plugins", lambda: with_node(capacity={"nvidia.com/gpu": "2"}), FAIL, "n1: nvidia.com/gpu 2"),
    (
        "rival-plugins",
        lambda: with_node(capacity={"nvidia.com/mig-1g.5gb.shared": "7"}),
        FAIL,
        "mig-1g.5gb.shared 7",
    ),
    ("nodes-closed", lambda: with_pods(pod("x", on="n1")), FAIL, "default/x has no card allocation"),
    ("nodes-closed", lambda: with_node(annotations={NAMES.cards: "{"}), FAIL, "unreadable GPU cards"),
    (
        "cards-overcommitted",
        lambda: with_pods(*(pod(name, on="n1", cards=[0], memory=9000) for name in "ab")),
        FAIL,
        "n1 card 0: 18000 of 16000 MiB (default/a, default/b)",
    ),
    ("cards-missing", lambda: with_pods(pod("x", on="n1", cards=[5])), WARN, "default/x on n1: card 5"),
    ("pods-scheduler", lambda: with_pods(pod("w", scheduler="default-scheduler")), FAIL, "default-scheduler"),
    (
        "pods-scheduler",
        lambda: external(pods=(pod("w", scheduler="mine"),)),
        WARN,
        "have pods name no scheduler, or schedulerName gpushare-scheduler",
    ),
    ("pods-without-card", lambda: with_pods(pod("x", on="n1")), FAIL, "manifest names the node"),
    (
        "pods-without-card",
        lambda: with_pods(pod("x", on="n1", scheduler="default-scheduler")),
        FAIL,
        "default/x on n1: bound by default-scheduler, which does not ask the extender",
    ),
    (
        "pods-unreadable",
        lambda: with_pods(pod("x", on="n1", annotations={NAMES.index: "abc"})),
        FAIL,
        "default/x on n1",
    ),
    ("pods-waiting-for-room", lambda: with_pods(pod("w", scheduled=UNSCHEDULABLE)), WARN, "Insufficient"),
    (
        "pods-waiting-for-kubelet",
        lambda: with_pods(pod("x", on="n1", cards=[0])),
        WARN,
        "default/x on n1: for",
    ),
    (
        "pods-refused-by-kubelet",
        lambda: with_pods(
            pod("x", on="n1", phase="Failed", reason="UnexpectedAdmissionError", message="no\npod waits")
        ),
        WARN,
        "default/x on n1: no pod waits",
    ),
    ("versions", lambda: with_extender(replicas=(replica(version="9.9.9"),)), WARN, "s-0: 9.9.9"),
    (
        "versions",
        lambda: broken(
            parts=(
                part("p-1", component="device-plugin", image="gpushare:1"),
                part("p-2", component="device-plugin", image="gpushare:2"),
            )
        ),
        WARN,
        "gpushare:2",
    ),
    ("versions", lambda: with_extender(replicas=()), SKIP, "not to be seen, see extender-running"),
    (
        "versions",
        lambda: with_extender(replicas=(replace(replica(), version=HIDDEN),)),
        SKIP,
        "not to be seen, see extender-ready",
    ),
    (
        "classic-components",
        lambda: broken(
            deployments=(
                snapshot.deployment(),
                snapshot.classic(
                    "gpushare-schd-extender", image="registry.example/k8s-gpushare-schd-extender:1"
                ),
            )
        ),
        WARN,
        "kube-system/gpushare-schd-extender",
    ),
    (
        "classic-components",
        lambda: broken(
            daemonsets=(
                snapshot.daemonset(),
                snapshot.classic(
                    "renamed", image="registry.example/k8s-gpushare-plugin:1", selector={"gpushare": "true"}
                ),
            )
        ),
        FAIL,
        "runs on our nodes",
    ),
]


def probed_in(namespace: str, *, mode: str) -> Cluster:
    """The trial pods of a cluster in order, in a namespace that admission leaves alone."""
    untouched = snapshot.admitted(slots=None, scheduler="default-scheduler")
    return broken(probe_namespace=namespace, rules=snapshot.rules(mode), asks=untouched, asks_bytes=untouched)


def without_class() -> Cluster:
    """What the RuntimeClass admission of the API server says of both trial pods (1.36)."""
    message = 'pods "gpushare-doctor-x" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    refused = Refused(status=403, message=message)
    return broken(asks=refused, asks_bytes=refused)


def with_extender(**changes: object) -> Cluster:
    return broken(extender=replace(healthy().extender, **changes))  # type: ignore[arg-type]


def with_told(told: Told | Unseen) -> Cluster:
    return with_extender(told=told)


def with_config(*changes: tuple[str, str]) -> Cluster:
    return broken(config=snapshot.config(*changes))


def with_pods(*pods: object) -> Cluster:
    return broken(pods=pods)


def with_node(**options: object) -> Cluster:
    return broken(nodes=(node("n1", **options), node("n2")))  # type: ignore[arg-type]
