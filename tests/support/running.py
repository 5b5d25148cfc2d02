"""A controller at work in this process, as a program of one's own runs it: clients, informers,
gateway, run(stop)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import Interface
from controllers.app import hosting
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.manager.embedding import Host
from controllers.node.controller import CloudNodeController
from controllers.node.options import CloudNodeOptions
from controllers.registration.entry import Controller
from controllers.runtime.api import ClientBuilder, ClientSettings
from controllers.runtime.cache import NODES, InformerFactory, Lister
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics


@frozen
class Running:
    """The parts of a controller that runs, for the test to look at."""

    controller: CloudNodeController
    cloud: CloudCalls
    lister: Lister[V1Node]
    metrics: Metrics
    stop: threading.Event = field(factory=threading.Event)


@contextmanager
def node_controller(
    kubeconfig: Path,
    provider: Interface,
    *,
    options: CloudNodeOptions | None = None,
    calls: CloudCallOptions | None = None,
    settings: ClientSettings | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Running]:
    """The cloud-node controller over `provider`, stopped and drained at the end of the with
    statement."""
    metrics = Metrics()
    clients = ClientBuilder.from_options(
        kubeconfig=str(kubeconfig), settings=settings or ClientSettings(), metrics=metrics
    )
    informers = InformerFactory(clients.rest("shared-informers"), metrics=metrics, clock=clock)
    cloud = CloudCalls(provider, options=calls or CloudCallOptions(cache_ttl=0.0), metrics=metrics, clock=clock)
    controller = CloudNodeController(clients, informers, cloud, options=options, metrics=metrics, clock=clock)
    running = Running(controller, cloud, informers.informer(NODES).lister, metrics)
    informers.start()
    thread = threading.Thread(target=controller.run, args=(running.stop,), name="controller")
    thread.start()
    try:
        yield running
    finally:
        running.stop.set()
        thread.join(40)
        informers.stop()
        cloud.close()
        clients.close()
    assert not thread.is_alive(), "the controller did not drain"


@contextmanager
def at_work(
    make: Callable[[Host], Controller], kubeconfig: Path, provider: Interface, calls: CloudCallOptions | None = None
) -> Iterator[Metrics]:
    """A controller that `make` builds, over `provider`; well to the end, then stopped and
    drained."""
    stop = threading.Event()
    with hosting(provider, str(kubeconfig), calls=calls) as host:
        controller = make(host)
        thread = threading.Thread(target=host.run, args=(controller, stop), name="controller")
        thread.start()
        try:
            yield host.metrics
            assert all(ok for _, ok, _ in controller.health())
        finally:
            stop.set()
            thread.join(40)
        assert not thread.is_alive(), "the controller did not drain"
