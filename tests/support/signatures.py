"""The reference pages as one reads them without building the site: each public name with its
signature and meaning.

A page names modules and classes for the site's autodoc. `page` writes what they hold between two
comments at its end, as a list. `python -m tests.generate` writes the pages, and a test compares
them.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType

PAGES = ("interfaces", "helpers", "host", "http", "testing", "errors")
BEGIN, END = "<!-- names: begin -->\n", "<!-- names: end -->\n"
_BLOCK = re.compile(r"^\.\. auto(module|class):: (\S+)\n(?:   :members:([^\n]*)\n)?", re.M)


def page(text: str) -> str:
    """The page with its list made anew. Imports what the page names."""
    kept = text.partition(BEGIN)[0].rstrip("\n")
    kept = kept.removesuffix(_HEAD.rstrip("\n")).rstrip("\n")
    lines = [line for kind, name, members in _BLOCK.findall(kept) for line in _entries(kind, name, members)]
    return f"{kept}\n\n{_HEAD}\n{BEGIN}\n" + "\n".join(lines) + f"\n{END}"


_HEAD = """## All names in short

Made from the docstrings by `make generate`; `help(NAME)` shows the whole text.
"""


def _entries(kind: str, name: str, members: str) -> Iterator[str]:
    if kind == "class":
        where, _, one = name.rpartition(".")
        yield from _class(getattr(importlib.import_module(where), one))
        return
    module = importlib.import_module(name)
    wanted = [word.strip() for word in members.split(",") if word.strip()] or list(getattr(module, "__all__", ()))
    yield f"- **{name}**: {_first(module)}"
    for one in wanted or [word for word in vars(module) if word.isupper()]:
        found = getattr(module, one)
        if inspect.isclass(found):
            yield from (f"  {line}" for line in _class(found))
        elif isinstance(found, FunctionType):
            yield f"  - `{one}{_signature(found)}`: {_first(found)}"
        elif isinstance(found, str | int | float):
            yield f"  - `{one}` = `{found}`"
        else:
            yield f"  - `{one}`"


def _class(kind: type) -> Iterator[str]:
    made = "" if inspect.isabstract(kind) or issubclass(kind, enum.Enum) else _signature(kind.__init__)
    yield f"- `class {kind.__name__}{made.removesuffix(' -> None')}`: {_first(kind)}"
    if issubclass(kind, enum.Enum):
        yield f"  - {', '.join(f'`{name}`' for name in kind.__members__)}"
        return
    for name, typed, told in _fields(kind):
        yield f"  - `{name}: {typed}`: {told}"
    for name, member in vars(kind).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_"):
            continue
        if isinstance(plain, FunctionType):
            yield f"  - `{name}{_signature(plain)}`: {_first(plain)}"
        elif isinstance(member, property):
            yield f"  - `{name}`: {_first(member)}"


def _fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """(name, type, first paragraph) of the public attributes that have a text below them."""
    [body] = [node.body for node in ast.parse(textwrap.dedent(inspect.getsource(kind))).body if hasattr(node, "body")]
    for one, after in itertools.pairwise(body):
        match one, after:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))) if not name.startswith("_"):
                yield name, ast.unparse(_bare(one.annotation)), _plain(text)


def _bare(annotation: ast.expr) -> ast.expr:
    """The type alone, where a check is attached to it."""
    match annotation:
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([first, *_])):
            return first
    return annotation


def _signature(function: object) -> str:
    if not isinstance(function, FunctionType):
        return "()"
    signature = inspect.signature(function)
    parts, star = [], False
    for index, one in enumerate(signature.parameters.values()):
        if index == 0 and one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        prefix = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        typed = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
        equals = " = " if typed else "="
        default = "" if one.default is one.empty else f"{equals}{_value(one.default)}"
        parts.append(f"{prefix}{one.name}{typed}{default}")
    back = "" if signature.return_annotation is signature.empty else f" -> {_type(signature.return_annotation)}"
    return f"({', '.join(parts)}){back}"


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "") or str(annotation)


def _value(default: object) -> str:
    """A default as code; "..." where its repr is none, or names an address."""
    shown = repr(default)
    return "..." if shown.startswith("<") or shown == "NOTHING" or " at 0x" in shown or "`" in shown else shown


def _first(found: object) -> str:
    """The first paragraph of its docstring, in Markdown, on one line."""
    return _plain(inspect.getdoc(found) or "")


def _plain(docstring: str) -> str:
    text = " ".join(docstring.partition("\n\n")[0].split())
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))
    return text.removesuffix("::").rstrip()
