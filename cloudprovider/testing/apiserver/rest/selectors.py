"""Label and field selectors: from the query string to a predicate over stored objects.

Used by list and watch; pure. Grammar as in k8s.io/apimachinery pkg/labels/selector.go and
pkg/fields/selector.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from cloudprovider.testing.apiserver.errors import JSON, bad_request, not_implemented
from cloudprovider.testing.apiserver.kinds.names import label_value, qualified_name

Predicate = Callable[[JSON], bool]
FieldGetters = Mapping[str, Callable[[JSON], str]]
"""The field labels that a kind supports, each with how to read it."""

_WORD: Final = r"[^\s=!<>(),]+"
_REQUIREMENT: Final = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_WORD})|(?P<key>{_WORD})(?:\s*(?P<operator>==?|!=|<|>)\s*(?P<value>(?:{_WORD})?)"
    rf"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*"
)
_COMMA: Final = re.compile(r",(?![^()]*\))")  # one between two requirements


def label_selector(text: str) -> Predicate | None:
    """The predicate of a label selector, None for everything. Raises StatusError (400)."""
    if not text.strip():
        return None
    tests = [_requirement(part) for part in _COMMA.split(text)]

    def matches(obj: JSON) -> bool:
        labels = obj.get("metadata", {}).get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _requirement(text: str) -> Callable[[Mapping[str, str]], bool]:
    found = _REQUIREMENT.fullmatch(text)
    if found is None:
        raise bad_request(f"unable to parse requirement: {text!r}")
    key, operator, value = found["key"] or found["absent"], found["operator"] or found["set"], found["value"] or ""
    values = {one.strip() for one in (found["values"] or value).split(",")}
    if wrong := [*qualified_name(key), *(why for one in sorted(values) for why in label_value(one))]:
        raise bad_request(f"unable to parse requirement: {text!r}: {'; '.join(wrong)}")
    if found["absent"]:
        return lambda labels: key not in labels
    if operator is None:
        return lambda labels: key in labels
    if operator in ("<", ">"):
        raise not_implemented("< and > in a label selector")
    wanted = operator in ("=", "==", "in")
    return lambda labels: (labels.get(key) in values) is wanted


def field_selector(text: str, getters: FieldGetters, *, by_name_only: bool) -> Predicate | None:
    """The predicate of a field selector, None if it selects everything. Raises StatusError (400)
    for an unknown field.

    `by_name_only` kinds know no fields beside the name's, and say so in other words.
    """
    tests: list[tuple[Callable[[JSON], str], str, bool]] = []
    for term in _split(text):
        key, equal, value = _term(term)
        getter = getters.get(key)
        if getter is None and by_name_only:
            raise bad_request(
                f'"{key}" is not a known field selector: only ' + ", ".join(f'"{one}"' for one in getters)
            )
        if getter is None:
            raise bad_request(f"field label not supported: {key}")
        tests.append((getter, value, equal))
    if not tests:
        return None
    return lambda obj: all((getter(obj) == value) is equal for getter, value, equal in tests)


def _split(text: str) -> list[str]:
    return [term for term in re.split(r"(?<!\\),", text) if term]


def _term(term: str) -> tuple[str, bool, str]:
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        key, found, value = term.partition(operator)
        if found:
            return key, equal, re.sub(r"\\([\\,=])", r"\1", value)
    raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
