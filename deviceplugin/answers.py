"""What a container is told: the cards it may see and its share of them, as environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.errors import OverfullError, PodError
from deviceplugin.holdings import units_on
from deviceplugin.slots import card_of_slot
from gpushare.allocation import CardRef, decode_allocation, one_or_each
from gpushare.bookings import Booking
from gpushare.cards import Card
from gpushare.demand import demand_of
from gpushare.errors import AllocationError, DemandError
from gpushare.names import VISIBLE_DEVICES, Names
from gpushare.objects import Pod

_PLACE_ANEW = "delete the pod and let the GPU scheduler place a new one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The environment of one container, and where it comes from."""

    envs: Mapping[str, str]
    cards: tuple[Card, ...]
    """The container's cards, by position."""
    pod_cards: tuple[Card, ...]
    """All cards of its pod: an init container's slots, which kubelet reuses, may be of any of them."""


def answer_for(pod: Pod, *, container: str, cards: Sequence[Card], names: Names) -> Answer:
    """Return what `container` of a bound pod gets on a node with these cards.

    UUIDs, never indices: an index shifts when a card goes, and kubelet replays recorded answers. Raises
    `PodError` for a pod whose demand or allocation cannot be read, or whose card is gone or not healthy.
    """
    try:
        demand = demand_of(pod.spec, names)
        needs = demand.container(container) if demand else None
        if demand is None or needs is None:
            raise refusal(
                pod,
                container=container,
                problem=f"asks for {names.slot} without {names.memory}",
                remedy="give the container a limit for both",
            )
        allocation = decode_allocation(pod.annotations, node=pod.node_name, demand=demand, names=names)
    except DemandError as error:
        raise refusal(
            pod, container=container, problem=str(error), remedy="correct the pod's limits"
        ) from error
    except AllocationError as error:
        raise refusal(pod, container=container, problem=str(error), remedy=_PLACE_ANEW) from error
    pod_cards = tuple(_find(ref, cards=cards, pod=pod, container=container) for ref in allocation.cards)
    own = pod_cards[: needs.slots]
    return Answer(
        envs={
            VISIBLE_DEVICES: ",".join(card.uuid for card in own),
            names.index: ",".join(str(card.index) for card in own),
            names.pod_memory: one_or_each([share.memory for share in demand.cards[: needs.slots]]),
            names.container_memory: str(needs.per_card),
            names.card_memory: one_or_each([card.memory for card in own]),
        },
        cards=own,
        pod_cards=pod_cards,
    )


def check_slots(answer: Answer, *, ids: Iterable[str], pod: Pod, container: str) -> None:
    """Raise `PodError` unless every slot that kubelet chose is of a card of the pod."""
    if not slots_agree(answer, ids=ids):
        theirs = sorted({card_of_slot(slot) for slot in ids})
        ours = [card.uuid for card in answer.pod_cards]
        problem = f"kubelet chose slots of {', '.join(theirs)} but the pod was given {', '.join(ours)}"
        raise refusal(pod, container=container, problem=problem, remedy=_PLACE_ANEW)


def slots_agree(answer: Answer, *, ids: Iterable[str]) -> bool:
    """Whether all slots are of cards that the pod was given."""
    return {card_of_slot(slot) for slot in ids} <= {card.uuid for card in answer.pod_cards}


def check_room(pod: Pod, *, container: str, answer: Answer, bookings: Iterable[Booking]) -> None:
    """The second lock: raise `OverfullError` where a card of the pod is booked beyond its size.

    `bookings` are those of all live pods of the node, the pod's own among them.
    """
    held = tuple(bookings)
    for card in answer.pod_cards:
        holders = [(booking, units_on(card, booking=booking)) for booking in held]
        booked = sum(units for _, units in holders)
        if booked > card.memory:
            others = ", ".join(
                f"{booking.pod} {units}"
                for booking, units in holders
                if units and booking.pod.uid != pod.metadata.uid
            )
            raise OverfullError(
                f"pod {pod.key}, container {container}: card {card.index} ({card.uuid}) has {card.memory} "
                f"units and would hold {booked}; also on it: {others or 'nobody'}; {_PLACE_ANEW}",
                uid=pod.metadata.uid,
            )


def _find(ref: CardRef, *, cards: Sequence[Card], pod: Pod, container: str) -> Card:
    card = next((card for card in cards if ref.names_card(card)), None)
    if card is None:
        problem = f"was given card {ref.index} ({ref.uuid or 'no UUID'}), which the node does not have"
    elif not card.healthy:
        reason = card.reason or "no reason known"
        problem = f"was given card {card.index} ({card.uuid}), which is not healthy: {reason}"
    else:
        return card
    raise refusal(pod, container=container, problem=problem, remedy=_PLACE_ANEW)


def refusal(pod: Pod, *, container: str, problem: str, remedy: str) -> PodError:
    """Why a container of a pod that was found gets nothing, and what to do about it."""
    return PodError(f"pod {pod.key}, container {container}: {problem}; {remedy}", uid=pod.metadata.uid)
