"""The server answers what a real Kubernetes 1.36 answered to the same requests.

Equal means equal: only what must differ between two clusters is exempt, and even that has to correspond.
A UID stands for one UID, versions keep their order, times keep their form.
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox.apiserver import ApiServer
from tests.sandbox.calls import NODES, PODS, bind, create, patch, pod, set_phase

WIRE = Path(__file__).parent.parent / "wire" / "api-exchanges.json"
EXCHANGES: dict[str, dict[str, Any]] = json.loads(WIRE.read_text())
WATCHES = [name for name in EXCHANGES if name.startswith("watch-")]
CALLS = [name for name in EXCHANGES if name not in WATCHES]

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
SERVER_TIMES = re.compile(
    r"metadata\.(creation|deletion)Timestamp$|status\.conditions\[\d+\]\.lastTransitionTime$"
)


class Correspondence:
    """Which of our UIDs and versions stands for which recorded one; comparing bodies builds it up."""

    def __init__(self) -> None:
        self.uids: dict[str, str] = {}
        self.versions: dict[int, int] = {}

    def translate(self, text: str) -> str:
        """A recorded request or message, with the recorded UIDs and versions replaced by ours."""
        for recorded, ours in self.uids.items():
            text = text.replace(recorded, ours)
        for recorded, ours in ((str(key), str(value)) for key, value in self.versions.items()):
            text = re.sub(rf"\b{recorded}\b", ours, text)
        return text

    def compare(self, recorded: Any, ours: Any, *, at: str = "") -> None:
        """Fail unless the two are equal but for what must differ."""
        assert type(recorded) is type(ours), f"{at}: {recorded!r} against {ours!r}"
        if isinstance(recorded, dict):
            assert sorted(recorded) == sorted(ours), at
            for name in recorded:
                self.compare(recorded[name], ours[name], at=f"{at}.{name}")
        elif isinstance(recorded, list):
            assert len(recorded) == len(ours), at
            for index, (left, right) in enumerate(zip(recorded, ours, strict=True)):
                self.compare(left, right, at=f"{at}[{index}]")
        elif at.endswith("metadata.uid"):
            assert self.uids.setdefault(recorded, ours) == ours, at
            assert len(set(self.uids.values())) == len(self.uids), "two recorded UIDs stand for one of ours"
        elif at.endswith("metadata.resourceVersion"):
            assert self.versions.setdefault(int(recorded), int(ours)) == int(ours), at
            in_order = [self.versions[version] for version in sorted(self.versions)]
            assert all(left < right for left, right in itertools.pairwise(in_order)), (
                f"order of versions: {at}"
            )
        elif at.endswith("metadata.continue"):
            assert re.fullmatch(r"[A-Za-z0-9_-]+", ours), at
        elif SERVER_TIMES.search(at) and TIME.fullmatch(recorded):
            assert TIME.fullmatch(ours), at
        elif at.endswith(".message"):
            assert _without_oldest(self.translate(recorded)) == _without_oldest(ours), at
        else:
            assert recorded == ours, at


def _without_oldest(message: str) -> str:
    """``too old resource version: 1 (24520)``: the second number is how far this cluster has compacted."""
    return re.sub(r"^(too old resource version: \d+) \(\d+\)$", r"\1", message)


@pytest.fixture
def generated_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that the recorded server made up, in their order: the paged list is sorted by them."""
    suffixes = _recorded_suffixes()
    monkeypatch.setattr("sandbox.apiserver.metadata.random_suffix", lambda: next(suffixes))


def _recorded_suffixes() -> Iterator[str]:
    for exchange in EXCHANGES.values():
        metadata = exchange["response"].get("body", {}).get("metadata", {})
        if exchange["request"]["method"] == "POST" and "generateName" in metadata:
            yield metadata["name"].removeprefix(metadata["generateName"])


async def replay(client: httpx.AsyncClient, name: str, known: Correspondence) -> None:
    request, recorded = EXCHANGES[name]["request"], EXCHANGES[name]["response"]
    content = known.translate(json.dumps(request["body"])) if request["body"] is not None else None
    response = await client.request(
        request["method"], request["path"], content=content, headers={"Content-Type": request["contentType"]}
    )
    assert (response.status_code, response.headers["Content-Type"]) == (
        recorded["status"],
        recorded["headers"]["Content-Type"],
    ), response.text
    known.compare(recorded["body"], response.json())


async def make_recorded_node(client: httpx.AsyncClient) -> None:
    """The node as it was made before the recording began."""
    recorded = EXCHANGES["patch-node-status"]["response"]["body"]
    node = {
        "metadata": {"name": recorded["metadata"]["name"], "labels": recorded["metadata"]["labels"]},
        "status": {
            "capacity": recorded["status"]["capacity"],
            "conditions": recorded["status"]["conditions"],
        },
    }
    await create(client, NODES, node)


@pytest.fixture
async def replayed(client: httpx.AsyncClient, generated_names: None) -> Correspondence:
    """The server after every recorded call, each of which was compared."""
    known = Correspondence()
    await make_recorded_node(client)
    for name in CALLS:
        await replay(client, name, known)
    return known


async def test_every_recorded_call_is_answered_as_kubernetes_answered_it(replayed: Correspondence) -> None:
    assert len(replayed.uids) == 10  # 8 pods, a node, a lease: the comparison has seen each


