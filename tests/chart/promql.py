"""Which labels a PromQL expression's series have, as far as the programs' catalogues say.

    labels("sum by (node) (gpushare_card_booked_bytes)") == {"node"}

An expression that names a metric nobody exports, or groups, selects or matches by a label that the series do
not have, is an `AssertionError`: Prometheus itself would only answer nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import promql_parser
from promql_parser import AggModifierType, LabelModifierType

from deviceplugin.metrics import CATALOGUE as OF_PLUGIN
from extender.metrics import CATALOGUE as OF_EXTENDER

TARGET = frozenset({"job", "instance", "namespace", "pod"})
"""What Prometheus adds to every series, from where it scraped it."""

_FOREIGN: Mapping[str, tuple[str, frozenset[str]]] = {
    "process_resident_memory_bytes": ("gauge", frozenset()),
    "kube_daemonset_status_number_unavailable": ("gauge", frozenset({"namespace", "daemonset"})),
}
"""What others export: Prometheus' client library, kube-state-metrics."""

METRICS: Mapping[str, tuple[str, frozenset[str]]] = {
    **{each.name: (each.kind, frozenset(each.labels)) for each in OF_EXTENDER},
    **{name: (kind, frozenset(names)) for name, (kind, names) in OF_PLUGIN.items()},
    **_FOREIGN,
}

_OF_COUNTERS = frozenset({"rate", "increase"})


def labels(expression: str) -> frozenset[str]:
    """The labels that the answer's series can have. Raises `ValueError` where it cannot be parsed."""
    return _labels(promql_parser.parse(expression))


def _labels(node: Any) -> frozenset[str]:
    match node:
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return frozenset()
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            return _labels(node.expr)
        case promql_parser.VectorSelector():
            return _series(node)[1]
        case promql_parser.AggregateExpr():
            return _aggregated(node)
        case promql_parser.Call():
            return _called(node)
        case promql_parser.BinaryExpr():
            return _matched(node)
    raise AssertionError(f"{node}: not foreseen here")


def _series(selector: Any) -> tuple[str, frozenset[str]]:
    """The kind and the labels of what is selected: a histogram's parts are counters."""
    name = selector.name
    for suffix, more in (("_bucket", {"le"}), ("_count", set()), ("_sum", set())):
        whole = name.removesuffix(suffix)
        if whole != name and METRICS.get(whole, ("", ()))[0] == "histogram":
            kind, own = "counter", METRICS[whole][1] | more
            break
    else:
        assert name in METRICS, f"{name} is exported by nobody"
        kind, own = METRICS[name]
        assert kind != "histogram", f"{name} is a histogram: it has only _bucket, _count and _sum"
    names = own | TARGET
    for matcher in selector.matchers.matchers:
        assert matcher.name in own, f"{name} has no label {matcher.name}"
    return kind, names


def _aggregated(node: Any) -> frozenset[str]:
    inner = _labels(node.expr)
    if str(node.op) in ("topk", "bottomk"):
        return inner
    if node.modifier is None:
        return frozenset()
    assert node.modifier.type == AggModifierType.By, f"{node}: say by which labels, not without which"
    unknown = set(node.modifier.labels) - inner
    assert not unknown, f"{node}: no label {', '.join(sorted(unknown))} there"
    return frozenset(node.modifier.labels)


def _called(node: Any) -> frozenset[str]:
    name = node.func.name
    if name in _OF_COUNTERS:
        kind, names = _series(node.args[0].vector_selector)
        assert kind == "counter", f"{node}: no counter"
        return names
    inner = [_labels(each) for each in node.args]
    if name == "histogram_quantile":
        assert "le" in inner[1], f"{node}: without le there is no quantile"
        return inner[1] - {"le"}
    if name in ("absent", "vector"):
        return frozenset()
    assert name == "floor", f"{node}: not foreseen here"
    return inner[0]


def _matched(node: Any) -> frozenset[str]:
    left, right = _labels(node.lhs), _labels(node.rhs)
    if _is_number(node.lhs) or _is_number(node.rhs):
        return left | right
    matching = node.modifier.matching if node.modifier else None
    if matching is None:
        if str(node.op) != "or":
            assert left == right, f"{node}: {sorted(left)} and {sorted(right)} never match"
        return left & right
    assert matching.type == LabelModifierType.Include, f"{node}: say on which labels, not ignoring which"
    unknown = set(matching.labels) - (left & right)
    assert not unknown, f"{node}: no label {', '.join(sorted(unknown))} on both sides"
    return left


def _is_number(node: Any) -> bool:
    match node:
        case promql_parser.ParenExpr():
            return _is_number(node.expr)
        case promql_parser.BinaryExpr():
            return _is_number(node.lhs) and _is_number(node.rhs)
    return isinstance(node, promql_parser.NumberLiteral)
