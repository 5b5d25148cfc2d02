"""Config files become values with their lines: YAML, JSON, and INI as the clouds of Go write it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.config.documents import DocumentError, parse
from tests.support.anyjson import json_values

NEITHER = 'is neither "[section]" nor "name = value"'
INI = """
; of an OpenStack cluster
[Global]
auth-url = "https://keystone:5000/v3"  # where
password = "a#b;c \\"quoted\\" \\\\ and a\\ttab"
plain=a#b ; the rest is a comment
secure
[LoadBalancer]
floating-network = one
floating-network = two
floating-network = three
[LoadBalancerClass "in ternal"]
size=3
"""


def test_ini_has_sections_quotes_comments_flags_and_lists() -> None:
    found = parse(INI, "cloud.conf")
    assert found.values == {
        "auth-url": "https://keystone:5000/v3",
        "password": 'a#b;c "quoted" \\ and a\ttab',
        "plain": "a#b",
        "secure": "true",
        "LoadBalancer": {"floating-network": ["one", "two", "three"]},
        "LoadBalancerClass": {"in ternal": {"size": "3"}},
    }
    assert found.plain
    assert found.lines["auth-url",] == 4
    assert found.lines["LoadBalancerClass", "in ternal", "size"] == 13


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1e"])
def test_a_line_of_ini_ends_where_an_editor_ends_it(odd: str) -> None:
    text = f"# a comment{odd}region = south\nregion = north{odd}east\r\nsecure\r\n"
    assert parse(text).values == {"region": f"north{odd}east", "secure": "true"}


def test_yaml_and_json_have_lines() -> None:
    found = parse("region: north\nlimits:\n  burst: 5\nzones:\n  - a\n  - {b: 1}\n")
    assert found.values == {"region": "north", "limits": {"burst": 5}, "zones": ["a", {"b": 1}]}
    assert (found.lines["limits", "burst"], found.lines["zones", 1, "b"]) == (3, 6)
    found = parse('{\n"region": "north",\n"limits": {\n"burst": 5}}')
    assert found.lines["limits", "burst"] == 4
    assert parse('{\n\t"region": 1}').values == {"region": 1}, "tabs, which are no YAML: no lines, but the values"


@pytest.mark.parametrize(
    ("text", "path", "problems"),
    [
        ("a: 1\nb: [1\n", "", [(3, "is not YAML: expected ',' or ']', but got '<stream end>'")]),
        ("a: 1\nb: *secret\n", "", [(2, "is not YAML: found undefined alias")]),
        ("a: !it's-secret x", "", [(1, "is not YAML: could not determine a constructor for the tag")]),
        ("a: 1\na: 2\nb: {c: 1, c: 2}\n", "", [(2, "a is given twice"), (3, "c is given twice")]),
        ("- a\n", "", [(1, "must hold names with values")]),
        ("5", "x.json", [(1, "must hold names with values")]),
        ('{"a": 1,\n "b" 2}', "", [(2, "is not JSON: Expecting ':' delimiter")]),
        ('{"a": 1, "a": 2}', "", [(0, "a is given twice")]),
        ("a: 1", "x.json", [(1, "is not JSON: Expecting value")]),
        ("[a]\nb = 1\nc d\n= 5\n", "", [(3, NEITHER), (4, NEITHER)]),
        ('a = "open', "x.ini", [(1, NEITHER)]),
        ('[a "b"]\n[a]\nb = 1', "", [(3, "b is a section as well")]),
    ],
)  # fmt: skip
def test_mistakes_have_their_line_and_quote_no_value(text: str, path: str, problems: list[tuple[int, str]]) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(text, path)
    assert list(caught.value.problems) == problems


@pytest.mark.parametrize("text", ["", "# nothing\n", "; nothing\n", "---\n", "\n\n"])
def test_an_empty_file_holds_nothing(text: str) -> None:
    assert parse(text).values == {}


def test_aliases_that_would_grow_without_end_are_walked_once() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    assert len(parse("\n".join(lines)).lines) < 1000
    assert parse("a: &a [*a]").values["a"], "one that holds itself"


@given(st.text())
def test_any_text_is_a_document_or_a_mistake(text: str) -> None:
    for path in ("", "x.yaml", "x.json", "x.ini"):
        try:
            found = parse(text, path)
        except DocumentError:
            continue
        assert isinstance(found.values, dict)


_NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
_TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N"]), max_size=8)
_VALUES = json_values(st.none() | st.booleans() | st.integers() | _TEXT, _NAMES)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_values_come_back_from_json_and_yaml_and_each_has_its_line(values: dict[str, Any]) -> None:
    text = json.dumps(values, indent=1)
    assert parse(text, "x.json").values == values
    written = yaml.safe_dump(values, allow_unicode=True)
    found = parse(written, "x.yaml")
    assert found.values == values
    shown = written.splitlines()
    for name in values:
        assert name in shown[found.lines[name,] - 1]


@given(
    st.dictionaries(
        _NAMES.filter(lambda name: name != "global"), st.text(st.characters(categories=["L", "P", "S", "Zs"]))
    )
)
def test_quoted_values_come_back_from_ini(values: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    text = "".join(f"{name} = {quoted(value)}\n" for name, value in values.items())
    assert parse(text, "x.ini").values == values


@pytest.mark.parametrize("value", ["!!int ''", "!!bool maybe", "!!timestamp today", "!!float ''"])
def test_a_value_that_is_none_of_its_tag_is_a_problem_and_is_not_quoted(value: str) -> None:
    with pytest.raises(DocumentError, match=r"^is not YAML that can be read \([A-Za-z]+\)$"):
        parse(f"token: {value}\n", "acme.yaml")
