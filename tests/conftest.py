"""What every test leaves behind as it found it."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """A program's `main` sends the log to a standard error that is a test's own, and closed later."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = before, level
