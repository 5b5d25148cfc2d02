"""Volumes: zones in one label. With cases of Go's zones_test.go."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.helpers import label_value_to_zone_list, zones_to_label_value


def test_zones_of_a_label_and_the_label_of_zones() -> None:
    assert label_value_to_zone_list("eu-1a") == ("eu-1a",)
    assert label_value_to_zone_list("b__a__b") == ("b", "a", "b")
    assert label_value_to_zone_list(" b __ a ") == ("b", "a")
    assert zones_to_label_value(["b", "a", "b"]) == zones_to_label_value({"a", "b"}) == "a__b"
    assert zones_to_label_value({"a"}) == "a"
    for text in ("", " ", "a__", "__a", "a____b"):
        with pytest.raises(ValueError, match="empty element"):
            label_value_to_zone_list(text)
    for zones in ([], [""], ["a", ""], ["a__b"], [" a"], ["a_", "b"]):
        with pytest.raises(ValueError, match="zones"):  # they could not be read back
            zones_to_label_value(zones)


@given(st.sets(st.text(string.ascii_lowercase + "-_ ", max_size=6), max_size=5))
def test_zones_survive_the_label_or_are_refused(zones: set[str]) -> None:
    try:
        value = zones_to_label_value(zones)
    except ValueError:
        assert not zones or any(not zone or zone != zone.strip() or "_" in zone for zone in zones)
    else:
        assert set(label_value_to_zone_list(value)) == zones
