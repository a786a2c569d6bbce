"""What the device plugin's token is good for: its own node and the pods there, and only our keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.build import NAMES
from tests.e2e.api import Api
from tests.e2e.controlplane import ControlPlane
from tests.e2e.installation import Installation
from tests.e2e.programs import eventually
from tests.e2e.workload import add_node, pod

NODE = "/api/v1/nodes/{}"
POD = "/api/v1/namespaces/default/pods/{}"
ACCOUNT = "gpushare-device-plugin"


@pytest.fixture(scope="module")
def agent(plane: ControlPlane, installation: Installation) -> Iterator[Api]:
    """The API server as the device plugin of `own` sees it; there is a node `other` too."""
    for name in ("own", "other"):
        add_node(plane.api, name, cards=[8000])
        item = pod(f"on-{name}", annotations={"theirs": "x"}, nodeName=name)
        plane.api.create(item)
    api = installation.api(ACCOUNT, pod=installation.agent_pod("own"))
    eventually(
        lambda: not api.try_merge(NODE.format("other"), noted(NAMES.cards)).is_success,
        what="the fence is in force",
    )
    yield api
    api.close()
    plane.api.clear_pods()
    plane.api.delete("/api/v1/nodes")


def noted(key: str, value: str | None = "{}") -> dict[str, Any]:
    return {"metadata": {"annotations": {key: value}}}


def labelled(key: str) -> dict[str, Any]:
    return {"metadata": {"labels": {key: "x"}}}


def amount(resource: str, units: str = "8000") -> dict[str, Any]:
    return {"status": {"capacity": {resource: units}}}


ALLOWED = {
    "cards-on-the-node": (NODE.format("own"), noted(NAMES.cards)),
    "memory": (NODE.format("own") + "/status", amount(NAMES.memory)),
    "count": (NODE.format("own") + "/status", amount(NAMES.count, "1")),
    "assigned-on-a-pod-there": (POD.format("on-own"), noted(NAMES.assigned, "true")),
    "index-on-a-pod-there": (POD.format("on-own"), noted(NAMES.index, "0")),
    "allocation-on-a-pod-there": (POD.format("on-own"), noted(NAMES.allocation)),
}

REFUSED = {
    "another-node": (NODE.format("other"), noted(NAMES.cards)),
    "another-nodes-amounts": (NODE.format("other") + "/status", amount(NAMES.memory)),
    "another-nodes-pod": (POD.format("on-other"), noted(NAMES.assigned, "true")),
    "a-foreign-annotation-of-the-node": (NODE.format("own"), noted("theirs")),
    "a-foreign-annotation-of-a-pod": (POD.format("on-own"), noted("theirs", "y")),
    "taking-a-foreign-annotation-away": (POD.format("on-own"), noted("theirs", None)),
    "a-label-of-the-node": (NODE.format("own"), labelled("node-role.kubernetes.io/control-plane")),
    "a-label-of-a-pod": (POD.format("on-own"), labelled("app")),
    "cordoning-the-node": (NODE.format("own"), {"spec": {"unschedulable": True}}),
    "other-amounts": (NODE.format("own") + "/status", amount("cpu", "64")),
    "conditions": (NODE.format("own") + "/status", {"status": {"conditions": []}}),
    "a-pods-image": (POD.format("on-own"), {"spec": {"activeDeadlineSeconds": 5}}),
    "a-pods-finalizers": (POD.format("on-own"), {"metadata": {"finalizers": ["example.com/x"]}}),
}


@pytest.mark.parametrize(("path", "patch"), ALLOWED.values(), ids=ALLOWED)
def test_its_own_work_is_allowed(agent: Api, path: str, patch: dict[str, Any]) -> None:
    answer = agent.try_merge(path, patch)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("path", "patch"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused(agent: Api, path: str, patch: dict[str, Any]) -> None:
    answer = agent.try_merge(path, patch)
    assert answer.status_code == 422, answer.text
    assert "gpushare-node-fence" in answer.json()["message"]


def test_a_token_that_names_no_node_changes_nothing(agent: Api, installation: Installation) -> None:
    api = installation.api(ACCOUNT)
    answer = api.try_merge(NODE.format("own"), noted(NAMES.cards))
    api.close()
    assert answer.status_code == 422
    assert "does not say on which node it runs" in answer.json()["message"]
