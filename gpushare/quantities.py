"""Kubernetes quantities, as far as counted resources need them: whole, non-negative numbers of units.

The API server rewrites `1000` as `"1k"`, so every spelling that Kubernetes accepts has to be read here.
The official client's parser is laxer (it takes `" 1"`, `"1_0"` and `"NaN"`) and works on decimals of any
size; it is what the tests compare this one with.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from gpushare.errors import QuantityError

MAX_UNITS = 2**63 - 1
"""Kubernetes caps a quantity at the largest int64 (apimachinery `resource.Quantity`, 1.36)."""

# apimachinery's grammar: sign, digits with at most one point, then a binary, decimal or exponent suffix.
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+|)",
    re.ASCII,
)
_BINARY: dict[str, int] = {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGTPE", start=1)}
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 64  # characters; more digits than this never occur and would only cost time
_LARGEST_EXPONENT = 40  # 10^40 is far beyond the cap; anything above would only cost memory


def parse_units(text: str) -> int:
    """Return the whole number of units a quantity stands for (`"1k"` → 1000, `"2000m"` → 2).

    Raises `QuantityError` for a malformed, negative or fractional one. Values beyond `MAX_UNITS` come back
    as `MAX_UNITS`, as in Kubernetes.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise QuantityError(text, "is not a Kubernetes quantity")
    return _parse(text)


@lru_cache(maxsize=4096)  # 50,000 pods ask for few different amounts, and this is a third of reading a pod
def _parse(text: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(text, "is not a Kubernetes quantity")
    value = _value(match)
    if value == 0:
        return 0
    if match["sign"] == "-":
        raise QuantityError(text, "is negative")
    if value >= MAX_UNITS:
        return MAX_UNITS
    if value.denominator != 1:
        raise QuantityError(text, "is not a whole number")
    return value.numerator


def _value(match: re.Match[str]) -> Fraction:
    fraction = match["fraction"] or ""
    digits = Fraction(int((match["whole"] or "0") + fraction), 10 ** len(fraction))
    suffix = match["suffix"]
    if suffix in _BINARY:
        return digits * _BINARY[suffix]
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    bounded = max(-_LARGEST_EXPONENT - _LONGEST, min(_LARGEST_EXPONENT + _LONGEST, exponent))
    scale: int = 10 ** abs(bounded)
    return digits * scale if bounded >= 0 else digits / scale


def format_units(units: int) -> str:
    """Return the canonical form the API server would store for a plain count (`1000` → `"1k"`)."""
    for suffix in ("E", "P", "T", "G", "M", "k"):
        scale = 10 ** _DECIMAL[suffix]
        if units and units % scale == 0:
            return f"{units // scale}{suffix}"
    return str(units)
