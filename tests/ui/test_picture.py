"""What readers are told of the nodes, made once for all of them and by one at a time."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender import slices
from extender.nodetexts import NodeTexts
from extender.ui import picture as pictures
from extender.ui.picture import Picture
from gpushare.inspection import InspectedNode, inspect_node
from gpushare.ledger import Ledger
from gpushare.views import NodeView
from tests import build
from tests.build import NAMES


class Scribe:
    """Describes nodes, and remembers which."""

    def __init__(self) -> None:
        self.described: list[str] = []

    def __call__(self, view: NodeView) -> InspectedNode:
        self.described.append(view.name)
        return inspect_node(view)


def cluster_of(*names: str, ledger: Ledger | None = None) -> Ledger:
    ledger = ledger or Ledger(names=NAMES, unit="MiB")
    for name in names:
        ledger.set_node(build.node(name, cards=[8192]))
    return ledger


async def told(picture: Picture) -> list[str]:
    """Names and used units of all nodes that are told."""
    nodes = [
        json.loads(text) for change in [each async for each in picture.changes()] for text in change.nodes
    ]
    return [f"{node['name']} {node['usedGPU']}" for node in nodes]


async def test_a_node_is_written_down_once_for_all_readers() -> None:
    scribe = Scribe()
    ledger, texts = cluster_of("n1", "n2"), NodeTexts(describe=scribe)
    readers = [Picture(ledger, texts=texts) for _ in range(5)]
    for each in await asyncio.gather(*(told(reader) for reader in readers)):
        assert each == ["n1 0", "n2 0"]
    assert scribe.described == ["n1", "n2"]
    ledger.set_pod(build.pod("a", memory=1000, on="n2", cards=[0]))
    for each in await asyncio.gather(*(told(reader) for reader in readers)):
        assert each == ["n2 1000"]
    assert scribe.described == ["n1", "n2", "n2"]


class Watched(Ledger):
    """Counts the looks at its nodes."""

    looks = 0

    def view(self, name: str) -> NodeView:
        self.looks += 1
        return super().view(name)


async def test_readers_go_through_the_nodes_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.0)  # gives way after every node
    monkeypatch.setattr(pictures, "REST", 0.0)
    ledger, texts = Watched(names=NAMES, unit="MiB"), NodeTexts()
    cluster_of("n1", "n2", "n3", ledger=ledger)
    reading = [asyncio.create_task(told(Picture(ledger, texts=texts))) for _ in range(8)]
    most = 0
    while not all(task.done() for task in reading):
        before = ledger.looks
        await asyncio.sleep(0)  # whoever else is ready gets a slice
        most = max(most, ledger.looks - before)
    assert most == 1
    assert ledger.looks == 8 * 3


async def test_a_request_waits_for_one_slice_however_many_turns_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.0)
    monkeypatch.setattr(pictures, "REST", 60.0)  # however slow this machine is
    ledger, texts = Watched(names=NAMES, unit="MiB"), NodeTexts()
    cluster_of("n1", "n2", "n3", ledger=ledger)
    reading = [asyncio.create_task(told(Picture(ledger, texts=texts))) for _ in range(8)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert ledger.looks == 1
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def test_much_is_told_in_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "AT_ONCE", 1)
    ledger = cluster_of("n1", "n2", "n3")
    picture = Picture(ledger, texts=NodeTexts())
    assert [len(change.nodes) async for change in picture.changes()] == [1, 1, 1]
    ledger.remove_node("n1")
    ledger.set_pod(build.pod("a", memory=1000, on="n2", cards=[0]))
    changes = [change async for change in picture.changes()]
    assert [(change.gone, len(change.nodes)) for change in changes] == [(["n1"], 1)]


async def test_nothing_is_made_for_a_reader_who_is_slow() -> None:
    scribe = Scribe()
    ledger = cluster_of("n1")
    picture = Picture(ledger, texts=NodeTexts(describe=scribe))
    assert await told(picture) == ["n1 0"]
    for number in range(100):
        ledger.set_pod(build.pod("a", memory=1000 + number, on="n1", cards=[0], uid="uid-a"))
    assert await told(picture) == ["n1 1099"]
    assert await told(picture) == []
    assert len(scribe.described) == 2


def test_only_so_much_is_kept_the_newest() -> None:
    scribe = Scribe()
    ledger = cluster_of("n1", "n2", "n3")
    size = len(NodeTexts().of(ledger.view("n1")))
    texts = NodeTexts(describe=scribe, most=2 * size)
    for name in ("n1", "n2", "n3", "n2", "n3", "n1"):
        assert json.loads(texts.of(ledger.view(name)))["name"] == name
    assert scribe.described == ["n1", "n2", "n3", "n1"]
    texts.forget()
    texts.of(ledger.view("n1"))
    texts.of(ledger.view("n1"))
    assert scribe.described == ["n1", "n2", "n3", "n1", "n1"]


def test_a_text_larger_than_all_that_is_kept_is_told_all_the_same() -> None:
    texts = NodeTexts(most=1)
    view = cluster_of("n1").view("n1")
    assert (
        json.loads(texts.of(view))
        == json.loads(texts.of(view))
        == inspect_node(view).model_dump(by_alias=True)
    )
