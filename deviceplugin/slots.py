"""Slots: the devices that kubelet counts, a few per card, each the permission to see it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpushare.cards import Card


def slot_id(uuid: str, *, number: int) -> str:
    """The ID of a card's slot: the same after every restart, and it names its card."""
    return f"{uuid}::{number}"


def card_of_slot(slot: str) -> str:
    """The UUID of the card that a slot belongs to."""
    return slot.rpartition("::")[0]


def choose_slots(
    cards: Sequence[Card], *, available: Collection[str], must_include: Collection[str], size: int
) -> tuple[str, ...] | None:
    """Choose `size` slots, one of each card where possible, from those that kubelet offers.

    What must be included always is: slots of an init container that kubelet passes on within its pod.
    `None` if the cards have too few slots among the available ones.
    """
    chosen = list(must_include)
    free = sorted(set(available) - set(must_include), key=lambda slot: (len(slot), slot))
    covered = {card_of_slot(slot) for slot in chosen}
    first = [
        next((slot for slot in free if card_of_slot(slot) == card.uuid), None)
        for card in cards
        if card.uuid not in covered
    ]
    if None in first and len(chosen) < size:
        return None
    own = {card.uuid for card in cards}
    rest = [slot for slot in free if slot not in first and card_of_slot(slot) in own]
    chosen += [slot for slot in (*first, *rest) if slot is not None][: max(0, size - len(chosen))]
    return tuple(chosen) if len(chosen) >= size else None
