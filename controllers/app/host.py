"""What a controller runs on, without the manager: for a program of your own that runs one of them.

Stage: around all of them. A provider and a kubeconfig come in; out go clients, informers, and the gateway to the
provider, which has been initialised, and at the end all are closed in order. The controller itself is the caller's:
see examples/service_only.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from attrs import frozen

from cloudprovider import CloudConfig, Interface, StopSignal
from controllers.app.entry import Controller
from controllers.app.startup import ProviderHost
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import ClockEvent
from controllers.runtime.metrics import Metrics

__all__ = ["Host", "hosting"]


@frozen
class Host:
    """What every controller takes at its construction."""

    clients: ClientBuilder
    informers: InformerFactory
    cloud: CloudCalls
    metrics: Metrics

    def run(self, controller: Controller, stop: StopSignal) -> None:
        """Start the informers that it asked for, and run it until `stop` is set and its work is drained. Blocks.

        May be called for several controllers, each in a thread of its own.
        """
        self.informers.start()
        controller.run(stop)


@contextmanager
def hosting(
    provider: Interface,
    kubeconfig: str | None = None,
    *,
    calls: CloudCallOptions | None = None,
    metrics: Metrics | None = None,
    allow_untagged_cloud: bool = False,
    config: CloudConfig | None = None,
) -> Iterator[Host]:
    """A host for the body of a with statement, in which the controllers run; once per provider.

    Without a `kubeconfig` the pod's service account is used. Blocks while the provider is initialised, at most as long
    as `calls` says. `config` is what the provider was made from: its secrets are kept out of logs and Events. Raises
    ClientConfigError where there is no usable API server, and ManagerError when the provider cannot be initialised, or
    lacks its cluster ID unless `allow_untagged_cloud`.
    """
    metrics = metrics or Metrics()
    with ExitStack() as ends:
        clients = ends.enter_context(ClientBuilder.from_options(kubeconfig, metrics=metrics))
        started = ProviderHost(
            provider, config, options=calls, allow_untagged_cloud=allow_untagged_cloud, metrics=metrics
        )
        ends.callback(started.close)
        ends.callback(started.cancel)
        ends.callback(started.ask_to_stop)
        informers = InformerFactory(clients.rest("shared-informers"), metrics=metrics)
        ends.callback(informers.stop)
        started.initialize(clients, informers, ClockEvent())
        yield Host(clients, informers, started.cloud, metrics)
