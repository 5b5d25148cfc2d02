"""A controller at work in this process, as a program of one's own runs it: clients, informers,
gateway, run(stop)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from attrs import frozen

from cloudprovider import Interface
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.node.controller import CloudNodeController
from controllers.node.registration import CloudNodeOptions
from controllers.registration.entry import Controller
from controllers.runtime.api import ClientBuilder, ClientSettings
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics

C = TypeVar("C", bound=Controller)


@frozen
class Running(Generic[C]):
    """The parts of a controller that runs, for the test to look at."""

    controller: C
    informers: InformerFactory
    metrics: Metrics

    def count(self, sample: str, **labels: str) -> float:
        """A metric's value; 0 where there is none yet."""
        return self.metrics.value(sample, **labels) or 0.0


@contextmanager
def at_work(
    kind: Callable[..., C],
    kubeconfig: Path,
    provider: Interface,
    options: Any = None,
    *,
    calls: CloudCallOptions | None = None,
    settings: ClientSettings | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Running[C]]:
    """A controller of this class over `provider`; stopped and drained at the end of the with
    statement."""
    metrics, stop = Metrics(), threading.Event()
    with ExitStack() as ends:
        clients = ends.enter_context(
            ClientBuilder.from_options(str(kubeconfig), settings=settings or ClientSettings(), metrics=metrics)
        )
        informers = InformerFactory(clients.rest("shared-informers"), metrics=metrics, clock=clock)
        ends.callback(informers.stop)
        cloud = CloudCalls(provider, options=calls, metrics=metrics, clock=clock)
        ends.callback(cloud.close)
        controller = kind(clients, informers, cloud, options=options, metrics=metrics, clock=clock)
        informers.start()
        thread = threading.Thread(target=controller.run, args=(stop,), name="controller")
        thread.start()
        ends.callback(thread.join, 40)
        ends.callback(stop.set)
        yield Running(controller, informers, metrics)
        assert all(ok for _, ok, _ in controller.health())
    assert not thread.is_alive(), "the controller did not drain"


def node_controller(
    kubeconfig: Path, provider: Interface, options: CloudNodeOptions | None = None, **more: Any
) -> AbstractContextManager[Running[CloudNodeController]]:
    """The cloud-node controller."""
    return at_work(CloudNodeController, kubeconfig, provider, options, **more)
