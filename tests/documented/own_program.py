"""What a program with one controller has beside the documented lines: a provider, a cluster, and a
signal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cloudprovider import StopSignal
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud, FakeConfig

__all__ = ["kubeconfig", "provider", "run_until_signal"]

kubeconfig = "kubeconfig"
provider = FakeCloud(FakeConfig())


def run_until_signal(run: Callable[[StopSignal], None], *, drain: float) -> int:
    """Run it against an embedded API server until it has built a load balancer there, then stop it.
    Returns 0."""
    stop = threading.Event()
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    with provider, EmbeddedAPIServer() as server:
        server.create({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"}, "spec": spec})

        def has_address() -> bool:
            return bool(server.get("services", "web")["status"]["loadBalancer"])

        def signal() -> None:
            until = time.monotonic() + drain
            while not has_address() and time.monotonic() < until:
                time.sleep(0.01)
            stop.set()

        server.write_kubeconfig(kubeconfig)
        signaller = threading.Thread(target=signal)
        signaller.start()
        run(stop)
        signaller.join()
        assert has_address(), f"no load balancer after {drain} s"
    return 0
