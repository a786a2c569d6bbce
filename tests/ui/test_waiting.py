"""The list of what waits: what is listed, counted, searched and put together."""

from __future__ import annotations

from extender.core import Extender
from extender.ui.picture import MOST_WAITING
from gpushare.objects import ObjectMeta, Pod, PodSpec
from tests.build import container
from tests.ui.fleet import page_of, small
from tests.ui.reader import Reader


def waits(extender: Extender, name: str, *, namespace: str = "research", memory: int = 9000) -> None:
    """A pod that no node of `small` takes, younger than those before it."""
    number = len(extender._state.waiting)
    at = f"2026-06-01T{number // 60:02d}:{number % 60:02d}:00Z"
    meta = ObjectMeta(name=name, namespace=namespace, uid=f"waits-{number}", creation_timestamp=at)
    spec = PodSpec(containers=(container("main", memory=memory, slots=1),))
    extender._state.waiting[meta.uid] = Pod(metadata=meta, spec=spec)


async def test_a_search_wants_every_word_of_a_waiting_pod_too_and_says_of_how_many(reader: Reader) -> None:
    extender = small()
    for number in range(3):
        waits(extender, f"train-{number}", memory=9000 + number)
        waits(extender, f"tune-{number}", memory=9000 + number, namespace="people")
    async with page_of(extender) as url:
        page = await reader.open(url)
        await reader.sees("#waiting-title", "6 pods wait")
        for words, count in {"train": 3, "people/ tune-1": 1, "research/ tune": 0, "-2": 2}.items():
            await page.locator("#search").fill(words)
            await reader.sees("#waiting-title", f"{count} of 6 waiting pods")
            assert await page.locator("#waiting .podname").count() == count
        assert await reader.text("#waiting-cut") == ""


async def test_pods_that_ask_for_the_same_stand_together(reader: Reader) -> None:
    extender = small()
    for number in range(12):
        waits(extender, f"worker-{number}")
    waits(extender, "other", memory=9500)
    waits(extender, "theirs", namespace="people")
    async with page_of(extender) as url:
        page = await reader.open(url)
        await reader.sees("#waiting-title", "14 pods wait")
        assert await page.locator("#waiting li").count() == 3
        first = await reader.text("#waiting li:first-child")
        assert first.startswith(
            "research/worker-0 research/worker-1 research/worker-2 and 9 more like these 9,000 MiB each"
        )
        await page.get_by_role("button", name="and 9 more like these").press("Enter")
        await reader.sees("#waiting li:first-child", "research/worker-11")
        assert await reader.focused() == "name fewer"
        waits(extender, "worker-12")
        await reader.sees("#waiting li:first-child", "research/worker-12")
        assert await reader.focused() == "name fewer"


async def test_a_list_that_is_cut_says_so(reader: Reader) -> None:
    extender = small()
    for number in range(MOST_WAITING + 40):
        waits(extender, f"worker-{number}")
    async with page_of(extender) as url:
        page = await reader.open(url)
        await reader.sees("#waiting-title", "240 pods wait")
        await reader.sees("#waiting-cut", "Only the 200 oldest are listed.")
        await page.locator("#search").fill("worker-239")
        await reader.sees("#waiting-title", "0 of 240 waiting pods")
        await reader.sees("#waiting-cut", "Only the 200 oldest are listed and searched.")
