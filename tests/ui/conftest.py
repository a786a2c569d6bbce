import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, async_playwright

from sandbox.apiserver import ApiServer
from tests.extender.cluster import Cluster
from tests.ui.reader import Reader

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Where Chromium is: GPUSHARE_CHROMIUM, or in PATH."""
    return os.environ.get("GPUSHARE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip(
            "the page is not tested without Chromium: apt-get install chromium, or GPUSHARE_CHROMIUM=…"
        )
    async with async_playwright() as playwright:
        # As root, in containers, Chromium has no sandbox of its own; nothing foreign is loaded here.
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        await browser.close()


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
