"""Fields of the contract's frozen classes: their types are checked where a vendor builds a value,
and what is written below a field becomes part of `help()`, of its class's and its own.

What a text must look like (a label value, an address) is checked by the host, which knows the node:
see `InstanceMetadata`. Python keeps no text below a field at run time, and attrs adds methods that
hide the fields in `help()`: the texts are read from the module's source when they are asked for."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from attrs import Attribute
    from kubernetes.client.models.v1_node_address import V1NodeAddress

T = TypeVar("T")

FIELDS = "Fields:"
"""The line that begins the part of a class's docstring that lists its fields."""

_SHOWN = 80  # characters of a wrong value


def as_tuple(value: Iterable[V1NodeAddress]) -> tuple[V1NodeAddress, ...]:
    """A converter: any collection, but no text. For `node_addresses`."""
    given: Any = value  # vendors' code need not be typed
    collection = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    return tuple(given) if collection else given


def own_copy(value: Mapping[str, str]) -> Mapping[str, str]:
    """A converter: a copy that no one else changes. For `labels`."""
    # A provider may fill one dict for machine after machine: each answer has its own.
    given: Any = value
    return dict(given) if isinstance(given, Mapping) else given


def text(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: a str."""
    if not isinstance(value, str):
        raise _wrong(instance, field, "a str", value)


def flag(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: True or False."""
    if not isinstance(value, bool):
        raise _wrong(instance, field, "True or False", value)


def flag_or_none(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: True, False or None."""
    if value is not None and not isinstance(value, bool):
        raise _wrong(instance, field, "True, False or None", value)


def labels(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: names and values are texts. For annotations, too."""
    if not isinstance(value, Mapping):
        raise _wrong(instance, field, "a mapping of names to values", value)
    for name, content in value.items():
        if not isinstance(name, str) or not isinstance(content, str):
            raise _wrong(instance, field, "a mapping of str to str", f"{name!r}: {content!r}")


def node_addresses(instance: object, field: Attribute[Any], value: object) -> None:
    """A validator: a sequence of V1NodeAddress."""
    wanted = 'a sequence of V1NodeAddress, such as [V1NodeAddress(type="InternalIP", address="10.0.0.1")]'
    if not isinstance(value, tuple):
        raise _wrong(instance, field, wanted, value)
    if value:
        from kubernetes.client.models.v1_node_address import V1NodeAddress

        for one in value:
            if not isinstance(one, V1NodeAddress):
                raise _wrong(instance, field, wanted, one)


def items_of(kind: type[Any], example: str) -> Callable[[object, Attribute[Any], object], None]:
    """A validator: a sequence of this class."""

    def check(instance: object, field: Attribute[Any], value: object) -> None:
        for one in value if isinstance(value, tuple) else (value,):
            if not isinstance(one, kind):
                raise _wrong(instance, field, f"a sequence of {kind.__name__}, such as {example}", one)

    return check


def _wrong(instance: object, field: Attribute[Any], wanted: str, value: object) -> TypeError:
    shown = value if isinstance(value, str) else repr(value)
    cut = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    kind = type(value).__name__
    return TypeError(f"{type(instance).__name__}.{field.name} must be {wanted}; it is of type {kind}: {cut}")


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
