"""Volumes: zones in one label, sizes in the cloud's units. With cases of Go's zones_test.go and rounding_test.go."""

from __future__ import annotations

import string
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal, localcontext

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cloudprovider import helpers
from cloudprovider.helpers import (
    MAX_INT32,
    MAX_INT64,
    GiB,
    label_value_to_zone_list,
    label_value_to_zones,
    quantity_to_bytes,
    round_up_size,
    round_up_to_b,
    round_up_to_gib,
    round_up_to_kb,
    round_up_to_kib,
    round_up_to_mb,
    round_up_to_mib,
    zones_to_label_value,
    zones_to_set,
)

# Zones


def test_zones_of_a_label() -> None:
    assert label_value_to_zones("eu-1a") == {"eu-1a"}
    assert label_value_to_zones("eu-1a__eu-1b__eu-1a") == {"eu-1a", "eu-1b"}
    assert label_value_to_zone_list("b__a__b") == ("b", "a", "b")
    assert label_value_to_zone_list(" b __ a ") == ("b", "a")


def test_zones_of_a_parameter() -> None:
    assert zones_to_set("a, b ,a") == {"a", "b"}
    assert zones_to_set("a__b") == {"a__b"}


@pytest.mark.parametrize("text", ["", " ", "a__", "__a", "a____b"])
def test_an_empty_zone_in_a_label_is_refused(text: str) -> None:
    for read in (label_value_to_zones, label_value_to_zone_list):
        with pytest.raises(ValueError, match="empty element"):
            read(text)


@pytest.mark.parametrize("text", ["", ",", "a,", ",a", "a, ,b"])
def test_an_empty_zone_in_a_parameter_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="empty element"):
        zones_to_set(text)


def test_the_label_of_a_set_is_always_the_same() -> None:
    assert zones_to_label_value(["b", "a", "b"]) == zones_to_label_value({"a", "b"}) == "a__b"
    assert zones_to_label_value({"a"}) == "a"


@pytest.mark.parametrize("zones", [[], [""], ["a", ""], ["a__b"], [" a"], ["a_", "b"]])
def test_zones_that_could_not_be_read_back_are_refused(zones: list[str]) -> None:
    with pytest.raises(ValueError, match="zones"):
        zones_to_label_value(zones)


@given(st.sets(st.text(string.ascii_lowercase + "-_ ", max_size=6), max_size=5))
def test_zones_survive_the_label_or_are_refused(zones: set[str]) -> None:
    try:
        value = zones_to_label_value(zones)
    except ValueError:
        assert not zones or any(not zone or zone != zone.strip() or "_" in zone for zone in zones)
    else:
        assert label_value_to_zones(value) == zones


# Quantities

SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    **{f"{letter}i": Decimal(2) ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)},
}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_suffix(suffix: str) -> None:
    exact = int((3 * SUFFIXES[suffix]).to_integral_value(ROUND_CEILING))
    if exact < MAX_INT64:
        assert quantity_to_bytes(f"3{suffix}") == exact
    else:
        with pytest.raises(ValueError, match="overflows"):
            quantity_to_bytes(f"3{suffix}")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("0Gi", 0),
        ("-0", 0),
        ("1", 1),
        ("+1", 1),
        ("007", 7),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        (".5Ki", 512),
        ("5.", 5),
        ("1.G", 10**9),
        ("100m", 1),
        ("1500m", 2),
        ("1n", 1),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("12e-1", 2),
        ("1e+2", 100),
        ("1e-999999999", 1),
        ("0e999999999", 0),
        (f"{MAX_INT64 - 1}", MAX_INT64 - 1),
        ("8191Pi", 8191 * 2**50),
    ],
)
def test_quantities(text: str, size: int) -> None:
    assert quantity_to_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 Gi",
        " 1",
        "1\n",
        "Gi",
        ".",
        "+",
        "-",
        "1.5.5",
        "1gi",
        "1ki",
        "1K",
        "1Gib",
        "1GB",
        "1e",
        "1e1.5",
        "1ee1",
        "0x10",
        "1_000",
        "\uff11",
        "NaN",
        "inf",
        "1e9Gi",
        "--1",
    ],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        quantity_to_bytes(text)


