"""A node where somebody else hands out the same cards."""

from collections.abc import Mapping

import pytest

from deviceplugin.rivals import REASON, Rivals
from gpushare.objects import Node, NodeStatus, ObjectMeta
from gpushare.rivals import rivals_of
from kubeapi.client import MERGE_PATCH
from kubeapi.events import ObjectRef, Severity
from tests.deviceplugin.cluster import Cluster, until
from tests.deviceplugin.pods import NODE


def node(capacity: Mapping[str, str]) -> Node:
    return Node(metadata=ObjectMeta(name="n1"), status=NodeStatus(capacity=dict(capacity)))


class Notes:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def record(self, about: ObjectRef, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        assert (about.kind, about.name, reason, severity) == ("Node", "n1", REASON, "Warning")
        self.messages.append(message)


@pytest.mark.parametrize(
    ("capacity", "found"),
    [
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": 8}),
        ({"nvidia.com/gpu.shared": "32"}, {"nvidia.com/gpu.shared": 32}),
        ({"nvidia.com/mig-1g.10gb": "7"}, {"nvidia.com/mig-1g.10gb": 7}),
        ({"nvidia.com/gpu": "0"}, {}),
        ({"nvidia.com/gpu": "many"}, {}),
        ({"nvidia.com/gpu.count": "8", "aliyun.com/gpu-mem": "8", "cpu": "8"}, {}),
    ],
)
def test_others_are_known_by_nvidias_resources(capacity: dict[str, str], found: dict[str, int]) -> None:
    assert rivals_of(node(capacity)) == found


def test_it_is_said_once_and_again_when_it_changes() -> None:
    notes = Notes()
    rivals = Rivals(events=notes)
    for capacity in ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}, {}, {"nvidia.com/gpu": "8"}):
        rivals.look(node(capacity))
    assert len(notes.messages) == 2
    assert "also announces nvidia.com/gpu: 8" in notes.messages[0]


async def test_the_node_gets_a_warning_and_the_metrics_a_series(one_node: Cluster) -> None:
    async def announce(count: str | None) -> None:
        body = {"status": {"capacity": {"nvidia.com/gpu": count}}}
        path = f"/api/v1/nodes/{NODE}/status"
        answer = await one_node.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        answer.checked()

    series = f'gpushare_plugin_rival_devices{{node="{NODE}",resource="nvidia.com/gpu"}} 2.0'
    async with one_node.plugin() as plugin:
        assert series not in (await plugin.metrics()).decode()
        await announce("2")
        await until(lambda: bool(one_node.server.objects("events")), what=lambda: plugin.rivals.seen)
        (event,) = one_node.server.objects("events")
        assert (event["reason"], event["type"], event["involvedObject"]["name"]) == (REASON, "Warning", NODE)
        assert "nvidia.com/gpu: 2" in event["message"]
        assert series in (await plugin.metrics()).decode()
        await announce(None)
        await until(lambda: not plugin.rivals.seen, what=lambda: plugin.rivals.seen)
