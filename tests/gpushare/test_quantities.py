"""Quantities are read as Kubernetes reads them: whole, non-negative, capped, and never with a surprise."""

import contextlib
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from gpushare.errors import QuantityError
from gpushare.quantities import MAX_UNITS, format_units, parse_units

NOT_QUANTITIES = """
    NaN nan Infinity inf -inf sNaN 1_000 0x10 0b1 1,000 ١٢٣ １２ ² ½ 1ki 1KiB 1MiB 1GB 1K 1Kii 1kk 1e 1e+ e3
    1e3k 1e3.5 1ee3 --1 +-1 1+ . + - k Ki 1.2.3
"""

# A canonical quantity: a whole number without trailing zeros beyond the suffix (apimachinery, 1.36).
SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
EXPONENTS = tuple(f"e{power}" for power in range(-9, 19, 3))
canonical = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.integers(min_value=-(10**6), max_value=2**63 - 1),
    st.sampled_from(SUFFIXES + EXPONENTS),
)
fractional = st.builds(
    lambda number, digits, suffix: f"{number}.{digits}{suffix}",
    st.integers(min_value=0, max_value=10**9),
    st.text(alphabet="0123456789", max_size=9),
    st.sampled_from(SUFFIXES),
)


def officially(text: str) -> int | None:
    """The official client's answer, with what a counted resource allows on top; `None` is an error."""
    value: Decimal = parse_quantity(text)
    if value < 0:
        return None
    if value >= MAX_UNITS:
        return MAX_UNITS
    return int(value) if value == int(value) else None


@given(canonical | fractional)
@example("1k")
@example("0Ei")
@example("-0")
@example(f"{2**63 - 2}")
@example("9007199254740993")  # the first whole number that a float cannot hold
def test_agrees_with_the_official_client(text: str) -> None:
    expected = officially(text)
    if expected is None:
        with pytest.raises(QuantityError):
            parse_units(text)
    else:
        assert parse_units(text) == expected


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("1k", 1000),
        ("1Ki", 1024),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2000m", 2),
        ("1000000u", 1),
        ("3000000000n", 3),
        ("1.5Ki", 1536),
        ("1.50k", 1500),
        (".5k", 500),
        ("5.", 5),
        ("+7", 7),
        ("007", 7),
        ("1E", 10**18),
        ("1e+2", 100),
        ("100e-2", 1),
        ("0", 0),
        ("0.000", 0),
        ("-0", 0),
        ("0n", 0),
        ("7Ei", 7 * 2**60),
        ("8Ei", MAX_UNITS),
        ("10E", MAX_UNITS),
        ("1e400", MAX_UNITS),
        ("0e999999", 0),
    ],
)
def test_V14_every_spelling_of_kubernetes(text: str, units: int) -> None:
    assert parse_units(text) == units


@pytest.mark.parametrize(
    "text",
    [
        "500m",
        "-1",
        "",
        " 1",
        "1 ",
        "1\n",
        "\t1",
        "0.5",
        "1.0001k",
        "999n",
        "1e-3",
        "-1Ki",
        "1e-400",
        "-1e400",
    ],
)
def test_V14_what_is_no_whole_number_of_units_is_an_error(text: str) -> None:
    with pytest.raises(QuantityError) as raised:
        parse_units(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        *NOT_QUANTITIES.split(),
        *("1 k", "1\x00", "\ud800", "null", "true", "[1]", "1\u2028"),
    ],
)
def test_what_kubernetes_does_not_take_is_an_error(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_units(text)


@pytest.mark.parametrize("value", [None, 1, 1.5, True, b"1", ["1"], {"1": 1}])
def test_what_is_no_text_is_an_error(value: Any) -> None:
    with pytest.raises(QuantityError):
        parse_units(value)


@given(st.text() | st.text(alphabet="0123456789.eE+-kKMGTPEinum_ ", max_size=80))
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(QuantityError):
        assert 0 <= parse_units(text) <= MAX_UNITS


@pytest.mark.parametrize(
    "text",
    [
        "1e999999999999",
        "1e-999999999999",
        "9" * 1_000_000,
        "0" * 1_000_000,
        "1" * 63 + "E",
        "1e" + "9" * 62,
        "." + "0" * 1_000_000 + "1",
        "1" * 1_000_000 + "x",
        "e" * 1_000_000,
    ],
    ids=lambda text: f"{text[:6]}…{len(text)}",
)
def test_hostile_lengths_and_exponents_cost_no_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(QuantityError):
        assert parse_units(text) == MAX_UNITS
    assert time.process_time() - start < 0.05


def test_an_error_does_not_repeat_a_text_of_any_length() -> None:
    with pytest.raises(QuantityError) as raised:
        parse_units("9" * 1_000_000)
    assert len(str(raised.value)) < 200


@given(st.integers(min_value=0, max_value=MAX_UNITS))
@example(1000)
@example(MAX_UNITS)
def test_formatting_and_parsing_round_trip(units: int) -> None:
    assert parse_units(format_units(units)) == units
    assert parse_quantity(format_units(units)) == units


@pytest.mark.parametrize(
    ("units", "text"),
    [(0, "0"), (1, "1"), (999, "999"), (1000, "1k"), (1500, "1500"), (10**6, "1M"), (10**18, "1E")],
)
def test_formats_as_the_api_server_stores_a_count(units: int, text: str) -> None:
    assert format_units(units) == text
