"""What the conformance tests do to the double, for each of its APIs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from doubles import SECRET, Double, served
from kubernetes.client.models import V1Node
from libcloud.http import LibcloudConnection
from libcloud_provider import connections
from libcloud_provider.provider import new_provider
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.loading import registry
from cloudprovider.testing.conformance import BalancerFacts, HTTPLab, new_node

CONFIGS = {
    "digitalocean": "driver: digitalocean\ncredentials: {{key: {secret}}}\n",
    "linode": "driver: linode\ncredentials: {{key: {secret}}}\n",
    "openstack": """
driver: openstack
region: RegionOne
arguments:
  key: ccm
  ex_force_auth_url: {url}
  ex_force_auth_version: 3.x_password
  ex_tenant_name: blue
credentials: {{secret: {secret}}}
""",
    "rackspace": """
driver: rackspace
region: ord
arguments:
  key: ccm
  ex_force_auth_url: {url}
credentials: {{secret: {secret}}}
load_balancer: {{driver: rackspace}}
""",
}


def config_of(driver: str, double: Double, folder: Path) -> CloudConfig:
    """The cloud config of a provider for the double."""
    secret = folder / "secret"
    secret.write_text(f"{SECRET}\n")
    return CloudConfig(path="", data=CONFIGS[driver].format(url=double.url, secret=secret).encode())


@contextmanager
def redirected(double: Double) -> Iterator[None]:
    """Drivers whose host cannot be changed reach the double; the provider is registered, since
    nobody installs it here; calls have a small margin."""
    made: Any = LibcloudConnection.__init__

    def to_double(self: Any, host: str, port: int, secure: Any = None, **options: Any) -> None:
        made(self, host, port, secure, **options)
        self.host = double.url

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections.BoundedConnection, "__init__", to_double)
        patch.setattr(connections, "MARGIN", 0.25)
        patch.setattr(connections, "LEAST", 0.1)
        patch.setattr(registry, "_REGISTRY", registry.Registry())
        registry.register_cloud_provider("libcloud", new_provider)
        yield


class DoubleLab(HTTPLab):
    """Every hook of instances and load balancers."""

    deadline = 0.6
    secrets = (SECRET,)
    cloud_hosts = ("127.0.0.1",)
    poll = 0.01

    def __init__(self, driver: str, double: Double, folder: Path) -> None:
        self.double = double
        self._config = config_of(driver, double, folder)
        self._prefix = {"digitalocean": "digitalocean://", "linode": "linode://"}.get(driver, "openstack:///")

    @override
    def config(self) -> CloudConfig:
        return self._config

    @override
    def create_machine(self, name: str) -> V1Node:
        self.double.create(name)
        return new_node(name)

    @override
    def stop_machine(self, node: V1Node) -> None:
        self.double.stop(self._id(node))

    @override
    def start_machine(self, node: V1Node) -> None:
        self.double.start(self._id(node))

    @override
    @contextmanager
    def unlisted(self, node: V1Node) -> Iterator[None]:
        key = self._id(node)
        self.double.hidden.add(key)
        yield
        self.double.hidden.discard(key)

    @override
    def delete_machine(self, node: V1Node) -> None:
        with self.double.lock:
            self.double.servers.pop(self._id(node), None)

    def _id(self, node: V1Node) -> str:
        assert node.metadata is not None
        return self.double.named(str(node.metadata.name)).id


class BalancerLab(DoubleLab):
    """With the load balancers of the double."""

    @override
    def resources(self) -> Collection[str]:
        return [one.name for one in self.double.balancers.values()]

    @override
    def load_balancer(self, name: str) -> BalancerFacts | None:
        parts = [one for one in self.double.balancers.values() if one.name.startswith(name)]
        if not parts:
            return None
        ids = {one.private: f"{self._prefix}{one.id}" for one in self.double.servers.values()}
        nodes = [(part, node) for part in parts for node in part.nodes.values() if node.get("condition") != "DISABLED"]
        ports = {(part.port, part.protocol, node["port"]) for part in parts for node in part.nodes.values()}
        return BalancerFacts(ports=ports, targets={ids[node["address"]] for _, node in nodes})


@contextmanager
def lab_of(driver: str, factory: pytest.TempPathFactory, kind: type[DoubleLab] = DoubleLab) -> Iterator[DoubleLab]:
    """The lab over a driver, with a double of its own."""
    with served(Double(numeric=driver in ("digitalocean", "linode"))) as double, redirected(double):
        yield kind(driver, double, factory.mktemp("config"))
