"""The registry: from the name in --cloud-provider to a running provider.

Names come from `register_cloud_provider` (a vendor's main.py) and from the entry points of
installed distributions (see `plugins`); out comes what the factory returned (see `loading`). Only
the plugin that is asked for is imported. Every failure is an error of its own (see `errors`),
naming the distribution to blame and the fix; where the name is what is wrong, the known ones too.

Follows: k8s.io/cloud-provider plugins.go, which exits the process where this raises.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable

from cloudprovider.cloudconfig import CloudConfig
from cloudprovider.errors import DuplicateProvider, InvalidProviderName, ProviderTypeError, UnknownProvider
from cloudprovider.interface import Interface
from cloudprovider.internal.problem import did_you_mean
from cloudprovider.loading.loader import Factory, described, described_type, load_factory, start_provider
from cloudprovider.loading.plugins import ENTRY_POINT_GROUP, Found, Plugin, find_plugins, wrong_groups
from cloudprovider.wellknown import EXTERNAL_PROVIDER_NAME

__all__ = [
    "ENTRY_POINT_GROUP",
    "Factory",
    "Registry",
    "check_provider_name",
    "cloud_providers",
    "get_cloud_provider",
    "init_cloud_provider",
    "is_cloud_provider",
    "is_external",
    "register_cloud_provider",
]

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


class Registry:
    """Registered and installed providers. Thread-safe; no lock is held while a plugin's code runs.

    The module's functions share one instance; make another one in tests. `find` says what is
    installed.
    """

    def __init__(self, find: Callable[[], Found] = find_plugins) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._factories: dict[str, Factory] = {}

    def register(self, name: str, factory: Factory) -> None:
        """See `register_cloud_provider`."""
        check_provider_name(name)
        if not callable(factory):
            raise ProviderTypeError(
                f"cannot register cloud provider {name!r}: a factory must be callable, not {described_type(factory)}",
                provider=name,
            )
        with self._lock:
            # In one step: of two threads that register one name, one has to lose.
            present = self._factories.setdefault(name, factory)
        if present != factory:
            raise DuplicateProvider(
                f"cloud provider {name!r} is registered twice, as {described(present)} and as {described(factory)}",
                fix="register it once, or give one of them another name",
                provider=name,
            )

    def names(self) -> tuple[str, ...]:
        """See `cloud_providers`."""
        with self._lock:
            registered = set(self._factories)
        return tuple(sorted(registered | {plugin.name for plugin in self._find().plugins if _usable(plugin.name)}))

    def knows(self, name: str) -> bool:
        """See `is_cloud_provider`."""
        with self._lock:
            if name in self._factories:
                return True  # what is installed is looked at only where it matters: that reads many files
        return name in self.names()

    def get(
        self, name: str, config: CloudConfig | None = None, imported: Callable[[Factory], object] = lambda factory: None
    ) -> Interface:
        """See `get_cloud_provider`."""
        return _started(name, self.locate(name), config, imported)

    def init(self, name: str, config_path: str | os.PathLike[str] | None = None) -> Interface | None:
        """See `init_cloud_provider`."""
        if not name:
            return None
        if is_external(name):
            # As kubelets have it: the path of a config is not even looked at.
            logger.info("cloud provider %r given: another program is the provider", name)
            return None
        source = self.locate(name)
        config = CloudConfig.read(config_path) if config_path is not None and os.fspath(config_path) else None
        return _started(name, source, config)

    def locate(self, name: str) -> Factory | Plugin:
        """What offers this name; imports nothing. A registered factory wins over an installed one:
        the program's author chose it. Raises InvalidProviderName, UnknownProvider or
        DuplicateProvider."""
        check_provider_name(name)
        with self._lock:
            factory = self._factories.get(name)
        # The program's author chose it; what else is installed does not matter.
        if factory is not None:
            return factory
        found = self._find()
        offers = found.named(name)
        if not offers:
            raise _unknown(name, self.names(), found.broken)
        # Which of them is meant nobody can tell: by chance the wrong cloud would be changed.
        if len(offers) > 1:
            claims = "; ".join(f"{offer.distribution} ({offer.value})" for offer in offers)
            raise DuplicateProvider(
                f"cloud provider {name!r} is offered more than once: {claims}",
                fix="uninstall all but one",
                provider=name,
                distribution=", ".join(sorted({offer.distribution for offer in offers})),
                known=self.names(),
            )
        return offers[0]


def _started(
    name: str,
    source: Factory | Plugin,
    config: CloudConfig | None,
    imported: Callable[[Factory], object] = lambda factory: None,
) -> Interface:
    plugin = source if isinstance(source, Plugin) else None
    factory = load_factory(source) if isinstance(source, Plugin) else source
    # Between the two: the plugin's loggers exist now, and its factory may already log.
    imported(factory)
    return start_provider(name, factory, config, plugin)


def check_provider_name(name: object) -> None:
    """Raise InvalidProviderName, with the reason, where `name` can be no provider's."""
    if not isinstance(name, str) or not name:
        raise InvalidProviderName(f"a cloud provider needs a name that is not empty, not {name!r}")
    if is_external(name):
        raise InvalidProviderName(
            f"{name!r} is no provider's name: it says that another program is the provider",
            fix="choose another name",
            provider=name,
        )
    if not _NAME.fullmatch(name):
        raise InvalidProviderName(
            f"{name!r} cannot be a cloud provider's name, because provider IDs begin with it",
            fix="use letters, digits, '.', '_' and '-', with a letter or digit at both ends",
            provider=name,
        )


