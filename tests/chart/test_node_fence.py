"""What the device plugin's account may change, by the fence's CEL: its own node, the pods there, our keys."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

from tests.build import NAMES
from tests.chart.policies import Policies
from tests.chart.rendering import Object, Values, render

FENCE = "gpushare-node-fence"
CLAIM = "authentication.kubernetes.io/node-name"
PLUGIN = "system:serviceaccount:gpushare-system:gpushare-device-plugin"

NODE: Object = {
    "metadata": {"name": "n1", "labels": {"gpushare": "true"}, "annotations": {"a.b/theirs": "x"}},
    "spec": {"podCIDR": "10.0.0.0/24"},
    "status": {
        "capacity": {"cpu": "32", NAMES.slot: "64"},
        "allocatable": {"cpu": "31", NAMES.slot: "64"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
POD: Object = {
    "metadata": {"name": "a", "annotations": {NAMES.index: "1", NAMES.assume_time: "7"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "app:1"}]},
    "status": {"phase": "Running"},
}
WAITING: Object = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}


def noted(**annotations: str | None) -> Object:
    return {"metadata": {"annotations": annotations}}


def note(key: str, value: str | None = "x") -> Object:
    return noted(**{key: value})


def capacity(**amounts: str | None) -> Object:
    return {"status": {"capacity": amounts}}


def merged(target: Any, patch: Any) -> Any:
    """A merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@functools.cache
def slots() -> Policies:
    return Policies(render())


@functools.cache
def units() -> Policies:
    return Policies(render({"devicePlugin": {"mode": "units"}}))


def refusals(
    obj: Object,
    patch: Object,
    *,
    resource: str = "nodes",
    sub: str = "",
    node: str | None = "n1",
    user: str = PLUGIN,
    operation: str = "UPDATE",
    policies: Policies | None = None,
) -> list[str]:
    extra = {CLAIM: [node]} if node else {}
    request = {
        "object": merged(copy.deepcopy(obj), patch),
        "oldObject": obj,
        "request": {
            "operation": operation,
            "resource": {"group": "", "version": "v1", "resource": resource},
            "subResource": sub,
            "userInfo": {"username": user, "extra": extra},
        },
    }
    return (policies or slots()).refusals(request, policy=FENCE)


@pytest.mark.parametrize(
    ("obj", "patch", "where"),
    [
        (NODE, note(NAMES.cards), {}),
        (NODE, {}, {}),
        (NODE, capacity(**{NAMES.memory: "24576", NAMES.count: "2"}), {"sub": "status"}),
        ({"metadata": {"name": "n1"}, "spec": {}}, capacity(**{NAMES.memory: "1"}), {"sub": "status"}),
        (
            NODE,
            {"status": {"capacity": {NAMES.memory: "1"}, "allocatable": {NAMES.memory: "1"}}},
            {"sub": "status"},
        ),
        (POD, note(NAMES.assigned, "true"), {"resource": "pods"}),
        (
            POD,
            noted(
                **{NAMES.index: "0", NAMES.pod_memory: "1", NAMES.card_memory: "2", NAMES.allocation: "{}"}
            ),
            {"resource": "pods"},
        ),
    ],
    ids=["cards", "nothing", "capacity", "first-status", "allocatable-follows", "assigned", "correction"],
)
def test_what_the_plugin_writes_is_let_through(obj: Object, patch: Object, where: dict[str, Any]) -> None:
    assert refusals(obj, patch, **where) == []


