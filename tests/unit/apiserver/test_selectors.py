"""Label and field selectors against a plain reading of their meaning."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.kinds.kind import NAME_FIELDS
from cloudprovider.testing.apiserver.rest.selectors import field_selector, label_selector


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
    assert field_selector("", NAME_FIELDS, by_name_only=False) is None


@given(st.text(max_size=12))
def test_no_text_breaks_the_parser(selector: str) -> None:
    with contextlib.suppress(StatusError):
        matches(selector, {"a": "b"})


def test_labels_of_an_object_put_in_raw_select_nothing() -> None:
    test = label_selector("a=b")
    assert test is not None
    assert not test({"metadata": {"labels": ["a"]}})
