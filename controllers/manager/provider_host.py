"""How a provider is started: the same for the manager and for `hosting`. The order is that of
k8s.io/cloud-provider's sample/basic_main.go: cluster ID, Initialize, SetInformers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider import CloudConfig, Interface, RegistryError, StopSignal, get_cloud_provider
from cloudprovider.checks.provider import capability_problems, interface_problems
from cloudprovider.internal.cleaning import conceal
from cloudprovider.internal.configsecrets import conceal_config, safe_cause, secret_values
from cloudprovider.internal.problem import Problem
from cloudprovider.loading.diagnostics import home_of, raised_at
from cloudprovider.loading.plugins import find_plugins, intruders
from cloudprovider.threads import Task
from controllers.cloudcalls import CloudCalls
from controllers.options.declare import values_of
from controllers.process import logs
from controllers.runtime import cache
from controllers.runtime.cache import InformerFactory, Resource, T
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, ClockEvent

if TYPE_CHECKING:
    from kubernetes.client.models.v1_endpoint_slice import V1EndpointSlice
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
    from kubernetes.client.models.v1_service import V1Service

    from cloudprovider.host import ClientBuilder, Lister
    from controllers.cloudcalls.lookagain import LookAgain

log = logging.getLogger(__name__)

_FILES_AFTER = 5.0  # seconds until the installed files are looked at
_LOG_SECONDS = 5.0  # seconds between two lines about a provider that is waited for
# Seconds for provider calls that nothing waits for any more to notice that they are cancelled.
_CANCELLED = 2.0


class ManagerError(Exception):
    """The manager cannot start or go on. The message is for the operator; `unexpected` asks for the
    traceback too."""

    def __init__(self, message: str, *, unexpected: bool = False) -> None:
        super().__init__(message)
        self.unexpected = unexpected


class ProviderUnusable(ManagerError):
    """The provider cannot be used. The `__cause__`, where there is one, is what its code raised."""


class NeverLed(Exception):
    """It was time to stop before this process led. No failure: a standby just ends."""


def load_provider(name: str, config_path: str, options: Sequence[object] = ()) -> tuple[Interface, CloudConfig | None]:
    """The provider of that name, and the config that it was made from; an empty path is none.
    Raises RegistryError.

    `options` are the program's own flags: with any there is a config for the factory."""
    config = CloudConfig.read(config_path) if config_path else None
    if options:
        config = evolve(config or CloudConfig(path="", data=b""), options=tuple(options))
        conceal(value for one in options for flag, value in values_of(one) if flag.secret and isinstance(value, str))
    conceal_config(config.data if config else None)
    whose = f"cloud provider {name}"

    def imported(factory: object) -> None:
        logs.keep(whose)
        logs.follow(getattr(factory, "__module__", None) or "")

    provider = get_cloud_provider(name, config, imported=imported)
    logs.keep(whose)
    logs.follow(type(provider).__module__)
    refuse(name, interface_problems(provider, name))
    return provider, config


def refuse(name: str, problems: Sequence[Problem]) -> None:
    """Raise ProviderUnusable, with every fatal problem; log the others as warnings."""
    fatal = [problem for problem in problems if problem.fatal]
    for problem in problems:
        if not problem.fatal:
            log.warning("cloud provider %s: %s", name, problem)
    if fatal:
        several = "\n".join(["", *(f"  {problem}" for problem in fatal)])
        shown = f" {fatal[0]}" if len(fatal) == 1 else several
        raise ProviderUnusable(f"cloud provider {name} cannot be used:{shown}")


def warn_of_installed(name: str, stop: StopSignal | None = None) -> None:
    """Log what other distributions have put among our own files, and that the provider of this
    name is made for another version of this one. Reads the list of files of everything that is
    installed, which takes 10 to 20 ms.

    With `stop` after five seconds, as the first writes go first; not where it was set before."""
    if stop is None or not stop.wait(_FILES_AFTER):
        versions = [plugin.sdk_problem() for plugin in find_plugins().named(name)]
        for problem in (*intruders(), *filter(None, versions)):
            log.warning("%s", problem)


def log_failure(error: Exception) -> None:
    """Log why nothing starts: a line for each line of the message, and at -v=4 the traceback of the
    provider's code."""
    vendors = isinstance(error, RegistryError | ProviderUnusable) and error.__cause__ is not None
    hint = " -v=4 shows the traceback." if vendors and not log.isEnabledFor(logging.DEBUG) else ""
    for line in f"{error}{hint}".splitlines():
        log.error("%s", line)
    if vendors:
        log.debug("the provider's own error", exc_info=error.__cause__)