def watch_path(name: str, known: Correspondence) -> str:
    """The recorded path, from our version that stands for the recorded one."""
    path: str = EXCHANGES[name]["request"]["path"]
    recorded = int(re.search(r"resourceVersion=(\d+)", path)[1])  # type: ignore[index]
    older = max((version for version in known.versions if version <= recorded), default=None)
    ours = recorded if older is None else known.versions[older]
    return path.replace(f"resourceVersion={recorded}", f"resourceVersion={ours}")


class Replayed:
    """A recorded watch, compared line by line as ours arrives."""

    def __init__(self, name: str, response: httpx.Response, known: Correspondence) -> None:
        self._recorded = iter(EXCHANGES[name]["response"]["lines"])
        self._lines = response.aiter_lines()
        self._known = known

    async def expect(self, *events: str) -> None:
        for event in events:
            recorded = next(self._recorded)
            assert recorded["type"] == event
            self._known.compare(recorded, json.loads(await anext(self._lines)))

    async def expect_end(self, api: ApiServer) -> None:
        """Nothing more was recorded, and nothing more comes before the cut."""
        assert list(self._recorded) == []
        api.faults.cut_watches()
        with pytest.raises((httpx.RemoteProtocolError, StopAsyncIteration)):
            await anext(self._lines)


def gpu_pod(name: str) -> dict[str, Any]:
    manifest = pod(name, automountServiceAccountToken=False, schedulerName="nobody")
    manifest["spec"]["containers"][0]["resources"] = {
        "limits": {"aliyun.com/gpu-mem": "8138", "aliyun.com/gpu-slot": "1"}
    }
    return manifest


async def test_watch_with_bookmarks_shows_a_pods_life_as_recorded(
    api: ApiServer, client: httpx.AsyncClient, replayed: Correspondence
) -> None:
    name = "watch-all-with-bookmarks"
    async with client.stream("GET", watch_path(name, replayed)) as response:
        assert response.status_code == EXCHANGES[name]["response"]["status"]
        watched = Replayed(name, response, replayed)
        await create(client, PODS, gpu_pod("w-2"))
        await watched.expect("ADDED")
        await bind(client, "w-2", "gpu-a10-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"})
        await set_phase(client, "w-2", "Running")
        await set_phase(client, "w-2", "Succeeded")
        await watched.expect("MODIFIED", "MODIFIED", "MODIFIED")
        api.send_bookmarks()
        await watched.expect("BOOKMARK")
        await client.delete(f"{PODS}/w-2")
        await watched.expect("MODIFIED", "DELETED")
        api.send_bookmarks()
        await watched.expect("BOOKMARK")
        await watched.expect_end(api)


async def test_watch_with_a_field_selector_shows_entry_and_leaving_as_recorded(
    api: ApiServer, client: httpx.AsyncClient, replayed: Correspondence
) -> None:
    name = "watch-bound-and-not-finished"
    async with client.stream("GET", watch_path(name, replayed)) as response:
        watched = Replayed(name, response, replayed)
        await create(client, PODS, gpu_pod("w-3"))
        await bind(client, "w-3", "gpu-a10-1", annotations={"ALIYUN_COM_GPU_MEM_IDX": "1"})
        await set_phase(client, "w-3", "Succeeded")
        await watched.expect("ADDED", "DELETED")
        await watched.expect_end(api)


async def test_watch_from_a_version_that_is_gone_ends_with_an_error_event_as_recorded(
    api: ApiServer, client: httpx.AsyncClient
) -> None:
    await create(client, PODS, pod())
    api.faults.expire_history()
    response = await client.get(EXCHANGES["watch-too-old"]["request"]["path"])
    recorded = EXCHANGES["watch-too-old"]["response"]
    assert response.status_code == recorded["status"]
    known = Correspondence()
    known.compare(recorded["lines"], [json.loads(line) for line in response.text.splitlines()])


@pytest.mark.parametrize(
    ("recorded", "ours"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": True}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}),
        ({"spec": {"renewTime": "2026-01-01T00:00:00Z"}}, {"spec": {"renewTime": "2027-01-01T00:00:00Z"}}),
        ([{"metadata": {"uid": "u"}}] * 2, [{"metadata": {"uid": "x"}}, {"metadata": {"uid": "y"}}]),
        (
            [{"metadata": {"resourceVersion": "1"}}, {"metadata": {"resourceVersion": "2"}}],
            [{"metadata": {"resourceVersion": "8"}}, {"metadata": {"resourceVersion": "7"}}],
        ),
    ],
    ids=[
        "extra field",
        "type",
        "order",
        "name",
        "a client's time",
        "uid not stable",
        "versions out of order",
    ],
)
def test_the_comparison_is_strict(recorded: Any, ours: Any) -> None:
    with pytest.raises(AssertionError):
        Correspondence().compare(recorded, ours)


async def test_a_patch_that_changes_nothing_writes_nothing(client: httpx.AsyncClient) -> None:
    await make_recorded_node(client)
    before = (await client.get(f"{NODES}/gpu-a10-0")).json()["metadata"]["resourceVersion"]
    response = await patch(client, f"{NODES}/gpu-a10-0/status", {"status": {"capacity": {"cpu": "16"}}})
    assert response.json()["metadata"]["resourceVersion"] == before
