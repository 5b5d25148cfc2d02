"""What a controller runs on, without the manager: for a program of your own that runs one of them.

Stage: around all of them. A provider and a kubeconfig come in; out go clients, informers, and the
gateway to the provider, which has been initialised, and at the end all are closed in order. The
controller itself is the caller's: see examples/service_only.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import frozen

from cloudprovider import CloudConfig, Interface, StopSignal
from cloudprovider.internal.configsecrets import conceal_config
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.manager.earlylists import IDENTITY
from controllers.manager.leadership import Leadership, lease_lost
from controllers.manager.provider_host import ManagerError, NeverLed, ProviderHost
from controllers.process.ending import end_at_once
from controllers.registration.entry import Controller
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory, Resource
from controllers.runtime.clock import ClockEvent
from controllers.runtime.election import LeaseSettings
from controllers.runtime.metrics import Metrics


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
        """Start the informers that it asked for, run it until `stop` is set, and drain. Blocks.

        May be called for several controllers, each in its own thread. When the lease is lost
        it raises ManagerError at once, without draining, unless the process has ended by then: see
        `hosting`."""
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
    on_lost: Callable[[ManagerError], None] = end_at_once,
) -> Iterator[Host]:
    """A host for the body of a with statement, in which the controllers run; once per provider.

    Without a `kubeconfig` the pod's service account is used. Blocks while the provider is
    initialised, at most as long as `calls` says. `config` is what the provider was made from: its
    secrets are kept out of logs and Events.

    With an `election` it first waits until this process leads; meanwhile the caches of the kinds in
    `warm` are filled. Then every write, of the provider too, asks the fence, and the lease is
    released at the end of the with statement, unless a call that may change the cloud still runs.
    When the lease is lost, `on_lost(failure)` is called in a thread of the election; by default it
    ends the process at once with exit code 1, as the manager does: provider calls that are under
    way would go on beside the next leader's. With another one `Host.run` raises that failure when
    `on_lost` has returned, and the body is to end those calls.

    Raises ClientConfigError where there is no usable API server, ManagerError when the provider
    cannot be initialised, or lacks its cluster ID unless `allow_untagged_cloud`, and NeverLed when
    `stop` is set before this process leads.
    """
    metrics, stop = metrics or Metrics(), stop or ClockEvent()
    conceal_config(config.data if config else None)
    with ExitStack() as ends:
        clients = ends.enter_context(ClientBuilder.from_options(kubeconfig, metrics=metrics))
        informers = InformerFactory(clients.rest(IDENTITY), metrics=metrics)
        ends.callback(informers.stop)
        for resource in warm:
            informers.warm(resource)
        started: ProviderHost | None = None

        def unfinished() -> str:
            return started.unfinished() if started is not None else ""

        leadership = None
        if election is not None:
            leadership = Leadership(
                election, clients, on_lost=lambda reason: on_lost(lease_lost(reason)), metrics=metrics
            )
            clients.guard = leadership.fence.check
            # An ExitStack ends in reverse: first asked, then waited for; the lease goes last.
            for part in reversed(leadership.start(unfinished)):
                ends.callback(part.wait, election.renew_deadline)
                ends.callback(part.ask)
            if not leadership.wait(stop):
                raise NeverLed
        guard = leadership.fence.check if leadership is not None else None
        cloud = CloudCalls(provider, options=calls, metrics=metrics, guard=guard)
        started = ProviderHost(provider, cloud, config, allow_untagged_cloud=allow_untagged_cloud)
        # In reverse: the provider is told, calls are cancelled, then waited for.
        ends.callback(started.close)
        ends.callback(started.cancel)
        ends.callback(started.ask_to_stop)
        if not started.initialize(clients, informers, stop):
            raise NeverLed
        yield Host(clients, informers, started.cloud, metrics, leadership)
