"""Annotations that users set on Services: declared once, read with their types, all mistakes at
once (stage 5). Pure.

A vendor declares them in a class, and reads them at the begin of `ensure_load_balancer`::

    class AcmeAnnotations(ServiceAnnotations, prefix="acme.example/"):
        internal = annotation("internal", BOOL, default=False, help="Only reachable from inside the VPC.")
        idle_timeout = annotation("idle-timeout", Duration(least=1, most=3600), default=60.0, help="...")
        certificate = annotation("certificate", TEXT, help="ID of the certificate for HTTPS.")

    wanted = AcmeAnnotations.read(service, defaults={"idle_timeout": self.config.idle_timeout})
    if wanted.internal: ...

Mistakes raise `InvalidAnnotations`, which the service controller turns into one Warning Event on
the Service. It asks the provider again when the Service or its nodes change. `markdown_table` is
the table for the vendor's docs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar, overload

from cloudprovider.errors import InvalidAnnotations
from cloudprovider.helpers.labels import label_key_problems
from cloudprovider.helpers.objects import HasMetadata, annotations_of
from cloudprovider.internal.problem import nearest
from cloudprovider.kinds import Kind

__all__ = ["Annotation", "OptionalAnnotation", "ServiceAnnotations", "annotation"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_SHOWN = 60  # characters of a wrong value
_MOST_UNKNOWN = 10  # annotations that are looked at: a Service has room for thousands, and each costs a millisecond
_MISSING: Final = object()
_KINDS: Final = {"bool": "BOOL", "str": "TEXT", "int": "Integer()", "float": "Duration() or a Kind of your own"}


class Annotation(Generic[T_co]):
    """One annotation, declared by `annotation` in the body of a class. On an instance of that class
    it is the value."""

    name: str
    """The whole key, prefix included."""

    def __init__(self, name: str, kind: Kind[Any], default: object, required: bool, help: str) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.required = required
        self.help = " ".join(help.split())
        self.attribute = ""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: ServiceAnnotations, owner: type[Any]) -> T_co: ...
    def __get__(self, instance: ServiceAnnotations | None, owner: type[Any]) -> Self | T_co:
        if instance is None:
            return self
        value: T_co = instance.values[self.attribute]
        return value


class OptionalAnnotation(Annotation[T | None], Generic[T]):
    """One that a Service need not have, and for which there is no default."""


@overload
def annotation(name: str, kind: Kind[T], *, default: T, help: str = "") -> Annotation[T]: ...
@overload
def annotation(name: str, kind: Kind[T], *, required: Literal[True], help: str = "") -> Annotation[T]: ...
@overload
def annotation(name: str, kind: Kind[T], *, help: str = "") -> OptionalAnnotation[T]: ...
def annotation(
    name: str, kind: Kind[Any], *, default: Any = None, required: bool = False, help: str = ""
) -> Annotation[Any]:
    """Declare an annotation in a subclass of `ServiceAnnotations`.

    `name` is what follows the class's prefix, `kind` how its value is written. A Service without it
    has `default`, or None where there is no default; with `required` its absence is a mistake.
    `help` is for the docs' table.
    """
    # The class is what type checkers see: values of an optional one may be None.
    made = Annotation if required or default is not None else OptionalAnnotation
    return made(name, kind, default, required, help)


class ServiceAnnotations:
    """Base of a class that declares a vendor's annotations; an instance holds the values of one
    Service. Immutable.

    `prefix` is what the vendor's annotations begin with: a domain, "/", and perhaps the begin of
    the name. One that begins so and is not declared is a mistake: a typo in it would otherwise
    build another load balancer than the user asked for. `others` are patterns ("status-*", without
    the prefix) of annotations under the prefix that other programs use.

    Raises ValueError with all that is wrong with the declaration: a prefix without "/", a key that
    the API server does not take or that is declared twice, what is no kind, a default that is not
    of its kind, an attribute named as one of this class, `others` that match nothing or everything.
    """

    prefix: ClassVar[str] = ""
    others: ClassVar[tuple[str, ...]] = ()
    declared: ClassVar[Mapping[str, Annotation[Any]]] = {}
    """What the class declares, by the name of the attribute."""

    def __init_subclass__(cls, *, prefix: str = "", others: tuple[str, ...] = (), **rest: Any) -> None:
        super().__init_subclass__(**rest)
        own = {name: one for name, one in vars(cls).items() if isinstance(one, Annotation)}
        if taken := sorted(name for name in own if hasattr(ServiceAnnotations({}), name)):
            raise ValueError(f"{cls.__name__}: {', '.join(taken)} is a name of ServiceAnnotations itself")
        # A text in place of a tuple would be patterns of one letter, "*" among them.
        given: object = others
        texts, others = isinstance(given, str), () if isinstance(given, str) else others
        cls.prefix, cls.others = prefix or cls.prefix, (*cls.others, *others)
        for one in own.values():
            one.name = cls.prefix + one.name
        cls.declared = {**cls.declared, **own}
        keys = [one.name for one in cls.declared.values()]
        problems = [] if "/" in cls.prefix or not cls.prefix else [_no_domain(cls.prefix)]
        if texts or any("/" in one for one in others):
            problems.append('others must be patterns without the prefix, as in others=("status-*",)')
        problems += [problem for key in keys for problem in label_key_problems(key)]
        problems += [f"{key!r} is declared twice" for key in sorted({key for key in keys if keys.count(key) > 1})]
        problems += filter(None, map(_undeclarable, own.values()))
        if problems:
            raise ValueError(f"{cls.__name__}: {'; '.join(problems)}")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        """The values by the name of their attribute."""

    @classmethod
    def read(cls, service: HasMetadata, *, defaults: Mapping[str, object] | None = None) -> Self:
        """The values of a Service. `defaults`, by the name of the attribute, take the place of
        those declared: what the provider's configuration says; None: there is none.

        Raises `InvalidAnnotations` with every mistake, TypeError for a default of something that is
        not declared, and ValueError with all defaults that are not of their kind.
        """
        given = annotations_of(service)
        for name in defaults or ():
            if name not in cls.declared:
                raise TypeError(f"{cls.__name__} declares no {name!r}, but there is a default for it")
        wrong = [_wrong_default(cls.declared[name], value) for name, value in (defaults or {}).items()]
        # The operator's mistake: as InvalidAnnotations it would be an Event that blames the Service.
        if found := "; ".join(filter(None, wrong)):
            raise ValueError(f"{cls.__name__}, defaults of the configuration: {found}")
        problems: list[str] = []
        values = {name: _value(one, given, (defaults or {}).get(name, _MISSING), problems) for name, one in cls._all()}
        problems += cls._unknown(given)
        if problems:
            raise InvalidAnnotations(*problems)
        return cls(values)

    @classmethod
    def markdown_table(cls) -> str:
        """The declared annotations as a table in Markdown, for the vendor's docs. Ends with a
        newline."""
        rows = ["| annotation | value | default | meaning |", "|---|---|---|---|"]
        for _, one in cls._all():
            shown = "" if one.default is None else one.kind.show(one.default)
            default = "required" if one.required else f"`{shown}`" if shown else ""
            cells = (f"`{one.name}`", one.kind.allowed, default, one.help)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        return "\n".join(rows) + "\n"

    @classmethod
    def _all(cls) -> Iterator[tuple[str, Annotation[Any]]]:
        yield from cls.declared.items()

    @classmethod
    def _unknown(cls, given: Mapping[str, str]) -> list[str]:
        # Without a prefix everybody's annotations would be unknown ones of this vendor.
        if not cls.prefix:
            return []
        known = [one.name for one in cls.declared.values()]
        problems: list[str] = []
        unknown = [key for key in given if key.startswith(cls.prefix) and key not in known and not cls._is_other(key)]
        for key in sorted(unknown)[:_MOST_UNKNOWN]:
            rest = key.removeprefix(cls.prefix)
            near = nearest(rest, [one.removeprefix(cls.prefix) for one in known])
            hint = f"did you mean {cls.prefix}{near}?" if near else f"known: {', '.join(known)}"
            problems.append(f"{key}: unknown annotation; {hint}")
        if more := len(unknown[_MOST_UNKNOWN:]):
            problems.append(f"{more} more annotations that begin with {cls.prefix} are unknown")
        return problems

    @classmethod
    def _is_other(cls, key: str) -> bool:
        rest = key.removeprefix(cls.prefix)
        return any(fnmatchcase(rest, pattern) for pattern in cls.others)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and type(other) is type(self) and self.values == other.values

    __hash__ = None  # type: ignore[assignment]  # values need not be hashable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"


def _no_domain(prefix: str) -> str:
    return f'the prefix {prefix!r} has no "/", which ends the domain: write prefix="{prefix}/"'


def _undeclarable(one: Annotation[Any]) -> str:
    """What is wrong with the kind of an annotation, or its default; "" if nothing is."""
    kind: Any = one.kind
    if isinstance(kind, Kind):
        return _wrong_default(one, one.default)
    name = kind.__name__ if isinstance(kind, type) else repr(kind)
    instead = _KINDS.get(name) or (f"{name}()" if isinstance(kind, type) and issubclass(kind, Kind) else "a Kind")
    return f"{one.attribute}: {name} is no kind of values, write {instead}"


def _wrong_default(one: Annotation[Any], value: object) -> str:
    problem = None if value is None else one.kind.problem(value)
    return f"{one.attribute}: the default {value!r:.{_SHOWN}} {problem}" if problem else ""


def _value(one: Annotation[Any], given: Mapping[str, str], default: object, problems: list[str]) -> object:
    text = given.get(one.name)
    if text is None:
        if one.required and default is _MISSING:
            problems.append(f"{one.name}: is required; allowed: {one.kind.allowed}")
        return one.default if default is _MISSING else default
    try:
        # Quotes and folds of YAML leave blanks that nobody meant.
        value: object = one.kind.parse(text.strip())
    except ValueError:
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
        problems.append(f"{one.name}: {shown!r} cannot be used; allowed: {one.kind.allowed}")
        return None
    return value
