"""What the API shows, as types. An answer that does not fit raises, so that half an answer is never
taken for a whole one."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field


class _Resource(BaseModel):
    """Frozen; fields that a newer server adds are no concern of ours."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class Environment(_Resource):
    """What the server says of itself."""

    server: str
    server_version: str
    server_clustered: bool = False
    server_name: str = ""


class ServerInfo(_Resource):
    """The answer of /1.0. `auth` is "trusted" or "untrusted"; with the latter `environment` is
    missing."""

    auth: str
    environment: Environment | None = None


class Address(_Resource):
    """An address inside the instance. `scope` is global, link or local."""

    family: str
    address: str
    netmask: str = ""
    scope: str = ""


class Interface(_Resource):
    """A network interface inside the instance; containers' and pods' bridges are among them."""

    hwaddr: str = ""
    addresses: tuple[Address, ...] = ()


class State(_Resource):
    """What is known of a running instance. `network` is missing while it is stopped."""

    status: str
    network: Mapping[str, Interface] | None = None


class Instance(_Resource):
    """A container or virtual machine. The `expanded_` fields include those of its profiles; the
    others are its own. `location` is the cluster's member, "none" without a cluster."""

    name: str = Field(min_length=1)
    status: str = Field(min_length=1)
    location: str = "none"
    config: Mapping[str, str] = {}
    devices: Mapping[str, Mapping[str, str]] = {}
    expanded_config: Mapping[str, str] = {}
    expanded_devices: Mapping[str, Mapping[str, str]] = {}
    state: State | None = None

    @property
    def uuid(self) -> str:
        """The server's own ID, never used for another instance. "" where it has none: of releases
        before 2021."""
        return self.config.get("volatile.uuid", "")


class ForwardPort(_Resource):
    """Ports of a forward, and where they lead."""

    protocol: str
    listen_port: str
    target_port: str = ""
    target_address: str
    description: str = ""


class Forward(_Resource):
    """A network forward: an address whose connections go to instances of the network."""

    listen_address: str
    description: str = ""
    config: Mapping[str, str] = {}
    ports: tuple[ForwardPort, ...] = ()


class Network(_Resource):
    """A network."""

    name: str
    type: str
    managed: bool
