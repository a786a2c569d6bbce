"""A reflector's view stays what the API server has, through everything that can happen to a watch."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpushare.objects import Pod
from kubeapi.backoff import Backoff
from kubeapi.client import KubeApi
from kubeapi.reflector import Reflector
from sandbox.apiserver import ApiServer, Rule
from tests.kubeapi.scripted import (
    EXPIRED,
    Script,
    answer,
    cut,
    event,
    kubeconfig,
    page,
    refuse,
    scripted,
    watch,
)
from tests.running import running
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Shelf:
    """A view that keeps what it is given, and the order of the calls."""

    there: dict[str, str] = field(default_factory=dict)
    """Names by UID."""
    calls: list[str] = field(default_factory=list)
    _listed: set[str] = field(default_factory=set)

    def begin(self) -> None:
        self.calls.append("begin")
        self._listed = set()

    def put(self, obj: Pod) -> None:
        self.calls.append(f"put {obj.metadata.name}")
        self.there[obj.metadata.uid] = obj.metadata.name
        self._listed.add(obj.metadata.uid)

    def end(self) -> None:
        self.calls.append("end")
        for uid in self.there.keys() - self._listed:
            del self.there[uid]

    def drop(self, obj: Pod) -> None:
        self.calls.append(f"drop {obj.metadata.name}")
        self.there.pop(obj.metadata.uid, None)


class Soon(Backoff):
    """Waits next to nothing and counts: the real steps are `test_backoff`'s."""

    def __init__(self) -> None:
        super().__init__(first=0.001, longest=0.002)
        self.waits = 0
        self.resets = 0

    def next(self) -> float:
        self.waits += 1
        return super().next()

    def reset(self) -> None:
        self.resets += 1
        super().reset()


@dataclass
class Watching:
    """A reflector under test with what it feeds."""

    reflector: Reflector[Pod]
    shelf: Shelf
    backoff: Soon

    @property
    def names(self) -> list[str]:
        return sorted(self.shelf.there.values())


@contextlib.asynccontextmanager
async def watching(
    api: KubeApi, *, selectors: Mapping[str, str] | None = None, page: int = 500, idle: float = 10.0
) -> AsyncIterator[Watching]:
    shelf, backoff = Shelf(), Soon()
    reflector = Reflector(
        api, "/api/v1/pods", kind=Pod, view=shelf, selectors=selectors, page=page, idle=idle, backoff=backoff
    )
    async with running(reflector.run()):
        yield Watching(reflector, shelf, backoff)


async def test_lists_in_pages_then_watches_from_the_lists_version(script: Script, api: KubeApi) -> None:
    script.then(page("a", "b", version=7, more="t1"), page("c", version=7, more="t2"), page(version=7))
    selectors = {"fieldSelector": "spec.nodeName=n1"}
    async with watching(api, selectors=selectors, page=2) as seen:
        assert seen.reflector.problem == "not listed yet"
        assert not seen.reflector.synced.is_set()
        await script.asked_for(4)
        assert seen.reflector.synced.is_set()
        assert seen.names == ["a", "b", "c"]
        assert seen.shelf.calls == ["begin", "put a", "put b", "put c", "end"]
        assert seen.reflector.lists == 1
    assert [asked.query for asked in script.asked[:3]] == [
        {**selectors, "limit": "2"},
        {**selectors, "limit": "2", "continue": "t1"},
        {**selectors, "limit": "2", "continue": "t2"},
    ]
    opened = dict(script.asked[3].query)
    assert 300 <= int(opened.pop("timeoutSeconds")) <= 600
    assert opened == {**selectors, "watch": "1", "resourceVersion": "7", "allowWatchBookmarks": "true"}


async def test_applies_events_in_order(script: Script, api: KubeApi) -> None:
    lines = (
        event("ADDED", "b", version=8),
        event("MODIFIED", "a", version=9) + event("DELETED", "a", version=10),
        event("ADDED", "c", version=11),
    )
    script.then(page("a", version=7), watch(*lines, held=True))
    async with watching(api) as seen:
        await until(lambda: "put c" in seen.shelf.calls)
        assert seen.shelf.calls == ["begin", "put a", "end", "put b", "put a", "drop a", "put c"]
        assert seen.names == ["b", "c"]
        assert seen.reflector.problem is None