def _usable(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not is_external(name)


def _unknown(name: str, known: tuple[str, ...], broken: tuple[str, ...]) -> UnknownProvider:
    none = "" if known else ". No provider at all is registered or installed"
    damage = f". Unreadable metadata, left out: {'; '.join(broken)}" if broken else ""
    wrong = wrong_groups(name)
    place = f"install a distribution that offers it in the entry-point group {ENTRY_POINT_GROUP!r}"
    told = f"unknown cloud provider {name!r}{did_you_mean(name, known)}{none}"
    for one in wrong:
        told += f"{'' if told.endswith('?') else '.'} {one.what}"
    return UnknownProvider(
        told,
        fix=wrong[0].fix if wrong else f"correct the name, or {place}{damage}",
        provider=name,
        known=known,
    )


_REGISTRY = Registry()


def register_cloud_provider(name: str, factory: Factory) -> None:
    """Offer a provider under a name, for programs that bring their provider along; installed
    plugins need no call.

    Registering the same factory again does nothing. Any thread. Raises `InvalidProviderName`,
    `DuplicateProvider` when another factory has the name, `ProviderTypeError` when the factory is
    not callable.
    """
    _REGISTRY.register(name, factory)


def cloud_providers() -> tuple[str, ...]:
    """The names that `get_cloud_provider` knows, registered and installed, sorted. Imports no
    plugin. Any thread."""
    return _REGISTRY.names()


def is_cloud_provider(name: str) -> bool:
    """Whether a provider of this name is registered or installed. Imports no plugin, so it may
    still fail to load."""
    return _REGISTRY.knows(name)


def get_cloud_provider(
    name: str, config: CloudConfig | None = None, *, imported: Callable[[Factory], object] = lambda factory: None
) -> Interface:
    """Import the named plugin, if it is one, and call its factory; every call makes a new provider.

    `imported` is called between the two, with the factory.

    A factory registered in this program wins over an installed plugin of the same name. Raises
    `InvalidProviderName`, `UnknownProvider`, `DuplicateProvider` (two distributions offer it),
    `ProviderLoadError`, `ProviderFactoryError` or `ProviderTypeError`. Any thread.
    """
    return _REGISTRY.get(name, config, imported)


def init_cloud_provider(name: str, config_path: str | os.PathLike[str] | None = None) -> Interface | None:
    """`get_cloud_provider`, with the config read from a file (none when the path is empty or None).

    Returns None for the name "" (no provider) and for "external" (another program is the provider),
    without looking at the path. Raises what `get_cloud_provider` raises, and `ConfigMissing` or
    `ConfigUnreadable` before anything is imported.
    """
    return _REGISTRY.init(name, config_path)


def is_external(name: str) -> bool:
    """Whether this value of --cloud-provider says that another program is the provider."""
    return name == EXTERNAL_PROVIDER_NAME
