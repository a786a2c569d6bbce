"""Pages that open together again and again, in a process of their own: browsers when an extender restarts.

usage: python -m tests.bench.readers PORT PAGES
Opens so many streams at once, waits until each has been told everything, closes all, and so on until it is
ended. Prints a line at each start, and one with the seconds it took at each end.
"""

from __future__ import annotations

import asyncio
import sys
import time

REQUEST = b"GET /ui/events HTTP/1.1\r\nHost: bench\r\n\r\n"
END = b"event: complete"
PAUSE = 0.2


async def page(port: int) -> None:
    """Open one and read it until everything is told; what comes is thrown away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    told = b""
    while END not in told:
        piece = await reader.read(65536)
        assert piece, "the stream ended"
        told = told[-len(END) :] + piece
    writer.close()


async def main(port: int, pages: int) -> None:
    while True:
        print("opening", flush=True)
        begun = time.perf_counter()
        await asyncio.gather(*(page(port) for _ in range(pages)))
        print(f"{time.perf_counter() - begun:.3f}", flush=True)
        await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    asyncio.run(main(*(int(word) for word in sys.argv[1:])))
