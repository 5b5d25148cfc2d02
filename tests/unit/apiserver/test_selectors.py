"""Label and field selectors against a plain reading of their meaning."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.kinds import NAME_FIELDS, read
from cloudprovider.testing.apiserver.selectors import field_selector, label_selector

FIELDS = {**NAME_FIELDS, "spec.unschedulable": read("spec", "unschedulable", default="false")}


def matches(selector: str, labels: dict[str, str]) -> bool:
    test = label_selector(selector)
    return test is None or test({"metadata": {"labels": labels}})


KEYS, VALUES = st.sampled_from(["a", "b", "x.y/c"]), st.sampled_from(["1", "2", ""])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)


@given(LABELS, KEYS, st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=2))
def test_every_operator_means_what_it_says(labels: dict[str, str], key: str, values: list[str]) -> None:
    value, several = values[0], ",".join(values)
    assert matches(f"{key}={value}", labels) is (labels.get(key) == value)
    assert matches(f"{key} == {value}", labels) is (labels.get(key) == value)
    assert matches(f"{key}!={value}", labels) is (labels.get(key) != value)
    assert matches(key, labels) is (key in labels)
    assert matches(f"!{key}", labels) is (key not in labels)
    assert matches(f"{key} in ({several})", labels) is (labels.get(key) in values)
    assert matches(f"{key} notin ({several})", labels) is (labels.get(key) not in values)
    assert matches(f"{key}>1", labels) is (labels.get(key) == "2")
    assert matches(f"{key},!other,{key}={value}", labels) is (labels.get(key) == value)


def test_the_empty_selector_selects_everything() -> None:
    assert label_selector("") is None
    assert label_selector("  ") is None
    assert field_selector("", FIELDS, by_name_only=False) is None


@pytest.mark.parametrize(
    "selector",
    ["a b", "a in b", "a in (b", "a=b=c", "-a", "a=-b", "a/b/c", "a>x", "a=(", ",a", "a,,b", "in", "a notin"],
)
def test_selectors_that_cannot_be_read(selector: str) -> None:
    if selector == "in":
        assert not matches(selector, {})  # a key like any other
        return
    with pytest.raises(StatusError) as caught:
        label_selector(selector)
    assert caught.value.code == 400


@given(st.text(max_size=12))
def test_no_text_breaks_the_parser(selector: str) -> None:
    with contextlib.suppress(StatusError):
        matches(selector, {"a": "b"})


def test_labels_of_an_object_put_in_raw_select_nothing() -> None:
    test = label_selector("a=b")
    assert test is not None
    assert not test({"metadata": {"labels": ["a"]}})


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=n", True),
        ("metadata.name==n,spec.unschedulable=false", True),
        ("metadata.name!=n", False),
        ("spec.unschedulable=true", False),
        ("metadata.name=", False),
        ("metadata.name!=", True),
    ],
)
def test_field_selectors(selector: str, expected: bool) -> None:
    test = field_selector(selector, FIELDS, by_name_only=False)
    obj: dict[str, Any] = {"metadata": {"name": "n"}, "spec": {}}
    assert test is not None
    assert test(obj) is expected


@pytest.mark.parametrize("selector", ["spec.providerID=x", "metadata.name"])
@pytest.mark.parametrize("by_name_only", [True, False])
def test_unknown_fields_are_refused(selector: str, by_name_only: bool) -> None:
    with pytest.raises(StatusError) as caught:
        field_selector(selector, FIELDS, by_name_only=by_name_only)
    assert caught.value.code == 400
