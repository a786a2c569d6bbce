"""Log lines as key=value, one a decision, to standard error."""

from __future__ import annotations

import logging
import sys
import time

LEVELS = ("debug", "info", "warning", "error")
_LONGEST = 1024  # characters of one line


class _KeyValue(logging.Formatter):
    """`time=… level=… logger=… message`; messages are key=value text themselves."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage().replace("\n", "\\n")
        if len(message) > _LONGEST:
            message = message[: _LONGEST - 1] + "…"
        level = record.levelname.lower()
        line = f"time={moment}.{int(record.msecs):03d}Z level={level} at={record.name} {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure(level: str) -> None:
    """Send the whole process's log to standard error at `level`, one of `LEVELS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_KeyValue())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("asyncio", "aiohttp", "watchfiles", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
