from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser

from sandbox.apiserver import ApiServer
from tests.extender.cluster import Cluster
from tests.ui.chromium import chromium, launched
from tests.ui.reader import Reader

IN_CHROMIUM = ["test_drawing.py", "test_page.py", "test_reading.py", "test_staying.py", "test_waiting.py"]
collect_ignore = [] if chromium() else IN_CHROMIUM  # test_chromium.py says why


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    program = chromium()
    assert program is not None
    async with launched(program) as browser:
        yield browser


@pytest.fixture
async def reader(browser: Browser) -> AsyncIterator[Reader]:
    """Somebody who reads the page; in the end nothing may have gone wrong or outside."""
    reader = Reader(browser)
    yield reader
    await reader.close()
    assert reader.faults == []


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer() as api, httpx.AsyncClient(timeout=30) as http:
        yield Cluster(api, folder=tmp_path, http=http)
