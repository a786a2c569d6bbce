"""Delays grow, stay bounded, and differ between clients."""

from hypothesis import given
from hypothesis import strategies as st

from kubeapi.backoff import Backoff


@given(st.floats(0.01, 1.0), st.floats(1.0, 60.0), st.integers(1, 50))
def test_each_delay_is_between_half_and_all_of_a_doubling_bounded_step(
    first: float, longest: float, tries: int
) -> None:
    backoff = Backoff(first=first, longest=longest)
    step = first
    for _ in range(tries):
        delay = backoff.next()
        assert step / 2 <= delay <= step
        step = min(longest, step * 2)


def test_starts_over_once_something_worked() -> None:
    backoff = Backoff(first=0.2, longest=10.0)
    for _ in range(10):
        backoff.next()
    assert backoff.next() >= 5.0
    backoff.reset()
    assert backoff.next() <= 0.2


def test_two_clients_do_not_come_back_together() -> None:
    assert len({Backoff().next() for _ in range(50)}) > 1
