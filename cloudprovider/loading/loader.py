"""From an entry point to a provider: import its module, take its factory, call it with the config.

Vendor code runs here for the first time: whatever it raises becomes one of the errors of `errors`,
with file and line, and with what to do from `diagnostics` (imported only then). A secret of the
config is in none of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from cloudprovider.cloudconfig import CloudConfig
from cloudprovider.errors import ProviderFactoryError, ProviderLoadError, ProviderTypeError, RegistryError
from cloudprovider.interface import Interface
from cloudprovider.internal.configsecrets import safe_cause
from cloudprovider.internal.problem import Problem
from cloudprovider.loading.plugins import Plugin

Factory = Callable[[CloudConfig | None], Interface]
"""What a plugin offers: takes the cloud config and returns the provider. The config is None when no
--cloud-config was given and the program has no flags of its own."""


def load_factory(plugin: Plugin) -> Factory:
    """Import the plugin's module and return its factory. Raises ProviderLoadError."""
    from cloudprovider.loading import diagnostics

    try:
        module, _ = plugin.target
    except ValueError:
        raise _unusable(plugin, diagnostics.entry_point_problem(plugin)) from None
    try:
        imported = import_module(module)
    except KeyboardInterrupt:
        raise  # the operator's, not the plugin's
    except BaseException as error:  # asyncio.CancelledError, say, or a library's own
        raise _unusable(plugin, diagnostics.import_problem(plugin, error)) from error
    try:
        factory = plugin.pick(imported)
    except AttributeError as error:
        raise _unusable(plugin, diagnostics.object_problem(plugin)) from error
    if not callable(factory):
        raise _unusable(plugin, diagnostics.not_callable_problem(plugin, described_type(factory)))
    loaded: Factory = factory
    return loaded


def start_provider(name: str, factory: Factory, config: CloudConfig | None, plugin: Plugin | None = None) -> Interface:
    """Call the factory of `plugin` (None: of this program). Raises ProviderFactoryError or
    ProviderTypeError."""
    origin = f"from {plugin.distribution}" if plugin is not None else f"registered as {described(factory)}"
    failure: RegistryError
    cause: BaseException | None = None
    try:
        provider: object = factory(config)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - vendor boundary: reported as one class, with its cause
        from cloudprovider.loading import diagnostics

        kind: type[RegistryError] = ProviderTypeError
        problem = diagnostics.signature_problem(factory) if diagnostics.was_not_entered(error) else None
        # The factory was entered, so that what it raised is its own.
        if problem is None:
            kind = ProviderFactoryError
            home = diagnostics.home_of(getattr(factory, "__module__", None) or "")
            problem = diagnostics.factory_problem(error, config, home, whose=plugin.distribution if plugin else "")
            data, keep = config.data if config is not None else None, diagnostics.file_names_in(error, config)
            _, cause = safe_cause(error, data, diagnostics.hidden_values(error), keep)
        failure = kind(
            f"cloud provider {name!r} ({origin}) could not be started: {problem.what}",
            details=problem.details,
            fix=problem.fix,
            provider=name,
            distribution=plugin.distribution if plugin is not None else "",
        )
    else:
        if isinstance(provider, Interface):
            return provider
        from cloudprovider.loading import diagnostics

        place = diagnostics.code_place(factory)
        failure = ProviderTypeError(
            f"the factory of cloud provider {name!r} ({origin}){f' at {place}' if place else ''} returned "
            f"{described_type(provider)}, which is not a cloudprovider.Interface",
            fix="return the provider (is a return statement missing?)"
            if provider is None
            else "subclass cloudprovider.Interface and return an instance",
            provider=name,
            distribution=plugin.distribution if plugin is not None else "",
        )
    # Outside of the except block, so that the plugin's exception is not kept as the context either.
    raise failure from cause


def described(factory: object) -> str:
    """A factory's module and name."""
    name = getattr(factory, "__qualname__", None) or type(factory).__qualname__
    return f"{getattr(factory, '__module__', None) or '?'}.{name}"


def described_type(value: object) -> str:
    """The type alone: the value's repr may show what must not be shown."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__qualname__} itself"
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _unusable(plugin: Plugin, problem: Problem) -> ProviderLoadError:
    return ProviderLoadError(
        f"cloud provider {plugin.name!r} (from {plugin.distribution}) could not be imported: {problem.what}",
        details=problem.details,
        fix=problem.fix,
        provider=plugin.name,
        distribution=plugin.distribution,
    )
