"""What a provider must be before it is used: its name, its methods and its accessors. Asked at the
start by the manager and by `hosting`, and by `python -m cloudprovider check`; all at once.

Of the vendor's code only accessors, `provider_name` and `provider_id_prefixes` are called, which by
contract do no work."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cloudprovider.host import InformerUser
from cloudprovider.interface import Interface
from cloudprovider.internal.problem import Problem, nearest
from cloudprovider.loading.diagnostics import ACCESSORS, EXTENSIONS, code_place, error_text, home_of, raised_at

_NEWER: Final = ("instances_v2", "instances_batch")
_OLDER: Final = ("instances", "zones")
_NEARLY: Final = 0.85
"""How alike a method's name and an accessor's must be for a misspelling; difflib's ratio."""


def interface_problems(provider: Interface, name: str = "") -> list[Problem]:
    """What is wrong with the methods of the provider itself. May be asked before `initialize`.

    `name` is the one it was asked for by, "" where it was not.
    """
    problems = list(_method_problems(provider, Interface))
    if callable(getattr(provider, "set_informers", None)):
        problems += _method_problems(provider, InformerUser)
    own = _own_name(provider, problems)
    if own and name and own != name:
        kind = type(provider).__name__
        problems.append(
            Problem(
                f"{kind}.provider_name() returns {own!r}, but the provider is installed or registered as {name!r}",
                f"give both the same name: provider IDs begin with {own}://, --cloud-provider={name} starts it",
                fatal=False,
            )
        )
    return problems


def capability_problems(provider: Interface) -> list[Problem]:
    """What is wrong with what the accessors return. For after `initialize`, which may make it."""
    problems: list[Problem] = []
    found = {name: _asked(provider, name, problems) for name in ACCESSORS}
    offered = {name: one for name, one in found.items() if one is not None}
    for name, capability in offered.items():
        problems += _capability(provider, name, capability)
    forgotten = list(_unreachable(provider, offered))
    problems += forgotten or [*_silent(provider, offered), *_misspelt(provider)]
    problems += _prefixes(provider)
    if not offered and not problems:
        problems.append(
            Problem(
                f"{type(provider).__name__} offers nothing: every accessor returns None",
                f"implement a capability, such as InstancesV2, and return it from its accessor, one of "
                f"{', '.join(f'{name}()' for name in ACCESSORS)}",
                fatal=False,
            )
        )
    return problems


def capabilities_of(provider: Interface) -> dict[str, Any]:
    """What the accessors return, by their names; those that return None or fail are left out."""
    ignored: list[Problem] = []
    found = {name: _asked(provider, name, ignored) for name in ACCESSORS}
    return {name: one for name, one in found.items() if one is not None}