class ProviderHost:
    """One provider from its start to its end, and the gateway to it in `cloud`.

    `config` is what the provider was made from: its secrets are kept out of messages. Call
    `initialize` once; to end it, `ask_to_stop`, then `cancel` and `close`. From any
    thread.
    """

    def __init__(
        self,
        provider: Interface,
        cloud: CloudCalls,
        config: CloudConfig | None = None,
        *,
        allow_untagged_cloud: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`cloud` is the gateway to this provider."""
        self._provider = provider
        self.cloud = cloud
        self._secrets = config.data if config else None
        self._allow_untagged_cloud = allow_untagged_cloud
        self._clock = clock
        self._stop = ClockEvent(clock)

    def initialize(self, clients: ClientBuilder, informers: InformerFactory | None, stop: StopSignal) -> bool:
        """Make the provider ready, in its own thread, so that `stop` never waits; False when
        it came first. Without `informers`, in a program without a cluster, `set_informers` is not
        called.

        Raises ManagerError when the provider fails, or lacks its cluster ID without leave."""
        name = self.cloud.provider_name

        def run() -> None:
            try:
                self._prepare(clients, informers)
            finally:
                logs.keep(f"cloud provider {name}")

        task = Task(run, "provider-start")
        began = logged = self._clock.monotonic()
        while not task.wait(0.02):
            if stop.is_set():
                return False
            now = self._clock.monotonic()
            if now - logged >= _LOG_SECONDS:
                logged = now
                log.warning("waiting %.0f s for provider %s to be initialised", now - began, name)
        try:
            task.result()
        except ManagerError:
            raise
        except BaseException as error:  # noqa: BLE001 - vendor boundary
            failure = self._not_initialised(error)
        else:
            return True
        raise failure  # without a context that shows what `safe_cause` masked

    def ask_to_stop(self) -> None:
        """Tell the provider that the end is near. Does not block."""
        self._stop.set()

    def cancel(self) -> None:
        """Cancel the calls under way. Does not block."""
        self.cloud.cancel_running()

    def unfinished(self) -> str:
        """The calls that may still change the cloud, given up or not; "" where there are none."""
        return ", ".join(f"{call.method} for {call.key}" for call in self.cloud.changing())

    def close(self, seconds: float = _CANCELLED) -> bool:
        """Refuse further calls; whether those under way ended in time."""
        return self.cloud.close(min(seconds, _CANCELLED))

    def _not_initialised(self, error: BaseException) -> ProviderUnusable:
        own = error.__cause__ if error.__cause__ is not None else error
        # Of the cloud, mostly: its address helps. Only a factory quotes lines of the config.
        text, cause = safe_cause(own, self._secrets, secret_values)
        where = raised_at(own, home_of(type(self._provider).__module__))
        at = f" ({where})" if where else ""
        failure = ProviderUnusable(f"cloud provider {self.cloud.provider_name} could not be initialised: {text}{at}.")
        failure.__cause__ = cause
        return failure

    def _prepare(self, clients: ClientBuilder, informers: InformerFactory | None) -> None:
        provider, name = self.cloud.provider, self.cloud.provider_name
        refuse(name, interface_problems(self._provider))
        if not provider.has_cluster_id():
            if not self._allow_untagged_cloud:
                raise ManagerError(
                    f"cloud provider {name} has no cluster ID; without one it cannot tell this cluster's "
                    "resources from another's. Fix: set one as the provider's documentation says, or give "
                    "--allow-untagged-cloud."
                )
            log.warning("provider %s has no cluster ID; going on because of --allow-untagged-cloud", name)
        provider.initialize(ProviderClients(clients, self.cloud.again), self._stop)
        refuse(name, capability_problems(self._provider))
        if informers is not None:
            provider.set_informers(InformerListers(informers))


class ProviderClients:
    """What a provider gets in `initialize`: implements `cloudprovider.host.ClientBuilder` and
    `LookAgain`. Thread-safe."""

    def __init__(self, clients: ClientBuilder, again: LookAgain) -> None:
        self.config = clients.config
        self.client = clients.client
        self.cluster_name = clients.cluster_name
        self.cluster_identity = clients.cluster_identity
        self.look_again = again.look_again


class InformerListers:
    """The caches as a provider sees them: implements `cloudprovider.host.Listers`. Thread-safe.

    An informer is made only when the provider asks for its kind, so that no permission and no
    memory is needed for what no reader asked for.
    """

    def __init__(self, informers: InformerFactory) -> None:
        self._informers = informers

    @property
    def nodes(self) -> Lister[V1Node]:
        """Nodes, by name."""
        return self._lister(cache.NODES)

    @property
    def services(self) -> Lister[V1Service]:
        """Services, by "namespace/name"."""
        return self._lister(cache.SERVICES)

    @property
    def persistent_volumes(self) -> Lister[V1PersistentVolume]:
        """Persistent volumes, by name."""
        return self._lister(cache.PERSISTENT_VOLUMES)

    @property
    def endpoint_slices(self) -> SliceLister:
        """EndpointSlices, by "namespace/name", and those of a Service."""
        return SliceLister(self._lister(cache.ENDPOINT_SLICES))

    def has_synced(self) -> bool:
        """Whether every cache that was asked for holds a complete first listing."""
        return self._informers.has_synced()

    def _lister(self, resource: Resource[T]) -> cache.Lister[T]:
        informer = self._informers.informer(resource)
        # A provider keeps this object, and may ask for a kind when the others run already: then it
        # is started here.
        with suppress(RuntimeError):  # at the end of the process; the cache stays readable
            informer.start()
        return informer.lister


class SliceLister:
    """EndpointSlices as a provider sees them: implements `cloudprovider.host.EndpointSliceLister`.
    Thread-safe."""

    def __init__(self, lister: cache.Lister[V1EndpointSlice]) -> None:
        self._lister = lister
        self.get = lister.get
        self.list = lister.list

    def of_service(self, namespace: str, name: str) -> Sequence[V1EndpointSlice]:
        """Those of this Service, by their label."""
        return self._lister.indexed(f"{namespace}/{name}")
