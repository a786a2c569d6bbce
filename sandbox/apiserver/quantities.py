"""Quantities in the form in which Kubernetes stores them in resource lists.

A client may write ``1000``, ``1e3``, ``1k`` or ``1000000m``; what it reads back is the canonical form of
the notation it chose. This is Go's ``resource.Quantity`` (apimachinery, 1.36): parse, round up to milli as
resource lists do, pick the largest suffix that leaves a whole number.
"""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Literal

import msgspec

SYNTAX = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_PARTS = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_SUFFIX = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}
_MILLI = -3
_LARGEST_POWER = 18
_FAST_DIGITS = 18
_WIDEST = 60
_BINARY_MAX = Decimal(2**63 - 1)


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed quantity."""

    value: Decimal
    notation: Literal["decimal", "binary", "exponent"]
    kept: bool
    """Whether Go takes the text for canonical and keeps it as it came."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """What a text means, in thousandths at the finest; ValueError if it is no quantity."""
    parts = _PARTS.fullmatch(text)
    if not parts or not (parts[2] or parts[3]):
        raise ValueError(f"quantities must match the regular expression '{SYNTAX}'")
    sign, whole, fraction, suffix = parts[1], parts[2].lstrip("0") or "0", parts[3] or "", parts[4]
    amount = Decimal(f"{sign}{whole}.{fraction or 0}")
    digits = whole + fraction
    if suffix in _BINARY:
        bounded = min(max(amount * 1024 ** _BINARY[suffix], -_BINARY_MAX), _BINARY_MAX)
        fast = not fraction and len(whole) + 3 * _BINARY[suffix] < 15
        return Quantity(value=_round_up(bounded), notation="binary", kept=fast and int(whole) & 7 != 0)
    if suffix in _DECIMAL:
        notation: Literal["decimal", "exponent"] = "decimal"
        power = _DECIMAL[suffix]
    elif _EXPONENT.fullmatch(suffix):
        notation, power = "exponent", max(-_WIDEST, min(_WIDEST, int(suffix[1:])))
    else:
        raise ValueError("unable to parse quantity's suffix")
    scale = power - len(fraction)
    return Quantity(
        value=_round_up(amount.scaleb(power)),
        notation=notation,
        kept=len(digits) <= _FAST_DIGITS
        and scale >= _MILLI
        and scale % 3 == 0
        and not digits.endswith("000")
        and digits[0] != "0",
    )


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The form the API server answers with; ValueError if ``text`` is not a quantity."""
    quantity = parse(text)
    value, notation = quantity.value, quantity.notation
    if value == 0:
        return "0"
    if quantity.kept:
        return text
    if notation == "binary" and (abs(value) < 1024 or value % 1):
        notation = "decimal"
    if notation == "binary":
        number, power = int(value), 0
        while number % 1024 == 0 and power < max(_BINARY_SUFFIX):
            number, power = number // 1024, power + 1
        return f"{number}{_BINARY_SUFFIX[power]}"
    number, power = int(value.scaleb(-_MILLI)), _MILLI
    while number % 1000 == 0 and power < _LARGEST_POWER:
        number, power = number // 1000, power + 3
    if notation == "exponent":
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIX[power]}"


def _round_up(value: Decimal) -> Decimal:
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= _MILLI:
        return value
    return value.quantize(Decimal(1).scaleb(_MILLI), rounding=ROUND_CEILING)
