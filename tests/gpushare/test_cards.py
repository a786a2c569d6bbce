"""The cards of a node: read exactly or refused, never guessed."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.cards import UNLIMITED_SLOTS, Card, NodeCards, cards_of, decode_cards, encode_cards
from gpushare.errors import CardsError
from gpushare.objects import Node, NodeStatus, ObjectMeta
from tests.build import NAMES, card, node

published = st.builds(
    lambda unit, slots, cards: NodeCards(unit=unit, slots=slots, cards=tuple(cards)),
    st.sampled_from(["MiB", "GiB"]),
    st.integers(1, 4096),
    st.lists(
        st.builds(
            Card,
            index=st.integers(0, 255),
            uuid=st.text(min_size=1, max_size=20),
            memory=st.integers(1, 10**6),
            model=st.text(max_size=20),
            healthy=st.booleans(),
            reason=st.text(max_size=20),
            numa=st.none() | st.integers(-1, 64),
        ),
        max_size=8,
        unique_by=(lambda card: card.index, lambda card: card.uuid),
    ),
)


@given(published)
def test_what_is_published_is_what_is_read(cards: NodeCards) -> None:
    text = encode_cards(cards)
    assert decode_cards(text) == cards
    assert encode_cards(decode_cards(text)) == text, "the same cards always give the same text"
    carrying = Node(metadata=ObjectMeta(name="n1", annotations={NAMES.cards: text}))
    assert cards_of(carrying, names=NAMES, unit="MiB") == cards
    assert cards.memory == sum(card.memory for card in cards.cards)


def annotation(**changes: Any) -> dict[str, Any]:
    """The contract's example with some keys of the whole changed."""
    example: dict[str, Any] = {
        "unit": "MiB",
        "slots": 32,
        "cards": [
            {"index": 0, "uuid": "GPU-a", "memory": 24576, "model": "A10", "healthy": True, "numa": 0},
            {"index": 1, "uuid": "GPU-b", "memory": 24576, "model": "A10", "healthy": True, "numa": 0},
        ],
    }
    return {key: value for key, value in (example | changes).items() if value is not None}


def with_card(**changes: Any) -> dict[str, Any]:
    """The contract's example with some keys of card 0 changed; `...` leaves the key out."""
    cards = annotation()["cards"]
    changed = {key: value for key, value in (cards[0] | changes).items() if value is not ...}
    return annotation(cards=[changed, cards[1]])


def test_reads_the_contracts_example() -> None:
    cards = decode_cards(json.dumps(annotation()))
    assert (cards.unit, cards.slots) == ("MiB", 32)
    assert cards.cards[0] == Card(index=0, uuid="GPU-a", memory=24576, model="A10", healthy=True, numa=0)


def test_unknown_keys_are_ignored_at_every_level() -> None:
    text = json.dumps(with_card(cores=100, extra={"deep": [1, None]}) | {"version": 7, "note": None})
    assert decode_cards(text) == decode_cards(json.dumps(annotation()))


def test_optional_keys_may_be_absent() -> None:
    bare = decode_cards('{"unit":"GiB","slots":1,"cards":[{"index":3,"uuid":"GPU-a","memory":24}]}')
    assert bare.cards == (Card(index=3, uuid="GPU-a", memory=24, healthy=True, numa=None),)


def test_a_node_may_have_no_card_at_present() -> None:
    assert decode_cards(json.dumps(annotation(cards=[]))).cards == ()


UNREADABLE: list[Any] = [
    with_card(index=-1),
    with_card(index="0"),
    with_card(index=0.5),
    with_card(index=True),
    with_card(index=None),
    with_card(index=...),
    with_card(index=1),  # a second card of this index
    with_card(index=10_000),  # beyond what an allocation can name
    with_card(uuid="GPU-b"),  # a second card of this UUID
    with_card(uuid=""),
    with_card(uuid=7),
    with_card(uuid=...),
    with_card(memory=0),
    with_card(memory=-24576),
    with_card(memory="24576"),
    with_card(memory="24k"),
    with_card(memory=24576.5),
    with_card(memory=...),
    with_card(healthy="true"),
    with_card(healthy=1),
    with_card(healthy=None),
    with_card(numa="0"),
    with_card(model=None),
    annotation(unit="mib"),
    annotation(unit="MB"),
    annotation(unit=""),
    annotation(unit=1),
    annotation(slots=0),
    annotation(slots=-1),
    annotation(slots="32"),
    annotation(slots=1.5),
    annotation(cards={}),
    annotation(cards=[None]),
    annotation(cards=["GPU-a"]),
    {"slots": 32, "cards": []},
    {"unit": "MiB", "cards": []},
    {"unit": "MiB", "slots": 32},
    [],
    None,
    0,
    "MiB",
]


