"""What the plugin keeps on its node object, whatever happens to it."""

import json

import pytest

from gpushare.cards import decode_cards
from gpushare.quantities import parse_units
from kubeapi.client import MERGE_PATCH
from sandbox.apiserver import Rule
from tests.deviceplugin.cluster import AGENT, Cluster, until
from tests.deviceplugin.pods import NAMES, NODE

WRITES = Rule(action="delay", seconds=0, method="PATCH", path="/nodes/", client=AGENT)


def published(one_node: Cluster) -> tuple[str | None, int, int]:
    """The annotation, memory and count."""
    node = one_node.node_object()
    capacity = node["status"]["capacity"]
    return (
        node["metadata"].get("annotations", {}).get(NAMES.cards),
        parse_units(str(capacity.get(NAMES.memory, 0))),
        parse_units(str(capacity.get(NAMES.count, 0))),
    )


async def patch(one_node: Cluster, body: object, *, path: str = "") -> None:
    answer = await one_node.api.request(
        "PATCH", f"/api/v1/nodes/{NODE}{path}", body=body, content_type=MERGE_PATCH
    )
    answer.checked()


async def restored(one_node: Cluster, *, was: tuple[str | None, int, int]) -> None:
    await until(lambda: published(one_node) == was, what=lambda: published(one_node))


async def test_cards_and_capacities_are_published(one_node: Cluster) -> None:
    async with one_node.plugin():
        text, memory, count = published(one_node)
    assert text is not None
    assert decode_cards(text).cards == one_node.cards
    assert json.loads(text) | {"cards": []} == {"unit": "MiB", "slots": 4, "cards": []}
    assert (memory, count) == (24000, 2)


async def test_nothing_is_written_when_nothing_differs(one_node: Cluster) -> None:
    async with one_node.plugin():
        pass
    writes = one_node.server.faults.add(WRITES)
    async with one_node.plugin():
        pass
    assert writes.hits == 0


async def test_N10_a_node_that_registers_anew_gets_both_back(one_node: Cluster) -> None:
    async with one_node.plugin():
        was = published(one_node)
        await one_node.node.reregister()
        await restored(one_node, was=was)


async def test_N10_a_node_that_is_made_anew_gets_both_back(one_node: Cluster) -> None:
    async with one_node.plugin():
        was = published(one_node)
        await one_node.node.reregister(recreate=True)
        await restored(one_node, was=was)


async def test_N10_what_somebody_else_writes_is_overwritten(one_node: Cluster) -> None:
    async with one_node.plugin():
        was = published(one_node)
        await patch(one_node, {"metadata": {"annotations": {NAMES.cards: "{}"}}})
        await restored(one_node, was=was)
        await patch(one_node, {"status": {"capacity": {NAMES.memory: "1M"}}}, path="/status")
        await restored(one_node, was=was)


async def test_N10_only_what_is_lost_is_written(one_node: Cluster) -> None:
    async with one_node.plugin():
        was = published(one_node)
        writes = one_node.server.faults.add(WRITES)
        await patch(one_node, {"status": {"capacity": {NAMES.count: None}}}, path="/status")
        await restored(one_node, was=was)
    assert writes.hits == 1


async def test_cards_that_change_are_published(one_node: Cluster) -> None:
    async with one_node.plugin():
        one_node.write_cards({"uuid": "GPU-0", "memory": 16000})
        await until(lambda: published(one_node)[1:] == (16000, 1), what=lambda: published(one_node))


async def test_a_refused_write_is_tried_again(one_node: Cluster) -> None:
    one_node.server.faults.add(
        Rule(action="answer", status=500, method="PATCH", path="/nodes/", client=AGENT, count=2)
    )
    async with one_node.plugin():
        assert published(one_node)[1:] == (24000, 2)


async def test_a_node_that_does_not_exist_is_said_and_waited_for(
    one_node: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    (await one_node.api.request("DELETE", f"/api/v1/nodes/{NODE}")).checked()
    async with one_node.plugin(ready=False) as plugin:
        await until(lambda: "no such node; check --node-name" in caplog.text, what=plugin.problems)
        assert "node: node n1 is not known to the API server" in plugin.problems()
        await one_node.node.restart()
        await until(lambda: not plugin.problems(), what=plugin.problems)


async def test_a_node_that_is_deleted_is_said(one_node: Cluster) -> None:
    async with one_node.plugin() as plugin:
        (await one_node.api.request("DELETE", f"/api/v1/nodes/{NODE}")).checked()
        await until(
            lambda: plugin.problems() == ("node: node n1 is not known to the API server",),
            what=plugin.problems,
        )


async def test_without_an_api_server_kubelet_gets_its_slots_all_the_same(one_node: Cluster) -> None:
    fault = one_node.server.faults.add(Rule(action="drop", client=AGENT))
    async with one_node.plugin(ready=False) as plugin:
        await until(lambda: one_node.slots_known() == 8, what=plugin.problems)
        assert any(problem.startswith("pods: API server") for problem in plugin.problems())
        one_node.server.faults.remove(fault.number)
        await until(lambda: not plugin.problems(), what=plugin.problems)
