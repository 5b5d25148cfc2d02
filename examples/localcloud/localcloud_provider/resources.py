"""What the cloud's API shows, as types. An answer that does not fit raises, so that half an answer
is never taken for a whole one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Mode = Literal["nat", "proxy", "direct"]
"""How a load balancer's connections reach the machines."""


class _Resource(BaseModel):
    """Frozen; names as in the API; fields that a newer cloud adds are no concern of ours."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class Address(_Resource):
    """One address of a machine. `type` is InternalIP, ExternalIP or Hostname."""

    type: str
    address: str


class Machine(_Resource):
    """A machine. Its ID is never used for another one."""

    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    state: Literal["running", "stopped"]
    type: str = ""
    region: str = ""
    zone: str = ""
    addresses: tuple[Address, ...] = ()
    taints: tuple[str, ...] = ()
    """KEY=VALUE:EFFECT or KEY:EFFECT."""
    annotations: Mapping[str, str] = {}


class Machines(_Resource):
    """An answer that lists machines. It is complete: the API has no pages."""

    machines: tuple[Machine, ...]


class Rule(_Resource):
    """A route in the cloud's router."""

    name: str
    destination: str
    machine: str
    owner: str = ""


class Rules(_Resource):
    """Every route."""

    routes: tuple[Rule, ...]


class Port(_Resource):
    """A port of a load balancer, and the machines' port that it leads to."""

    protocol: str
    port: int
    target_port: int


class Health(_Resource):
    """How the targets are checked: 200 to a GET is healthy."""

    port: int
    path: str


class Balancer(_Resource):
    """A load balancer as it was asked for, and the address that the cloud gave it."""

    name: str
    owner: str = ""
    labels: Mapping[str, str] = {}
    address: str = ""
    mode: Mode = "nat"
    ports: tuple[Port, ...] = ()
    targets: tuple[str, ...] = ()
    source_ranges: tuple[str, ...] = ()
    affinity: Literal["none", "clientIP"] = "none"
    affinity_seconds: int = 10800
    health: Health | None = None
    weights: Mapping[str, int] = {}
    draining: tuple[str, ...] = ()

    def document(self, requested_address: str = "") -> dict[str, object]:
        """The body of the PUT that builds it, or brings it in line."""
        body: dict[str, object] = self.model_dump(by_alias=True, mode="json", exclude={"name", "address"})
        if requested_address:
            body["requestedAddress"] = requested_address
        return body


class Balancers(_Resource):
    """Every load balancer of one owner."""

    loadbalancers: tuple[Balancer, ...]


class Keys(_Resource):
    """The SSH keys of one user, which every machine has."""

    keys: tuple[str, ...]


class Fault(_Resource):
    """Why the cloud refused."""

    code: str = ""
    message: str = ""
    problems: tuple[str, ...] = ()


class Failure(_Resource):
    """The body of every answer that is an error."""

    error: Fault
