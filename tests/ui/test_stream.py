"""Files, headers and the stream as any HTTP client sees them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from extender.listeners import LAST_ANSWERS
from extender.ui import stream
from gpushare.cards import Card
from tests import build
from tests.extender.cluster import Cluster
from tests.extender.serving import ask, free_address, served
from tests.ui import fleet
from tests.ui.fleet import page_of, quiet_extender
from tests.waiting import until

Event = tuple[str, Any]


async def events(answer: httpx.Response) -> AsyncGenerator[Event]:
    """What a stream says."""
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def heard(coming: AsyncGenerator[Event], name: str) -> list[Event]:
    """Everything up to the next event of this name."""
    said = []
    async with asyncio.timeout(10):
        async for event in coming:
            said.append(event)
            if event[0] == name:
                break
    return said


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that looks for news twenty times a second."""
    monkeypatch.setattr(stream, "EVERY", 0.05)


async def test_the_page_is_served_only_when_asked_for_and_only_where_views_are(cluster: Cluster) -> None:
    verbs, view = free_address(), free_address()
    async with served(cluster, "--listen", verbs, "--view-listen", view, "--ui"):
        assert (await ask("GET", f"http://{view}/ui/")).status_code == 200
        assert (await ask("GET", f"http://{verbs}/ui/")).status_code == 404
    async with served(cluster, "--listen", verbs):
        assert (await ask("GET", f"http://{verbs}/ui/")).status_code == 404
    async with served(cluster, "--listen", verbs, "--ui"):
        assert (await ask("GET", f"http://{verbs}/ui/")).status_code == 200


async def test_every_answer_forbids_whatever_is_not_the_pages_own() -> None:
    async with page_of(quiet_extender()) as url:
        for name in ("", "page.css", "main.js", "icon.svg", "nothing", "%2e%2e/page.py"):
            answer = await ask("GET", url + name)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self'")
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.status_code == (404 if name in ("nothing", "%2e%2e/page.py") else 200), name
        page = (await ask("GET", url)).text
        assert "<style" not in page
        assert " style=" not in page
        assert page.count("<script") == page.count('<script type="module" src="main.js">') == 1


