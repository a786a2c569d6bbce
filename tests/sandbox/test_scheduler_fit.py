"""kube-scheduler's own checks of a node, and its words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sandbox.scheduler.fit import refusal_text, requests_of, why_not
from sandbox.scheduler.objects import Node, Pod

R = "aliyun.com/gpu-mem"


def pod(*containers: str, init: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    """A pod whose containers ask for these amounts of R."""
    spec |= {"containers": [asking(amount) for amount in containers], "initContainers": list(init)}
    return msgspec.convert({"metadata": {"name": "a", "namespace": "default"}, "spec": spec}, Pod)


def asking(amount: str, **fields: Any) -> dict[str, Any]:
    return {"resources": {"requests": {R: amount}}} | fields


def node(name: str = "n1", *, allocatable: dict[str, str] | None = None, **spec: Any) -> Node:
    status = {"allocatable": {"pods": "110", R: "10k"} | (allocatable or {})}
    labels = {"kubernetes.io/hostname": name}
    return msgspec.convert(
        {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}, Node
    )


ALWAYS = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("asked", "peak"),
    [
        (pod("4000", init=(asking("3000"),)), 4000),
        (pod("3000", init=(asking("4000"),)), 4000),
        (pod("3000", init=(asking("1k", **ALWAYS),)), 4000),
        (pod("3000", init=(asking("1k", **ALWAYS), asking("5k"))), 6000),
        (pod("3000", init=(asking("5k"), asking("1k", **ALWAYS))), 5000),
        (pod("1k", "2k"), 3000),
    ],
)
def test_L15_a_pod_asks_for_its_peak(asked: Pod, peak: int) -> None:
    assert requests_of(asked)[R] == peak


def test_a_node_is_full_by_its_totals() -> None:
    residents = [pod("6000")]
    assert why_not(pod("4000"), node=node(), residents=residents) == []
    assert why_not(pod("4001"), node=node(), residents=residents) == [f"Insufficient {R}"]


def test_V12_zero_of_a_resource_fits_where_there_is_none() -> None:
    assert why_not(pod("0"), node=node(allocatable={R: "0"}), residents=[pod("1")]) == []


def test_every_missing_resource_is_named() -> None:
    greedy = msgspec.convert(
        {"metadata": {}, "spec": {"containers": [{"resources": {"requests": {"cpu": "2500m", R: "20k"}}}]}},
        Pod,
    )
    small = node(allocatable={"cpu": "2", "pods": "0"})
    assert set(why_not(greedy, node=small, residents=())) == {
        "Too many pods",
        "Insufficient cpu",
        f"Insufficient {R}",
    }


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        (node(unschedulable=True), "node(s) were unschedulable"),
        (
            node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
            "node(s) had untolerated taint(s)",
        ),
        (node("other"), "node(s) didn't match Pod's node affinity/selector"),
    ],
)
def test_cordon_taint_and_selector_keep_a_pod_away(on: Node, reason: str) -> None:
    asked = pod("1", nodeSelector={"kubernetes.io/hostname": "n1"})
    assert why_not(asked, node=on, residents=()) == [reason]


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "k", "operator": "Exists"},
        {"key": "k", "value": "v"},
        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
    ],
)
def test_a_toleration_lets_a_pod_in(toleration: dict[str, str]) -> None:
    tainted = node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    assert why_not(pod("1", tolerations=[toleration]), node=tainted, residents=()) == []


def test_equal_reasons_are_counted_and_sorted() -> None:
    reasons = [["b"], ["Insufficient x", "a"], ["b"]]
    assert refusal_text(nodes=3, reasons=reasons) == "0/3 nodes are available: 1 Insufficient x, 1 a, 2 b."
    assert refusal_text(nodes=0, reasons=[]) == "no nodes available to schedule pods"
