"""Files of simulated cards: what is read, and how bad ones are refused."""

from pathlib import Path

import pytest

from deviceplugin.errors import CardsFileError
from deviceplugin.simulated import SimulatedCards, read_cards
from gpushare.cards import Card


def test_index_is_position_and_everything_but_uuid_and_memory_may_be_left_out(tmp_path: Path) -> None:
    file = tmp_path / "cards.yaml"
    file.write_text(
        "cards:\n"
        "  - {uuid: GPU-b, memory: 8000}\n"
        "  - {uuid: GPU-a, memory: 16000, model: T4, numa: 1, healthy: false, reason: taken out}\n"
    )
    assert read_cards(file) == (
        Card(index=0, uuid="GPU-b", memory=8000),
        Card(index=1, uuid="GPU-a", memory=16000, model="T4", numa=1, healthy=False, reason="taken out"),
    )


def test_a_node_may_have_no_cards(tmp_path: Path) -> None:
    file = tmp_path / "cards.yaml"
    file.write_text("cards: []\n")
    assert read_cards(file) == ()


BAD = {
    "negative size": ("cards:\n- uuid: a\n  memory: -1\n", 3, "memory -1 is not above zero"),
    "no size at all": ("cards:\n- uuid: a\n  memory: 0\n", 3, "not above zero"),
    "two equal UUIDs": (
        "cards:\n- {uuid: a, memory: 1}\n- {uuid: b, memory: 1}\n- {uuid: a, memory: 1}\n",
        4,
        "uuid 'a' is that of the card in line 2 too",
    ),
    "text for a size": ("cards:\n- uuid: a\n  memory: 8Gi\n", 3, "memory is '8Gi', not a whole number"),
    "truth for a size": ("cards:\n- uuid: a\n  memory: true\n", 3, "memory is True, not a whole number"),
    "number for a UUID": ("cards:\n- uuid: 7\n  memory: 1\n", 2, "uuid is 7, not a text"),
    "text for health": (
        "cards:\n- uuid: a\n  memory: 1\n  healthy: ill\n",
        4,
        "healthy is 'ill', not true or",
    ),
    "list for a model": ("cards:\n- uuid: a\n  memory: 1\n  model: [x]\n", 4, "not a text"),
    "negative NUMA node": ("cards:\n- uuid: a\n  memory: 1\n  numa: -1\n", 4, "numa -1 is not a NUMA"),
    "no NUMA node": ("cards:\n- uuid: a\n  memory: 1\n  numa: 99999999999999999999\n", 4, "not a NUMA"),
    "beyond any card": ("cards:\n- uuid: a\n  memory: 99999999999999999999\n", 3, "more units than any card"),
    "nested too deeply": ("cards: " + "[" * 3000 + "]" * 3000, 1, "nested too deeply"),
    "negative minor number": ("cards:\n- uuid: a\n  memory: 1\n  minor: -1\n", 4, "minor -1 is negative"),
    "empty UUID": ("cards:\n- uuid: ''\n  memory: 1\n", 2, "empty"),
    "UUID that is two": ("cards:\n- uuid: a,b\n  memory: 1\n", 2, "','"),
    "unknown key": ("cards:\n- uuid: a\n  memory: 1\n  size: 2\n", 4, "unknown key 'size'"),
    "unknown key at the top": ("card: []\n", 1, "unknown key 'card'"),
    "key given twice": ("cards:\n- uuid: a\n  uuid: b\n  memory: 1\n", 3, "'uuid' is given twice"),
    "no UUID": ("cards:\n- memory: 1\n", 2, "has no 'uuid'"),
    "no memory": ("cards:\n- {uuid: a}\n", 2, "has no 'memory'"),
    "no list": ("cards: {a: 1}\n", 1, "'cards' is not a list"),
    "no mapping": ("- a\n", 1, "not a mapping"),
    "card that is a text": ("cards:\n- a\n", 2, "card 0 is not a mapping"),
    "empty file": ("", 1, "is empty"),
    "empty mapping": ("{}\n", 1, "has no 'cards'"),
    "broken YAML": ("cards:\n- {uuid: a\n", 3, "expected"),
    "YAML with a tab": ("cards:\n\t- uuid: a\n", 2, "cannot start any token"),
    "other YAML tags": ("cards:\n- uuid: !!python/object:os.system a\n  memory: 1\n", 2, "tag"),
    "a size that only looks like one": ("cards:\n- uuid: a\n  memory: !!int x\n", 3, "memory"),
}


@pytest.mark.parametrize(("text", "line", "problem"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    file = tmp_path / "cards.yaml"
    file.write_text(text)
    with pytest.raises(CardsFileError) as caught:
        SimulatedCards(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert problem in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CardsFileError, match="cannot be read"):
        SimulatedCards(tmp_path / "none.yaml")
