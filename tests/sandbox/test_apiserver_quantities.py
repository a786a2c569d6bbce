"""Quantities come back in Kubernetes' canonical form."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from sandbox.apiserver.quantities import canonical, parse

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "E-3", "e6", "e0"]


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        # recorded from, or with the rules of, apimachinery's resource.Quantity
        ("0", "0"),
        ("0Ki", "0"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1k", "1k"),
        ("1Ki", "1Ki"),
        ("2000m", "2"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("10Gi", "10Gi"),
        ("1024Ki", "1Mi"),
        ("1536Ki", "1536Ki"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12E4", "120e3"),
        ("15e2", "1500"),
        ("1000000", "1M"),
        ("0.0000000001", "1n"),
        ("+5", "5"),
        ("-1", "-1"),
        ("-1000", "-1k"),
        (".5", "500m"),
        ("5.", "5"),
        ("1E", "1E"),
    ],
)
def test_stored_form(sent: str, stored: str) -> None:
    assert canonical(sent) == stored


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "abc", "1KiB", "1.2.3", "--1", "1e", "Ki", "1mm", "1ki", "1e99"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        canonical(text)


@given(number=st.decimals(-(10**6), 10**6, places=3), suffix=st.sampled_from(SUFFIXES))
def test_the_stored_form_means_the_same_and_is_stable(number: Decimal, suffix: str) -> None:
    sent = f"{number:f}{suffix}"
    stored = canonical(sent)
    assert canonical(stored) == stored
    assert parse(stored)[0] == parse(sent)[0]
    if suffix not in ("n", "u"):  # those round up to whole nanos here, as in Kubernetes
        assert parse_quantity(stored) == parse_quantity(sent)
