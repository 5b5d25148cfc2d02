"""Whether a write of the last leader can still arrive: until then no node gets a range.

A leader that was killed may have a write under way: "node A gets range X", applied after this
leader listed the nodes. X looks free meanwhile, and could go to node B. Such a write holds only for
the version of A that the last leader saw. So every node that lacks a range at the start has to
change once, by itself or by this leader (`changes.seal`): then older writes are refused."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from controllers.nodeipam.changes import NodeFacts
    from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

_OLDEST: Final = 180.0
"""Seconds after which no write of a former leader can arrive: it sent none after its lease had
ended, its client gave up after 30 s, and the API server ends a request after 60 s
(`--request-timeout`). Twice their sum."""


class StartupBarrier:
    """Thread-safe. Closed until `begin`, and then until every node is settled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.token = secrets.token_hex(4)
        """What this leader writes on the nodes: another value than any leader before."""
        self._lock = threading.Lock()
        self.begun = False
        """Whether the nodes were listed."""
        self._began = 0.0
        self._unsettled: dict[str, NodeFacts] = {}

    def begin(self, lacking: Iterable[NodeFacts]) -> None:
        """Name the nodes that lack ranges at the start, as they were listed."""
        with self._lock:
            self._unsettled = {node.name: node for node in lacking}
            self._began = self._clock.monotonic()
            self.begun = True

    @property
    def over(self) -> bool:
        """Whether ranges can be given out."""
        return self.begun and not self._unsettled

    def wait(self) -> float:
        """Seconds until it is over in any case; 0.0 when it is. To be called after `begin`.

        Settles the nodes that could not be changed, once their time has come.
        """
        with self._lock:
            if not self._unsettled:
                return 0.0
            # One node that cannot be changed (an admission policy refuses it, say) must not hold
            # all others up for ever: after `_OLDEST` no such write can be under way any more.
            left = self._began + _OLDEST - self._clock.monotonic()
            if left > 0:
                return left
            names = ", ".join(list(self._unsettled)[:10])
            count, self._unsettled = len(self._unsettled), {}
        log.warning(
            "%d nodes could not be changed for %.0f s (%s): no write of a former leader can be under way to them any "
            "more, so the others get their pod CIDRs",
            count,
            _OLDEST,
            names,
        )
        return 0.0

    def unsettled(self, name: str) -> NodeFacts | None:
        """The node of this name, as it was listed, if the last leader's write may be under way."""
        return self._unsettled.get(name)

    def names(self) -> list[str]:
        """The names of all such nodes."""
        with self._lock:
            return list(self._unsettled)

    def settle(self, name: str, uid: str) -> None:
        """No older write can reach this node."""
        with self._lock:
            listed = self._unsettled.get(name)
            if listed is not None and listed.uid == uid:
                del self._unsettled[name]
