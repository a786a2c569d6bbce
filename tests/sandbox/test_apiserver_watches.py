"""Watches: what they start with, what they show, how they end, and that nothing is ever missed."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.apiserver import ApiServer
from sandbox.apiserver.binding import bind as bind_pod
from sandbox.apiserver.deletion import delete
from sandbox.apiserver.errors import AlreadyExists, Conflict, NotFound
from sandbox.apiserver.faults import Caller
from sandbox.apiserver.kinds import kind_of
from sandbox.apiserver.patches import merge_patch
from sandbox.apiserver.selectors import parse_selectors
from sandbox.apiserver.shapes import DeleteOptions, decode_binding
from sandbox.apiserver.watch import Watch
from tests.sandbox.calls import LEASES, NODES, PODS, binding, create, patch, pod, set_phase, watch


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_without_a_version_a_watch_starts_with_what_there_is(
    client: httpx.AsyncClient, query: dict[str, str]
) -> None:
    for name in ("b", "a"):
        await create(client, PODS, pod(name))
    async with watch(client, PODS, **query) as events:
        assert await events.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        await client.delete(f"{PODS}/a")
        assert await events.names(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_from_a_version_a_watch_shows_every_change_since(client: httpx.AsyncClient) -> None:
    version = (await create(client, PODS, pod("a")))["metadata"]["resourceVersion"]
    await create(client, PODS, pod("b"))
    await set_phase(client, "a", "Running")
    async with watch(client, PODS, resourceVersion=version) as events:
        assert await events.names(2) == [("ADDED", "b"), ("MODIFIED", "a")]


async def test_the_events_object_is_what_a_get_answers(client: httpx.AsyncClient) -> None:
    async with watch(client, LEASES) as events:
        created = await create(client, LEASES, {"metadata": {"name": "l"}})
        assert await events.next() == ("ADDED", created)


async def test_initial_events_can_be_asked_for_with_a_mark_at_their_end(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod("a"))
    query = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    async with watch(client, PODS, **query) as events:
        assert await events.names(1) == [("ADDED", "a")]
        kind, mark = await events.next()
        assert (kind, mark["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})


async def test_a_label_that_comes_and_goes_is_added_and_deleted(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod("a"))
    async with watch(client, PODS, labelSelector="app=x") as events:
        for labels in ({"app": "x"}, {"b": "1"}, {"app": "y"}, {"app": "z"}, {"app": "x"}):
            await patch(client, f"{PODS}/a", {"metadata": {"labels": labels}})
        assert await events.names(4) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_a_deleted_event_shows_the_last_match_at_the_new_version(client: httpx.AsyncClient) -> None:
    await create(client, PODS, pod("a", labels={"app": "x"}))
    async with watch(client, PODS, labelSelector="app=x") as events:
        await events.next()
        after = (await patch(client, f"{PODS}/a", {"metadata": {"labels": {"app": "y"}}})).json()
        kind, shown = await events.next()
    assert (kind, shown["metadata"]["labels"]) == ("DELETED", {"app": "x"})
    assert shown["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_watches_keep_to_their_namespace_or_object(client: httpx.AsyncClient) -> None:
    other = "/api/v1/namespaces/kube-system/pods"
    async with (
        watch(client, PODS) as here,
        watch(client, "/api/v1/pods") as everywhere,
        watch(client, f"{PODS}/b") as one,
    ):
        await create(client, other, pod("a"))
        await create(client, PODS, pod("a"))
        await create(client, PODS, pod("b"))
        assert await here.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        assert await everywhere.names(3) == [("ADDED", "a"), ("ADDED", "a"), ("ADDED", "b")]
        assert await one.names(1) == [("ADDED", "b")]


async def test_timeout_seconds_ends_a_watch(client: httpx.AsyncClient) -> None:
    started = time.monotonic()
    async with watch(client, PODS, timeoutSeconds=1) as events:
        assert await events.rest() == []
    assert 0.9 < time.monotonic() - started < 3


async def test_bookmarks_come_by_themselves_and_only_when_allowed() -> None:
    async with (
        ApiServer(bookmark_interval_s=0.02) as api,
        httpx.AsyncClient(base_url=api.url, verify=False) as client,
        watch(client, NODES, allowWatchBookmarks="true") as marked,
        watch(client, NODES) as plain,
    ):
        for _ in range(2):
            kind, shown = await marked.next()
            assert (kind, shown["metadata"]) == ("BOOKMARK", {"resourceVersion": str(api.store.version)})
            assert (shown["kind"], shown["apiVersion"]) == ("Node", "v1")
        await create(client, NODES, {"metadata": {"name": "n"}})
        assert await plain.names(1) == [("ADDED", "n")]


async def test_a_bookmark_carries_the_version_of_other_kinds_writes(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    async with watch(client, NODES, allowWatchBookmarks="true") as events:
        version = (await create(client, PODS, pod()))["metadata"]["resourceVersion"]
        api.send_bookmarks()
        assert (await events.next())[1]["metadata"]["resourceVersion"] == version
    async with watch(client, NODES, resourceVersion=version) as events:
        await create(client, NODES, {"metadata": {"name": "n"}})
        assert await events.names(1) == [("ADDED", "n")]


async def test_history_is_bounded_and_an_older_version_is_410() -> None:
    async with ApiServer(history_limit=8) as api, httpx.AsyncClient(base_url=api.url, verify=False) as client:
        first = int((await create(client, PODS, pod()))["metadata"]["resourceVersion"])
        for number in range(20):
            await patch(client, f"{PODS}/p", {"metadata": {"labels": {"n": str(number)}}})
        response = await client.get(PODS, params={"watch": "1", "resourceVersion": first})
        event = json.loads(response.text)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
            "ERROR",
            410,
            "Expired",
        )
        async with watch(client, PODS, resourceVersion=api.store.version - 8) as events:
            assert len([await events.next() for _ in range(8)]) == 8


async def test_a_client_that_leaves_takes_its_watch_along(api: ApiServer, client: httpx.AsyncClient) -> None:
    async with watch(client, PODS):
        assert api.open_watches == 1
    async with asyncio.timeout(5):
        while api.open_watches:
            await client.get("/readyz")


async def test_a_thousand_events_reach_several_watches_in_order_and_soon(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    async with watch(client, PODS) as first, watch(client, PODS, fieldSelector="spec.nodeName=") as second:
        started = time.perf_counter()
        for number in range(1000):
            await api.registry.create(kind_of("pods"), pod(f"p{number}"), namespace="default")
        for events in (first, second):
            assert [name for _, name in await events.names(1000)] == [f"p{number}" for number in range(1000)]
        assert time.perf_counter() - started < 3  # 0.5 s alone; the bound is for a busy machine


# A watcher that applies events, from any version and over any number of watches (each read is one, cut at its
# end), has in the end what a fresh list shows.

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES),
        st.tuples(st.just("bind"), NAMES),
        st.tuples(st.just("label"), NAMES, st.sampled_from(["x", "y", None])),
        st.tuples(st.just("phase"), NAMES, st.sampled_from(["Running", "Succeeded", "Failed"])),
        st.tuples(st.just("delete"), NAMES, st.sampled_from([0, 30])),
        st.tuples(st.just("read")),
        st.tuples(st.just("expire")),
    ),
    max_size=30,
)
SELECTORS = st.sampled_from(
    [
        {"labels": "", "fields": ""},
        {"labels": "app=x", "fields": ""},
        {"labels": "app!=x", "fields": "spec.nodeName!="},
        {"labels": "", "fields": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"},
    ]
)
KIND = kind_of("pods")


class Informer:
    """What a client keeps: a set of objects and the version it is at."""

    def __init__(self, api: ApiServer, selectors: dict[str, str]) -> None:
        self._api = api
        self._selector = parse_selectors(kind=KIND, **selectors)
        self.objects: dict[str, Any] = {}
        self._version = 0
        self._watch: Watch | None = None
        self.relist()

    def listed(self) -> dict[str, Any]:
        page = self._api.store.page(KIND, namespace="default", selector=self._selector)
        return {record.name: record.manifest() for record in page.records}

    def relist(self) -> None:
        self.objects, self._version = self.listed(), self._api.store.version

    async def read(self) -> None:
        """Watch from the version reached until everything so far is read."""
        view = Watch(
            store=self._api.store,
            kind=KIND,
            namespace="default",
            selector=self._selector,
            caller=Caller(method="GET", path=PODS),
            version=self._version,
            timeout_s=0.0,
            bookmark_s=None,
            frozen=lambda _: False,
        )
        lines = [line async for chunk in view.chunks() for line in chunk.splitlines()]
        for event in map(json.loads, lines):
            self._apply(event["type"], event["object"])

    def _apply(self, kind: str, shown: dict[str, Any]) -> None:
        if kind == "ERROR":
            assert shown["reason"] == "Expired"
            self.relist()
            return
        del shown["kind"], shown["apiVersion"]
        name = shown["metadata"]["name"]
        assert int(shown["metadata"]["resourceVersion"]) > self._version, (
            "an event came twice or out of order"
        )
        self._version = int(shown["metadata"]["resourceVersion"])
        assert (kind == "ADDED") == (name not in self.objects), (
            f"{kind} of {name} does not follow from what is known"
        )
        if kind == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = shown


async def take(api: ApiServer, step: tuple[Any, ...]) -> None:
    """One write. Refusals are part of life: names are taken, pods are bound or gone."""
    registry, name = api.registry, step[1]
    try:
        match step[0]:
            case "create":
                await registry.create(KIND, pod(name), namespace="default")
            case "bind":
                bind_pod(registry, decode_binding(binding(name, "n1")), namespace="default", name=name)
            case "label":
                change = {"metadata": {"labels": {"app": step[2]}}}
                registry.update(KIND, lambda old: merge_patch(old, change), namespace="default", name=name)
            case "phase":
                change = {"status": {"phase": step[2]}}
                registry.update(
                    KIND,
                    lambda old: merge_patch(old, change),
                    namespace="default",
                    name=name,
                    subresource="status",
                )
            case "delete":
                delete(
                    registry,
                    KIND,
                    DeleteOptions(grace_period_seconds=step[2]),
                    namespace="default",
                    name=name,
                )
    except (NotFound, Conflict, AlreadyExists):
        pass


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, selectors=SELECTORS)
def test_a_watcher_ends_with_what_a_fresh_list_shows(
    steps: list[tuple[Any, ...]], selectors: dict[str, str]
) -> None:
    async def run() -> None:
        api = ApiServer()
        informer = Informer(api, selectors)
        for step in steps:
            if step[0] == "read":
                await informer.read()
            elif step[0] == "expire":
                api.faults.expire_history()
            else:
                await take(api, step)
        await informer.read()
        assert informer.objects == informer.listed()

    asyncio.run(run())


def test_sets_of_pages_are_the_list_at_their_version() -> None:
    """Every split into pages, with writes between any two, shows the version of the first page."""

    async def run(limit: int) -> None:
        api = ApiServer()
        for name in "acegik":
            await api.registry.create(KIND, pod(name), namespace="default")
        page = api.store.page(KIND, limit=limit)
        expected = [record.body for record in api.store.page(KIND).records]
        found = [record.body for record in page.records]
        writes = _writes()
        while page.next_key is not None:
            await take(api, next(writes))
            page = api.store.page(KIND, version=page.version, start=page.next_key, limit=limit)
            found += [record.body for record in page.records]
        assert found == expected

    for limit in range(1, 7):
        asyncio.run(run(limit))


def _writes() -> Iterator[tuple[Any, ...]]:
    yield ("delete", "c", 0)
    yield ("create", "d")
    yield ("label", "i", "x")
    yield ("create", "c")
    yield ("delete", "k", 0)
    yield ("bind", "g")
