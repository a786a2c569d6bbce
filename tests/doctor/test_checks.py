"""Every check: right where all is well, and seen to fail where something is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from doctor.checks import CHECKS
from doctor.cluster import Admitted, Cluster
from doctor.findings import Status
from tests.build import NAMES, card
from tests.doctor import snapshot
from tests.doctor.faults import (
    FAIL,
    FAULTS,
    HIDDEN,
    OK,
    SKIP,
    UNIT_NODES,
    UNSCHEDULABLE,
    WARN,
    with_node,
    with_pods,
)
from tests.doctor.snapshot import broken, decoded, external, healthy, node, pod, verdict


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
    [
        *("nodes", "pods", "parts", "deployments", "daemonsets", "config", "lease", "rules", "asks"),
        *("asks_bytes", "refused"),
    ],
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


_KNOWN = {"names", "namespace", "probe_namespace", "scheduler_name", "now", "version", "extender"}


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
        assert verdict("extender-called", with_pods(pod("w", created="2026-01-01T11:59:30Z"))).status is OK

    def test_a_pod_with_a_scheduling_gate_waits_for_somebody_else(self) -> None:
        gated = ("False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
        assert verdict("extender-called", with_pods(pod("w", scheduled=gated))).status is OK

    def test_pods_that_wait_for_room_do_not_make_the_extender_uncalled(self) -> None:
        found = verdict("extender-called", with_pods(pod("w", scheduled=UNSCHEDULABLE)))
        assert (found.status, found.message) == (OK, "14 filter calls so far; 1 pod waiting")

    def test_capacity_counts_what_is_booked_on_a_card_that_is_not_healthy(self) -> None:
        sick = (16000, card(1, memory=16000, healthy=False))
        assert verdict("node-capacity", with_node(cards=sick, capacity={NAMES.memory: "20000"})).status is OK

    def test_slots_of_a_node_without_a_healthy_card_are_no_second_fault(self) -> None:
        sick = tuple(card(index, memory=16000, healthy=False) for index in (0, 1))
        cluster = with_node(cards=sick, allocatable={NAMES.slot: "0"})
        assert verdict("node-slots", cluster).status is OK

    def test_a_refusal_of_long_ago_was_put_right_since(self) -> None:
        old = snapshot.refusal(at="2026-01-01T11:20:00Z")
        assert verdict("workloads-refused", broken(refused=(old,))).status is OK

    def test_of_all_refusals_of_one_workload_the_last_is_told(self) -> None:
        events = (snapshot.refusal(at="2026-01-01T11:59:00Z"), snapshot.refusal(at="2026-01-01T11:50:00Z"))
        (said,) = verdict("workloads-refused", broken(refused=events)).objects
        assert "1 min ago" in said

    def test_the_device_plugins_own_refusals_are_told_once(self) -> None:
        own = snapshot.refusal("DaemonSet gpushare-system/gpushare-device-plugin")
        assert verdict("workloads-refused", broken(refused=(own,))).status is OK

    def test_pods_without_the_plugins_runtime_class_are_no_fault_and_said(self) -> None:
        said = verdict("plugin-running", healthy()).message
        assert "1 pod with a card and no runtimeClassName" in said
        assert "runtimeClassName" not in verdict("plugin-running", broken(pods=())).message

    def test_nodes_of_the_classic_plugin_are_served(self) -> None:
        old = node("old", classic=True, cards=(16000, 16001), labels={})
        cluster = broken(nodes=(node("n1"), node("n2"), old))
        for check in ("node-cards", "node-capacity", "node-slots", "unit", "plugin-on-nodes"):
            assert verdict(check, cluster).status is OK, check

    def test_a_scheduler_one_minor_version_older_is_supported(self) -> None:
        assert verdict("scheduler-version", broken(version="v1.37.0-gke.1")).status is OK

    def test_a_pod_taken_up_by_kubelet_does_not_wait_for_it(self) -> None:
        taken = pod("x", on="n1", cards=[0], annotations={NAMES.assigned: "true"})
        assert verdict("pods-waiting-for-kubelet", with_pods(taken)).status is OK

    def test_a_pod_of_zero_units_needs_no_card(self) -> None:
        assert verdict("pods-without-card", with_pods(pod("x", on="n1", memory=0))).status is OK

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
