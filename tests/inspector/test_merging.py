"""Answers about single nodes make one."""

from inspector.merging import merged
from tests.build import node, pod
from tests.inspector.clusters import inspected


def test_refusals_and_fitting_nodes_are_added_up() -> None:
    cluster = (
        node("n1", cards=[100]),
        node("n2", cards=[8000]),
        node("n3", cards=[200]),
        node("n4", cards=[8000]),
        pod("a", memory=500, uid="a", created="2026-01-01T00:00:00Z"),
        pod("b", memory=3, slots=2, uid="b"),
    )
    names = ["n1", "n2", "n3", "n4"]
    one_by_one = merged([inspected(*cluster, only=name) for name in names])
    assert one_by_one == inspected(*cluster)
    (waits,) = [each for each in one_by_one.waiting if each.name == "a"]
    assert waits.fitting == 2


def test_a_pod_that_came_between_two_answers_counts_what_it_was_asked_for() -> None:
    before, after = inspected(node("n1", cards=[1])), inspected(node("n2", cards=[1]), pod("a", memory=5))
    (waits,) = merged([before, after]).waiting
    assert waits.reasons is not None
    assert [each.nodes for each in waits.reasons] == [1]
    assert merged([after, before]).waiting == []
