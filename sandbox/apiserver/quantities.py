"""Quantities in the form in which Kubernetes stores them.

A client may write ``1000``, ``1e3``, ``1k`` or ``1000000m``; what it reads back is the canonical form of
the notation it chose. This is Go's ``resource.Quantity`` (apimachinery, 1.36): parse, round up to nano,
pick the largest suffix that leaves a whole number.
"""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

SYNTAX = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?")
_SPLIT = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_BINARY_SUFFIX = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}
_NANO = Decimal("1e-9")
_LARGEST_POWER = 18
_MAX = Decimal(2**63 - 1)


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[Decimal, str]:
    """The value and its notation (``decimal``, ``binary`` or ``exponent``); ValueError if it is none."""
    split = _SPLIT.fullmatch(text)
    number = _NUMBER.fullmatch(split[1]) if split else None
    if not split or not number or not (number[2] or number[3]):
        raise ValueError(f"quantities must match the regular expression '{SYNTAX}'")
    suffix = split[2]
    amount = Decimal(f"{number[1]}{number[2] or 0}.{number[3] or 0}")
    if suffix in _DECIMAL:
        notation, value = "decimal", amount.scaleb(_DECIMAL[suffix])
    elif suffix in _BINARY:
        notation, value = "binary", amount * 1024 ** _BINARY[suffix]
    elif _EXPONENT.fullmatch(suffix) and abs(int(suffix[1:])) <= _LARGEST_POWER:
        notation, value = "exponent", amount.scaleb(int(suffix[1:]))
    else:
        raise ValueError("unable to parse quantity's suffix")
    value = min(max(value, -_MAX), _MAX)
    return value.quantize(_NANO, rounding=ROUND_CEILING), notation


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The form the API server answers with; ValueError if ``text`` is not a quantity."""
    value, notation = parse(text)
    if value == 0:
        return "0"
    if notation == "binary":
        if abs(value) < 1024 or value % 1:
            notation = "decimal"
        else:
            number, power = int(value), 0
            while number % 1024 == 0 and power < max(_BINARY_SUFFIX):
                number, power = number // 1024, power + 1
            return f"{number}{_BINARY_SUFFIX[power]}"
    nanos, power = int(value.scaleb(9)), -9
    while nanos % 1000 == 0 and power < _LARGEST_POWER:
        nanos, power = nanos // 1000, power + 3
    if notation == "exponent":
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[power]}"
