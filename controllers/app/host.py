"""What a controller runs on, without the manager: for a program of your own that runs one of them.

Stage: around all of them. A provider and a kubeconfig come in; out go clients, informers, and the gateway to the
provider, which has been initialised, and at the end all are closed in order. The controller itself is the caller's:
see examples/service_only.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from attrs import frozen

from cloudprovider import CloudConfig, Interface, StopSignal
from cloudprovider.masking import safe_cause
from controllers.app.entry import Controller
from controllers.app.listers import InformerListers
from controllers.app.manager import ManagerError
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.cleaning import conceal_config
from controllers.runtime.metrics import Metrics

__all__ = ["Host", "hosting"]

_CANCELLED = 2.0  # seconds for provider calls that nobody waits for any more to notice that they are cancelled


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
    ConfigError where there is no usable API server, and ManagerError when the provider cannot be initialised, or lacks
    its cluster ID unless `allow_untagged_cloud`.
    """
    conceal_config(config.data if config else None)
    metrics = metrics or Metrics()
    stop = threading.Event()
    with ExitStack() as ends:
        clients = ends.enter_context(ClientBuilder.from_options(kubeconfig, metrics=metrics))
        cloud = CloudCalls(provider, options=calls, metrics=metrics)
        ends.callback(cloud.close, _CANCELLED)
        ends.callback(cloud.cancel_running)
        ends.callback(stop.set)
        informers = InformerFactory(clients.rest("shared-informers"), metrics=metrics)
        ends.callback(informers.stop)
        try:
            tagged = cloud.provider.has_cluster_id()
            if tagged or allow_untagged_cloud:
                cloud.provider.initialize(clients, stop)
                cloud.provider.set_informers(InformerListers(informers))
        except Exception as error:  # noqa: BLE001 - vendor boundary: becomes the caller's failure
            text, cause = safe_cause(error, config.data if config else None)
            raise ManagerError(f"cloud provider {cloud.provider_name} could not be initialised: {text}") from cause
        if not (tagged or allow_untagged_cloud):
            raise ManagerError(
                f"cloud provider {cloud.provider_name} has no cluster ID; without one it cannot tell this cluster's "
                "resources from another's"
            )
        yield Host(clients, informers, cloud, metrics)
