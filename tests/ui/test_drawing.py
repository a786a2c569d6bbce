"""What the page draws is true to scale, says what the table says, and fits any window and colours."""

from __future__ import annotations

import re
from typing import Any

import pytest

from extender.core import Extender
from gpushare.cards import Card
from gpushare.inspection import inspect
from inspector.summary import allocated, total
from tests import build
from tests.ui import fleet
from tests.ui.fleet import alike, page_of, quiet_extender, small, tell
from tests.ui.reader import Reader

SHARE = """(key) => {
  const bar = document.querySelector(`[data-key="${key}"]`).parentElement.querySelector(".bar");
  const box = bar.getBoundingClientRect();
  return ([...bar.querySelectorAll(".pod")].at(-1).getBoundingClientRect().right - box.left) / box.width;
}"""
PHONE = {"viewport": {"width": 400, "height": 800}}


def with_pods(*amounts: int, nodes: int = 1, cards: int = 1, namespace: str = "ads") -> Extender:
    """Pods p0, p1 … of these amounts on the first card of n00."""
    extender = quiet_extender()
    for at in range(nodes):
        extender.ledger.set_node(fleet.node(f"n{at:02d}", alike(f"n{at:02d}", cards)))
    for number, memory in enumerate(amounts):
        pod = fleet.pod(
            f"p{number}",
            namespace=namespace,
            memory=memory,
            on="n00",
            card=alike("n00", 1)[0],
            number=number,
        )
        extender.ledger.set_pod(pod)
    return extender


@pytest.mark.parametrize("nodes", [1, 45])
@pytest.mark.parametrize("amounts", [(100,) * 31, (3000, 40) * 4, (8000, 20)], ids=["many", "mixed", "one"])
async def test_pods_take_their_share_of_the_bar(reader: Reader, amounts: tuple[int, ...], nodes: int) -> None:
    booked = sum(amounts) / 16_276
    async with page_of(with_pods(*amounts, nodes=nodes, cards=8)) as url:
        page = await reader.open(url)
        for width in (1280, 820, 400):
            await page.set_viewport_size({"width": width, "height": 700})
            await reader.until(
                f"Math.abs(({SHARE})('card n00 0') - {booked}) < 0.03",
                what=f"{booked:.0%} of the bar at {width} pixels",
                seconds=5,
            )


async def test_bars_are_true_after_the_window_was_resized(reader: Reader) -> None:
    async with page_of(with_pods(*(250,) * 31)) as url:
        page = await reader.open(url)
        assert await page.locator(".bar .pod").count() == 31
        await page.set_viewport_size({"width": 340, "height": 700})
        await reader.until("document.querySelectorAll('.bar .pod').length === 1")
        assert await page.evaluate(SHARE, "card n00 0") == pytest.approx(31 * 250 / 16_276, abs=0.03)
        assert await reader.text(".bar .pod") == "31 small pods"


async def test_pods_too_small_to_point_at_are_one_part_that_names_them_all(reader: Reader) -> None:
    async with page_of(with_pods(9000, *(60,) * 12, nodes=2)) as url:
        page = await reader.open(url)
        await page.locator('[data-key="node n00"]').focus()
        for _ in range(3):
            await page.keyboard.press("ArrowRight")
        assert await reader.focused() == "12 small pods, 720 MiB of card 0"
        details = await reader.text("#details")
        assert "Hold 720 of 16,276 MiB" in details
        for number in range(1, 13):
            assert f"ads/p{number} 60 MiB" in details
        assert "ads/p0 " not in details
        await page.locator("#search").fill("p12")
        await reader.until("document.querySelectorAll('.pod.dim').length === 1")  # p0: the twelve have p12


async def test_a_gap_says_what_is_free_as_long_as_there_is_room(reader: Reader) -> None:
    async with page_of(with_pods(12_207, cards=4)) as url:
        page = await reader.open(url)
        assert await page.locator(".free").first.inner_text() == "4,069"
        await page.set_viewport_size({"width": 2000, "height": 700})
        await reader.until("document.querySelector('.free').innerText === '4,069 free'")


async def test_no_number_in_a_bar_is_cut_off(reader: Reader) -> None:
    extender = quiet_extender()
    tell(extender, fleet.large_fleet(45))
    async with page_of(extender) as url:
        page = await reader.open(url)
        shown, cut = await page.evaluate(
            "() => { const texts = [...document.querySelectorAll('.free span')];"
            " const cut = texts.filter((each) => each.scrollWidth > each.clientWidth);"
            " return [texts.length, cut.map((each) => each.textContent)]; }"
        )
        assert shown > 50
        assert cut == []


async def test_nothing_is_called_free_that_nobody_gets(reader: Reader) -> None:
    extender = with_pods(*(100,) * 32, nodes=2)  # of 32 slots
    extender.ledger.set_pod(build.pod("smuggled", memory=4000, on="n01"))
    async with page_of(extender) as url:
        await reader.open(url)
        assert await reader.text('[data-node="n00"] .free') == "no slots left"
        assert await reader.text('[data-node="n01"] .free') == "not given out"
        assert await reader.text('[data-node="n01"] .problems') != ""


