"""One place that says so where the page cannot be tested."""

from __future__ import annotations

import pytest

from tests.ui.chromium import MISSING, chromium


def test_there_is_a_browser_for_the_tests_of_the_page() -> None:
    if chromium() is None:
        pytest.skip(MISSING)
