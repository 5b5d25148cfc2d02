"""From the text of a config file to values, with their lines: YAML, JSON, or INI in the dialect of
Go's clouds. Pure.

INI is what `cloud.conf` of the Go providers is written in (gcfg): sections, sections with a name in
quotes, comments with "#" or ";", values in quotes, a name alone for true, a name given again for a
list. What stands before the first section, or in [Global], is at the top.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from pathlib import PurePath
from typing import Any

import yaml
from attrs import field, frozen
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from cloudprovider.internal.problem import without_words

Place = tuple[str | int, ...]
"""The way to a value: names of fields, and numbers of entries."""


@frozen
class Document:
    """What a file holds."""

    values: dict[str, Any] = field(factory=dict)
    lines: Mapping[Place, int] = field(factory=dict)
    """The line, from 1, of the values whose line is known."""
    plain: bool = False
    """Whether every value is a text (INI), so that the fields' types say what it means."""


class DocumentError(Exception):
    """The text is none of the form. `problems` are (line, what is wrong); line 0 where none is
    known. They quote no value of the file."""

    def __init__(self, *problems: tuple[int, str]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


def parse(text: str, path: str = "") -> Document:
    """The document in a text. The form follows from the path's suffix, or else from the text.
    Raises DocumentError."""
    return _FORMS.get(PurePath(path).suffix.lower(), _guess(text))(text)


def _guess(text: str) -> Callable[[str], Document]:
    first = next((line.strip() for line in _lines(text) if line.strip()[:1] not in ("", "#", ";")), "")
    if first.startswith("{"):
        return _json
    return _ini if not first or _SECTION.fullmatch(first) or _INI_ENTRY.fullmatch(first) else _yaml


def _lines(text: str) -> StringIO:
    """Its lines; `splitlines` would end one at U+2028 or a form feed, too."""
    return StringIO(text, newline="")


# ---- YAML


def _yaml(text: str) -> Document:
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return Document()
        lines: dict[Place, int] = {}
        doubles = list(_walk(node, (), lines, set()))
        values = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = without_words(error.problem or error.context or "")
        raise DocumentError((mark.line + 1 if mark else 0, f"is not YAML: {problem}")) from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # not of YAML: a date such as 2026-13-45, or a value that is none of its explicit tag
        raise DocumentError((0, f"is not YAML that can be read ({type(error).__name__})")) from None
    finally:
        if loader is not None:
            loader.dispose()
    if doubles:
        raise DocumentError(*doubles)
    return Document(_fields(values), lines)


def _walk(node: Node, place: Place, lines: dict[Place, int], met: set[int]) -> Iterator[tuple[int, str]]:
    """Notes the line of every value; yields the keys that are given twice, of which YAML would keep
    the last."""
    lines.setdefault(place, node.start_mark.line + 1)
    if id(node) in met:
        return  # by an alias: what is in it has the lines of its first place
    met.add(id(node))
    if isinstance(node, SequenceNode):
        for number, entry in enumerate(node.value):
            yield from _walk(entry, (*place, number), lines, met)
    elif isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = key.value if isinstance(key, ScalarNode) else ""
            if name in seen:
                yield key.start_mark.line + 1, f"{name} is given twice"
            seen.add(name)
            lines[*place, name] = key.start_mark.line + 1
            yield from _walk(value, (*place, name), lines, met)


def _fields(values: object) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise DocumentError((1, "must hold names with values"))
    found: dict[Any, Any] = values
    return {str(name): value for name, value in found.items()}


# ---- JSON


def _json(text: str) -> Document:
    doubles: list[tuple[int, str]] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        doubles.extend((0, f"{name} is given twice") for name in sorted({one for one in names if names.count(one) > 1}))
        return dict(pairs)

    try:
        values = json.loads(text, object_pairs_hook=members) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise DocumentError((error.lineno, f"is not JSON: {error.msg}")) from None
    except RecursionError:
        raise DocumentError((0, "is not JSON that can be read: it nests too deep")) from None
    if doubles:
        raise DocumentError(*doubles)
    try:
        lines = _yaml(text).lines  # nearly all JSON is YAML, which knows its lines
    except DocumentError:
        lines = {}
    return Document(_fields(values), lines)


# ---- INI

_NAME = r"[A-Za-z][\w.-]*"
_SECTION = re.compile(rf'\[\s*(?P<section>{_NAME})(?:\s+"(?P<name>(?:[^"\\]|\\.)*)")?\s*\]\s*(?:[;#].*)?')
_INI_ENTRY = re.compile(rf"(?P<name>{_NAME})\s*(?:=\s*(?P<value>.*))?")
_QUOTED = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"\s*(?:[;#].*)?')
_COMMENT = re.compile(r"(?:^|\s)[;#].*$")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def _ini(text: str) -> Document:
    values: dict[str, Any] = {}
    lines: dict[Place, int] = {}
    problems: list[tuple[int, str]] = []
    place: Place = ()
    for number, raw in enumerate(_lines(text), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if found := _SECTION.fullmatch(line):
            section, name = found["section"], found["name"]
            place = () if section.lower() == "global" else (section,) if name is None else (section, _unescaped(name))
            if place:
                lines.setdefault(place, number)
                _at(values, place)
        elif (found := _INI_ENTRY.fullmatch(line)) and (value := _ini_value(found["value"])) is not None:
            here = _at(values, place)
            before = here.get(found["name"])
            if isinstance(before, dict):
                problems.append((number, f"{found['name']} is a section as well"))
                continue
            known = [] if before is None else before if isinstance(before, list) else [before]
            here[found["name"]] = [*known, value] if known else value
            lines.setdefault((*place, found["name"]), number)
        else:
            problems.append((number, 'is neither "[section]" nor "name = value"'))
    if problems:
        raise DocumentError(*problems)
    return Document(values, lines, plain=True)


def _at(values: dict[str, Any], place: Place) -> dict[Any, Any]:
    for part in place:
        below = values.setdefault(str(part), {})
        values = below if isinstance(below, dict) else values
    return values


def _ini_value(raw: str | None) -> str | None:
    """The value of an entry, "true" for a name alone; None for quotes that do not close."""
    if raw is None:
        return "true"
    if raw.startswith('"'):
        found = _QUOTED.fullmatch(raw)
        return _unescaped(found["text"]) if found else None
    return _COMMENT.sub("", raw).strip()


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)


_FORMS: Mapping[str, Callable[[str], Document]] = {
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
    ".ini": _ini,
    ".cfg": _ini,
}
"""By suffix. `.conf` says nothing: it is INI in the clouds of Go, and YAML in others."""
