"""A node whose cards fail and recover: what kubelet, the node object and running pods see of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from deviceplugin.nvmlcards import NvmlCards
from deviceplugin.sharing import Sharing
from gpushare.cards import NodeCards, decode_cards
from gpushare.quantities import parse_units
from sandbox.apiserver import Rule
from tests.deviceplugin.cluster import AGENT, Cluster, until
from tests.deviceplugin.nvml.board import LOST, Board
from tests.deviceplugin.nvml.following import Clock
from tests.deviceplugin.pods import NAMES, C

SLOTS = 4


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node with two cards behind NVML, and its plugin."""

    cluster: Cluster
    board: Board
    clock: Clock

    def cards(self) -> NodeCards:
        """What the node's annotation says."""
        return decode_cards(self.cluster.node_object()["metadata"]["annotations"][NAMES.cards])

    def health(self) -> dict[int, str]:
        """Of each card: why it is not healthy."""
        return {card.index: card.reason for card in self.cards().cards}

    def memory(self) -> int:
        """The node's capacity."""
        return parse_units(str(self.cluster.node_object()["status"]["capacity"][NAMES.memory]))

    def lists(self) -> int:
        """How many device lists kubelet got."""
        return len(self.cluster.node.journal.calls("Devices"))

    def healthy_slots(self) -> set[str]:
        """UUIDs that have healthy slots by kubelet's count, which must be all of the card's or none."""
        by_card: dict[str, list[bool]] = {}
        for slot, is_healthy in self.cluster.node.kubelet.devices._health[NAMES.slot].items():
            by_card.setdefault(slot.rpartition("::")[0], []).append(is_healthy)
        assert all(len(slots) == SLOTS and len(set(slots)) == 1 for slots in by_card.values())
        return {uuid for uuid, slots in by_card.items() if all(slots)}

    async def settles(self, *, sick: dict[int, str], memory: int) -> None:
        """Wait until annotation, capacity and kubelet all know."""
        expected = {card.index: sick.get(card.index, "") for card in self.cards().cards}
        well = {card.uuid for card in self.cards().cards if card.index not in sick}

        def now() -> Any:
            return self.health(), self.memory(), self.healthy_slots()

        await until(lambda: now() == (expected, memory, well), what=now)


@pytest_asyncio.fixture
async def node(one_node: Cluster, board: Board) -> AsyncIterator[Node]:
    board.gpu("GPU-0", memory=16000)
    board.gpu("GPU-1", memory=8000)
    clock = Clock()
    source = NvmlCards(sharing=Sharing(), sleep=clock.sleep)
    async with one_node.plugin(source=source, slots=SLOTS) as plugin:
        assert plugin.inventory.cards is not None
        one_node.cards = plugin.inventory.cards.cards
        it = Node(cluster=one_node, board=board, clock=clock)
        await it.settles(sick={}, memory=24000)
        yield it


async def test_N1_a_critical_xid_takes_all_slots_of_its_card_and_an_applications_none(node: Node) -> None:
    lists = node.lists()
    node.board.xid("GPU-1", 31)
    node.board.xid("GPU-0", 79)
    await node.settles(sick={0: "XID 79"}, memory=8000)
    assert node.lists() == lists + 1


async def test_N2_N4_a_card_fails_with_a_pod_on_it_and_recovers(node: Node) -> None:
    await node.cluster.run("a", C(memory=3000), cards=[1])
    lists = node.lists()
    node.board.xid("GPU-1", 79)
    await node.settles(sick={1: "XID 79"}, memory=16000 + 3000)
    assert node.cluster.pod("a")["status"]["phase"] == "Running", "no eviction"
    assert await node.cluster.run("b", C(memory=16000), cards=[0]), "all of the healthy card"
    await node.cluster.bind(await node.cluster.create("c", C(memory=1)), 1)
    assert "not healthy: XID 79" in await node.cluster.refusal("c")
    await node.cluster.delete("c")
    await node.clock.tick(3)
    await node.settles(sick={}, memory=24000)
    assert node.lists() == lists + 2
    assert (await node.cluster.run("d", C(memory=5000), cards=[1]))["main"][
        "NVIDIA_VISIBLE_DEVICES"
    ] == "GPU-1"


async def test_N4_what_a_pod_on_a_failed_card_held_leaves_the_total_with_it(node: Node) -> None:
    await node.cluster.run("a", C(memory=3000), cards=[1])
    node.board.xid("GPU-1", 79)
    await node.settles(sick={1: "XID 79"}, memory=19000)
    await node.cluster.delete("a")
    await node.settles(sick={1: "XID 79"}, memory=16000)


