"""The settings of an election: which Lease, who we are, how long things may take, whom to call.

Data comes from flags (`controllers/registration/options.py`) or from a program; it goes to
`elector.py`. Defaults and checks are those of client-go's tools/leaderelection and of
k8s.io/component-base.
"""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Callable, Mapping
from typing import Final

import attrs

JITTER: Final = 1.2
"""A wait between two looks at a Lease grows by up to this share, so candidates spread out."""

_MARGIN: Final = 0.1  # a share of the lease: clocks do not all run at one speed, and requests travel for a while
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TRIES: Final = 3  # requests without an answer that fit into the renew deadline


def unique_identity() -> str:
    """A name for one candidate, as Go makes it: the machine's name and a UUID."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


def wrong_durations(lease: float, renew: float, retry: float) -> list[tuple[str, str]]:
    """What is wrong with the three durations, as (field, sentence); empty if nothing. Pure."""
    wrong = []
    if lease < 1:
        wrong.append(("lease_duration", "must be at least 1s: a Lease counts whole seconds"))
    for field, value in (("renew_deadline", renew), ("retry_period", retry)):
        if value <= 0:
            wrong.append((field, "must be greater than 0"))
    if not wrong:
        if lease <= renew:
            wrong.append(("lease_duration", "must be greater than the renew deadline"))
        if renew <= JITTER * retry:
            wrong.append(("renew_deadline", f"must be greater than the retry period times {JITTER:g}"))
    if not wrong and retry >= (held := _held_for(lease)):  # a lease of 2.9 s counts as one of 2
        wrong.append(("retry_period", f"must be less than {held:g}s, nine tenths of the lease's whole seconds"))
    return wrong


def wrong_names(name: str, namespace: str) -> list[tuple[str, str]]:
    """What is wrong with the names of a Lease, as (field, sentence); empty if nothing. Pure."""
    wrong = []
    if not _NAME.fullmatch(name) or len(name) > 253:
        wrong.append(("name", "must be small letters, digits, - and ., with a letter or digit at both ends"))
    if not _NAME.fullmatch(namespace) or "." in namespace or len(namespace) > 63:
        wrong.append(("namespace", "must be small letters, digits and -, with a letter or digit at both ends"))
    return wrong


def _held_for(lease: float) -> float:
    return int(lease) * (1 - _MARGIN)


@attrs.frozen(kw_only=True)
class LeaseSettings:
    """One Lease and one candidate for it; durations in seconds. Raises ValueError.

    `lease_duration`: others wait so long after the last renewal that they saw. `renew_deadline`:
    the leader tries so long to renew before it gives up. `retry_period`: between two renewals, and
    between two looks of a candidate that may not watch. `identity` is this process's alone."""

    name: str
    namespace: str = "kube-system"
    identity: str = attrs.field(factory=unique_identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    serves: Mapping[str, str] = attrs.field(factory=dict)
    """What the candidate does, as "provider": "acme"; a standby says where its leader does
    otherwise. Nothing: neither written nor compared."""

    def __attrs_post_init__(self) -> None:
        wrong = [
            f"{field}={getattr(self, field):g}: {text}"
            for field, text in wrong_durations(self.lease_duration, self.renew_deadline, self.retry_period)
        ]
        wrong += [f"{field}={getattr(self, field)!r}: {text}" for field, text in wrong_names(self.name, self.namespace)]
        if not self.identity:
            wrong.append("identity: must not be empty")
        if wrong:
            raise ValueError("; ".join(wrong))

    @property
    def lease(self) -> str:
        """The Lease as "namespace/name", for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def whole_seconds(self) -> int:
        """What stands in the Lease: others go by that, so we do."""
        return int(self.lease_duration)

    @property
    def held_for(self) -> float:
        """Seconds after the start of a renewal in which no other can have taken the lease."""
        return _held_for(self.lease_duration)

    @property
    def renew_within(self) -> float:
        """Seconds after the start of the last renewal until the leader gives up."""
        return min(self.retry_period + self.renew_deadline, self.held_for)

    @property
    def request_timeout(self) -> float:
        """Seconds for one request: a connection that hangs must leave time for others."""
        return self.renew_deadline / _TRIES


@attrs.frozen(kw_only=True)
class Callbacks:
    """What an elector calls, in its own thread; none may block."""

    on_leading: Callable[[], object] = lambda: None
    """This process begins to lead."""
    on_lost: Callable[[str], object] = lambda reason: None
    """It has lost the lease, for this reason: called once, before anything is logged, and in
    another thread where the elector's own hangs."""
    event: Callable[[str], object] = lambda what: None
    """An Event is due: "became leader", "stopped leading"."""
    on_stranger: Callable[[str], object] = lambda problem: None
    """The leader does something else than this candidate, which the text says: it may wait for
    ever. Called once for each such leader, in the watch's thread, too."""
