"""The registry: from the name in --cloud-provider to a running provider.

Names come from `register_cloud_provider` (a vendor's main.py) and from the entry points of installed
distributions (see `plugins`); out comes what the factory returned. Only the plugin that is asked for is
imported. Every failure is an error of its own (see `errors`), naming the distribution to blame, the known
names and the fix. The provider's config is read here and never shown.

Follows: k8s.io/cloud-provider plugins.go, which exits the process where this raises.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from attrs import Attribute, evolve, field, frozen

from cloudprovider.errors import (
    ConfigMissing,
    ConfigUnreadable,
    DuplicateProvider,
    InvalidProviderName,
    ProviderFactoryError,
    ProviderLoadError,
    ProviderTypeError,
    RegistryError,
    UnknownProvider,
)
from cloudprovider.interface import Interface
from cloudprovider.masking import safe_cause
from cloudprovider.plugins import ENTRY_POINT_GROUP, Found, Plugin, find_plugins
from cloudprovider.wellknown import EXTERNAL_PROVIDER_NAME

__all__ = [
    "ENTRY_POINT_GROUP",
    "CloudConfig",
    "Factory",
    "Registry",
    "cloud_providers",
    "get_cloud_provider",
    "init_cloud_provider",
    "is_cloud_provider",
    "is_external",
    "register_cloud_provider",
]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def _is_bytes(_: object, __: Attribute[bytes], value: object) -> None:
    if not isinstance(value, bytes):  # the value itself stays out of the message: it may be a secret
        raise TypeError(f"CloudConfig.data must be bytes, not {type(value).__name__}")


@frozen
class CloudConfig:
    """The file given by --cloud-config: its path and what it held when it was read. Its repr shows only the
    path.

    What the bytes mean is the provider's own affair. `path` and `data` are empty where there is no file, for a
    program with flags of its own (`main(flags=...)`); `path` alone for a config that was never a file (in tests).
    """

    path: str
    data: bytes = field(repr=False, validator=_is_bytes)
    options: tuple[object, ...] = field(default=(), repr=False)
    """The program's own flags: an instance of each options class that it declares; see `of`."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> CloudConfig:
        """Read a config file; an empty file is fine.

        Raises `ConfigMissing` when there is none, `ConfigUnreadable` when it is a directory, forbidden, or
        broken.
        """
        shown = os.fspath(path)
        try:
            return cls(path=shown, data=Path(shown).read_bytes())
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise ConfigMissing(
                f"there is no cloud config at {shown!r}. Fix: correct --cloud-config, or create the file.", path=shown
            ) from exc
        except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
            reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
            raise ConfigUnreadable(
                f"the cloud config at {shown!r} cannot be read ({reason}). Fix: give a regular file that the user of "
                "this process may read.",
                path=shown,
            ) from exc

    def read_again(self) -> CloudConfig:
        """The same file as it is now, for credentials that rotate, with the same options. Raises as `read` does."""
        if not self.path:
            raise ConfigMissing("this cloud config has no path to read again: it was made in memory.")
        return evolve(type(self).read(self.path), options=self.options)

    def of(self, kind: type[T]) -> T:
        """The program's options of this class; its defaults where the program declares none, as another vendor's."""
        for one in self.options:
            if isinstance(one, kind):
                return one
        return kind()

    def text(self) -> str:
        """The bytes as UTF-8, a byte-order mark dropped. Raises `ConfigUnreadable` when they are something
        else."""
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            where = exc.start
        # Raised out here, without the cause, whose own attributes hold the bytes.
        raise ConfigUnreadable(
            f"the cloud config at {self.path!r} is not UTF-8 text (byte {where}). Fix: save it as UTF-8.",
            path=self.path,
        )


Factory = Callable[[CloudConfig | None], Interface]
"""What a plugin offers: takes the cloud config and returns the provider. The config is None when no --cloud-config was
given and the program has no flags of its own."""


