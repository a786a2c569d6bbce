"""The order of nodes is remembered, and is that of the nodes as they are (V16, and unknown names)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpushare.bookings import PodRef
from gpushare.demand import Demand
from gpushare.ledger import Ledger
from gpushare.placement import Policy, node_preference
from tests.build import NAMES, demand, node, pod

NODES = [f"n{number}" for number in range(5)]


def computed(
    ledger: Ledger, names: list[str], *, asked: Demand, policy: Policy
) -> list[tuple[int, int, str]]:
    """The same without any memory, and by the view's own word on whether the demand fits."""
    found = []
    for name in names:
        view = ledger.view(name)
        if view.refusal(asked) is None:
            preferred = node_preference(asked, preferred=view.rooms[policy], policy=policy, name=name)
            assert preferred is not None
            found.append(preferred)
    return found


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(NODES),
            st.sampled_from(["book", "release", "resize", "remove", "close"]),
            st.integers(1, 12),
            st.integers(1, 3),
        ),
        max_size=25,
    )
)
def test_V16_remembered_preferences_follow_every_change(steps: list[tuple[str, str, int, int]]) -> None:
    ledger = Ledger(names=NAMES, unit="MiB")
    for name in NODES[:4]:
        ledger.set_node(node(name, cards=[10, 7]))
    booked: list[str] = []
    for number, (name, what, memory, slots) in enumerate(steps):
        wanted = pod(f"p{number}", memory=memory * slots, slots=slots)
        asked = demand(wanted)
        if what == "book" and ledger.view(name).refusal(asked) is None:
            ledger.reserve_cards(PodRef.of(wanted), demand=asked, node=name, policy=Policy.BINPACK)
            booked.append(wanted.metadata.uid)
        elif what == "release" and booked:
            ledger.remove_pod(booked.pop())
        elif what == "resize":
            ledger.set_node(node(name, cards=[memory] * slots))
        elif what == "remove":
            ledger.remove_node(name)
        elif what == "close":
            ledger.set_pod(pod(f"x{number}", memory=1, on=name))
        for policy in Policy:
            for each in (asked, demand(pod(memory=4)), demand(pod(memory=0))):
                names = [*NODES, "unheard-of"]
                found = ledger.preferences(names, demand=each, policy=policy)
                assert found == computed(ledger, names, asked=each, policy=policy)
