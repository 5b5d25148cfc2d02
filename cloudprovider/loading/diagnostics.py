"""Why a provider could not be imported or started: what happened, where, and what to do about it,
for the provider's author and for the operator.

What a plugin's module or factory raised comes in; `Problem`s go out, for the registry's errors and
the lines of `python -m cloudprovider check`. Nothing is imported or called here."""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from cloudprovider.errors import ConfigError, InvalidConfig
from cloudprovider.instances import Instances, InstancesBatch, InstancesV2
from cloudprovider.interface import Clusters, Interface
from cloudprovider.internal.cleaning import LONGEST_ERROR, Cleaner, of_process, redact
from cloudprovider.internal.configsecrets import config_values, file_names, is_file_name, quoted_line, secret_values
from cloudprovider.internal.problem import Problem, did_you_mean, nearest
from cloudprovider.loadbalancer import LoadBalancer, OwnedLoadBalancers
from cloudprovider.loading.plugins import ENTRY_POINT_GROUP, Plugin
from cloudprovider.localinstance import LocalInstance
from cloudprovider.ownedresources import OwnedResources
from cloudprovider.podcidrs import PodCIDRs
from cloudprovider.routes import Routes
from cloudprovider.sshkeys import SSHKeys
from cloudprovider.volumes import PVLabeler
from cloudprovider.zones import Zones

if TYPE_CHECKING:
    from cloudprovider.cloudconfig import CloudConfig

ACCESSORS: Final[Mapping[str, type]] = {
    "instances_v2": InstancesV2,
    "instances_batch": InstancesBatch,
    "instances": Instances,
    "zones": Zones,
    "load_balancer": LoadBalancer,
    "routes": Routes,
    "pod_cidrs": PodCIDRs,
    "clusters": Clusters,
    "pv_labeler": PVLabeler,
    "local_instance": LocalInstance,
    "owned_resources": OwnedResources,
}
"""The accessors of `Interface`, and what each returns."""

EXTENSIONS: Final[Mapping[type, tuple[str, ...]]] = {
    OwnedLoadBalancers: ("load_balancer",),
    SSHKeys: ("instances_v2", "instances_batch"),
}
"""Capabilities without an accessor of their own, and the accessors of which one returns an object
that has them too."""

CONTRACT: tuple[type, ...] = (Interface, *ACCESSORS.values(), *EXTENSIONS)
"""The classes that a vendor implements."""

FACTORY = "def new_provider(config: CloudConfig | None) -> Interface"
_CONFIGURED = (InvalidConfig, ConfigError)
"""Of the contract: they name the file and line, or the variable, that is wrong."""
_MOST_LINES = 50  # of what one exception says
_PIECE = 8  # characters of a value of the config give it away
_SECTION = f'[project.entry-points."{ENTRY_POINT_GROUP}"]'
_OWN_FRAMES = tuple(os.path.join(os.path.dirname(__file__), name) for name in ("loader.py", "plugins.py"))
_OURS = ("cloudprovider", "controllers")
_ABSTRACT = re.compile(r"Can't instantiate abstract class (\w+) ")
_NOT_IN_CONTRACT = re.compile(r"cannot import name '(\w+)' from 'cloudprovider'")


# Loading


def entry_point_problem(plugin: Plugin) -> Problem:
    """The entry point's value cannot be read."""
    return Problem(
        f"its entry point {plugin.line} does not have the form module:object",
        f'{_mend_line(plugin)}, as in {plugin.name} = "{_python_name(plugin.project)}:new_provider"',
    )


