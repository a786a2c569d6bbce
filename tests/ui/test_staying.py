"""What the reader has in hand stays while the cluster changes: focus, selection, what the pointer is over."""

from __future__ import annotations

import pytest

from extender.core import Extender
from gpushare.cards import Card
from tests import build
from tests.ui import fleet
from tests.ui.fleet import page_of, small
from tests.ui.reader import Reader

SELECTED = "() => String(getSelection())"


def comes(extender: Extender, name: str, *, namespace: str, memory: int, on: str) -> None:
    """A pod on the second card of a node of `small`."""
    card = Card(index=1, uuid=f"GPU-{on}-1", memory=8192)
    number = 1000 + len(name) + memory
    extender.ledger.set_pod(
        fleet.pod(name, namespace=namespace, memory=memory, on=on, card=card, number=number)
    )


CHIPS = "[...document.querySelectorAll('.legend .chip')].map((chip) => chip.textContent).join()"


async def test_the_legend_keeps_focus_and_order_until_it_is_left(reader: Reader) -> None:
    extender = small()
    async with page_of(extender) as url:
        page = await reader.open(url)
        assert await page.evaluate(f"() => {CHIPS}") == "search,people,research"
        await page.locator("#only-problems").focus()
        for _ in range(3):
            await page.keyboard.press("Tab")
        assert await reader.focused() == "research"
        comes(extender, "more", namespace="research", memory=6000, on="gamma")
        await reader.pod("research/more").wait_for()
        assert await reader.focused() == "research"
        assert await page.evaluate(f"() => {CHIPS}") == "search,people,research"
        assert "10,096 MiB" in str(await page.locator(".legend .chip").last.get_attribute("title"))
        await page.locator("#search").focus()
        await reader.until(f"{CHIPS} === 'research,search,people'")


async def test_nothing_moves_under_the_pointer(reader: Reader) -> None:
    extender = small()
    async with page_of(extender) as url:
        page = await reader.open(url)
        await page.locator(".legend .chip").first.hover()
        comes(extender, "more", namespace="research", memory=6000, on="gamma")
        await reader.pod("research/more").wait_for()
        assert await page.evaluate(f"() => {CHIPS}") == "search,people,research"
        await page.locator("#search").hover()
        await reader.until(f"{CHIPS} === 'research,search,people'")


@pytest.mark.parametrize("on", ["gamma", "alpha"])
async def test_a_selection_in_the_details_stays(reader: Reader, on: str) -> None:
    """To copy a UUID: a pod that comes elsewhere, or on another card of the node, changes nothing of it."""
    extender = small()
    async with page_of(extender) as url:
        page = await reader.open(url)
        await page.locator('[data-key="card alpha 0"]').click()
        await page.evaluate(
            "() => getSelection().selectAllChildren("
            "[...document.querySelectorAll('#details dd')].find((dd) => dd.textContent === 'GPU-alpha-0'))"
        )
        assert await page.evaluate(SELECTED) == "GPU-alpha-0"
        comes(extender, "more", namespace="research", memory=600, on=on)
        await reader.pod("research/more").wait_for()
        assert await page.evaluate(SELECTED) == "GPU-alpha-0"
        extender.ledger.remove_pod("uid-1")
        await reader.sees("#details", "Allocated 4,096 of 8,192 MiB")
        assert await page.evaluate(SELECTED) == "GPU-alpha-0", "what did change was changed alone"


@pytest.mark.parametrize(("gone", "then"), [("alpha", "beta"), ("gamma", "beta"), ("beta", "gamma")])
async def test_the_focus_goes_to_a_neighbour_of_a_node_that_is_gone(
    reader: Reader, gone: str, then: str
) -> None:
    extender = small()
    async with page_of(extender) as url:
        page = await reader.open(url)
        await page.locator(f'[data-key="card {gone} 1"]').focus()
        extender.ledger.remove_node(gone)
        for uid in range(4):
            extender.ledger.remove_pod(f"uid-{uid}")
        await page.locator(f'[data-node="{gone}"]').wait_for(state="detached")
        await reader.until("document.activeElement.dataset.key")
        assert await reader.focused() == then


async def test_a_selection_in_what_waits_stays(reader: Reader) -> None:
    extender = small()
    for name in ("first", "second"):
        waits = build.pod(name, memory=9000 + len(name))
        extender._state.waiting[waits.metadata.uid] = waits
    async with page_of(extender) as url:
        page = await reader.open(url)
        await reader.sees("#waiting-title", "2 pods wait")
        await page.evaluate(
            "() => getSelection().selectAllChildren(document.querySelector('#waiting .podname'))"
        )
        chosen = await page.evaluate(SELECTED)
        assert chosen.startswith("default/")
        comes(extender, "more", namespace="research", memory=600, on="alpha")
        await reader.pod("research/more").wait_for()
        waits = build.pod("third", memory=9100)
        extender._state.waiting[waits.metadata.uid] = waits
        await reader.sees("#waiting-title", "3 pods wait")
        assert await page.evaluate(SELECTED) == chosen