async def test_N4_what_a_pod_holds_of_a_card_that_is_gone_stays_in_the_total(
    one_node: Cluster, board: Board
) -> None:
    """A plugin that starts after a card has left the bus does not know of it; the pod's booking does."""
    board.gpu("GPU-0", memory=16000)
    board.gpu("GPU-1", memory=8000)
    source = NvmlCards(sharing=Sharing(), sleep=Clock().sleep)
    async with one_node.plugin(source=source) as plugin:
        assert plugin.inventory.cards is not None
        one_node.cards = plugin.inventory.cards.cards
        await one_node.run("a", C(memory=3000), cards=[0])
    board.remove("GPU-0")
    source = NvmlCards(sharing=Sharing(), sleep=Clock().sleep)
    async with one_node.plugin(source=source) as plugin:
        node = Node(cluster=one_node, board=board, clock=Clock())
        await until(lambda: node.memory() == 8000 + 3000, what=node.memory)
        assert plugin.inventory.cards is not None
        one_node.cards = plugin.inventory.cards.cards
        given = await one_node.run("b", C(memory=8000), cards=[0])
        assert given["main"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


async def test_N3_a_lost_card_leaves_the_other_as_it_was(node: Node) -> None:
    before = [(card.index, card.uuid, card.memory) for card in node.cards().cards]
    node.board.fail("nvmlDeviceGetHandleByIndex", LOST, uuid="GPU-0")
    await node.clock.tick()
    await node.settles(sick={0: "GPU is lost"}, memory=8000)
    assert [(card.index, card.uuid, card.memory) for card in node.cards().cards] == before
    given = await node.cluster.run("a", C(memory=8000), cards=[1])
    assert given["main"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


def writes(cluster: Cluster, path: str) -> Any:
    """A count, from now on, of the plugin's patches of this path."""
    return cluster.server.faults.add(Rule(action="delay", seconds=0, method="PATCH", path=path, client=AGENT))


async def test_A12_N2_looks_that_find_nothing_new_send_and_write_nothing(node: Node) -> None:
    lists, patches = node.lists(), writes(node.cluster, "/nodes/")
    node.board.gpu("GPU-0", memory=16000, used=9000)
    await node.clock.tick(20)
    node.board.fail("nvmlDeviceGetMemoryInfo", 999, uuid="GPU-1")
    await node.clock.tick(2)
    node.board.mend()
    await node.clock.tick(20)
    assert (node.lists(), patches.hits) == (lists, 0)


async def test_N1_one_change_is_one_list_and_one_write_of_the_node(node: Node) -> None:
    """The capacities are a write of their own: they lie below another path."""
    lists = node.lists()
    capacities = writes(node.cluster, "/nodes/n1/status$")
    patches = writes(node.cluster, "/nodes/n1$")
    node.board.xid("GPU-0", 79)
    await node.settles(sick={0: "XID 79"}, memory=8000)
    await node.clock.tick(2)
    assert node.lists() == lists + 1
    assert (patches.hits, capacities.hits) == (1, 1)


async def test_N11_instances_are_given_to_containers_by_their_uuid(one_node: Cluster, board: Board) -> None:
    board.gpu("GPU-0", memory=16000)
    board.gpu("GPU-1", mig=1)
    board.instance("MIG-a", of="GPU-1", memory=9856, gi=7, ci=0)
    source = NvmlCards(sharing=Sharing(), sleep=Clock().sleep)
    async with one_node.plugin(source=source) as plugin:
        assert plugin.inventory.cards is not None
        one_node.cards = plugin.inventory.cards.cards
        given = await one_node.run("a", C(memory=9856), cards=[1])
        assert given["main"]["NVIDIA_VISIBLE_DEVICES"] == "MIG-a"
        assert given["main"][NAMES.index] == "200"


@pytest.mark.parametrize("exclude", ["1", "GPU-1"])
async def test_N13_excluded_cards_are_neither_announced_nor_counted(
    one_node: Cluster, board: Board, exclude: str
) -> None:
    board.gpu("GPU-0", memory=16000)
    board.gpu("GPU-1", memory=8000)
    source = NvmlCards(sharing=Sharing.parse(node="n1", exclude=exclude), sleep=Clock().sleep)
    async with one_node.plugin(source=source, slots=SLOTS):
        capacity = one_node.node_object()["status"]["capacity"]
        assert parse_units(str(capacity[NAMES.memory])) == 16000
        assert parse_units(str(capacity[NAMES.count])) == 1
        assert one_node.slots_known() == SLOTS