@pytest.mark.parametrize("broken", [False, True], ids=["ended", "broken-off"])
async def test_goes_on_where_the_watch_stopped(script: Script, api: KubeApi, broken: bool) -> None:  # noqa: FBT001
    script.then(
        page("a", version=7),
        watch(event("ADDED", "b", version=8), event("DELETED", "a", version=9), broken=broken),
        *([page("b", version=11)] if broken else []),  # is it the same history still?
        watch(event("ADDED", "c", version=12), held=True),
    )
    async with watching(api) as seen:
        await until(lambda: seen.names == ["b", "c"])
        assert script.asked[-1].query["resourceVersion"] == "9"
        assert seen.reflector.lists == 1
        assert seen.backoff.waits == broken, "an ordinary end is taken up at once"


async def test_a_line_that_was_cut_short_is_not_applied(script: Script, api: KubeApi) -> None:
    half = event("ADDED", "b", version=8)[:-20]
    script.then(page("a", version=7), watch(half), watch(event("ADDED", "b", version=8), held=True))
    async with watching(api) as seen:
        await until(lambda: seen.names == ["a", "b"])
        assert script.asked[2].query["resourceVersion"] == "7"
        assert seen.reflector.lists == 1


async def test_bookmarks_move_the_version_and_nothing_else(script: Script, api: KubeApi) -> None:
    metadata = b'{"resourceVersion":"99","creationTimestamp":null}'
    bookmark = b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":' + metadata + b"}}\n"
    script.then(page("a", version=7), watch(bookmark), watch(held=True))
    async with watching(api) as seen:
        asked = await script.asked_for(3)
        assert asked.query["resourceVersion"] == "99"
        assert seen.shelf.calls == ["begin", "put a", "end"]


