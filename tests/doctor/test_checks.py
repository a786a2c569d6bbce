"""Every check: right where all is well, and seen to fail where something is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from doctor.checks import CHECKS
from doctor.cluster import Admitted, Answer, Cluster, Refused, Told, Unseen
from doctor.findings import Status
from gpushare.cards import UNLIMITED_SLOTS
from tests.build import NAMES, card
from tests.doctor import snapshot
from tests.doctor.snapshot import broken, decoded, external, healthy, node, part, pod, replica, verdict

UNSCHEDULABLE = ("False", "Unschedulable", "0/2 nodes are available: 2 Insufficient aliyun.com/gpu-mem.")
REFUSED = (
    "False",
    "SchedulerError",
    'Post "http://127.0.0.1:39999/gpushare-scheduler/filter": dial tcp 127.0.0.1:39999: connect: refused',
)
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
        "extender-reachable",
        lambda: _extender(reached=Answer(status=0, text="no endpoints available for service")),
        FAIL,
        "no endpoints",
    ),
    (
        "extender-ready",
        lambda: _extender(replicas=(replica(ready=Answer(status=503, text="nodes not synced")),)),
        FAIL,
        "nodes not synced",
    ),
    (
        "extender-ready",
        lambda: _extender(replicas=(replica(), replica("s-1", ready=Answer(status=503, text="stopping")))),
        WARN,
        "s-1: stopping",
    ),
    ("extender-ready", lambda: _extender(replicas=()), SKIP, "extender-running"),
    ("scheduler-active", lambda: broken(lease=None), FAIL, "ever been active"),
    ("scheduler-active", lambda: broken(lease=snapshot.lease(renewed="")), FAIL, "held by nobody"),
    (
        "scheduler-active",
        lambda: broken(lease=snapshot.lease(renewed="2026-01-01T11:50:00.000000Z")),
        FAIL,
        "600 s ago, by s-0_1",
    ),
    ("scheduler-config", lambda: broken(config=None), FAIL, "does not exist"),
    ("scheduler-config", lambda: _config(("ignorable: false", "ignorable: true")), FAIL, "ignorable is true"),
    (
        "scheduler-config",
        lambda: _config(("name: aliyun.com/gpu-mem, ignoredByScheduler", "name: x/y, ignoredByScheduler")),
        FAIL,
        "exactly aliyun.com/gpu-mem (are: x/y)",
    ),
    ("scheduler-config", lambda: _config(("managedResources:", "others:")), FAIL, "every pod is sent"),
    ("scheduler-config", lambda: _config(("bindVerb: bind", "")), FAIL, "bindVerb is missing"),
    ("scheduler-config", lambda: _config(("extenders:", "others:")), FAIL, "no extender is listed"),
    (
        "scheduler-config",
        lambda: broken(scheduler_name="gpus"),
        FAIL,
        "no profile is called gpus (profiles: gpushare-scheduler)",
    ),
    ("scheduler-config", lambda: _config(("profiles:", "\tprofiles:")), FAIL, "no YAML"),
    ("scheduler-config", lambda: _config(("KubeSchedulerConfiguration", "Thing")), FAIL, "holds no"),
    (
        "scheduler-config",
        lambda: _config(("percentageOfNodesToScore: 100", "percentageOfNodesToScore: 5")),
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
    ("extender-called", lambda: _pods(pod("w")), FAIL, "default/w"),
    (
        "extender-called",
        lambda: _pods(pod("w", scheduled=REFUSED, created="2026-01-01T11:59:59Z")),
        FAIL,
        "dial",
    ),
    (
        "extender-called",
        lambda: replace(
            _pods(pod("w", scheduled=UNSCHEDULABLE)),
            extender=replace(healthy().extender, replicas=(replica(calls=0), replica("s-1", calls=0))),
        ),
        WARN,
        "Insufficient aliyun.com/gpu-mem",
    ),
    (
        "extender-called",
        lambda: replace(_extender(replicas=()), pods=(pod("w", scheduled=UNSCHEDULABLE),)),
        SKIP,
        "extender-running",
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
    ("admission-refusal", lambda: broken(asks_bytes=snapshot.admitted(memory="10Gi")), WARN, "10Gi"),
    (
        "admission-refusal",
        lambda: broken(asks_bytes=Refused(status=500, message="failed calling webhook: EOF")),
        FAIL,
        "EOF",
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
    ("plugin-on-nodes", lambda: broken(nodes=(node("n1"), node("n2"), node("n3"))), FAIL, "n3"),
    ("plugin-on-nodes", lambda: broken(nodes=(node("n1"), node("n3", labels={}))), WARN, "n3"),
    ("plugin-on-nodes", lambda: broken(daemonsets=()), SKIP, "plugin-running"),
    ("node-cards", lambda: _node(annotations={NAMES.cards: "{"}), FAIL, "cannot be read"),
    (
        "node-cards",
        lambda: _node(annotations={NAMES.cards: None}, capacity={NAMES.count: None}),
        FAIL,
        "n1: publishes no aliyun.com/gpu-cards",
    ),
    ("node-cards", lambda: _node(cards=()), FAIL, "publishes no card"),
    ("node-cards", lambda: broken(nodes=()), SKIP, "plugin-running"),
    ("node-capacity", lambda: _node(capacity={NAMES.memory: None}), FAIL, "gpu-mem is missing"),
    (
        "node-capacity",
        lambda: _node(capacity={NAMES.memory: "16000"}),
        FAIL,
        "is 16000, and healthy cards have 32000",
    ),
    ("node-capacity", lambda: _node(capacity={NAMES.count: "1"}), FAIL, "gpu-count is 1, and 2 cards"),
    ("node-capacity", lambda: _node(allocatable={NAMES.memory: None}), FAIL, "not allocatable"),
    (
        "node-slots",
        lambda: _node(allocatable={NAMES.slot: "0"}),
        FAIL,
        "allocatable aliyun.com/gpu-slot is 0",
    ),
    ("node-slots", lambda: _node(allocatable={NAMES.slot: None}), FAIL, "is missing"),
    (
        "node-slots",
        lambda: _node(slots=UNLIMITED_SLOTS, allocatable={NAMES.memory: "0"}),
        FAIL,
        "allocatable aliyun.com/gpu-mem is 0",
    ),
    ("cards-healthy", lambda: _node(cards=(16000, card(1, memory=16000, healthy=False))), WARN, "n1 card 1"),
    ("unit", lambda: _node(unit="GiB"), FAIL, "n1: GiB"),
    ("unit", lambda: _told(Told(resource="x/y", unit="MiB")), FAIL, "--resource x/y"),
    ("unit", lambda: _told(HIDDEN), SKIP, "nodes count MiB"),
    (
        "unit",
        lambda: replace(_told(HIDDEN), nodes=(node("n1"), node("n2", unit="GiB"))),
        FAIL,
        "GiB and MiB",
    ),
    ("rival-plugins", lambda: _node(capacity={"nvidia.com/gpu": "2"}), FAIL, "n1: nvidia.com/gpu 2"),
    (
        "rival-plugins",
        lambda: _node(capacity={"nvidia.com/mig-1g.5gb.shared": "7"}),
        FAIL,
        "mig-1g.5gb.shared 7",
    ),
    ("nodes-closed", lambda: _pods(pod("x", on="n1")), FAIL, "default/x has no card allocation"),
    ("nodes-closed", lambda: _node(annotations={NAMES.cards: "{"}), FAIL, "unreadable GPU cards"),
    (
        "cards-overcommitted",
        lambda: _pods(*(pod(name, on="n1", cards=[0], memory=9000) for name in "ab")),
        FAIL,
        "n1 card 0: 18000 of 16000 MiB (default/a, default/b)",
    ),
    ("cards-missing", lambda: _pods(pod("x", on="n1", cards=[5])), WARN, "default/x on n1: card 5"),
    ("pods-scheduler", lambda: _pods(pod("w", scheduler="default-scheduler")), FAIL, "default-scheduler"),
    (
        "pods-scheduler",
        lambda: external(pods=(pod("w", scheduler="default-scheduler"),)),
        WARN,
        "default-scheduler",
    ),
    ("pods-without-card", lambda: _pods(pod("x", on="n1")), FAIL, "manifest names the node"),
    (
        "pods-without-card",
        lambda: _pods(pod("x", on="n1", scheduler="default-scheduler")),
        FAIL,
        "default/x on n1: bound by default-scheduler, which does not ask the extender",
    ),
    (
        "pods-unreadable",
        lambda: _pods(pod("x", on="n1", annotations={NAMES.index: "abc"})),
        FAIL,
        "default/x on n1",
    ),
    ("pods-waiting-for-room", lambda: _pods(pod("w", scheduled=UNSCHEDULABLE)), WARN, "Insufficient"),
    ("pods-waiting-for-kubelet", lambda: _pods(pod("x", on="n1", cards=[0])), WARN, "default/x on n1: for"),
    (
        "pods-refused-by-kubelet",
        lambda: _pods(
            pod("x", on="n1", phase="Failed", reason="UnexpectedAdmissionError", message="no\npod waits")
        ),
        WARN,
        "default/x on n1: no pod waits",
    ),
    ("versions", lambda: _extender(replicas=(replica(version="9.9.9"),)), WARN, "s-0: 9.9.9"),
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
    ("versions", lambda: _extender(replicas=()), SKIP, "not to be seen"),
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


def _extender(**changes: object) -> Cluster:
    return broken(extender=replace(healthy().extender, **changes))  # type: ignore[arg-type]


def _told(told: Told | Unseen) -> Cluster:
    return _extender(told=told)


def _config(*changes: tuple[str, str]) -> Cluster:
    return broken(config=snapshot.config(*changes))


def _pods(*pods: object) -> Cluster:
    return broken(pods=pods)


def _node(**options: object) -> Cluster:
    return broken(nodes=(node("n1", **options), node("n2")))  # type: ignore[arg-type]


@pytest.mark.parametrize("check", [each.name for each in CHECKS])
def test_a_cluster_in_which_all_is_well_passes(check: str) -> None:
    found = verdict(check, healthy())
    assert found.status is OK, found
    assert not found.remedy
    assert not found.objects


@pytest.mark.parametrize("check", [each.name for each in CHECKS if each.name != "scheduler-config"])
def test_so_does_one_whose_control_plane_asks_the_extender(check: str) -> None:
    expected = SKIP if check == "scheduler-version" else OK  # it is not ours, and kubeadm's to keep
    assert verdict(check, external()).status is expected


@pytest.mark.parametrize(
    ("check", "cluster", "status", "said"),
    FAULTS,
    ids=[f"{check}-{status}-{index}" for index, (check, _, status, _) in enumerate(FAULTS)],
)
def test_a_fault_is_said_with_what_to_do(
    check: str, cluster: Callable[[], Cluster], status: Status, said: str
) -> None:
    found = verdict(check, cluster())
    assert found.status is status, found
    assert said in "\n".join([found.message, found.remedy, *found.objects])
    assert found.remedy or status is SKIP


def test_every_check_has_been_seen_to_complain() -> None:
    assert {check for check, _, status, _ in FAULTS if status in (FAIL, WARN)} == {
        each.name for each in CHECKS
    }


def test_names_are_told_apart() -> None:
    names = [each.name for each in CHECKS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "part",
    ["nodes", "pods", "parts", "deployments", "daemonsets", "config", "lease", "rules", "asks", "asks_bytes"],
)
def test_what_may_not_be_read_is_skipped_and_the_right_named(part: str) -> None:
    cluster = broken(**{part: HIDDEN})
    found = {each.name: each.run(cluster).verdict for each in CHECKS}
    unlike = {name: each for name, each in found.items() if each.status is not OK}
    assert unlike
    for name, each in unlike.items():
        assert each.status is SKIP, (name, each)
        assert HIDDEN.why in each.message or "see plugin-running" in each.message, (name, each)


def test_with_nothing_to_be_seen_everything_but_the_version_is_skipped() -> None:
    hidden = {field.name: HIDDEN for field in fields(Cluster) if field.name not in _KNOWN}
    cluster = broken(**hidden, extender=replace(healthy().extender, reached=HIDDEN, told=HIDDEN, replicas=()))
    statuses = {each.name: each.run(cluster).verdict.status for each in CHECKS}
    assert statuses.pop("kubernetes-version") is OK
    assert set(statuses.values()) == {SKIP}


_KNOWN = {"names", "namespace", "scheduler_name", "now", "version", "extender"}


class TestFine:
    """What looks odd and is right."""

    def test_units_mode_adds_no_slot_and_needs_no_admission(self) -> None:
        cluster = broken(nodes=UNIT_NODES, asks=snapshot.admitted(slots=None), rules=())
        assert verdict("admission-slot", cluster).status is OK
        assert verdict("admission-installed", cluster).status is OK
        assert verdict("node-slots", cluster).status is OK

    def test_webhooks_are_admission_too(self) -> None:
        assert "webhook" in verdict("admission-installed", broken(rules=snapshot.rules("webhook"))).message

    def test_a_pod_that_has_just_come_is_given_time(self) -> None:
        assert verdict("extender-called", _pods(pod("w", created="2026-01-01T11:59:30Z"))).status is OK

    def test_a_pod_with_a_scheduling_gate_waits_for_somebody_else(self) -> None:
        gated = ("False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
        assert verdict("extender-called", _pods(pod("w", scheduled=gated))).status is OK

    def test_pods_that_wait_for_room_do_not_make_the_extender_uncalled(self) -> None:
        found = verdict("extender-called", _pods(pod("w", scheduled=UNSCHEDULABLE)))
        assert (found.status, found.message) == (OK, "14 filter calls so far; 1 pod waiting")

    def test_capacity_counts_what_is_booked_on_a_card_that_is_not_healthy(self) -> None:
        sick = (16000, card(1, memory=16000, healthy=False))
        assert verdict("node-capacity", _node(cards=sick, capacity={NAMES.memory: "20000"})).status is OK

    def test_slots_of_a_node_without_a_healthy_card_are_no_second_fault(self) -> None:
        sick = tuple(card(index, memory=16000, healthy=False) for index in (0, 1))
        cluster = _node(cards=sick, allocatable={NAMES.slot: "0"})
        assert verdict("node-slots", cluster).status is OK

    def test_nodes_of_the_classic_plugin_are_served(self) -> None:
        old = node("old", classic=True, cards=(16000, 16001), labels={})
        cluster = broken(nodes=(node("n1"), node("n2"), old))
        for check in ("node-cards", "node-capacity", "node-slots", "unit", "plugin-on-nodes"):
            assert verdict(check, cluster).status is OK, check

    def test_a_scheduler_one_minor_version_older_is_supported(self) -> None:
        assert verdict("scheduler-version", broken(version="v1.37.0-gke.1")).status is OK

    def test_a_pod_taken_up_by_kubelet_does_not_wait_for_it(self) -> None:
        taken = pod("x", on="n1", cards=[0], annotations={NAMES.assigned: "true"})
        assert verdict("pods-waiting-for-kubelet", _pods(taken)).status is OK

    def test_a_pod_of_zero_units_needs_no_card(self) -> None:
        assert verdict("pods-without-card", _pods(pod("x", on="n1", memory=0))).status is OK

    def test_the_classic_extender_alone_is_no_second_device_plugin(self) -> None:
        apart = snapshot.classic("gpushare-device-plugin-ds", image="x", selector={"gpushare": "old"})
        cluster = broken(daemonsets=(snapshot.daemonset(), apart))
        assert verdict("classic-components", cluster).status is WARN


def test_thousands_of_objects_are_a_list_in_the_value() -> None:
    nodes = tuple(node(f"n{index}", capacity={"nvidia.com/gpu": "1"}) for index in range(2000))
    assert len(verdict("rival-plugins", broken(nodes=nodes)).objects) == 2000


def test_the_snapshot_reads_what_the_api_server_writes() -> None:
    assert isinstance(snapshot.admitted(), Admitted)
    assert decoded(type(snapshot.lease()), {"spec": None} | {"spec": {}}).spec.renew_time is None
