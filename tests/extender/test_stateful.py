"""Random histories of several extenders at one API server (L16, V3, V7, V8): see `machine` and `world`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.extender.machine import ClusterMachine


@pytest.mark.timeout(300)  # finding the shortest history that fails takes its time
def test_L16_no_history_overfills_a_card_or_loses_a_booking() -> None:
    run_state_machine_as_test(
        ClusterMachine,
        settings=settings(
            max_examples=120,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
