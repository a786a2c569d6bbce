"""Which cards a bound pod was given: what a Binding carries, and what is read back from it."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.allocation import Allocation, CardRef, allocation_annotations, decode_allocation
from gpushare.cards import Card
from gpushare.errors import AllocationError
from gpushare.objects import Pod
from tests.build import NAMES, card, container, demand, pod


def read(annotations: dict[str, str], *, of: Pod, node: str = "n1") -> Allocation:
    return decode_allocation(annotations, node=node, demand=demand(of), names=NAMES)


@given(
    cards=st.lists(
        st.builds(
            Card,
            index=st.integers(0, 255),
            uuid=st.text(min_size=1, max_size=9),
            memory=st.integers(1, 10**6),
        ),
        min_size=1,
        max_size=4,
        unique_by=(lambda card: card.index, lambda card: card.uuid),
    ),
    units=st.integers(1, 10**6),
    node=st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True),
)
def test_what_a_binding_carries_is_what_is_read_back(cards: list[Card], units: int, node: str) -> None:
    asking = pod(memory=units * len(cards), slots=len(cards))
    written = allocation_annotations(node=node, cards=cards, demand=demand(asking), now_ns=7, names=NAMES)
    assert read(written, of=asking, node=node) == Allocation(
        node=node, cards=tuple(CardRef(card.index, card.uuid) for card in cards), vouched=True
    )
    assert all(isinstance(value, str) for value in written.values()), "annotations are strings"


def test_a_binding_carries_the_classic_annotations_and_the_json() -> None:
    asking = pod(
        containers=[
            container("wide", memory=4000, slots=2),
            container("narrow", memory=500),
            container("none"),
        ]
    )
    written = allocation_annotations(
        node="n1",
        cards=[card(2, memory=16384), card(0, memory=8192)],
        demand=demand(asking),
        now_ns=1_700_000_000_000_000_001,
        names=NAMES,
    )
    assert json.loads(written.pop(NAMES.allocation)) == {
        "node": "n1",
        "cards": [{"index": 2, "uuid": "GPU-n1-2"}, {"index": 0, "uuid": "GPU-n1-0"}],
        "containers": {"wide": [2000, 2000], "narrow": [500]},
    }
    assert written == {
        "ALIYUN_COM_GPU_MEM_IDX": "2,0",
        "ALIYUN_COM_GPU_MEM_POD": "2500,2000",
        "ALIYUN_COM_GPU_MEM_DEV": "16384,8192",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000001",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    }


def test_one_number_stands_for_equal_cards() -> None:
    written = pod(
        memory=4000, slots=2, on="n1", cards=[card(0, memory=9000), card(1, memory=9000)]
    ).annotations
    assert (written[NAMES.index], written[NAMES.pod_memory], written[NAMES.card_memory]) == (
        "0,1",
        "2000",
        "9000",
    )


def test_a_pod_bound_by_the_classic_scheduler_is_read_from_its_index_alone() -> None:
    classic = {
        NAMES.index: "1",
        NAMES.pod_memory: "3000",
        NAMES.card_memory: "16384",
        NAMES.assume_time: "1700000000000000000",
        NAMES.assigned: "true",
    }
    assert read(classic, of=pod(memory=3000)) == Allocation(node="n1", cards=(CardRef(1),), vouched=False)
    both = read({NAMES.index: "0,2"}, of=pod(memory=3000, slots=2))
    assert both.indices == "0,2"


def test_amounts_that_an_annotation_claims_are_not_read() -> None:
    lying = pod(memory=3000, on="n1", cards=[1])
    claims = json.loads(lying.annotations[NAMES.allocation]) | {"containers": {"main": [1], "ghost": [5]}}
    annotations = dict(lying.annotations) | {
        NAMES.pod_memory: "1",
        NAMES.card_memory: "junk",
        NAMES.allocation: json.dumps(claims),
    }
    assert read(annotations, of=lying).cards == (CardRef(1, "GPU-n1-1"),)


@pytest.mark.parametrize(
    "index",
    ["abc", "-1", "", "1.0", " 1", "1 ", "+1", "01", "1,", ",1", "1,,2", "1;2", "0x1", "1e0", "١", "1\n",
     "99999", "9" * 100_000, "null", "[1]", "\ud800"],
    ids=lambda text: text[:12].encode("ascii", "backslashreplace").decode(),
)  # fmt: skip
def test_L9_a_bad_index_is_an_error_that_says_what_was_read(index: str) -> None:
    bound = pod(memory=4000, on="n1", cards=[1])
    for annotations in ({NAMES.index: index}, dict(bound.annotations) | {NAMES.index: index}):
        with pytest.raises(AllocationError, match="unreadable") as raised:
            read(annotations, of=bound)
        assert NAMES.index in str(raised.value)
        assert len(str(raised.value)) < 300, "it ends in an event"


def test_L9_a_missing_index_is_called_missing() -> None:
    bound = pod(memory=4000, on="n1", cards=[1])
    annotations = {key: value for key, value in bound.annotations.items() if key != NAMES.index}
    with pytest.raises(AllocationError) as raised:
        read(annotations, of=bound)
    assert str(raised.value) == f"has an unreadable card allocation: {NAMES.index} is missing"


def written(**changes: Any) -> str:
    """The JSON of pod `4000@1` on n1 with some keys changed; `...` leaves the key out."""
    example = {"node": "n1", "cards": [{"index": 1, "uuid": "GPU-n1-1"}], "containers": {"main": [4000]}}
    return json.dumps({key: value for key, value in (example | changes).items() if value is not ...})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "1",
        '"n1"',
        written()[:-1],
        written() + "x",
        written(node=...),
        written(node=1),
        written(node=None),
        written(cards=...),
        written(cards=None),
        written(cards={}),
        written(cards=[1]),
        written(cards=[{"index": "1", "uuid": "GPU-n1-1"}]),
        written(cards=[{"index": 1.5, "uuid": "GPU-n1-1"}]),
        written(cards=[{"uuid": "GPU-n1-1"}]),
        written(cards=[{"index": 1, "uuid": None}]),
        written(containers=[]),
        written(containers={"main": 4000}),
        written(containers={"main": ["4k"]}),
        "\ud800",
        '{"x":' + "[" * 100_000,
        '{"node":"n1","cards":[{"index":1}],"x":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"node":"n1","cards":[{"index":' + "9" * 10_000 + "}]}",
    ],
    ids=lambda text: text[:60].encode("ascii", "backslashreplace").decode(),
)
def test_L9_broken_json_is_an_error_that_names_the_annotation(text: str) -> None:
    with pytest.raises(AllocationError, match=NAMES.allocation):
        read({NAMES.index: "1", NAMES.allocation: text}, of=pod(memory=4000))


def test_L9_index_and_json_that_differ_are_an_error() -> None:
    bound = pod(memory=4000, on="n1", cards=[1])
    with pytest.raises(AllocationError, match="differ"):
        read(dict(bound.annotations) | {NAMES.index: "0"}, of=bound)
    with pytest.raises(AllocationError, match=NAMES.index):
        read({NAMES.allocation: bound.annotations[NAMES.allocation]}, of=bound)


def test_L9_an_allocation_made_for_another_node_is_an_error_that_names_it() -> None:
    bound = pod(memory=4000, on="n1", cards=[1])
    with pytest.raises(AllocationError, match="'n1'"):
        read(dict(bound.annotations), of=bound, node="n2")
    endless = {NAMES.index: "1", NAMES.allocation: written(node="n" * 100_000)}
    with pytest.raises(AllocationError) as raised:
        read(endless, of=bound)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("index", ["0", "0,1,2"])
def test_an_allocation_of_another_number_of_cards_than_needed_is_an_error(index: str) -> None:
    with pytest.raises(AllocationError, match="needs 2"):
        read({NAMES.index: index}, of=pod(memory=4000, slots=2))


@pytest.mark.parametrize(
    ("index", "cards"),
    [
        ("1,1", None),
        ("0,1", [{"index": 0, "uuid": "GPU-a"}, {"index": 1, "uuid": "GPU-a"}]),
    ],
    ids=["index", "uuid"],
)
def test_a_card_named_twice_is_an_error(index: str, cards: list[dict[str, Any]] | None) -> None:
    annotations = {NAMES.index: index}
    if cards is not None:
        annotations[NAMES.allocation] = written(cards=cards)
    with pytest.raises(AllocationError, match="named twice"):
        read(annotations, of=pod(memory=4000, slots=2))


def test_L10_no_allocation_at_all_is_an_error() -> None:
    with pytest.raises(AllocationError, match="has no card allocation"):
        read({"other": "annotation", NAMES.pod_memory: "4000"}, of=pod(memory=4000))


@pytest.mark.parametrize(
    ("ref", "named"),
    [
        (CardRef(1, "GPU-a"), True),
        (CardRef(7, "GPU-a"), True),
        (CardRef(1, "GPU-b"), False),
        (CardRef(1), True),
        (CardRef(7), False),
    ],
    ids=["both", "index-shifted", "card-replaced", "classic", "classic-other"],
)
def test_A5_a_card_is_known_by_its_uuid_and_by_its_index_only_without_one(ref: CardRef, named: bool) -> None:  # noqa: FBT001
    assert ref.names_card(card(1, memory=1, uuid="GPU-a")) is named
    assert CardRef(1, "GPU-a").names_card(Card(index=1, uuid="", memory=1)), (
        "a classic node publishes no UUID"
    )


@given(st.dictionaries(st.sampled_from([NAMES.index, NAMES.allocation]), st.text(max_size=40)))
def test_no_annotation_raises_anything_else(annotations: dict[str, str]) -> None:
    with contextlib.suppress(AllocationError):
        read(annotations, of=pod(memory=4000))
