"""Label and field selectors: from the query string to a predicate over stored objects.

Used by list and watch; pure. Grammar as in k8s.io/apimachinery pkg/labels/selector.go and
pkg/fields/selector.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from cloudprovider.testing.apiserver.errors import JSON, StatusError, bad_request
from cloudprovider.testing.apiserver.kinds.names import label_value, qualified_name

Predicate = Callable[[JSON], bool]
FieldGetters = Mapping[str, Callable[[JSON], str]]
"""The field labels that a kind supports, each with how to read it."""

_TOKEN: Final = re.compile(r"\s*(==|!=|=|<|>|\(|\)|,|!|[^\s=!<>(),]+)")


def label_selector(text: str) -> Predicate | None:
    """The predicate of a label selector, None if it selects everything. Raises StatusError
    (400)."""
    if not text.strip():
        return None
    tests = _Labels(text).requirements()

    def matches(obj: JSON) -> bool:
        labels = obj.get("metadata", {}).get("labels") or {}
        if not isinstance(labels, dict):  # an object put in raw
            return False
        return all(test(labels) for test in tests)

    return matches if tests else None


LabelTest = Callable[[Mapping[str, str]], bool]


class _Labels:
    """A recursive-descent parser over the tokens of one selector."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._wrong(f"found '{text[position:]}', expected: !, identifier, or ','")
            self._tokens.append(match[1])
            position = match.end()
        self._at = 0

    def requirements(self) -> list[LabelTest]:
        tests = [self._requirement()]
        while self._peek() == ",":
            self._at += 1
            tests.append(self._requirement())
        if self._peek():
            raise bad_request(f"found '{self._peek()}', expected: ',' or 'end of string'")
        return tests

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _requirement(self) -> LabelTest:
        if self._peek() == "!":
            self._at += 1
            absent = self._key()
            return lambda labels: absent not in labels
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._at += 1
        if operator in ("=", "=="):
            value = self._value()
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self._value()
            return lambda labels: labels.get(key) != value
        if operator in ("in", "notin"):
            values = self._values()
            if operator == "in":
                return lambda labels: labels.get(key, None) in values
            return lambda labels: key not in labels or labels[key] not in values
        if operator in ("<", ">"):
            return self._numeric(key, operator)
        raise self._wrong(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _numeric(self, key: str, operator: str) -> LabelTest:
        text = self._value()
        try:
            bound = int(text)
        except ValueError as error:
            raise bad_request(f"for 'Gt', 'Lt' operators, the value must be an integer: {text!r}") from error

        def test(labels: Mapping[str, str]) -> bool:
            try:
                number = int(labels[key])
            except (KeyError, ValueError):
                return False
            return number > bound if operator == ">" else number < bound

        return test

    def _key(self) -> str:
        key = self._next()
        if key in ("", "=", "==", "!=", "<", ">", "(", ")", ","):
            raise self._wrong(f"found '{key}', expected: !, identifier, or ','")
        wrong = qualified_name(key)
        if wrong:
            raise self._wrong(f'<nil>: Invalid value: "{key}": {"; ".join(wrong)}')
        return key

    def _value(self) -> str:
        if self._peek() in ("", ",", ")"):
            return ""
        value = self._next()
        if value in ("=", "==", "!=", "<", ">", "(", "!"):
            raise self._wrong(f"found '{value}', expected: identifier")
        wrong = label_value(value)
        if wrong:
            raise self._wrong(f'values[0][{value}]: Invalid value: "{value}": {"; ".join(wrong)}')
        return value

    def _values(self) -> frozenset[str]:
        token = self._next()
        if token != "(":
            raise self._wrong(f"found '{token}' expected: '('")
        values: set[str] = set()
        while True:
            values.add(self._value())
            token = self._next()
            if token == ")":
                return frozenset(values)
            if token != ",":
                raise self._wrong(f"found '{token}', expected: ',' or ')'")

    def _wrong(self, why: str) -> StatusError:
        return bad_request(f"unable to parse requirement: {why}")


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
