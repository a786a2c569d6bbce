"""Units of an earlier plugin that pods still hold: no card takes pods until they are gone."""

import asyncio
from collections.abc import Iterable

import pytest

from deviceplugin.leftovers import REASON, Leftovers
from deviceplugin.matching import Listed
from deviceplugin.podresources import KubeletSilent
from gpushare.cards import Card
from kubeapi.events import ObjectRef, Severity
from tests.deviceplugin.pods import NAMES, NODE, card
from tests.waiting import until

UNITS = frozenset({"GPU-0-_-0", "GPU-0-_-1"})


class Kubelet:
    """What kubelet lists: pods that hold units, or silence."""

    def __init__(self, *holders: str) -> None:
        self.holders: tuple[str, ...] | None = holders
        self.questions = 0

    async def pods(self, *, resource: str, timeout: float) -> tuple[Listed, ...]:  # noqa: ASYNC109
        self.questions += 1
        assert resource == NAMES.memory
        if self.holders is None:
            raise KubeletSilent("UNAVAILABLE: gone")
        listed = [Listed(namespace="default", name=name, held={"main": UNITS}) for name in self.holders]
        return (*listed, Listed(namespace="default", name="other", held={}))


class Events:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record(self, about: ObjectRef, *, reason: str, message: str, severity: Severity = "Warning") -> None:
        self.reasons.append(reason)


def leftovers(
    kubelet: Kubelet, *, events: Events | None = None, changes: list[int] | None = None
) -> Leftovers:
    noted = changes if changes is not None else []
    return Leftovers(
        kubelet,
        resource=NAMES.memory,
        node=NODE,
        events=events or Events(),
        changed=lambda: noted.append(1),
        every=0.01,
    )


def cards() -> tuple[Card, ...]:
    return (card(0, memory=15), card(1, memory=15))


async def test_without_holders_cards_are_as_they_are() -> None:
    kubelet, changes = Kubelet(), list[int]()
    left = leftovers(kubelet, changes=changes)

    await asyncio.wait_for(left.run(), 5)

    assert left.apply(cards()) == cards()
    assert (kubelet.questions, changes) == (1, []), "once nobody holds units, nobody can get new ones"


async def test_every_card_says_which_pods_are_in_the_way() -> None:
    events = Events()
    left = leftovers(Kubelet("b", "a", "d", "c", "e"), events=events)

    assert await left.look()

    (reason,) = {each.reason for each in left.apply(cards())}
    assert not any(each.healthy for each in left.apply(cards()))
    assert reason.endswith("default/a, default/b, default/c and 2 more")
    assert events.reasons == [REASON]
    await left.look()
    assert events.reasons == [REASON], "said once"


async def test_a_cards_own_fault_is_not_covered_up() -> None:
    left = leftovers(Kubelet("a"))
    await left.look()
    broken = Card(index=0, uuid="GPU-0", memory=15, healthy=False, reason="XID 79")
    assert left.apply([broken]) == (broken,)


@pytest.mark.parametrize("first", [("a",), None], ids=["held", "silent"])
async def test_it_looks_until_kubelet_says_that_nobody_holds_any(first: Iterable[str] | None) -> None:
    kubelet, changes = Kubelet(), list[int]()
    kubelet.holders = None if first is None else tuple(first)
    left = leftovers(kubelet, changes=changes)
    running = asyncio.create_task(left.run())
    await until(lambda: kubelet.questions > 2, what="it asks again")
    assert not running.done()

    kubelet.holders = ()
    left.wake()

    await asyncio.wait_for(running, 5)
    assert left.apply(cards()) == cards()
    assert len(changes) == (0 if first is None else 2)
