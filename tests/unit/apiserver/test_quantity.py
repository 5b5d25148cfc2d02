"""Quantities in the form in which the real server stores them (each row was read off kube-apiserver 1.36)."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.apiserver.quantity import BadQuantity, amount, canonical


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1000m", "1"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("1024Ki", "1Mi"), ("1025Ki", "1025Ki"), ("1000", "1k"),
        ("110", "110"), ("0", "0"), ("100u", "1m"), ("+5", "+5"), ("0.5Gi", "512Mi"), ("1e3", "1e3"), ("1.5e3", "1500"),
        ("1E", "1E"), ("5000000", "5M"), ("999Mi", "999Mi"), ("-1", "-1"), ("1023", "1023"), ("0.1Ki", "102400m"),
    ],
)  # fmt: skip
def test_canonical(text: str, stored: str) -> None:
    assert canonical(text) == stored


@pytest.mark.parametrize("text", ["", "x", "1x", "1.2.3", "Ki", "--1", "1 Gi", "1e", "."])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(BadQuantity):
        canonical(text)


SUFFIXES = st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e2", "E-2"])
QUANTITIES = st.builds(lambda number, suffix: f"{number}{suffix}", st.integers(0, 10**7), SUFFIXES)


@given(QUANTITIES)
def test_the_canonical_form_is_a_fixed_point_of_the_same_value(text: str) -> None:
    stored = canonical(text)
    assert canonical(stored) == stored
    assert amount(stored) >= amount(text)
    assert amount(stored) - amount(text) < Decimal("0.001")
