"""What the tests of nodes and routes share: a provider over the double, nodes, the host's cache."""

from __future__ import annotations

from collections.abc import Sequence

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_status import V1NodeStatus
from kubernetes.client.models.v1_node_system_info import V1NodeSystemInfo
from openstack_provider.provider import OpenStack, new_provider
from openstackdouble import Double

from cloudprovider import CloudConfig
from cloudprovider.helpers import node_name
from cloudprovider.testing.conformance.lab import new_node
from tests.lab.openstack import cloud as services


def login(cloud: Double | services.OpenStack, more: str = "") -> CloudConfig:
    """A cloud.conf for the double or the services; `more`: what else stands in [Global], and
    further sections."""
    text = (
        f'[Global]\nauth-url = {cloud.auth_url}\nusername = {cloud.user}\npassword = "{cloud.password}"\n'
        f"tenant-name = {cloud.project}\ndomain-id = default\nregion = {cloud.region}\n{more}"
    )
    return CloudConfig("", text.encode())


def provider(cloud: Double, more: str = "") -> OpenStack:
    """The provider from its factory."""
    made = new_provider(login(cloud, more))
    assert isinstance(made, OpenStack)
    return made


def node(name: str, server: str = "", *, provider_id: str = "", uuid: str = "") -> V1Node:
    """A Node, with the provider ID of this server; `uuid`: what its machine calls itself."""
    made = new_node(name, provider_id or (f"openstack:///{server}" if server else ""))
    made.status = V1NodeStatus(node_info=_info(uuid))
    return made


def _info(uuid: str) -> V1NodeSystemInfo:
    return V1NodeSystemInfo(
        architecture="amd64", boot_id="b", container_runtime_version="c", kernel_version="k",
        kube_proxy_version="", kubelet_version="v1.36.0", machine_id="m", operating_system="linux",
        os_image="o", system_uuid=uuid,
    )  # fmt: skip


class Nodes:
    """The host's cache: these nodes."""

    def __init__(self, *nodes: V1Node) -> None:
        self.known = list(nodes)
        self.synced = True

    @property
    def nodes(self) -> Nodes:
        return self

    services = persistent_volumes = nodes

    def list(self) -> Sequence[V1Node]:
        return self.known

    def get(self, key: str) -> V1Node | None:
        return next((one for one in self.known if node_name(one) == key), None)

    def has_synced(self) -> bool:
        return self.synced
