"""Fixtures: a folder short enough for sockets, and a cluster with one node."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.deviceplugin.cluster import Cluster, cluster


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dp-", dir="/tmp") as path:
        yield Path(path)


@pytest_asyncio.fixture
async def one_node(folder: Path) -> AsyncIterator[Cluster]:
    async with cluster(folder) as it:
        yield it