def import_problem(plugin: Plugin, error: BaseException) -> Problem:
    """The entry point's module could not be imported."""
    module, _ = plugin.target
    where = raised_at(error, home_of(module))
    if isinstance(error, ModuleNotFoundError) and error.name:
        # Without a line of the plugin it is the entry point itself that names what is not there.
        if not where and (module == error.name or module.startswith(f"{error.name}.")):
            return _no_such_module(plugin, module, error.name)
        return Problem(
            f"there is no module {error.name!r}, which is imported here: {where or module}",
            f"install what {plugin.project} needs (pip does, if its pyproject.toml lists it under dependencies), or "
            "correct that line",
        )
    text, details = error_text(error)
    hint = ""
    if (match := _NOT_IN_CONTRACT.match(str(error))) is not None:
        import cloudprovider

        hint = did_you_mean(match[1], cloudprovider.__all__)
    return Problem(f"{text}{_at(where)}{hint}", f"correct that line; {_not_yours(plugin)}", details)


def object_problem(plugin: Plugin) -> Problem:
    """The entry point's module was imported, and does not have what the entry point names."""
    name, attribute = plugin.target
    module = sys.modules.get(name)
    callables = [key for key, value in vars(module).items() if callable(value)] if module else []
    near = did_you_mean(attribute, sorted(callables))
    file = getattr(module, "__file__", None) or name
    return Problem(
        f"its entry point {plugin.line} names {attribute!r}, which {file} does not have{near}",
        f"{_mend_line(plugin)}; {_not_yours(plugin)}",
    )


def not_callable_problem(plugin: Plugin, kind: str) -> Problem:
    """The entry point names something that cannot be called; `kind` says what."""
    return Problem(
        f"its entry point {plugin.line} is not callable but {kind}",
        f"name a factory in it, a function of the form {FACTORY}",
    )


def _no_such_module(plugin: Plugin, module: str, missing: str) -> Problem:
    import pkgutil

    parent, _, last = missing.rpartition(".")
    if parent:
        # It is imported: the import has failed at the last part of the name.
        package = sys.modules.get(parent)
        known = [found.name for found in pkgutil.iter_modules(getattr(package, "__path__", ()))]
    else:
        known = list(plugin.modules())
    near = nearest(last, known)
    hint = ""
    if near:
        right = f"{parent}.{near}" if parent else near
        value = f"{right}{plugin.value[len(missing) :]}"
        hint = f'. Did you mean {plugin.name} = "{value}"?'
    elif known:
        hint = f" (there is: {', '.join(known)})"
    return Problem(
        f"its entry point {plugin.line} names the module {missing!r}, which is not installed{hint}",
        f"{_mend_line(plugin)}, or have the package include that module; {_not_yours(plugin)}",
    )


def _mend_line(plugin: Plugin) -> str:
    source = plugin.source
    file = source / "pyproject.toml" if source is not None else f"the pyproject.toml of {plugin.project}"
    return f"correct the line under {_SECTION} in {file}, and install it again (installed: {plugin.metadata_file})"


def _not_yours(plugin: Plugin) -> str:
    return f"if {plugin.project} is not yours, install another version of it"


def _python_name(project: str) -> str:
    return re.sub(r"\W+", "_", project).lower()


# Starting


