"""The provider's configuration: the file given by --cloud-config (JSON or YAML), with variables of
the environment over it. Checked as a whole before anything starts, so that one look at the error
mends every mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import ClassVar

from pydantic import Field, IPvAnyNetwork, field_validator

from cloudprovider.config import InvalidConfig, ProviderConfig, Seconds
from samplecloud_provider.cloud import Disk, Instance


class Machine(ProviderConfig):
    """An instance that a new cloud starts with."""

    id: str
    name: str
    zone: str
    type: str
    addresses: tuple[str, ...]
    public_addresses: tuple[str, ...] = ()
    region: str = ""
    running: bool = True
    pod_cidrs: tuple[str, ...] = ()


class Volume(ProviderConfig):
    """A disk that a new cloud starts with."""

    id: str
    zones: tuple[str, ...] = ()


class Config(ProviderConfig):
    """The settings; README.md has their table."""

    env_prefix: ClassVar[str] = "SAMPLECLOUD_"

    region: str = Field(default="local", description="The region of every instance.")
    state_file: str = Field(default="", description="Where the cloud lives; empty keeps it in memory.")
    vpc: str = Field(default="", description="The network that load balancers are built in.")
    subnet: str = Field(default="", description="The part of it.")
    load_balancer_range: IPvAnyNetwork = Field(
        default=ip_network("198.51.100.0/24"), description="Where load balancers get their addresses from."
    )
    idle_timeout: Seconds = Field(
        default=60.0, gt=0, description="After how long load balancers close a quiet connection, if no annotation says."
    )
    build_seconds: Seconds = Field(default=0.0, ge=0, description="How long the cloud takes to build a load balancer.")
    local_targets: bool = Field(
        default=False,
        description="Whether Services with externalTrafficPolicy Local get only nodes with a ready endpoint as "
        "targets. Takes the permission to list and watch EndpointSlices.",
    )
    instances: tuple[Machine, ...] = Field(default=(), description="What a new cloud starts with.")
    clusters: dict[str, str] = Field(
        default={}, description="The clusters of a new cloud: the address of the control plane, by name."
    )
    disks: tuple[Volume, ...] = Field(default=(), description="The disks of a new cloud.")
    machine: str = Field(
        default="", description="The name of the instance that this program runs on; empty: the host's name."
    )

    @field_validator("instances", "disks")
    @classmethod
    def _ids_are_unique(cls, things: tuple[Machine | Volume, ...]) -> tuple[Machine | Volume, ...]:
        ids = [thing.id for thing in things]
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            raise ValueError(f"each must have an id of its own; given twice: {', '.join(twice)}")
        return things

    def machines(self) -> tuple[Instance, ...]:
        """The instances, as the cloud keeps them."""
        return tuple(
            Instance(
                id=one.id,
                name=one.name,
                zone=one.zone,
                region=one.region or self.region,
                type=one.type,
                addresses=one.addresses,
                public_addresses=one.public_addresses,
                running=one.running,
                pod_cidrs=one.pod_cidrs,
            )
            for one in self.instances
        )

    def volumes(self) -> tuple[Disk, ...]:
        """The disks, as the cloud keeps them."""
        return tuple(Disk(id=one.id, zones=one.zones, region=self.region) for one in self.disks)


def from_environment(environ: Mapping[str, str]) -> Config:
    """VPC_ID and SUBNET_ID, which are required, and STATE_FILE. Raises `InvalidConfig`, which names
    all that lack."""
    missing = [name for name in ("VPC_ID", "SUBNET_ID") if not environ.get(name, "").strip()]
    if missing:
        raise InvalidConfig(*(f"{name} is not set, or blank" for name in missing))
    return Config(
        vpc=environ["VPC_ID"].strip(), subnet=environ["SUBNET_ID"].strip(), state_file=environ.get("STATE_FILE", "")
    )
