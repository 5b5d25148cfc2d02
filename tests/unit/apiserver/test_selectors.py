"""Selectors that are empty or wrong. What each operator means: the parity
table."""

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


def test_the_empty_selector_selects_everything() -> None:
    assert label_selector("") is None
    assert label_selector("  ") is None
    assert field_selector("", NAME_FIELDS, by_name_only=False) is None


@given(st.text(max_size=12))
def test_no_text_breaks_the_parser(selector: str) -> None:
    with contextlib.suppress(StatusError):
        matches(selector, {"a": "b"})
