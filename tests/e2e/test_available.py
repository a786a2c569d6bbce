"""What is skipped, and why: one line for the whole of it, one for the node."""

from __future__ import annotations

import pytest

from tests.e2e import binaries
from tests.e2e.conftest import unavailable


@pytest.mark.skipif(bool(unavailable()), reason=f"no real cluster: {unavailable()}")
def test_a_real_cluster_can_be_started() -> None:
    assert binaries.missing(binaries.CLUSTER) == ""
