"""What is written below a field becomes part of `help()`: of its class's and its own.

Python keeps no text below a field at run time, and attrs adds methods that hide the fields in
`help()`. The texts are read from the module's source when they are asked for: at no cost."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any, TypeVar

T = TypeVar("T")

FIELDS = "Fields:"
"""The line that begins the part of a class's docstring that lists its fields."""


def documented(kind: type[T]) -> type[T]:
    """A class decorator, above `attrs.frozen` or `define`: the class's docstring ends with its
    fields, and `help` and `inspect.getdoc` know the text of each."""
    docs = _FieldDocs(kind)
    setattr(kind, "__doc__", _ClassDoc(kind.__doc__ or "", docs))  # noqa: B010 - a descriptor, which types do not know
    if "__slots__" in vars(kind):
        setattr(kind, "__slots__", docs)  # noqa: B010 - where inspect looks for the docs of slots
    return kind


class _FieldDocs(dict[str, str]):
    """The text of each field, by its name: read when it is first asked for."""

    def __init__(self, kind: type[Any]) -> None:
        own = vars(kind).get("__slots__", ())
        super().__init__(dict.fromkeys(own, "") if own else {one.name: "" for one in kind.__attrs_attrs__})
        self._kind = kind
        self._read: dict[str, tuple[str, str]] | None = None

    def __getitem__(self, name: str) -> str:
        return self.fields().get(name, ("", ""))[1] or super().__getitem__(name)

    def fields(self) -> dict[str, tuple[str, str]]:
        """(declaration, text) of each field, in order; empty without the source."""
        if self._read is None:
            self._read = _fields(self._kind)
        return self._read


class _ClassDoc:
    """A docstring that is put together when it is read."""

    def __init__(self, own: str, docs: _FieldDocs) -> None:
        self._own = inspect.cleandoc(own)
        self._docs = docs

    def __get__(self, instance: object, owner: type[Any] | None = None) -> str:
        lines = [self._own, "", FIELDS] if self._docs.fields() else [self._own]
        for declared, text in self._docs.fields().values():
            lines += [f"    {declared}", textwrap.indent(text, " " * 8)]
        return "\n".join(lines)


def _fields(kind: type[Any]) -> dict[str, tuple[str, str]]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # TypeError: a class of no module
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, tuple[str, str]] = {}
    for at, node in enumerate(body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        below = body[at + 1] if at + 1 < len(body) else None
        text = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            text = inspect.cleandoc(below.value.value).strip()
        found[node.target.id] = f"{node.target.id}: {ast.unparse(node.annotation)}{_default(node.value)}", text
    return found


def _default(value: ast.expr | None) -> str:
    """The default as in a signature: of `field(default=...)`, a factory, or as written."""
    if value is None:
        return ""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field"):
        return f" = {ast.unparse(value)}"
    given = {word.arg: ast.unparse(word.value) for word in value.keywords}
    if "default" in given:
        return f" = {given['default']}"
    return f" = {given['factory']}()" if "factory" in given else ""