@pytest.mark.parametrize("text", ["-1", "-1Gi", "-1n", -1])
def test_a_negative_size_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="negative"):
        quantity_to_bytes(text)


@pytest.mark.parametrize("text", [f"{MAX_INT64}", "8Ei", "1e19", "1e999999999", "9" * 100, "1000000E", MAX_INT64])
def test_a_size_beyond_int64_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="overflows int64"):
        quantity_to_bytes(text)


@given(
    st.integers(0, 10**12),
    st.text(string.digits, max_size=12),
    st.sampled_from(list(SUFFIXES)) | st.integers(-15, 15).map(lambda exponent: f"e{exponent}"),
)
def test_a_quantity_is_its_exact_value_rounded_up(whole: int, fraction: str, suffix: str) -> None:
    with localcontext() as context:
        context.prec = 100
        factor = SUFFIXES[suffix] if suffix in SUFFIXES else Decimal(f"1{suffix}")
        exact = (Decimal(f"{whole}.{fraction or '0'}") * factor).to_integral_value(ROUND_CEILING)
    assume(exact < MAX_INT64)
    text = f"{whole}.{fraction}{suffix}" if fraction else f"{whole}{suffix}"
    assert quantity_to_bytes(text) == exact


@given(st.text(string.digits + ".+-eEinumkKMGTP", max_size=8))
def test_every_text_is_a_size_or_a_value_error(text: str) -> None:
    try:
        size = quantity_to_bytes(text)
    except ValueError as exc:
        told = str(exc)
    else:
        assert 0 <= size < MAX_INT64
        return
    assert "quantity" in told


# Rounding


@pytest.mark.parametrize(
    ("round_up", "unit"),
    [
        (round_up_to_gib, 2**30),
        (round_up_to_mib, 2**20),
        (round_up_to_kib, 2**10),
        (round_up_to_mb, 10**6),
        (round_up_to_kb, 10**3),
        (round_up_to_b, 1),
    ],
)
def test_rounding_up_to_each_unit(round_up: Callable[[str | int], int], unit: int) -> None:
    assert round_up("0") == 0
    assert round_up(str(unit)) == 1
    assert round_up(unit + 1) == (2 if unit > 1 else unit + 1)
    assert round_up(str(5 * unit)) == 5


def test_a_volume_is_never_smaller_than_asked_for() -> None:
    assert round_up_to_gib("1500Mi") == 2
    assert round_up_to_gib("1") == 1
    assert round_up_to_mib("1000M") == 954


@given(st.integers(0, MAX_INT64 - 1), st.integers(1, 2**40))
def test_rounding_is_the_least_number_of_units_that_hold_the_size(size: int, unit: int) -> None:
    units = round_up_size(size, unit)
    assert units * unit >= size
    assert units == 0 or (units - 1) * unit < size
    assert round_up_size(str(size), unit) == units


def test_a_cloud_may_count_in_32_bits() -> None:
    assert round_up_to_gib(MAX_INT32 * GiB, limit=MAX_INT32) == MAX_INT32
    with pytest.raises(ValueError, match="too large"):
        round_up_to_gib(MAX_INT32 * GiB + 1, limit=MAX_INT32)
    with pytest.raises(ValueError, match="overflows int64"):
        round_up_to_b("8Ei")


def test_a_unit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        round_up_size("1Gi", 0)


def test_the_units() -> None:
    assert (helpers.GB, helpers.MB, helpers.KB) == (10**9, 10**6, 10**3)
    assert (helpers.GiB, helpers.MiB, helpers.KiB) == (2**30, 2**20, 2**10)
    assert (MAX_INT32, MAX_INT64) == (2147483647, 9223372036854775807)