@pytest.mark.parametrize(
    "text",
    [
        *map(json.dumps, UNREADABLE),
        "",
        " ",
        "{",
        "null",
        json.dumps(annotation())[:-1],
        json.dumps(annotation()) + "x",
        json.dumps(with_card(memory=float("nan"))),
        json.dumps(with_card(memory=float("inf"))),
        "\ud800",
        '{"unit":"MiB","slots":1,"cards":[{"index":0,"uuid":"\\ud800","memory":1}]}',
        '{"x":' + "[" * 100_000,
        '{"x":' + "[" * 100_000 + "]" * 100_000 + ',"unit":"MiB","slots":1,"cards":[]}',
        '{"unit":"MiB","slots":' + "9" * 10_000 + ',"cards":[]}',
    ],
    ids=lambda text: text[:60].encode("ascii", "backslashreplace").decode(),
)
def test_an_unreadable_annotation_is_an_error_and_never_zero(text: str) -> None:
    with pytest.raises(CardsError):
        decode_cards(text)
    capable = Node(
        metadata=ObjectMeta(name="n1", annotations={NAMES.cards: text}),
        status=NodeStatus(capacity={NAMES.memory: "16384", NAMES.count: "1"}),
    )
    with pytest.raises(CardsError):
        cards_of(capable, names=NAMES, unit="MiB")


@given(st.text() | st.from_regex(r'\{("(unit|slots|cards)":("MiB"|1|\[\{?|\}|\]),?){0,4}\}?'))
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(CardsError):
        decode_cards(text)


def classic(**capacity: str | int | float) -> Node:
    named = {"memory": NAMES.memory, "count": NAMES.count}
    return Node(
        metadata=ObjectMeta(name="n1"),
        status=NodeStatus(capacity={named[key]: value for key, value in capacity.items()}),
    )


@pytest.mark.parametrize(
    ("memory", "count", "sizes"),
    [
        ("32552", "2", [16276, 16276]),
        ("32553", "2", [16276, 16276]),
        ("100", "3", [33, 33, 33]),
        ("64k", "4", [16000] * 4),
        (24576, 1, [24576]),
        ("1Ki", "1", [1024]),
    ],
)
def test_a_classic_nodes_totals_are_split_evenly_and_never_rounded_up(
    memory: str | int, count: str | int, sizes: list[int]
) -> None:
    cards = cards_of(classic(memory=memory, count=count), names=NAMES, unit="GiB")
    assert cards is not None
    assert [(card.index, card.uuid, card.memory) for card in cards.cards] == [
        (index, "", size) for index, size in enumerate(sizes)
    ]
    assert (cards.unit, cards.slots) == ("GiB", UNLIMITED_SLOTS)


@pytest.mark.parametrize(
    "bare",
    [
        Node(),
        Node(metadata=ObjectMeta(name="n1"), status=NodeStatus()),
        classic(),
        classic(memory="32552"),
        classic(count="2"),
        classic(memory="32552", count="0"),
        classic(memory="0", count="2"),
        classic(memory="1", count="2"),
    ],
    ids=["nothing", "no-capacity", "empty", "no-count", "no-memory", "count-0", "memory-0", "too-little"],
)
def test_a_node_that_shares_no_card_has_none(bare: Node) -> None:
    assert cards_of(bare, names=NAMES, unit="MiB") is None


@pytest.mark.parametrize(
    ("memory", "count"),
    [
        ("x", "2"), ("32552", "x"), ("32552", "-1"), ("-1", "1"), ("32552", "1500m"), ("1.5", "1"), ("", "1"),
        ("9E", "1M"), ("9E", "9E"), ("32552", "NaN"),
    ],
)  # fmt: skip
def test_a_classic_nodes_unreadable_totals_are_an_error(memory: str, count: str) -> None:
    with pytest.raises(CardsError, match="capacity"):
        cards_of(classic(memory=memory, count=count), names=NAMES, unit="MiB")


def test_the_annotation_comes_before_the_totals() -> None:
    mixed = node(cards=[8192, 16384])
    assert mixed.capacity[NAMES.memory] == "24576"
    cards = cards_of(mixed, names=NAMES, unit="MiB")
    assert cards is not None
    assert [(one.index, one.memory) for one in cards.cards] == [(0, 8192), (1, 16384)]
    assert cards.cards[1] == card(1, memory=16384)