def signature_problem(factory: Callable[..., Any]) -> Problem | None:
    """The factory cannot be called with the cloud config; None where that is not sure."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # written in C, say
        return None
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(factory, "__qualname__", type(factory).__qualname__)
        return Problem(
            f"its factory {name}{signature}{_at(code_place(factory))} must take one argument, the cloud config",
            f"write it as {FACTORY}",
        )
    return None


def factory_problem(error: BaseException, config: CloudConfig | None, home: str, *, whose: str = "") -> Problem:
    """The factory raised. Values of the config are masked. `whose`: the distribution, or ""."""
    where = raised_at(error, home)
    if isinstance(error, TypeError) and (match := _ABSTRACT.match(str(error))) is not None:
        for one in reversed(list(_subclasses(CONTRACT))):  # the newest first: a module may have been loaded again
            if one.__name__ == match[1] and _is_about(error, _lacking(one)):
                return _abstract(one, where)
    text, details = error_text(error, config)
    if config is not None and config.path:
        # Its own name quotes no line, although another setting may be "prod" as its folder is.
        line = quoted_line(config.data, str(error).replace(config.path, " "))
        fix = f"correct {f'line {line} of ' if line else ''}the cloud config {config.path!r}"
    elif config is None:
        fix = "give a --cloud-config, if one is needed (without it the factory gets None)"
    else:
        fix = "correct the flags or the variables that the provider is configured by"
    if isinstance(error, _CONFIGURED):
        # It says itself which file and line, or which variable: the code that found it is right.
        if config is None:
            fix = "give a --cloud-config with it, or a variable that is named"
        elif not config.path or any(config.path in one for one in (text, *details)):
            fix = "correct it in the file or the variable that is named"
        else:
            # A provider's own words may name no file.
            fix = f"{fix}, or the variable that is named"
        return Problem(text, fix, details)
    code = where.partition(", in ")[0] or "the code"
    return Problem(
        f"{text}{_at(where)}", f"{fix}; if that is right, {code}{f' of {whose}' if whose else ''} is wrong", details
    )


def _abstract(kind: type, where: str) -> Problem:
    lacking = []
    for name in _lacking(kind):
        owner = next((one for one in reversed(kind.__mro__) if name in vars(one)), kind)
        lacking.append((owner, name))
    signatures = tuple(f"{owner.__name__}.{name}{_signature(getattr(owner, name))}" for owner, name in lacking)
    owner, name = lacking[0]
    first = f"{owner.__module__.partition('.')[0]}.{owner.__name__}.{name}"
    here = _at(code_place(kind))
    if len(lacking) == 1:
        return Problem(
            f"the class {kind.__name__}{here} lacks the method {signatures[0]}",
            f"write it; help({first}) says what it must do. The class is made at {where}",
        )
    return Problem(
        f"the class {kind.__name__}{here} lacks {len(lacking)} methods",
        f"write them; help({first}) says what the first one must do. The class is made at {where}",
        signatures,
    )


def _is_about(error: TypeError, methods: list[str]) -> bool:
    return bool(methods) and all(name in str(error) for name in methods)


def _lacking(kind: type) -> list[str]:
    return sorted(getattr(kind, "__abstractmethods__", ()))


def _signature(method: Callable[..., Any]) -> str:
    signature = inspect.signature(method)
    own = [one for one in signature.parameters.values() if one.name != "self"]
    return str(signature.replace(parameters=own)).replace("'", "")


def _subclasses(kinds: Iterable[type]) -> Iterator[type]:
    for kind in kinds:
        below: list[type] = type.__subclasses__(kind)
        yield from below
        yield from _subclasses(below)


# What was raised, and where


def hidden_values(error: BaseException) -> Callable[[bytes], frozenset[str]]:
    """What of a cloud config is hidden in this exception's text: every value, as parsers quote the
    line that they stumbled over. What the contract's own code says of it quotes none, so that of
    that only secrets are: "prod" of another setting would be cut out of "/etc/prod/cloud.conf"."""
    # A provider may raise the same class with a parser's text, or after it.
    alone = error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    raisers = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = isinstance(error, _CONFIGURED) and alone and raisers and raisers[-1].startswith("cloudprovider.")
    return secret_values if ours else config_values


def file_names_in(error: BaseException, config: CloudConfig | None) -> frozenset[str]:
    """The files whose names this exception's text may show although the config has them: without
    the name nobody can correct anything. Never a name that has a secret in it."""
    data = config.data if config is not None else b""
    names = {config.path, *file_names(data)} if config is not None else set()
    for one in (error, error.__cause__, error.__context__):
        if isinstance(one, OSError):
            names.update(name for name in (one.filename, one.filename2) if isinstance(name, str) and is_file_name(name))
    secrets = Cleaner(of_process().values | secret_values(data), window=_PIECE)
    return frozenset(name for name in names if name and secrets.line(name) == name)


def error_text(error: BaseException, config: CloudConfig | None = None) -> tuple[str, tuple[str, ...]]:
    """What an exception says: one line with its class; or its class, and what it says line by line.

    Line by line: several lines of text; the `problems` of an exception that has them, as an
    attribute; the errors of a pydantic ValidationError; the members of an exception group. Values
    of the config are masked, but for names of files, and what looks like a credential is redacted,
    as in the manager."""
    values = hidden_values(error)(config.data) if config is not None else ()
    cleaner = Cleaner(of_process().values.union(values), window=_PIECE, keep=file_names_in(error, config))
    kind = type(error).__name__
    lines = [cleaner.line(line.rstrip(), LONGEST_ERROR) for line in _lines(error) if line.strip()]
    if len(lines) < 2:
        return (f"{kind}: {lines[0].strip().rstrip('.')}" if lines else kind), ()
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"... and {len(lines) - _MOST_LINES} more"]
    return kind, tuple(lines)


def _lines(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [f"{type(one).__name__}: {' '.join(_lines(one))}" for one in _leaves(error)]
    if isinstance(error, SyntaxError):
        return [": ".join(part for part in (error.msg, (error.text or "").strip()) if part)]
    # A vendor's own exception may have such a list, too; ours has.
    problems = getattr(error, "problems", None)
    if isinstance(problems, list | tuple) and problems:
        return [str(one) for one in problems]
    pydantic = sys.modules.get("pydantic_core")
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        # Without the values: what is wrong may be the secret itself.
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return [f"{'.'.join(map(str, one['loc'])) or error.title}: {one['msg']}" for one in found]
    return redact(str(error)).splitlines()  # before it is cut: a private key has many lines


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


def raised_at(error: BaseException, home: str = "") -> str:
    """ "file:line, in function": the innermost frame in the folder or file `home`, or else the
    innermost one that is not of `loading` or of the import system; "" where there is none. For a
    SyntaxError, the line that it is about."""
    if isinstance(error, SyntaxError) and error.filename and os.path.isfile(error.filename):
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in _OWN_FRAMES
        and not frame.filename.startswith("<frozen importlib")
        # both import_module() and its C twin
        and not frame.filename.endswith(os.path.join("importlib", "__init__.py"))
    ]
    below = [frame for frame in frames if home and (frame.filename == home or frame.filename.startswith(home + os.sep))]
    if not frames:
        return ""
    # The vendor's own line, where there is one: a library's innermost frame says nothing to them.
    frame = (below or frames)[-1]
    function = "" if frame.name.startswith("<") else f", in {frame.name}"
    return f"{frame.filename}:{frame.lineno}{function}"


def provider_place(error: BaseException) -> str:
    """ "package/file.py:line, in function": as `raised_at`, in the package whose code the host
    called, from that package on; "" where no frame is a provider's."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _OURS:
            home = home_of(module)
            where = raised_at(error, home)
            return where.removeprefix(os.path.dirname(home) + os.sep) if home else where
    return ""