class Registry:
    """Registered and installed providers. Thread-safe; no lock is held while a plugin's code runs.

    The module's functions share one instance; make another one in tests. `find` says what is installed.
    """

    def __init__(self, find: Callable[[], Found] = find_plugins) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._factories: dict[str, Factory] = {}

    def register(self, name: str, factory: Factory) -> None:
        """See `register_cloud_provider`."""
        _check_name(name)
        if not callable(factory):
            raise ProviderTypeError(
                f"cannot register cloud provider {name!r}: a factory must be callable, not {_type(factory)}.",
                provider=name,
            )
        with self._lock:
            present = self._factories.setdefault(name, factory)
        if present != factory:
            raise DuplicateProvider(
                f"cloud provider {name!r} is registered twice, as {_describe(present)} and as {_describe(factory)}. "
                "Fix: register it once, or give one of them another name.",
                provider=name,
            )

    def names(self) -> tuple[str, ...]:
        """See `cloud_providers`."""
        with self._lock:
            registered = set(self._factories)
        return tuple(sorted(registered | {plugin.name for plugin in self._find().plugins if _usable(plugin.name)}))

    def get(self, name: str, config: CloudConfig | None = None) -> Interface:
        """See `get_cloud_provider`."""
        return self._start(name, self._locate(name), config)

    def init(self, name: str, config_path: str | os.PathLike[str] | None = None) -> Interface | None:
        """See `init_cloud_provider`."""
        if not name:
            return None
        if is_external(name):
            logger.info("cloud provider %r given: another program is the provider", name)
            return None
        source = self._locate(name)
        config = CloudConfig.read(config_path) if config_path is not None and os.fspath(config_path) else None
        return self._start(name, source, config)

    def _locate(self, name: str) -> Factory | Plugin:
        """What offers this name. A registered factory wins over an installed one: the program's author chose
        it."""
        _check_name(name)
        with self._lock:
            factory = self._factories.get(name)
        if factory is not None:
            return factory
        found = self._find()
        offers = found.named(name)
        if not offers:
            raise _unknown(name, self.names(), found.broken)
        if len(offers) > 1:
            claims = "; ".join(f"{offer.distribution} ({offer.value})" for offer in offers)
            raise DuplicateProvider(
                f"cloud provider {name!r} is offered more than once: {claims}. Fix: uninstall all but one.",
                provider=name,
                distribution=", ".join(sorted({offer.distribution for offer in offers})),
                known=self.names(),
            )
        return offers[0]

    def _start(self, name: str, source: Factory | Plugin, config: CloudConfig | None) -> Interface:
        if isinstance(source, Plugin):
            factory, origin, distribution = self._load(source), _origin(source), source.distribution
        else:
            factory, origin, distribution = source, f"registered as {_describe(source)}", ""
        failure: RegistryError
        cause: BaseException | None = None
        try:
            provider: object = factory(config)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - vendor boundary: reported as one class, with its cause
            told, cause = safe_cause(exc, config.data if config is not None else None)
            path = config.path if config is not None else ""
            where = f"the cloud config {path!r}" if path else "whether it needs a --cloud-config"
            failure = ProviderFactoryError(
                f"cloud provider {name!r} ({origin}) could not be started: {told}. Fix: check {where}; if that is "
                "right, ask the provider's authors.",
                provider=name,
                distribution=distribution,
                known=self.names(),
            )
        else:
            if isinstance(provider, Interface):
                return provider
            failure = ProviderTypeError(
                f"the factory of cloud provider {name!r} ({origin}) returned {_type(provider)}, which is not a "
                "cloudprovider.Interface. Fix: subclass cloudprovider.Interface and return an instance.",
                provider=name,
                distribution=distribution,
                known=self.names(),
            )
        # Outside of the except block, so that the plugin's exception is not kept as the context either.
        raise failure from cause

    def _load(self, plugin: Plugin) -> Factory:
        try:
            factory = plugin.load()
        except (Exception, SystemExit) as exc:
            raise ProviderLoadError(
                f"cloud provider {plugin.name!r} ({_origin(plugin)}) could not be imported: "
                f"{type(exc).__name__}: {exc}. Fix: reinstall {plugin.distribution} with its dependencies, or ask its "
                "authors.",
                provider=plugin.name,
                distribution=plugin.distribution,
                known=self.names(),
            ) from exc
        if not callable(factory):
            raise ProviderLoadError(
                f"cloud provider {plugin.name!r} ({_origin(plugin)}) is not callable but {_type(factory)}. Fix: the "
                "entry point must name a factory, which takes the cloud config and returns a cloudprovider.Interface.",
                provider=plugin.name,
                distribution=plugin.distribution,
                known=self.names(),
            )
        loaded: Factory = factory
        return loaded


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidProviderName(f"a cloud provider needs a name that is not empty, not {name!r}.")
    if is_external(name):
        raise InvalidProviderName(
            f"{name!r} is no provider's name: it says that another program is the provider. Fix: choose another name.",
            provider=name,
        )
    if not _NAME.fullmatch(name):
        raise InvalidProviderName(
            f"{name!r} cannot be a cloud provider's name, because provider IDs begin with it. Fix: use letters, "
            "digits, '.', '_' and '-', with a letter or digit at both ends.",
            provider=name,
        )


