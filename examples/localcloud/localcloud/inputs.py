"""What clients may send: each body's fields with their types and limits. Pure.

pydantic tells every problem of a body; what needs the cloud's state is checked in `cloud.py`.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from localcloud.model import HealthCheck, LoadBalancer, Port

__all__ = [
    "REGION", "TYPES", "ZONES", "BalancerBody", "Invalid", "KeysBody", "MachineBody", "RebootBody", "RouteBody",
    "check_name", "parse",
]  # fmt: skip

REGION = "local"
ZONES = ("local-a", "local-b", "local-c")
TYPES = {"small": (1, 1), "medium": (2, 4), "large": (4, 8)}
"""By name: processors and GiB of memory. They are names only: all machines share the host."""

_HOST_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,254}")
_MACHINE_ID = r"^m[0-9]{1,6}$"
_TAINT = re.compile(r"[^\s=:]{1,317}(=[^\s=:]{0,63})?:(NoSchedule|PreferNoSchedule|NoExecute)")

BodyT = TypeVar("BodyT", bound=BaseModel)


class Invalid(Exception):
    """A request that cannot be carried out as it is. `problems` are all reasons."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def _network(text: str) -> str:
    try:
        return str(IPv4Network(text))
    except (AddressValueError, NetmaskValueError, ValueError) as exc:
        raise ValueError(f"{text!r} must be an IPv4 network such as 10.91.3.0/24, without host bits") from exc


def _address(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError as exc:
        raise ValueError(f"{text!r} must be an IPv4 address") from exc


def _zone(text: str) -> str:
    if text not in ZONES:
        raise ValueError(f"there is no zone {text!r}; there are {', '.join(ZONES)}")
    return text


def _type(text: str) -> str:
    if text not in TYPES:
        raise ValueError(f"there is no type {text!r}; there are {', '.join(TYPES)}")
    return text


def _taint(text: str) -> str:
    if not _TAINT.fullmatch(text):
        raise ValueError(
            f"{text!r} must be KEY=VALUE:EFFECT or KEY:EFFECT, the effect NoSchedule, PreferNoSchedule or NoExecute"
        )
    return text


def _taints(given: list[str]) -> list[str]:
    seen = [(one.partition("=")[0].partition(":")[0], one.rpartition(":")[2]) for one in given]
    if twice := [f"{key}:{effect}" for key, effect in dict.fromkeys(seen) if seen.count((key, effect)) > 1]:
        raise ValueError(f"the key and effect {', '.join(twice)} are given twice")
    return given


Network = Annotated[str, AfterValidator(_network)]
MachineID = Annotated[str, Field(pattern=_MACHINE_ID)]
PortNumber = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(max_length=255)]
Labels = Annotated[dict[Text, Text], Field(max_length=64)]
Taint = Annotated[str, AfterValidator(_taint)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True)


class MachineBody(_Body):
    """POST /v1/machines."""

    name: Annotated[str, Field(pattern=_HOST_NAME)]
    type: Annotated[str, AfterValidator(_type)] = "small"
    zone: Annotated[str, AfterValidator(_zone)] = ZONES[0]
    user_data: Annotated[str, Field(max_length=1 << 18)] = ""
    labels: Labels = {}
    taints: Annotated[list[Taint], Field(max_length=64), AfterValidator(_taints)] = []
    annotations: Labels = {}


class RebootBody(_Body):
    """POST /v1/machines/ID/reboot."""

    new_address: bool = False


class RouteBody(_Body):
    """PUT /v1/routes/NAME."""

    destination: Network
    machine: MachineID
    owner: Text = ""


class PortBody(_Body):
    """One port of a load balancer."""

    protocol: Literal["TCP", "UDP"] = "TCP"
    port: PortNumber
    target_port: PortNumber


class HealthBody(_Body):
    """How targets are checked."""

    port: PortNumber
    path: Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=255)] = "/healthz"


class BalancerBody(_Body):
    """PUT /v1/loadbalancers/NAME."""

    owner: Annotated[str, Field(min_length=1, max_length=255)]
    labels: Labels = {}
    requested_address: Annotated[str, AfterValidator(_address)] | None = None
    mode: Literal["nat", "proxy", "direct"] = "nat"
    ports: Annotated[list[PortBody], Field(min_length=1, max_length=100)]
    targets: Annotated[list[MachineID], Field(max_length=250)] = []
    weights: dict[MachineID, Annotated[int, Field(ge=1, le=100)]] = {}
    draining: list[MachineID] = []
    source_ranges: Annotated[list[Network], Field(max_length=250)] = []
    affinity: Literal["none", "clientIP"] = "none"
    affinity_seconds: Annotated[int, Field(ge=1, le=86400)] = 10800
    health: HealthBody | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        seen = [(port.protocol, port.port) for port in self.ports]
        problems = [f"port {port}/{protocol} is given twice" for protocol, port in dict.fromkeys(seen)
                    if seen.count((protocol, port)) > 1]  # fmt: skip
        if self.mode == "proxy" and any(protocol == "UDP" for protocol, _ in seen):
            problems.append("mode proxy knows TCP alone")
        for name, ids in (("weights", self.weights), ("draining", self.draining)):
            if strangers := sorted(set(ids) - set(self.targets)):
                problems.append(f"{name} has {', '.join(strangers)}, which are no targets")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def balancer(self, name: str, address: str) -> LoadBalancer:
        """The value, with the address that the cloud gives it."""
        return LoadBalancer(
            name=name,
            owner=self.owner,
            address=address,
            labels=dict(self.labels),
            mode=self.mode,
            ports=tuple(Port(protocol=one.protocol, port=one.port, target_port=one.target_port) for one in self.ports),
            targets=tuple(dict.fromkeys(self.targets)),
            weights=dict(self.weights),
            draining=tuple(dict.fromkeys(self.draining)),
            source_ranges=tuple(dict.fromkeys(self.source_ranges)),
            affinity=self.affinity,
            affinity_seconds=self.affinity_seconds,
            health=None if self.health is None else HealthCheck(port=self.health.port, path=self.health.path),
        )


class KeysBody(_Body):
    """PUT /v1/sshkeys/USER."""

    keys: list[Annotated[str, Field(pattern=r"^[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,3}$", max_length=16384)]]


def parse(kind: type[BodyT], data: bytes) -> BodyT:
    """The body of a request. Raises Invalid with every problem; an empty body is an empty
    object."""
    try:
        return kind.model_validate_json(data or b"{}")
    except ValidationError as exc:
        raise Invalid(*(_problem(tuple(map(str, one["loc"])), one["msg"]) for one in exc.errors())) from exc


def check_name(kind: str, name: str) -> str:
    """The name of a route or load balancer. Raises Invalid."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"the {kind}'s name must be 1 to 255 letters, digits and . _ : -, and begin with none of . : -")
    return name


def _problem(place: tuple[str, ...], message: str) -> str:
    text = message.removeprefix("Value error, ")
    return f"{'.'.join(place)}: {text}" if place else text