GAPS: dict[str, Any] = {
    "expired-event": watch(EXPIRED),
    "410-at-the-start": refuse(410, reason="Expired", message="too old resource version"),
    "other-error-event": watch(
        b'{"type":"ERROR","object":{"code":500,"reason":"InternalError","message":"x"}}\n'
    ),
    "error-event-without-words": watch(b'{"type":"ERROR","object":{}}\n'),
    "error-event-of-another-shape": watch(b'{"type":"ERROR","object":[]}\n'),
    "not-json": watch(b"<html>\n"),
    "not-utf-8": watch(b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n'),
    "half-a-surrogate": watch(b'{"type":"ADDED","object":{"metadata":{"name":"\\ud800"}}}\n'),
    "not-an-event": watch(b"{}\n"),
    "null": watch(b"null\n"),
    "wrong-type": watch(b'{"type":"ADDED","object":{"metadata":{"name":5,"resourceVersion":"8"}}}\n'),
    "no-version": watch(b'{"type":"ADDED","object":{"metadata":{"name":"x","uid":"x"}}}\n'),
    "no-version-in-a-bookmark": watch(b'{"type":"BOOKMARK","object":{"metadata":{}}}\n'),
    "unknown-event": watch(event("RENAMED", "x", version=8)),
    "deep": watch(
        b'{"type":"ADDED","object":{"x":'
        + b"[" * 50_000
        + b"]" * 50_000
        + b',"metadata":{"resourceVersion":"8"}}}\n'
    ),
}


@pytest.mark.parametrize("gap", GAPS.values(), ids=GAPS)
async def test_L3_after_a_gap_the_whole_is_listed_and_deletions_take_effect(
    script: Script, api: KubeApi, gap: Any
) -> None:
    script.then(page("a", "b", version=7), gap, page("b", "c", version=20), watch(held=True))
    async with watching(api) as seen:
        await until(lambda: seen.reflector.lists == 2 and len(script.asked) == 4)
        assert seen.names == ["b", "c"]
        assert seen.shelf.calls[-4:] == ["begin", "put b", "put c", "end"]
        assert "x" not in seen.shelf.there
        assert seen.backoff.waits == 1
        assert "continue" not in script.asked[2].query
        assert "resourceVersion" not in script.asked[2].query, "a consistent read"
        assert script.asked[3].query["resourceVersion"] == "20"


async def test_a_gap_is_logged_in_the_api_servers_words(
    script: Script, api: KubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    script.then(page("a", version=7), watch(EXPIRED), page("a", version=9), watch(held=True))
    with caplog.at_level(logging.WARNING):
        async with watching(api):
            await script.asked_for(4)
    assert "410 Expired: too old resource version: 1 (9)" in caplog.text


async def test_a_list_whose_pages_expire_begins_anew(script: Script, api: KubeApi) -> None:
    script.then(
        page("a", version=7, more="t"), refuse(410, reason="Expired"), page("b", version=9), watch(held=True)
    )
    async with watching(api) as seen:
        await script.asked_for(4)
        assert seen.shelf.calls == ["begin", "put a", "begin", "put b", "end"]
        assert seen.names == ["b"]
        assert "continue" not in script.asked[2].query


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (refuse(403, reason="Forbidden", message="cannot list pods"), ["403", "cannot list pods"]),
        (refuse(500, reason="InternalError", message="etcd"), ["500", "etcd"]),
        (refuse(429, reason="TooManyRequests", message="slow down"), ["429", "slow down"]),
        (cut(), ["out of reach"]),
        (cut(after=b'{"metadata":'), ["out of reach"]),
        (answer(b"<html>"), ["JSON"]),
        (answer({"items": []}), ["metadata"]),
        (answer({"metadata": {"resourceVersion": ""}, "items": []}), ["resourceVersion"]),
        (answer({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": 5}}]}), ["name"]),
        (answer(b'{"x":' + b"[" * 50_000), ["recursion"]),
    ],
    ids=[
        "forbidden", "failing", "busy", "cut", "cut-within", "html", "no-metadata", "no-version",
        "odd-object", "deep",
    ],
)  # fmt: skip
async def test_a_list_that_fails_is_tried_again_and_says_why(
    script: Script, api: KubeApi, failure: Any, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    script.then(*[failure] * 20)
    with caplog.at_level(logging.WARNING):
        async with watching(api) as seen:
            await until(lambda: seen.backoff.waits >= 2)
            assert not seen.reflector.synced.is_set()
            assert seen.reflector.problem is not None
            assert [word for word in words if word not in seen.reflector.problem] == []
            script.answers.clear()
            script.then(page("a", version=7))
            await asyncio.wait_for(seen.reflector.synced.wait(), timeout=5)
    assert all(word in caplog.text for word in words)
    assert all(len(record.getMessage()) < 1024 for record in caplog.records)


async def test_a_server_that_is_down_at_the_start_is_waited_for(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = kubeconfig(tmp_path / "k", server=f"http://127.0.0.1:{port}")
    async with await KubeApi.connect(path, user_agent="t") as api, watching(api) as seen:
        await until(lambda: seen.backoff.waits >= 3)
        assert not seen.reflector.synced.is_set()
        assert seen.reflector.problem is not None
        assert f"127.0.0.1:{port} is out of reach" in seen.reflector.problem
        async with scripted(page("a", version=7), port=port):
            await asyncio.wait_for(seen.reflector.synced.wait(), timeout=5)
            assert seen.names == ["a"]


async def test_a_watch_that_ends_at_once_does_not_spin(script: Script, api: KubeApi) -> None:
    script.then(page("a", version=7), *[watch()] * 5)
    async with watching(api) as seen:
        await script.asked_for(7)
        assert seen.backoff.waits == 5, "one wait for each watch that brought nothing"
        assert seen.backoff.resets == 0, "and every one longer than the last"
        assert {asked.query["resourceVersion"] for asked in script.asked[1:]} == {"7"}


async def test_a_watch_that_is_refused_is_tried_again_from_the_same_version(
    script: Script, api: KubeApi
) -> None:
    script.then(page("a", version=7), refuse(500), refuse(403, message="no watch"), watch(held=True))
    async with watching(api) as seen:
        await script.asked_for(4)
        assert seen.reflector.lists == 1
        assert seen.backoff.waits == 2
        assert {asked.query["resourceVersion"] for asked in script.asked[1:]} == {"7"}


async def test_a_watch_that_is_open_is_no_problem_though_nothing_happens(
    script: Script, api: KubeApi
) -> None:
    script.then(page("a", version=7), refuse(500, message="etcd"), watch(held=True))
    async with watching(api) as seen:
        await until(lambda: seen.backoff.waits == 1)
        await until(lambda: seen.reflector.problem is None, what="no problem while the watch is open")
        assert seen.reflector.synced.is_set()


async def test_a_watch_that_says_nothing_for_too_long_is_opened_anew(script: Script, api: KubeApi) -> None:
    same = page("a", version=7)
    script.then(same, watch(held=True), same, watch(event("ADDED", "b", version=8), held=True))
    async with watching(api, idle=0.1) as seen:
        await until(lambda: seen.names == ["a", "b"])
        assert seen.reflector.lists == 1


async def test_a_restored_api_server_is_listed_anew(script: Script, api: KubeApi) -> None:
    """Its versions have gone back: a watch from ours would open, and say nothing for a long time."""
    script.then(
        page("a", "b", version=70),
        watch(broken=True),
        page("a", version=7),
        page("a", version=7),
        watch(event("ADDED", "c", version=8), held=True),
    )
    async with watching(api) as seen:
        await until(lambda: seen.names == ["a", "c"])
        assert seen.reflector.lists == 2


async def test_an_event_from_the_past_is_a_gap(script: Script, api: KubeApi) -> None:
    script.then(
        page("a", "b", version=70),
        watch(event("ADDED", "c", version=8), held=True),
        page("a", version=8),
        watch(held=True),
    )
    async with watching(api) as seen:
        await until(lambda: seen.names == ["a"])
        assert "put c" not in seen.shelf.calls


async def test_something_that_worked_starts_the_waits_over(script: Script, api: KubeApi) -> None:
    script.then(page("a", version=7), watch(), watch(event("ADDED", "b", version=8)), watch(held=True))
    async with watching(api) as seen:
        await script.asked_for(4)
        assert (seen.backoff.waits, seen.backoff.resets) == (1, 1)


async def test_a_watch_left_over_a_gap_is_closed_before_the_list(script: Script, api: KubeApi) -> None:
    script.then(page("a", version=7), watch(EXPIRED, held=True), page("a", version=9), watch(held=True))
    async with watching(api):
        await script.asked_for(4)
        await until(lambda: script.open == 1, what="only the new watch is open")
    await until(lambda: script.open == 0, what="cancelled, it leaves no connection behind")


async def test_follows_an_api_server_through_cuts_and_lost_history(tmp_path: Path) -> None:
    async with ApiServer() as cluster:
        path = kubeconfig(tmp_path / "k", server=cluster.url)
        async with await KubeApi.connect(path, user_agent="t") as api:

            async def create(name: str) -> None:
                body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
                (await api.request("POST", "/api/v1/namespaces/default/pods", body=body)).checked()

            async def delete(name: str) -> None:
                query = {"gracePeriodSeconds": "0"}
                path = f"/api/v1/namespaces/default/pods/{name}"
                (await api.request("DELETE", path, query=query)).checked()

            await create("a")
            await create("b")
            async with watching(api, page=1) as seen:
                await until(lambda: seen.names == ["a", "b"])
                await create("c")
                await delete("a")
                await until(lambda: seen.names == ["b", "c"])
                cluster.faults.cut_watches()
                await create("d")
                await until(lambda: seen.names == ["b", "c", "d"])
                assert seen.reflector.lists == 1
                fault = cluster.faults.add(Rule(action="answer", status=500, method="GET"))
                cluster.faults.cut_watches()
                await until(lambda: fault.hits)
                await delete("b")
                await create("e")
                cluster.faults.expire_history()
                cluster.faults.remove(fault.number)
                await until(lambda: seen.names == ["c", "d", "e"])
                assert seen.reflector.lists == 2
