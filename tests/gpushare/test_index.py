"""The index: always today's nodes, measured again only where something changed."""

from hypothesis import given
from hypothesis import strategies as st

from gpushare.index import NodeIndex


def test_only_changed_nodes_are_measured_again() -> None:
    numbers = {"a": 1, "b": 2, "c": 0}
    measured: list[str] = []

    def measure(name: str) -> int:
        measured.append(name)
        return numbers.get(name, 0)

    index = NodeIndex(measure, nodes=numbers)
    assert index.at_least(1) == {"a", "b"}
    assert index.at_least(2) == {"b"}
    assert sorted(measured) == ["a", "b", "c"]
    numbers.update(a=0, d=4)
    del numbers["b"]
    measured.clear()
    for name in ("a", "b", "d", "d"):
        index.touch(name)
    assert index.at_least(2) == {"d"}
    assert index.at_least(1) == {"d"}
    assert sorted(measured) == ["a", "b", "d"]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.integers(0, 30)),
            st.tuples(st.just(""), st.integers(1, 30)),
        ),
        max_size=80,
    )
)
def test_every_threshold_is_right_after_every_change(steps: list[tuple[str, int]]) -> None:
    numbers: dict[str, int] = {}
    index = NodeIndex(lambda name: numbers.get(name, 0), nodes=())
    for name, number in steps:
        if name:
            numbers[name] = number
            index.touch(name)
        else:
            assert index.at_least(number) == {node for node, value in numbers.items() if value >= number}
