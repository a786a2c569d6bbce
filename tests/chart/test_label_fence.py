"""What the extender may change of pods, by the fence's CEL: one label, of its own pod."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

from tests.chart.policies import Policies
from tests.chart.rendering import Object, render
from tests.chart.test_node_fence import merged

FENCE = "gpushare-label-fence"
CLAIM = "authentication.kubernetes.io/pod-name"
EXTENDER = "system:serviceaccount:gpushare-system:gpushare-extender"
POD: Object = {
    "metadata": {"name": "e-0", "labels": {"app": "x"}, "ownerReferences": [{"name": "r"}]},
    "spec": {"containers": [{"name": "extender", "image": "gpushare:1"}]},
}


@functools.cache
def policies() -> Policies:
    return Policies(render({"scheduler": {"mode": "external"}}))


def refusals(patch: Object, *, pod: str | None = "e-0", user: str = EXTENDER) -> list[str]:
    request: dict[str, Any] = {
        "object": merged(copy.deepcopy(POD), patch),
        "oldObject": POD,
        "request": {
            "operation": "UPDATE",
            "userInfo": {"username": user, "extra": {CLAIM: [pod]} if pod else {}},
        },
    }
    return policies().refusals(request, policy=FENCE)


def labels(**changes: str | None) -> Object:
    return {"metadata": {"labels": changes}}


LEADS = labels(**{"gpushare/leader": "true"})


def test_the_leaders_label_of_its_own_pod_goes_through() -> None:
    assert refusals(LEADS) == []
    assert refusals(labels(**{"gpushare/leader": None})) == []


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (labels(app="y"), "the extender may not change the labels app"),
        (labels(app=None), "the extender may not change the labels app"),
        (labels(team="y"), "the extender may not change the labels team"),
        ({"metadata": {"annotations": {"a": "b"}}}, "the extender may change nothing of its pod but a label"),
        ({"metadata": {"finalizers": ["a/b"]}}, "the extender may change nothing of its pod but a label"),
        ({"metadata": {"ownerReferences": []}}, "the extender may change nothing of its pod but a label"),
        ({"spec": {"containers": []}}, "the extender may change nothing of its pod but a label"),
    ],
)
def test_nothing_else_does(patch: Object, said: str) -> None:
    assert refusals(patch) == [said]


@pytest.mark.parametrize("pod", ["other", None])
def test_other_pods_are_not_the_extenders_to_label(pod: str | None) -> None:
    assert refusals(LEADS, pod=pod) == ["the extender may label its own pod only"]


def test_others_are_not_concerned() -> None:
    assert refusals({"spec": {"containers": []}}, pod=None, user="kubernetes-admin") == []


@pytest.mark.parametrize(
    ("mode", "kubernetes", "there"),
    [("external", "1.30", True), ("external", "1.29", False), ("pair", "1.36", False)],
)
def test_it_is_there_where_the_right_is_and_policies_are(mode: str, kubernetes: str, there: bool) -> None:  # noqa: FBT001
    release = render({"scheduler": {"mode": mode}}, kubernetes=kubernetes)

    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert release.has(kind, FENCE) is there
