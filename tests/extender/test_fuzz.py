"""V1, whatever is in the body: an answer in JSON, no internal error, no error in the log, nothing bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.extender.bodies import ROUTES
from tests.extender.target import Target


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target() as target:
        yield target
        assert target.is_well


@pytest.mark.parametrize("path", ROUTES)
def test_V1_no_body_makes_it_fail(path: str, target: Target) -> None:
    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(body=ROUTES[path])
    def throw(body: bytes) -> None:
        target.throw(path, body)

    throw()