def _usable(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not is_external(name)


def _unknown(name: str, known: tuple[str, ...], broken: tuple[str, ...]) -> UnknownProvider:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    damage = f" Unreadable and so left out: {'; '.join(broken)}." if broken else ""
    none = "" if known else " No provider at all is registered or installed."
    return UnknownProvider(
        f"unknown cloud provider {name!r}.{hint}{none} Fix: correct the name, or install a distribution that offers it "
        f"in the entry-point group {ENTRY_POINT_GROUP!r}.{damage}",
        provider=name,
        known=known,
    )


def _origin(plugin: Plugin) -> str:
    return f"from {plugin.distribution}, entry point {plugin.value}"


def _describe(factory: object) -> str:
    name = getattr(factory, "__qualname__", None) or type(factory).__qualname__
    return f"{getattr(factory, '__module__', None) or '?'}.{name}"


def _type(value: object) -> str:
    """The type alone: the value's repr may show what must not be shown."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__qualname__} itself"
    return f"a {type(value).__module__}.{type(value).__qualname__}"


_REGISTRY = Registry()


def register_cloud_provider(name: str, factory: Factory) -> None:
    """Offer a provider under a name, for programs that bring their provider along; installed plugins need no
    call.

    Registering the same factory again does nothing. Any thread. Raises `InvalidProviderName`,
    `DuplicateProvider` when another factory has the name, `ProviderTypeError` when the factory is not
    callable.
    """
    _REGISTRY.register(name, factory)


def cloud_providers() -> tuple[str, ...]:
    """The names that `get_cloud_provider` knows, registered and installed, sorted. Imports no plugin. Any
    thread."""
    return _REGISTRY.names()


def is_cloud_provider(name: str) -> bool:
    """Whether a provider of this name is registered or installed. Imports no plugin, so it may still fail to
    load."""
    return name in _REGISTRY.names()


def get_cloud_provider(name: str, config: CloudConfig | None = None) -> Interface:
    """Import the named plugin, if it is one, and call its factory; every call makes a new provider.

    A factory registered in this program wins over an installed plugin of the same name. Raises
    `InvalidProviderName`, `UnknownProvider`, `DuplicateProvider` (two distributions offer it),
    `ProviderLoadError`, `ProviderFactoryError` or `ProviderTypeError`. Any thread.
    """
    return _REGISTRY.get(name, config)


def init_cloud_provider(name: str, config_path: str | os.PathLike[str] | None = None) -> Interface | None:
    """`get_cloud_provider`, with the config read from a file (none when the path is empty or None).

    Returns None for the name "" (no provider) and for "external" (another program is the provider), without
    looking at the path. Raises what `get_cloud_provider` raises, and `ConfigMissing` or `ConfigUnreadable`
    before anything is imported.
    """
    return _REGISTRY.init(name, config_path)


def is_external(name: str) -> bool:
    """Whether this value of --cloud-provider says that another program is the provider."""
    return name == EXTERNAL_PROVIDER_NAME
