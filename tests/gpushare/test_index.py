"""The index: always today's numbers, measured again only where something changed."""

from gpushare.index import NodeIndex


def test_only_changed_nodes_are_measured_again() -> None:
    numbers = {"a": 1, "b": 2, "c": 0}
    measured: list[str] = []

    def measure(name: str) -> int:
        measured.append(name)
        return numbers.get(name, 0)

    index = NodeIndex(measure, nodes=numbers)
    assert index.values() == {"a": 1, "b": 2}
    assert sorted(measured) == ["a", "b", "c"]
    measured.clear()
    assert index.values() == {"a": 1, "b": 2}
    assert measured == []
    numbers.update(a=0, d=4)
    del numbers["b"]
    for name in ("a", "b", "d", "d"):
        index.touch(name)
    assert index.values() == {"d": 4}
    assert sorted(measured) == ["a", "b", "d"]
