"""Log lines as key=value, one a decision, to standard error."""

from __future__ import annotations

import logging
import sys
import time

LEVELS = ("debug", "info", "warning", "error")
_LONGEST = 1024  # bytes of one line, its end included
_ELLIPSIS = "…"


class _KeyValue(logging.Formatter):
    """`time=… level=… logger=… message`; messages are key=value text themselves."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage()
        level = record.levelname.lower()
        line = f"time={moment}.{int(record.msecs):03d}Z level={level} at={record.name} {message}"
        line = _cut(_one_line(line[:_LONGEST]))
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _one_line(text: str) -> str:
    """Spell out what would end the line, move the cursor, or not encode: some of it is written by users."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _cut(line: str) -> str:
    encoded = line.encode()
    if len(encoded) < _LONGEST:
        return line
    return encoded[: _LONGEST - 1 - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def configure(level: str) -> None:
    """Send the whole process's log to standard error at `level`, one of `LEVELS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_KeyValue())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("asyncio", "aiohttp", "watchfiles", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Log from `level` on, one of `LEVELS`, from now on."""
    logging.getLogger().setLevel(level.upper())
