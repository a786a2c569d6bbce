"""The browser on this machine, driven by Playwright."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator

from playwright.async_api import Browser, async_playwright

MISSING = (
    "the page is tested in Chromium, which is not there: `apt-get install chromium`, or set "
    "GPUSHARE_CHROMIUM to a Chromium or Chrome"
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@functools.cache
def chromium() -> str | None:
    """The program: GPUSHARE_CHROMIUM, or the first in PATH that starts; `None` without one."""
    named = os.environ.get("GPUSHARE_CHROMIUM")
    found = [named] if named else [path for path in map(shutil.which, _NAMES) if path]
    return next(filter(_starts, found), None)


def _starts(program: str) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextlib.asynccontextmanager
async def launched(program: str) -> AsyncIterator[Browser]:
    """A browser without a window."""
    async with async_playwright() as playwright:
        # As root, in containers, Chromium has no sandbox of its own; nothing foreign is loaded here.
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
