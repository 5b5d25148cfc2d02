"""What a controller runs on, without the manager: for a program of your own that runs one of them.

Stage: around all of them. A provider and a kubeconfig come in; out go clients, informers, and the gateway to the
provider, which has been initialised, and at the end all are closed in order. The controller itself is the caller's:
see examples/service_only.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import frozen

from cloudprovider import CloudConfig, Interface, StopSignal
from controllers.app.entry import Controller
from controllers.app.leading.leadership import Leadership
from controllers.app.startup import NeverLed, ProviderHost
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory, Resource
from controllers.runtime.clock import ClockEvent
from controllers.runtime.election import LeaseSettings
from controllers.runtime.metrics import Metrics

__all__ = ["Host", "hosting"]


@frozen
class Host:
    """What every controller takes at its construction."""

    clients: ClientBuilder
    informers: InformerFactory
    cloud: CloudCalls
    metrics: Metrics
    leadership: Leadership | None = None
    """The election that this process has won, if it takes part in one."""

    def run(self, controller: Controller, stop: StopSignal) -> None:
        """Start the informers that it asked for, and run it until `stop` is set and its work is drained. Blocks.

        May be called for several controllers, each in a thread of its own. Raises ManagerError at once when the lease
        is lost, without draining: end the process then.
        """
        self.informers.start()
        if self.leadership is None:
            controller.run(stop)
        else:
            self.leadership.while_leading(lambda: controller.run(stop))


@contextmanager
def hosting(
    provider: Interface,
    kubeconfig: str | None = None,
    *,
    calls: CloudCallOptions | None = None,
    metrics: Metrics | None = None,
    allow_untagged_cloud: bool = False,
    config: CloudConfig | None = None,
    election: LeaseSettings | None = None,
    stop: StopSignal | None = None,
    warm: Iterable[Resource[Any]] = (),
) -> Iterator[Host]:
    """A host for the body of a with statement, in which the controllers run; once per provider.

    Without a `kubeconfig` the pod's service account is used. Blocks while the provider is initialised, at most as long
    as `calls` says. `config` is what the provider was made from: its secrets are kept out of logs and Events.

    With an `election` it first waits until this process leads; meanwhile the caches of the kinds in `warm` are filled.
    Then every write, of the provider too, asks the fence, and the lease is released at the end of the with statement,
    unless a call that may change the cloud still runs.

    Raises ClientConfigError where there is no usable API server, ManagerError when the provider cannot be initialised,
    or lacks its cluster ID unless `allow_untagged_cloud`, and NeverLed when `stop` is set before this process leads.
    """
    metrics, stop = metrics or Metrics(), stop or ClockEvent()
    with ExitStack() as ends:
        clients = ends.enter_context(ClientBuilder.from_options(kubeconfig, metrics=metrics))
        informers = InformerFactory(clients.rest("shared-informers"), metrics=metrics)
        ends.callback(informers.stop)
        for resource in warm:
            informers.warm(resource)
        started: ProviderHost | None = None

        def unfinished() -> str:
            return started.unfinished() if started is not None else ""

        leadership = None
        if election is not None:
            leadership = _elected(election, clients, metrics, stop, ends, unfinished)
        started = ProviderHost(
            provider,
            config,
            options=calls,
            allow_untagged_cloud=allow_untagged_cloud,
            metrics=metrics,
            guard=leadership.fence.check if leadership is not None else None,
        )
        ends.callback(started.close)
        ends.callback(started.cancel)
        ends.callback(started.ask_to_stop)
        if not started.initialize(clients, informers, stop):
            raise NeverLed
        yield Host(clients, informers, started.cloud, metrics, leadership)


def _elected(
    settings: LeaseSettings,
    clients: ClientBuilder,
    metrics: Metrics,
    stop: StopSignal,
    ends: ExitStack,
    unfinished: Callable[[], str],
) -> Leadership:
    """The election, once it is won; it ends with `ends`."""
    leadership = Leadership(settings, clients, on_lost=lambda _reason: None, metrics=metrics)
    clients.guard = leadership.fence.check
    parts = leadership.start(unfinished)
    for part in reversed(parts):
        ends.callback(part.wait, settings.renew_deadline)
        ends.callback(part.ask)
    if not leadership.wait(stop):
        raise NeverLed
    return leadership