def methods_of(kind: type) -> list[str]:
    """The methods of a class of the contract."""
    return [name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")]


def _own_name(provider: Interface, problems: list[Problem]) -> str:
    """Its name; "" where it has none that can be used, which `problems` tells."""
    method = _attribute(provider, "provider_name")
    if not callable(method) or _unlike_a_function(method):
        return ""
    count = len(problems)
    name: object = _called(provider, "provider_name", problems)
    if isinstance(name, str) and name.strip():
        return name
    if len(problems) == count:
        problems.append(
            Problem(
                f"{type(provider).__name__}.provider_name() returns {_kind(name)}, which is no name",
                "return the name that stands before :// in provider IDs",
            )
        )
    return ""


def _asked(provider: Interface, accessor: str, problems: list[Problem]) -> Any:
    """What one accessor returns; None where it cannot be asked, see `problems`."""
    method = _attribute(provider, accessor)
    if not callable(method) or _unlike_a_function(method):
        return None
    first = _called(provider, accessor, problems)
    if first is None:
        return None
    if _called(provider, accessor, problems) is not first and not inspect.isawaitable(first):
        problems.append(
            Problem(
                f"{type(provider).__name__}.{accessor}() returns another object each time",
                "make it once, in __init__ or initialize, and return the same object: it is asked for often, from many "
                "threads",
                fatal=False,
            )
        )
    return first


def _called(provider: Interface, method: str, problems: list[Problem]) -> Any:
    try:
        return getattr(provider, method)()
    except Exception as error:  # noqa: BLE001 - vendor boundary: it becomes a problem
        text, details = error_text(error)
        where = raised_at(error, home_of(type(provider).__module__))
        problems.append(
            Problem(
                f"{type(provider).__name__}.{method}() raised {text} ({where})",
                "correct that line: this method returns what there is, and does no work",
                details,
            )
        )
        return None


def _capability(provider: Interface, accessor: str, found: Any) -> Iterator[Problem]:
    """What is wrong with the object that an accessor returned."""
    wanted = ACCESSORS[accessor]
    call = f"{type(provider).__name__}.{accessor}()"
    if inspect.isclass(found):
        yield Problem(
            f"{call} returns the class {found.__name__} itself",
            f"return an object of it: {found.__name__}(...), made once, in __init__ or initialize",
        )
        return
    lacking = [name for name in methods_of(wanted) if not hasattr(found, name)]
    if lacking:
        yield Problem(
            f"{call} returns {_kind(found)}, which lacks {', '.join(lacking)}",
            f"return an object of a class that subclasses cloudprovider.{wanted.__name__}",
        )
        return
    yield from _method_problems(found, wanted)
    for extension, accessors in EXTENSIONS.items():
        if accessor in accessors and isinstance(found, extension):
            yield from _method_problems(found, extension)
    if accessor in ("instances_batch", "pod_cidrs"):
        yield from _max_batch(found)


def _method_problems(owner: Any, kind: type) -> Iterator[Problem]:
    """Methods of `owner` that cannot be called as those of the class `kind` of the contract are."""
    for name in methods_of(kind):
        declared = getattr(kind, name)
        method = _attribute(owner, name)
        label = f"{type(owner).__name__}.{name}"
        if not callable(method):
            yield Problem(
                f"{label} is not a method but {_kind(method)}", "write it as a plain method, without @property"
            )
            continue
        if getattr(method, "__func__", None) is declared:
            continue
        at = f" ({place})" if (place := code_place(method)) else ""
        if unlike := _unlike_a_function(method):
            yield Problem(
                f"{label}{at} is {unlike}",
                "write it as a plain function: it may block, as it is called from many threads at once",
            )
        elif (wrong := _parameters_problem(method, _arguments(declared))) != ("", False):
            what, fatal = wrong
            yield Problem(
                f"{label}{inspect.signature(method)}{at} {what}",
                f"give it the parameters of cloudprovider.{kind.__name__}.{name}, in this order: "
                f"({', '.join(_arguments(declared))})",
                fatal=fatal,
            )


def _attribute(owner: Any, name: str) -> Any:
    """An attribute of vendor's code; None where reading it fails, as in a property that raises."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - reported as "not a method but None"
        return None


def _unlike_a_function(method: Any) -> str:
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return "async"
    return "a generator" if inspect.isgeneratorfunction(method) else ""


def _arguments(declared: Any) -> list[str]:
    return [name for name in inspect.signature(declared).parameters if name != "self"]


def _parameters_problem(method: Any, wanted: Sequence[str]) -> tuple[str, bool]:
    """(what is wrong, whether the host cannot call it so); ("", False) where nothing is. The host
    calls by position."""
    if not _takes(method, wanted):
        return f"cannot be called with ({', '.join(wanted)})", True
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return "", False
    named = [one.name.lstrip("_") for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    pairs = [(mine, theirs) for mine, theirs in zip(named, wanted, strict=False) if mine != theirs]
    swapped = [f"{mine!r} gets the {theirs}" for mine, theirs in pairs if mine in wanted]
    if swapped:
        return f"has its parameters in another order, and is called by position: {', '.join(swapped)}", True
    renamed = [f"{mine!r} is {theirs!r} in the contract" for mine, theirs in pairs]
    return ", ".join(renamed), False


def _takes(method: Any, arguments: Sequence[str]) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # written in C, say
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _max_batch(found: Any) -> Iterator[Problem]:
    try:
        size: object = found.max_batch
    except Exception as error:  # noqa: BLE001 - vendor boundary: it becomes a problem
        size = error
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        yield Problem(
            f"{type(found).__name__}.max_batch is {size!r}, not a number of at least 1",
            "write it as a class attribute, max_batch = 250, or as a property",
        )


def _unreachable(provider: Interface, offered: Mapping[str, Any]) -> Iterator[Problem]:
    """Capabilities that the provider implements and the host cannot ask for."""
    newer = any(name in offered for name in _NEWER)
    for accessor, wanted in ACCESSORS.items():
        if accessor in offered or (accessor in _OLDER and newer):
            continue
        for owner in (provider, *offered.values()):
            if isinstance(owner, wanted):
                yield _forgotten(provider, owner, accessor, wanted, no_instances=not newer)
                break
    for extension, accessors in EXTENSIONS.items():
        carriers = [offered[accessor] for accessor in accessors if accessor in offered]
        if isinstance(provider, extension) and carriers and not any(isinstance(one, extension) for one in carriers):
            calls = " and ".join(f"{accessor}()" for accessor in accessors if accessor in offered)
            yield Problem(
                f"{type(provider).__name__} implements {extension.__name__}, but the object of {calls} does not",
                f"let the class {type(carriers[0]).__name__} subclass cloudprovider.{extension.__name__} too: the "
                "host looks for it there",
                fatal=False,
            )


def _forgotten(provider: Interface, owner: Any, accessor: str, wanted: type, *, no_instances: bool) -> Problem:
    kind, capability = type(provider).__name__, wanted.__name__
    what = f"{type(owner).__name__} implements {capability}, but {kind}.{accessor}() returns None"
    place = code_place(getattr(provider, accessor)) if _overridden(provider, accessor) else ""
    if place:
        return Problem(
            f"{what} ({place})",
            "return the object, if a return statement is missing; if the configuration turns it off, all is well",
            fatal=False,
        )
    value = "self" if owner is provider else "the object"
    return Problem(
        what,
        f"add to {kind} ({code_place(type(provider))}): def {accessor}(self) -> {capability}: return {value}",
        fatal=owner is provider and (no_instances or "instances" not in accessor),
    )


def _overridden(provider: Interface, accessor: str) -> bool:
    return getattr(getattr(provider, accessor), "__func__", None) is not getattr(Interface, accessor)


def _silent(provider: Interface, offered: Mapping[str, Any]) -> Iterator[Problem]:
    """Accessors that return None although their annotation promises a capability."""
    kind = type(provider).__name__
    for accessor in ACCESSORS:
        if accessor in offered or not _overridden(provider, accessor):
            continue
        method = getattr(provider, accessor)
        promised = str(getattr(method, "__annotations__", {}).get("return", "None"))
        if callable(method) and "None" not in promised and "Optional" not in promised:
            yield Problem(
                f"{kind}.{accessor}() returns None ({code_place(method)}), although its annotation promises an object",
                "return the object, or write `| None` if the configuration may turn it off",
                fatal=False,
            )


def _misspelt(provider: Interface) -> Iterator[Problem]:
    """Methods of the provider whose names are nearly those of accessors that it does not have."""
    missing = [accessor for accessor in ACCESSORS if not _overridden(provider, accessor)]
    # Not `inspect.getmembers_static`, which took 8 ms of each start.
    members = {name: value for kind in reversed(type(provider).__mro__) for name, value in vars(kind).items()}
    for name, method in sorted(members.items()):
        if not inspect.isfunction(method) or name.startswith("_") or hasattr(Interface, name):
            continue
        close = nearest(name, missing, _NEARLY)
        if close and _takes(method, ["self"]):
            yield Problem(
                f"{type(provider).__name__}.{name}() ({code_place(method)}) is no accessor: the host does not call it",
                f"name it {close}, if that is what it should be",
                fatal=False,
            )


def _prefixes(provider: Interface) -> Iterator[Problem]:
    problems: list[Problem] = []
    if _unlike_a_function(_attribute(provider, "provider_id_prefixes")):
        return
    prefixes: object = _called(provider, "provider_id_prefixes", problems)
    yield from problems
    if not problems and (isinstance(prefixes, str) or not isinstance(prefixes, Sequence | set | frozenset)):
        yield Problem(
            f"{type(provider).__name__}.provider_id_prefixes() returns {_kind(prefixes)}, not a sequence of texts",
            'return a tuple, such as ("acme://",)',
        )


def _kind(value: object) -> str:
    """The type alone: the value's repr may show what must not be shown."""
    if value is None:
        return "None"
    return f"the class {value.__name__} itself" if inspect.isclass(value) else f"a {type(value).__name__}"
