"""What can be chosen about a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from tests.lab.cluster.provider import OURS
from tests.lab.envtest.build import cache


@frozen(kw_only=True)
class MachineSpec:
    """A machine that becomes a node."""

    name: str
    zone: str
    control_plane: bool = False
    taints: Sequence[str] = ()
    """Of the machine in the cloud, KEY=VALUE:EFFECT each; its node gets them from there."""
    annotations: Mapping[str, str] = field(factory=dict[str, str])
    """Likewise."""


@frozen(kw_only=True)
class Options:
    """What can be chosen. Two clusters on one host need another name, base and pool each."""

    name: str = "lc"
    base: str = "10.90"
    pool: str = "198.51.100.0/24"
    provider: Path = OURS
    """The folder of a distribution with one provider."""
    cloud_config: str | None = None
    """The text of --cloud-config; None: that of the local cloud, which the provider then drives."""
    values: Mapping[str, object] = field(factory=dict[str, object])
    """More values for the chart, over those of the cluster."""
    machines: Sequence[MachineSpec] = (
        MachineSpec(name="cp-1", zone="local-a", control_plane=True),
        MachineSpec(name="cp-2", zone="local-b", control_plane=True),
        MachineSpec(name="worker-1", zone="local-a"),
        MachineSpec(name="worker-2", zone="local-b"),
    )
    spares: Sequence[MachineSpec] = ()
    """Machines that may be made later, beside those: the API server knows their kubelets."""
    folder: Path = field(factory=lambda: cache().parent / "cluster")
    """The cluster is in a folder of its name in here."""

    @property
    def on_local_cloud(self) -> bool:
        """Whether the provider drives the local cloud. One of another cloud makes no routes and no
        load balancers here."""
        return self.cloud_config is None
