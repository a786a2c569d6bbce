"""One cluster for all of these tests, with the chart installed; one visible skip where there can be none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import binaries
from tests.e2e.controlplane import ControlPlane, control_plane
from tests.e2e.installation import VALUES, Installation, install
from tests.e2e.pair import Pair, running_pair

SECONDS = 240
"""For one test, with what it starts; some wait for a Lease to run out."""


def unavailable() -> str:
    """Why the whole of this is skipped; empty if it is not."""
    if not os.environ.get(binaries.VARIABLE):
        return f"{binaries.VARIABLE} names no folder with kube-apiserver and kube-scheduler"
    if absent := binaries.missing(binaries.CLUSTER):
        return absent
    if "PYTEST_XDIST_WORKER" in os.environ:
        return "`make e2e` runs these, one after another"
    return ""


# Otherwise every test would be a skip of its own; test_available.py has the one that says why.
collect_ignore_glob = [] if not unavailable() else ["test_[b-z]*.py", "test_ad*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    with control_plane() as started:
        yield started


@pytest.fixture(scope="session")
def installation(plane: ControlPlane) -> Installation:
    """The chart with its defaults, but with cards that need no GPU."""
    return install(plane, VALUES)


@pytest.fixture(scope="module")
def pair(installation: Installation, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The pair that places the pods of a module's tests."""
    with running_pair(installation, f"pair-{request.module.__name__.rpartition('_')[2]}") as started:
        yield started


@pytest.fixture
def clean(plane: ControlPlane) -> Iterator[None]:
    """No pods and no nodes but what the test makes."""
    yield
    plane.api.clear_pods()
    plane.api.delete("/api/v1/nodes")
