"""Somebody who reads the page in a browser, and notes what should not happen."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request

DEADLINE = 15.0


class Reader:
    """Opens the page and looks at it. `faults` has errors and foreign requests."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.faults: list[str] = []
        self.expects_cuts = False
        """Whether the server goes away in this test: the browser writes that on the console."""
        self.page: Page

    async def open(self, url: str, **options: Any) -> Page:
        """Open the page in a fresh context and wait until the whole cluster is there."""
        await self.visit(url, **options)
        await self.until("performance.getEntriesByName('all-nodes').length > 0", what="all nodes are shown")
        return self.page

    async def visit(self, url: str, **options: Any) -> Page:
        """Open the page in a fresh context."""
        options = {"viewport": {"width": 1280, "height": 800}} | options
        context = await self._browser.new_context(**options)
        self._contexts.append(context)
        self.page = page = await context.new_page()
        origin = urlsplit(url)[:2]

        def asked(request: Request) -> None:
            if urlsplit(request.url)[:2] != origin:
                self.faults.append(f"request to {request.url}")

        def said(message: ConsoleMessage) -> None:
            is_cut = "Failed to load resource: net::ERR_" in message.text
            if message.type in ("error", "warning") and not (self.expects_cuts and is_cut):
                self.faults.append(f"console: {message.text}")

        page.on("request", asked)
        page.on("console", said)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        await page.goto(url)
        return page

    async def close(self) -> None:
        for context in self._contexts:
            await context.close()

    async def until(self, expression: str, *, what: str = "", seconds: float = DEADLINE) -> None:
        """Wait for a JavaScript expression to hold. Playwright's own way is eval: forbidden here."""
        end = time.monotonic() + seconds
        while not await self.page.evaluate(f"() => Boolean({expression})"):
            assert time.monotonic() < end, f"not within {seconds} s: {what or expression}"
            await asyncio.sleep(0.02)

    async def sees(self, selector: str, text: str) -> None:
        """Wait until an element shows this text, whatever the spaces."""
        await self.shows(selector, lambda shown: text in shown, what=repr(text))

    async def shows(self, selector: str, condition: Callable[[str], bool], *, what: str) -> None:
        """Wait until what an element shows fulfils a condition."""
        end = time.monotonic() + DEADLINE
        while True:
            shown = await self.text(selector)
            if condition(shown):
                return
            assert time.monotonic() < end, f"{selector} shows {shown!r}, not {what}"
            await asyncio.sleep(0.02)

    async def text(self, selector: str) -> str:
        """What the visible elements show; empty where there is none."""
        texts = [
            await each.inner_text()
            for each in await self.page.locator(selector).all()
            if await each.is_visible()
        ]
        return re.sub(r"\s+", " ", " ".join(texts))

    async def nodes(self) -> list[str]:
        """The names of the nodes listed."""
        listed: list[str] = await self.page.evaluate(
            "() => [...document.querySelectorAll('li.node')].map((item) => item.dataset.node)"
        )
        return listed

    async def focused(self) -> str:
        """What has the focus, as it is announced."""
        name: str = await self.page.evaluate(
            "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
        )
        return name

    def pod(self, name: str) -> Locator:
        """The part of a bar, by namespace/name."""
        return self.page.locator(f'.pod[aria-label^="Pod {name},"]')