async def test_files_are_sent_again_only_when_they_have_changed() -> None:
    async with page_of(quiet_extender()) as url, httpx.AsyncClient() as http:
        first = await http.get(f"{url}main.js")
        assert first.headers["content-type"].startswith("text/javascript")
        again = await http.get(f"{url}main.js", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_whoever_asks_only_for_the_head_of_a_file_gets_it() -> None:
    async with page_of(quiet_extender()) as url:
        for path in ("", "main.js"):
            head, whole = [await ask(method, url + path) for method in ("HEAD", "GET")]
            assert (head.status_code, head.content) == (200, b"")
            for name in ("content-type", "content-length", "etag", "content-security-policy"):
                assert head.headers[name] == whole.headers[name], name
        assert (await ask("HEAD", f"{url}nothing")).status_code == 404
        assert (await ask("HEAD", url.removesuffix("/"))).status_code == 307
        stream = await ask("HEAD", f"{url}events")
        assert (stream.status_code, stream.content) == (200, b"")
        assert stream.headers["content-type"].startswith("text/event-stream")


async def test_nothing_can_be_written_through_it() -> None:
    async with page_of(quiet_extender()) as url:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert (await ask(method, f"{url}events")).status_code == 405


@pytest.mark.usefixtures("hasty")
async def test_a_stream_tells_everything_once_and_then_only_what_changed() -> None:
    extender = quiet_extender()
    for name in ("n1", "n2", "n3"):
        extender.ledger.set_node(build.node(name, cards=[8192]))
    async with (
        page_of(extender) as url,
        httpx.AsyncClient() as http,
        http.stream("GET", f"{url}events") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        coming = events(answer)
        begin, state, nodes, complete = await heard(coming, "complete")
        assert begin[1]["unit"] == "MiB"
        assert begin[1]["resource"] == "aliyun.com/gpu-mem"
        assert state == ("state", {"problem": None})
        assert [node["name"] for node in nodes[1]["nodes"]] == ["n1", "n2", "n3"]
        assert complete == ("complete", {})
        assert (await heard(coming, "waiting"))[-1][1] == {"count": 0, "pods": []}
        extender.ledger.set_pod(build.pod("a", memory=1000, on="n2", cards=[0]))
        ((_, change),) = await heard(coming, "nodes")
        assert [(node["name"], node["usedGPU"]) for node in change["nodes"]] == [("n2", 1000)]
        extender.ledger.remove_node("n3")
        ((_, change),) = await heard(coming, "nodes")
        assert change == {"nodes": [], "gone": ["n3"]}
        extender.ledger.set_node(build.node("n1", cards=[]))
        ((_, change),) = await heard(coming, "nodes")
        assert change == {"nodes": [], "gone": ["n1"]}, "it shares no cards any more"
        extender.drain()
        assert await heard(coming, "state") == [("state", {"problem": "shutting down"})]


@pytest.mark.usefixtures("hasty")
async def test_a_quiet_stream_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BEAT", 0.1)
    async with (
        page_of(quiet_extender()) as url,
        httpx.AsyncClient() as http,
        http.stream("GET", f"{url}events") as answer,
    ):
        coming = events(answer)
        await heard(coming, "waiting")
        assert [name for name, _ in await heard(coming, "beat")] == ["beat"]
        assert [name for name, _ in await heard(coming, "beat")] == ["beat"]


async def test_open_streams_hold_up_no_shutdown(cluster: Cluster) -> None:
    address = free_address()
    async with (
        served(cluster, "--listen", address, "--ui") as extender,
        httpx.AsyncClient() as http,
        http.stream("GET", f"http://{address}/ui/events") as answer,
    ):
        coming = events(answer)
        await heard(coming, "complete")
        begun = time.monotonic()
        await extender.end()
        assert time.monotonic() - begun < LAST_ANSWERS / 2
        async for _ in coming:  # to its end, which is an orderly one
            pass


async def test_a_reader_too_many_is_told_so_and_a_seat_that_is_left_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "MOST_READERS", 1)
    async with page_of(quiet_extender()) as url, httpx.AsyncClient() as http:
        async with http.stream("GET", f"{url}events") as first:
            await heard(events(first), "complete")
            async with http.stream("GET", f"{url}events") as second:
                ((name, content),) = [event async for event in events(second)]
                assert name == "refused"
                assert "pages are open already" in content["reason"]
        await a_seat(http, url)


async def a_seat(http: httpx.AsyncClient, url: str) -> None:
    """Wait until a stream is given."""
    async with asyncio.timeout(10):
        while True:
            async with http.stream("GET", f"{url}events") as answer:
                async for name, _ in events(answer):
                    if name == "complete":
                        return
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("hasty")
async def test_a_reader_who_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_READERS", 1)
    monkeypatch.setattr(stream, "PATIENCE", 2.0)
    extender = quiet_extender()
    much = [Card(index=at, uuid=f"GPU-{at}", memory=1, model="x" * 1_000_000) for at in range(12)]
    extender.ledger.set_node(fleet.node("n1", much))  # more than sockets hold
    async with page_of(extender) as url, httpx.AsyncClient() as http:
        where = urlsplit(url)
        arriving, stuck = await asyncio.open_connection(where.hostname, where.port, limit=1024)
        try:
            stuck.write(f"GET /ui/events HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
            assert await arriving.read(4) == b"HTTP"  # and never anything more
            async with http.stream("GET", f"{url}events") as other:
                assert [name async for name, _ in events(other)] == ["refused"]
            await a_seat(http, url)
        finally:
            stuck.transport.abort()


async def test_pages_that_lost_the_line_together_come_back_one_after_another() -> None:
    async with page_of(quiet_extender()) as url, httpx.AsyncClient() as http:
        waits = set()
        for _ in range(8):
            async with http.stream("GET", f"{url}events") as answer:
                lines = answer.aiter_lines()
                waits.add(int((await anext(lines)).removeprefix("retry: ")))
    assert len(waits) > 1
    assert all(1000 <= wait <= 4000 for wait in waits)


async def test_when_the_last_page_is_closed_nothing_is_kept_for_pages() -> None:
    extender = quiet_extender()
    extender.ledger.set_node(build.node("n1", cards=[8192]))
    async with page_of(extender) as url, httpx.AsyncClient() as http:
        async with http.stream("GET", f"{url}events") as answer:
            await heard(events(answer), "complete")
            assert extender.texts.size > 0
        await until(lambda: extender.texts.size == 0)
