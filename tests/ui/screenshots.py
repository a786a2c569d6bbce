"""`make screenshots`: draws docs/img/ anew, from the demo's cluster and from a large one."""

from __future__ import annotations

import asyncio
import re
import sys
import sysconfig
from pathlib import Path

from playwright.async_api import Browser

from tests.ui import fleet
from tests.ui.chromium import MISSING, chromium, launched
from tests.ui.fleet import page_of, quiet_extender
from tests.ui.reader import Reader

IMAGES = Path(__file__).parents[2] / "docs" / "img"
MOST_BYTES = 200_000
NODES = 500


async def main() -> int:
    """Draw all; the exit code."""
    program = chromium()
    if program is None:
        print(MISSING, file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    async with launched(program) as browser:
        await from_the_demo(browser)
        extender = quiet_extender()
        fleet.tell(extender, fleet.large_fleet(NODES))
        async with page_of(extender) as url:
            await draw(browser, url, "page-large", color_scheme="light", height=680)
    large = [path.name for path in IMAGES.glob("*.png") if path.stat().st_size > MOST_BYTES]
    if large:
        print(f"larger than {MOST_BYTES} bytes: {' '.join(large)}", file=sys.stderr)
    return 1 if large else 0


async def from_the_demo(browser: Browser) -> None:
    """The demo's cluster after its last step, light and dark."""
    demo = await asyncio.create_subprocess_exec(
        Path(sysconfig.get_path("scripts")) / "gpushare-sandbox",
        "demo",
        "--keep",
        stdout=asyncio.subprocess.PIPE,
    )
    assert demo.stdout is not None
    try:
        async for line in demo.stdout:
            if found := re.search(rb"stays up until Ctrl-C: (\S+)", line):
                url = found[1].decode()
                await draw(browser, url, "page-light", color_scheme="light", point_at="two-containers")
                await draw(browser, url, "page-dark", color_scheme="dark", point_at="two-containers")
                return
        raise RuntimeError("the demo has ended before its cluster stood")
    finally:
        if demo.returncode is None:
            demo.terminate()
        await demo.communicate()


async def draw(
    browser: Browser, url: str, name: str, *, color_scheme: str, height: int = 720, point_at: str = ""
) -> None:
    """One image, with the details of one pod."""
    reader = Reader(browser)
    size = {"width": 1280, "height": height}
    page = await reader.open(url, viewport=size, color_scheme=color_scheme, reduced_motion="reduce")
    if point_at:
        await reader.pod(f"default/{point_at}").hover()
    await page.screenshot(path=IMAGES / f"{name}.png")
    await reader.close()
    assert reader.faults == [], reader.faults
    print(f"docs/img/{name}.png")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