def was_not_entered(error: BaseException) -> bool:
    """Whether the exception comes from the call itself, before the first line of the callee."""
    # A frame more would be one of the callee, whose own TypeError is another mistake.
    return isinstance(error, TypeError) and error.__traceback__ is not None and error.__traceback__.tb_next is None


def home_of(module: str) -> str:
    """A module's top-level folder, or its file; "" where there is none. Imports nothing."""
    top = module.partition(".")[0]
    try:
        spec = getattr(sys.modules.get(top), "__spec__", None) or find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:  # a program's own __main__
        return getattr(sys.modules.get(top), "__file__", None) or ""
    places = list(spec.submodule_search_locations or ())
    return places[0] if places else spec.origin or ""


def code_place(thing: object) -> str:
    """ "file:line" where a function or class is written; "" where that is not known."""
    thing = inspect.unwrap(thing) if callable(thing) and not inspect.isclass(thing) else thing
    code = getattr(getattr(thing, "__func__", thing), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        kind: Any = thing if inspect.isclass(thing) else type(thing)
        file = inspect.getsourcefile(kind)
        _, line = inspect.getsourcelines(kind)
    except (OSError, TypeError):  # made at run time, or written in C
        return ""
    return f"{file}:{line}"


def _at(where: str) -> str:
    return f" ({where})" if where else ""
