"""What a viewer sees at one moment: plain values that the acts check and the views show.

Made by `stage.py` (the story) and `visit.py` (a cluster of yours), several times a second. Times are seconds since the
demo began.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen
class NodeRow:
    """One Node. `ready` is when the taint was gone, `deleted` when the Node object was."""

    name: str
    joined: float
    ready: float | None = None
    deleted: float | None = None
    answering: bool = True
    """Whether its kubelet reports; False once the condition Ready says otherwise."""
    provider_id: str = ""
    addresses: tuple[str, ...] = ()
    type: str = ""
    zone: str = ""
    pod_cidr: str = ""
    routed: bool = False
    """Whether its condition NetworkUnavailable says that the route is there."""

    @property
    def took(self) -> float | None:
        """Seconds from taint seen to taint gone."""
        return None if self.ready is None else self.ready - self.joined


@attrs.frozen
class ServiceRow:
    """One Service of type LoadBalancer."""

    name: str
    address: str = ""
    targets: int | None = None
    """How many nodes its load balancer sends traffic to; None: the cloud has no load balancer for it."""
    deleted: bool = False


class Role(enum.Enum):
    """What a manager is doing."""

    STARTING = "starting"
    STANDBY = "standby"
    LEADER = "leader"
    DRAINING = "draining"
    """It was asked to end, and finishes its work."""
    KILLED = "killed"
    ENDED = "ended"


@attrs.frozen
class ManagerRow:
    """One process of the cloud-controller-manager."""

    name: str
    pid: int
    role: Role
    changes: int = 0
    """How often it changed the cloud."""
    note: str = ""


@attrs.frozen
class EventRow:
    """One Event of the cluster."""

    type: str
    reason: str
    about: str
    """ "Kind/name"."""
    message: str


@attrs.frozen
class Scene:
    """All of it."""

    elapsed: float = 0.0
    nodes: Sequence[NodeRow] = ()
    services: Sequence[ServiceRow] = ()
    managers: Sequence[ManagerRow] = ()
    events: Sequence[EventRow] = ()
    """In the order in which they were written."""
    routes: Mapping[str, str] = attrs.field(factory=dict)
    """The cloud's route table: node by CIDR."""
    writers: Sequence[str] = ()
    """Who changed the cloud, in order; calls in a row by the same manager count as one."""
    log: Sequence[tuple[str, str]] = ()
    """The last lines of the manager's log: level and text."""

    def node(self, name: str) -> NodeRow | None:
        """A node that is there, by name."""
        return next((row for row in self.nodes if row.name == name and row.deleted is None), None)

    def service(self, name: str) -> ServiceRow | None:
        """A Service that is there, by name."""
        return next((row for row in self.services if row.name == name and not row.deleted), None)

    def told(self, about: str, reason: str) -> bool:
        """Whether there is such an Event."""
        return any((event.about, event.reason) == (about, reason) for event in self.events)
