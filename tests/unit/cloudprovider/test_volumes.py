"""Volumes: zones in one label. With cases of Go's zones_test.go."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.helpers import label_value_to_zone_list, zones_to_label_value


def test_zones_of_a_label() -> None:
    assert label_value_to_zone_list("eu-1a") == ("eu-1a",)
    assert label_value_to_zone_list("b__a__b") == ("b", "a", "b")
    assert label_value_to_zone_list(" b __ a ") == ("b", "a")


@pytest.mark.parametrize("text", ["", " ", "a__", "__a", "a____b"])
def test_an_empty_zone_in_a_label_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="empty element"):
        label_value_to_zone_list(text)


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
        assert set(label_value_to_zone_list(value)) == zones