@pytest.mark.parametrize(
    ("obj", "patch", "where", "sentence"),
    [
        (NODE, note(NAMES.cards), {"node": "n2"}, "of node n2 may not change node n1"),
        (NODE, capacity(**{NAMES.memory: "1"}), {"node": "n2", "sub": "status"}, "may not change node n1"),
        (NODE, note(NAMES.cards), {"node": None}, "does not say on which node it runs"),
        (NODE, note("a.b/theirs", "y"), {}, "may not change the annotations a.b/theirs"),
        (NODE, note("a.b/theirs", None), {}, "may not change the annotations a.b/theirs"),
        (NODE, note("a.b/more"), {}, "may not change the annotations a.b/more"),
        (NODE, note(NAMES.index), {}, f"may not change the annotations {NAMES.index}"),
        (NODE, {"metadata": {"labels": {"a": "b"}}}, {}, "labels"),
        (NODE, {"metadata": {"labels": None}}, {"sub": "status"}, "labels"),
        (NODE, {"metadata": {"finalizers": ["a.b/c"]}}, {}, "finalizers"),
        (NODE, {"metadata": {"ownerReferences": [{"uid": "u"}]}}, {}, "owners"),
        (NODE, {"spec": {"unschedulable": True}}, {}, "the spec"),
        (NODE, {"spec": {"taints": [{"key": "a"}]}}, {}, "the spec"),
        (NODE, capacity(cpu="64"), {"sub": "status"}, "the amounts of cpu"),
        (NODE, capacity(cpu=None), {"sub": "status"}, "the amounts of cpu"),
        (NODE, capacity(**{NAMES.slot: "640"}), {"sub": "status"}, f"the amounts of {NAMES.slot}"),
        (NODE, {"status": {"allocatable": {"cpu": "32"}}}, {"sub": "status"}, "the amounts of cpu"),
        (NODE, {"status": {"conditions": []}}, {"sub": "status"}, "of a status conditions"),
        (NODE, {"status": {"addresses": [{"address": "::"}]}}, {"sub": "status"}, "of a status addresses"),
        (POD, note(NAMES.assigned), {"resource": "pods", "node": "n2"}, "may not change a pod of node n1"),
        (WAITING, note(NAMES.index), {"resource": "pods"}, "may not change a pod of no node"),
        (POD, note("a.b/c"), {"resource": "pods"}, "annotations a.b/c"),
        (POD, note(NAMES.assume_time), {"resource": "pods"}, NAMES.assume_time),
        (POD, note(NAMES.policy), {"resource": "pods"}, NAMES.policy),
        (POD, {"metadata": {"labels": {"a": "b"}}}, {"resource": "pods"}, "labels"),
        (POD, {"spec": {"activeDeadlineSeconds": 1}}, {"resource": "pods"}, "the spec"),
        (POD, {"status": {"phase": "Failed"}}, {"resource": "pods", "sub": "status"}, "only patches"),
        (POD, {}, {"resource": "pods", "operation": "DELETE"}, "only patches"),
        (POD, {}, {"resource": "pods", "sub": "ephemeralcontainers"}, "only patches"),
    ],
)
def test_nothing_else_is(obj: Object, patch: Object, where: dict[str, Any], sentence: str) -> None:
    told = refusals(obj, patch, **where)
    assert any(sentence in each for each in told), told


def test_in_units_mode_the_memory_is_kubelets() -> None:
    assert refusals(NODE, capacity(**{NAMES.count: "1"}), sub="status", policies=units()) == []
    assert refusals(NODE, capacity(**{NAMES.memory: "1"}), sub="status", policies=units())


def test_nobody_else_is_fenced() -> None:
    kubelet = "system:node:n2"
    assert refusals(NODE, capacity(cpu="64"), sub="status", user=kubelet, node=None) == []


@pytest.mark.parametrize(
    ("values", "kubernetes", "is_there"),
    [
        ({}, "1.36", True),
        ({}, "1.32", True),
        ({}, "1.31", False),
        ({"nodeFence": {"enabled": True}}, "1.30", True),
        ({"nodeFence": {"enabled": False}}, "1.36", False),
        ({"devicePlugin": {"enabled": False}}, "1.36", False),
    ],
)
def test_it_is_there_where_tokens_name_their_node(values: Values, kubernetes: str, is_there: bool) -> None:  # noqa: FBT001
    assert render(values, kubernetes=kubernetes).has("ValidatingAdmissionPolicy", FENCE) is is_there
