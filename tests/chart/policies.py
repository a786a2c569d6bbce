"""Evaluates rendered admission policies as the API server does: conditions, variables, validations, patches.

The CEL is evaluated by cel-python, which brings the language; what Kubernetes adds to it is here, as far as
the chart uses it (quantities and lists by Kubernetes 1.36, strings by cel-go's extension). How the API server
itself compiles and runs the same text is for the tests with a real one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from kubernetes.utils.quantity import parse_quantity

from tests.chart.rendering import Object, Release


@dataclass(frozen=True)
class Policies:
    """The policies of one release."""

    release: Release

    def refusals(self, request: Mapping[str, Any], *, policy: str = "gpushare-pods") -> list[str]:
        """The messages of a ValidatingAdmissionPolicy's validations that fail; none if it does not match."""
        spec = self.release.one("ValidatingAdmissionPolicy", policy)["spec"]
        scope = _scope(spec, request)
        if scope is None:
            return []
        return [
            _told(each, scope) for each in spec["validations"] if not _evaluate(each["expression"], scope)
        ]

    def patch(self, request: Mapping[str, Any], *, policy: str = "gpushare-pods") -> list[dict[str, str]]:
        """The operations of a MutatingAdmissionPolicy's mutations."""
        if not self.release.has("MutatingAdmissionPolicy", policy):
            return []
        spec = self.release.one("MutatingAdmissionPolicy", policy)["spec"]
        scope = _scope(spec, request)
        if scope is None:
            return []
        patches = [_evaluate(each["jsonPatch"]["expression"], scope) for each in spec["mutations"]]
        return [{str(key): str(value) for key, value in each.items()} for patch in patches for each in patch]


def matches(conditions: list[Object], request: Mapping[str, Any]) -> bool:
    """Whether all matchConditions of a policy or a webhook hold."""
    scope = _variables(request)
    return all(_evaluate(each["expression"], scope) for each in conditions)


def creation(pod: Object, **more: Any) -> dict[str, Any]:
    """What an expression sees of the creation of a pod."""
    return {
        "object": pod,
        "oldObject": None,
        "request": {"operation": "CREATE", "resource": {"resource": "pods"}, "userInfo": {"username": "ann"}},
    } | more


def _scope(spec: Object, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The variables that an expression of this policy sees, `None` where the policy does not match."""
    if not matches(spec["matchConditions"], request):
        return None
    scope = _variables(request)
    for each in spec["variables"]:
        value = _evaluate(each["expression"], scope)
        scope["variables"][celtypes.StringType(each["name"])] = value
    return scope


def _variables(request: Mapping[str, Any]) -> dict[str, Any]:
    scope = {name: json_to_cel(value) for name, value in request.items()}
    return scope | {"variables": celtypes.MapType()}


def _told(validation: Object, scope: dict[str, Any]) -> str:
    if "messageExpression" in validation:
        told = str(_evaluate(validation["messageExpression"], scope))
        if told.strip() and "\n" not in told and len(told.encode()) <= _LONGEST_MESSAGE:
            return told
    return str(validation["message"])


_LONGEST_MESSAGE = 5 * 1024  # bytes; longer ones, empty ones and several lines give way to `message` (1.36)


class JSONPatch(celtypes.MapType):
    """A mutation's operation."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__({celtypes.StringType(name): value for name, value in fields.items()})


def _evaluate(expression: str, scope: dict[str, Any]) -> Any:
    return _compiled(expression).evaluate(scope)


celpy.Environment()  # the first raises Python's recursion limit, which hypothesis minds in mid-test


@functools.cache
def _compiled(expression: str) -> celpy.Runner:
    environment = celpy.Environment(annotations={"JSONPatch": JSONPatch})
    return environment.program(environment.compile(expression), functions=_FUNCTIONS)


def _as_integer(quantity: str) -> celtypes.IntType:
    if not _is_integer(quantity):
        raise ValueError(f"cannot convert value to integer: {quantity}")
    return celtypes.IntType(int(parse_quantity(quantity)))


def _is_integer(quantity: str) -> celtypes.BoolType:
    value = parse_quantity(quantity)
    return celtypes.BoolType(value == int(value) and _is_short(quantity))


def _is_short(quantity: str) -> bool:
    """Whether Kubernetes keeps it as an int64: longer ones are no integers to CEL, whatever their value.

    apimachinery `resource.ParseQuantity` and `Quantity.AsInt64` (1.36).
    """
    match = re.fullmatch(r"[+-]?0*(\d*)(\.\d*)?(.*)", quantity)
    assert match
    digits, fraction, suffix = match.groups()
    power = "KMGTPE".find(suffix[:1]) + 1 if suffix.endswith("i") else 0
    if power:
        return fraction is None and 15 - len(digits) - 3 * power - 1 >= 0
    return len(digits) + len((fraction or ".")[1:]) <= 18 and abs(parse_quantity(quantity)) < 2**63


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: celtypes.ListType(function(*arguments))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": lambda text: text,
    "asInteger": _as_integer,
    "isInteger": _is_integer,
    "asApproximateFloat": lambda quantity: celtypes.DoubleType(min(parse_quantity(quantity), 2**63 - 1)),
    "sum": lambda items: celtypes.IntType(sum(items)),
    "indexOf": lambda items, item: celtypes.IntType(items.index(item)),
    "flatten": _listed(lambda items: [each for item in items for each in item]),
    "distinct": _listed(dict.fromkeys),
    "sort": _listed(sorted),
    "slice": _listed(lambda items, start, end: items[start:end]),
    "join": lambda items, separator="": celtypes.StringType(separator.join(items)),
    "substring": lambda text, start, end=None: celtypes.StringType(text[start:end]),
    "lowerAscii": lambda text: celtypes.StringType(text.lower()),
}
