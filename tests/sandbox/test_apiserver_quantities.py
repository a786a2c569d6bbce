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
        # each as a Kubernetes 1.36 API server stored it
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
        ("0.0000000015", "1m"),
        ("+5", "+5"),
        ("-1", "-1"),
        ("-1000", "-1k"),
        (".5", "500m"),
        ("5.", "5."),
        ("1.001", "1.001"),
        ("1.500", "1.500"),
        ("1.000", "1"),
        ("007k", "007k"),
        ("1028Ki", "1028Ki"),
        ("99999999999999999999", "99999999999999999999"),
        ("1E", "1E"),
        ("10E", "10E"),
        ("1e99", "1e99"),
        ("1e20", "100e18"),
        ("1e-20", "1e-3"),
        ("100e1", "1e3"),
        ("1e0", "1e0"),
        ("1e+3", "1e+3"),
        ("1.1Ki", "1126400m"),
        ("10Ei", "9223372036854775807"),
    ],
)
def test_stored_form(sent: str, stored: str) -> None:
    assert canonical(sent) == stored


@pytest.mark.parametrize("text", ["", " 1", "1 ", "abc", "1KiB", "1.2.3", "--1", "1e", "Ki", "1mm", "1ki"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        canonical(text)


@given(number=st.decimals(-(10**6), 10**6, places=3), suffix=st.sampled_from(SUFFIXES))
def test_the_stored_form_means_the_same_and_is_stable(number: Decimal, suffix: str) -> None:
    sent = f"{number:f}{suffix}"
    stored = canonical(sent)
    assert canonical(stored) == stored
    assert parse(stored).value == parse(sent).value
    if parse_quantity(sent) % Decimal("0.001") == 0:  # the rest is rounded up, as in Kubernetes
        assert parse_quantity(stored) == parse_quantity(sent)