async def test_allocated_is_what_the_table_says(reader: Reader) -> None:
    """S6: what is pending counts, as in the classic tool."""
    extender = small()
    extender.ledger.set_pod(build.pod("lost", memory=2000, on="beta", cards=[7]))
    extender.ledger.set_pod(build.pod("smuggled", memory=3000, on="gamma"))
    told = inspect(extender.ledger)
    assert told is not None
    used, size, share = re.findall(r"\d+", total(told))
    async with page_of(extender) as url:
        page = await reader.open(url)
        assert await reader.text("#percent") == f"{share} %"
        assert await reader.text("#allocated") == (
            f"{int(used):,} of {int(size):,} MiB, 5,000 of it on no known card"
        )
        for node in told.nodes:
            shown = await reader.text(f'[data-node="{node.name}"] .share >> nth=0')
            assert shown == f"{allocated(node) * 100 // node.total_gpu} % of {node.total_gpu:,} MiB"
        assert "3,000 MiB on no known card" in await reader.text('[data-node="gamma"] .about')
        await page.locator('[data-key="node beta"]').hover()
        assert "Allocated 4,048 of 16,384 MiB On no known card 2,000 MiB" in await reader.text("#details")


async def test_details_longer_than_the_window_stay_in_it_and_scroll_by_keyboard(reader: Reader) -> None:
    """WCAG 1.4.10: a window of 1280 x 800 at 200 %."""
    async with page_of(with_pods(*(100,) * 60, nodes=3)) as url:
        page = await reader.open(url, viewport={"width": 640, "height": 400})
        for key in ("card n00 0", "small n00 0", "card n02 0"):
            await page.locator(f'[data-key="{key}"]').focus()
            box = await page.locator("#details").bounding_box()
            assert box is not None
            assert 0 <= box["y"] <= 400 - box["height"], (key, box)
        await page.locator('[data-key="card n00 0"]').press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("() => document.activeElement.id") == "details"
        await page.keyboard.press("End")
        await reader.until("((box) => box.scrollTop > 100)(document.getElementById('details'))")
        await page.keyboard.press("Escape")
        await page.locator("#details").wait_for(state="hidden")
        assert (await reader.focused()).startswith("Card 0 of n00"), "back to where it came from"


async def test_the_focus_is_never_behind_the_search_bar(reader: Reader) -> None:
    """WCAG 2.4.11."""
    extender = quiet_extender()
    tell(extender, fleet.large_fleet(45, cards=4))
    async with page_of(extender) as url:
        page = await reader.open(url, viewport={"width": 1280, "height": 500})
        await page.locator('[data-key="node gpu-0000"]').focus()
        for key in ("ArrowDown",) * 20 + ("ArrowUp",) * 20:
            await page.keyboard.press(key)
            hidden = await page.evaluate(
                "() => { const at = document.activeElement.getBoundingClientRect();"
                " const seen = document.elementFromPoint(at.left + 4, at.top + 1);"
                " return document.activeElement.contains(seen) ? '' : seen?.outerHTML ?? 'outside'; }"
            )
            assert not hidden, (await reader.focused(), hidden[:200])


@pytest.mark.parametrize("width", [400, 320])
async def test_nothing_is_wider_than_a_narrow_window(reader: Reader, width: int) -> None:
    extender = with_pods(4000, namespace="n" * 63)
    long = "ip-10-0-123-45.very-long-region-name-1.compute.internal." + "subdomain." * 12
    extender.ledger.set_node(fleet.node(long, alike(long, 8)))
    extender.ledger.set_pod(build.pod("q" * 200, memory=2000, on=long, cards=[0, 1]))
    async with page_of(extender) as url:
        page = await reader.open(url, viewport={"width": width, "height": 800})
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= width
        await page.locator("#search").fill("n" * 63)
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= width


async def test_a_short_name_is_not_broken_on_a_phone(reader: Reader) -> None:
    extender = quiet_extender()
    extender.ledger.set_node(fleet.node("gpu-a", alike("gpu-a", 2)))
    async with page_of(extender) as url:
        page = await reader.open(url, **PHONE)
        box = await page.locator(".name").bounding_box()
        assert box is not None
        assert box["height"] < 30, "one line"


FORCED = """() => {
  const style = (selector) => getComputedStyle(document.querySelector(selector));
  const edge = (selector) => style(selector).borderTopWidth !== "0px" && style(selector).borderTopStyle;
  return {
    edges: [".over .bar", ".gauge", ".details", ".badge"].map(edge),
    sick: edge(".unhealthy .bar"),
    end: style(".end").backgroundColor !== style("body").backgroundColor,
    gauge: style("#gauge").backgroundColor !== style("body").backgroundColor,
    dot: style(".dot").backgroundColor !== style("body").backgroundColor,
    pressed: style('.chip[aria-pressed="true"]').backgroundColor !== style(".legend .chip").backgroundColor,
  };
}"""


async def test_in_forced_colours_lines_say_what_colours_said(reader: Reader) -> None:
    extender = with_pods(4000)
    sick = [Card(index=0, uuid="GPU-sick", memory=8192, healthy=False, reason="Xid 79")]
    extender.ledger.set_node(fleet.node("sick", sick))
    extender.ledger.set_node(fleet.node("over", alike("over", 1, memory=8192)))
    extender.ledger.set_pod(build.pod("big", memory=10000, on="over", cards=[0]))
    async with page_of(extender) as url:
        page = await reader.open(url, forced_colors="active")
        await page.locator("#only-problems").click()
        found: dict[str, Any] = await page.evaluate(FORCED)
        assert found == {
            "edges": ["solid"] * 4,
            "sick": "dashed",
            "end": True,
            "gauge": True,
            "dot": True,
            "pressed": True,
        }


async def test_few_nodes_are_there_for_a_screen_reader_wherever_they_are(reader: Reader) -> None:
    extender = quiet_extender()
    tell(extender, fleet.large_fleet(30, cards=4))
    async with page_of(extender) as url:
        page = await reader.open(url, viewport={"width": 1280, "height": 400})
        await page.locator("li.node").last.scroll_into_view_if_needed()
        await page.locator("li.node").first.scroll_into_view_if_needed()
        assert await page.locator(".card").count() == 120
        items = page.get_by_role("listitem", name="gpu-0029", exact=True)
        assert await items.count() == 1
