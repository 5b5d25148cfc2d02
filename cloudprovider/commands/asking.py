"""A provider without a cluster: started, initialised and asked, each call in its own thread
with a deadline; and the commands' exit codes.

A name and a config file come in; answers of the provider go out. Used by the commands that are no
check: what is wrong is raised, as a `Failure` where another try cannot mend it, else as it was
raised. Secrets of the config are masked in what people see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from cloudprovider.checks.provider import interface_problems
from cloudprovider.cloudconfig import CloudConfig
from cloudprovider.errors import (
    CallDeadlineExceeded,
    CloudProviderError,
    InvalidConfig,
    ProviderTypeError,
    RegistryError,
)
from cloudprovider.interface import Interface
from cloudprovider.internal.cleaning import conceal
from cloudprovider.internal.configsecrets import MaskedCause, secret_values
from cloudprovider.internal.problem import Problem
from cloudprovider.loading.diagnostics import error_text, home_of, raised_at
from cloudprovider.loading.loader import load_factory, start_provider
from cloudprovider.loading.plugins import Plugin
from cloudprovider.loading.registry import Registry
from cloudprovider.threads import TooLate, within

if TYPE_CHECKING:
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration

T = TypeVar("T")

FINE: Final = 0
PROBLEMS: Final = 1
WRONG_USAGE: Final = 2
NO_INSTANCE: Final = 3
"""`node-info`: the cloud answered that this machine is no instance of it."""
NO_TIME: Final = 4
"""`node-info`: there was no complete answer in time."""


class Failure(Exception):
    """A command cannot do what it was asked for. `problem` is for people, `code` is the exit
    code."""

    def __init__(self, problem: Problem, code: int = PROBLEMS) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.code = code


class UnusableAnswer(Exception):
    """What the provider answered cannot be used; the text says why, in our words."""


class NoCluster(CloudProviderError):
    """The provider asked for an API client, and there is no cluster."""


class NoClients:
    """A ClientBuilder without a cluster: it refuses, and `used` tells that it was asked."""

    def __init__(self, why: str) -> None:
        self.used = False
        self._why = why

    def config(self, name: str) -> Configuration:
        self._refuse()

    def client(self, name: str) -> ApiClient:
        self._refuse()

    def cluster_name(self) -> str:
        return ""

    def cluster_identity(self) -> str | None:
        return None

    def _refuse(self) -> NoReturn:
        self.used = True
        raise NoCluster(f"there is no cluster: {self._why}")


def in_time(call: Callable[[], T], seconds: float) -> T:
    """The call's answer, as `cloudprovider.threads.within`. Threads that the provider starts keep
    the process, as they would if the command had called it itself."""
    return within(seconds, call, name="provider-call", as_main=True)


class Started:
    """A provider that a command asks. A context manager: its end sets the stop signal that
    `initialize` got.

    Making it loads the factory. Raises `Failure` for an unknown name, a config file that cannot be
    read, and a package that cannot be imported.
    """

    def __init__(self, name: str, config_path: str) -> None:
        self.name = name
        self._provider: Interface | None = None
        self._initialized = False
        self._stop = threading.Event()
        try:
            self._config = CloudConfig.read(config_path) if config_path else None
            source = Registry().locate(name)
        except RegistryError as error:
            raise Failure(error.problem, WRONG_USAGE) from None
        conceal(secret_values(self._config.data if self._config else b""), loaded=True)
        assert isinstance(source, Plugin), "nothing is registered in a registry of its own"
        self._plugin = source
        try:
            self._factory = load_factory(source)
        except RegistryError as error:
            raise Failure(error.problem) from error

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def provider(self, seconds: float) -> Interface:
        """The provider, from its factory alone. The factory is called again where it raised before.

        Raises `Failure` for a config that it refuses and a provider that is none;
        `ProviderFactoryError`, `TooLate`.
        """
        # Once: a factory may log in, or start threads.
        if self._provider is None:
            made = self._made(seconds)
            wrong = [problem for problem in interface_problems(made, self.name) if problem.fatal]
            if wrong:
                raise Failure(wrong[0])
            self._provider = made
        return self._provider

    def initialized(self, seconds: float, why: str) -> Interface:
        """The provider, once its `initialize` has returned. Where that raised, the next try makes a
        new provider.

        `why` there is no cluster, for a provider that asks for a client of it: then raises
        `Failure`. Raises what `initialize` raises, and `TooLate`.
        """
        provider = self.provider(seconds)
        if not self._initialized:
            clients = NoClients(why)
            # What failed in initialize may be half made: the next try has a new one.
            self._provider, stop = None, self._stop
            try:
                in_time(lambda: provider.initialize(clients, stop), seconds)
            except BaseException:
                stop.set()
                self._stop = threading.Event()
                if clients.used:
                    raise Failure(
                        Problem(
                            f"initialize of provider {self.name!r} asks for a client of the cluster, and {why}",
                            "have the provider ask for clients only where it uses them; for node-info, implement "
                            "LocalInstance, which needs no initialize",
                        )
                    ) from None
                raise
            self._provider, self._initialized = provider, True
        return provider

    def described(self, error: BaseException) -> str:
        """What an exception says, in one line, with the secrets of the config masked."""
        if isinstance(error, TooLate | CallDeadlineExceeded):
            return "no answer in time"
        if isinstance(error, UnusableAnswer):
            return str(error)
        if isinstance(error, RegistryError):
            return str(error.problem.what)
        text, details = error_text(error)
        return "; ".join((text, *details))

    def where(self, error: BaseException) -> str:
        """ "file:line, in function" of the provider's code that raised it; "" where that is not
        known."""
        module = getattr(self._factory, "__module__", None) or ""
        return raised_at(error, home_of(module))

    def _made(self, seconds: float) -> Interface:
        def start() -> Interface:
            return start_provider(self.name, self._factory, self._config, self._plugin)

        try:
            return in_time(start, seconds)
        except RegistryError as error:
            cause: Any = error.__cause__
            kind = cause.kind if isinstance(cause, MaskedCause) else type(cause)
            # The operator's file is wrong, so that no further try can mend it.
            if issubclass(kind, InvalidConfig):
                raise Failure(error.problem, WRONG_USAGE) from error
            if isinstance(error, ProviderTypeError):
                raise Failure(error.problem, PROBLEMS) from error
            raise
