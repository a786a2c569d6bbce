"""What follows the settings' file while the extender runs, and what wins over it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extender.cluster import PREFIX, Cluster
from tests.extender.pki import Mount
from tests.extender.serving import ask, free_address, served
from tests.waiting import until


@pytest.fixture(autouse=True)
def _log_level_of_the_process() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOG_LEVEL", "POLICY", "CONFIG", "RESERVE"):
        monkeypatch.delenv(f"GPUSHARE_{name}", raising=False)


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path / "config")


class Told:
    """A program with two cards to choose from, and what it logs."""

    def __init__(self, cluster: Cluster, *, address: str, caplog: pytest.LogCaptureFixture) -> None:
        self.cluster = cluster
        self.address = address
        self._caplog = caplog
        self._pods = 0

    async def card(self) -> str | None:
        """Which of [8192, 16384] a pod of 1000 gets: 0 by binpack, 1 by spread."""
        self._pods += 1
        name = f"pod-{self._pods}"
        pod = await self.cluster.pod(name, 1000)
        args = {"PodName": name, "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "n1"}
        answer: dict[str, Any] = {"Error": "not asked"}
        async with asyncio.timeout(10):
            while answer["Error"]:  # not synced yet
                answer = (await ask("POST", f"http://{self.address}{PREFIX}/bind", body=args)).json()
        card = await self.cluster.card_of(name)
        await self.cluster.delete(name)
        return card

    async def logged(self, *words: str) -> str:
        """Wait for a line with these words."""
        found: list[str] = []

        def seen() -> bool:
            lines = [each.getMessage() for each in self._caplog.records]
            found[:] = [line for line in lines if all(word in line for word in words)]
            return bool(found)

        await until(seen, what=f"a line with {words}")
        return found[0]


@pytest.fixture
async def start(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Any]:
    async def begin(config: Path, *argv: str) -> Told:
        await cluster.node("n1", cards=[8192, 16384])
        address = free_address()
        program = served(cluster, "--listen", address, "--config", str(config), *argv)
        await running.enter_async_context(program)
        return Told(cluster, address=address, caplog=caplog)

    caplog.set_level(logging.INFO)
    async with contextlib.AsyncExitStack() as running:
        yield begin


async def test_log_level_and_policy_follow_a_configmap(mount: Mount, start: Any) -> None:
    mount.update(gpushare_yaml="version: v1\npolicy: binpack\n")
    told = await start(mount.folder / "gpushare.yaml")
    assert await told.card() == "0"
    mount.update(gpushare_yaml="version: v1\npolicy: spread\nlog-level: debug\n")
    await told.logged("setting changed policy=spread")
    await told.logged("setting changed log-level=debug")
    assert await told.card() == "1"
    assert logging.getLogger().level == logging.DEBUG
    mount.update(gpushare_yaml="version: v1\n")
    await told.logged("setting changed policy=binpack")
    assert await told.card() == "0"
    assert logging.getLogger().level == logging.INFO


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("version: v1\npolicy: best\n", "policy: Input should be 'binpack' or 'spread'"),
        ("version: v1\npolcy: binpack\n", "unknown key 'polcy': did you mean 'policy'?"),
        ("version: v1\npolicy: {", "is not YAML"),
        ("", "version is missing"),
        (None, "cannot be read: No such file or directory"),
    ],
)
async def test_a_broken_new_file_is_logged_and_what_was_stays(
    tmp_path: Path, start: Any, broken: str | None, words: str
) -> None:
    path = tmp_path / "gpushare.yaml"
    path.write_text("version: v1\npolicy: spread\n")
    told = await start(path)
    if broken is None:
        path.unlink()
    else:
        path.write_text(broken)
    said = await told.logged("settings unchanged, the new ones cannot be used", words)
    assert str(path) in said
    assert await told.card() == "1"
    path.write_text("version: v1\npolicy: binpack\n")
    await told.logged("setting changed policy=binpack")
    assert await told.card() == "0"


@pytest.mark.parametrize("place", ["flag", "environment"])
async def test_flags_and_environment_keep_winning(
    tmp_path: Path, start: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpushare.yaml"
    path.write_text("version: v1\npolicy: binpack\n")
    if place == "environment":
        monkeypatch.setenv("GPUSHARE_POLICY", "spread")
    told = await start(path, *(["--policy", "spread"] if place == "flag" else []))
    assert await told.card() == "1"
    path.write_text("version: v1\npolicy: binpack\nlog-level: warning\n")
    await until(lambda: logging.getLogger().level == logging.WARNING, what="the file has been read")
    assert await told.card() == "1"


async def test_what_needs_a_new_start_is_said(tmp_path: Path, start: Any) -> None:
    path = tmp_path / "gpushare.yaml"
    path.write_text("version: v1\nreserve: 8000\n")
    told = await start(path)
    assert await told.card() == "1"
    path.write_text("version: v1\nreserve: 0\n")
    await told.logged("setting changed reserve: takes effect at the next start")
    assert await told.card() == "1"
