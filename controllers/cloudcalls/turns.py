"""Which of the waiting calls goes next (stage 5, cloud call). Pure; the vendor pool holds its lock
around every method.

Calls come in kinds (nodes, load balancers, routes, volumes, others), and those about a namespace's
objects belong to that namespace. So that no backlog holds up all others:

- Periodic checks (priority below 0) let all others pass, but every so many-th call is one of
  theirs.
- Kinds take turns: the one with the fewest calls under way is next, then the one that was served
  longest ago. What may not start now (its kind is throttled, or has its share of the slots) holds
  up no other kind.
- Within a kind namespaces take turns in the same way.
- Within a namespace the higher priority goes first, and every so many-th call is the one that has
  waited longest.
- An eighth of the slots is kept free of all but calls about nodes, whose answers come fast and are
  waited for by every pod of a new node; and an eighth of the rest is kept free of the one namespace
  that has all the others.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from controllers.cloudcalls.call import CloudCall, Flow
from controllers.cloudcalls.limits import PRIORITY_NORMAL
from controllers.runtime.fairness import FAIR_SHARE, Lanes

NODES: Final = "nodes"
LOAD_BALANCERS: Final = "load-balancers"
ROUTES: Final = "routes"
VOLUMES: Final = "volumes"
OTHERS: Final = "others"
KINDS: Final = (NODES, LOAD_BALANCERS, ROUTES, VOLUMES, OTHERS)

_SLOW: Final = frozenset((LOAD_BALANCERS, ROUTES, VOLUMES))  # kinds that leave the slots kept for nodes alone
_SHARE: Final = 8

Called = CloudCall[Any]


def flow_of(method: str, key: str) -> Flow:
    """The flow of a call, by the vendor's method and the key."""
    if "load_balancer" in method:
        kind, _, rest = key.partition("/")
        return Flow(LOAD_BALANCERS, rest.partition("/")[0] if kind == "service" and "/" in rest else "")
    if "route" in method:
        return Flow(ROUTES)
    if "volume" in method:
        return Flow(VOLUMES)
    if method.startswith(("instance", "node_addresses", "get_zone", "pod_cidrs")):
        return Flow(NODES)
    return Flow(OTHERS)


class Turns:
    """The waiting calls, and how many of each flow hold a slot."""

    def __init__(self, slots: int) -> None:
        kept = max(1, slots // _SHARE) if slots > 1 else 0
        self._slow_slots = slots - kept
        self._namespace_slots = self._slow_slots - (max(1, self._slow_slots // _SHARE) if self._slow_slots > 1 else 0)
        self._free: deque[Called] = deque()  # those that never reach the cloud wait for a slot only
        self._lines: dict[bool, dict[Flow, Lanes[Called]]] = {False: {}, True: {}}  # periodic ones: True
        self._order = 0
        self._turn = 0
        self._served: dict[object, int] = {}
        self._running: Tally[object] = Tally()  # by kind, and by flow
        self._slow_running = 0
        self._passed = 0  # calls that went before periodic ones

    def push(self, call: Called) -> None:
        """A call waits from now on."""
        call.flow = flow_of(call.method, call.key)
        if not call.counted:
            self._free.append(call)
            return
        self._order += 1
        call.added = self._order
        self._lines[call.priority < PRIORITY_NORMAL].setdefault(call.flow, Lanes()).push(call)

    def remove(self, call: Called) -> None:
        """It waits no longer: it was given up."""
        if not call.counted:
            self._free.remove(call)
            return
        lines = self._lines[call.priority < PRIORITY_NORMAL]
        lines[call.flow].remove(call)
        if not lines[call.flow].size:
            del lines[call.flow]

    def next(self, wait: Callable[[str], float]) -> tuple[Called | None, float]:
        """Take out the call that may start now; otherwise None, and seconds until one may (or inf).

        `wait(kind)` is how long a call of this kind has to wait for the cloud's limits."""
        if self._free:
            return self._free.popleft(), 0.0
        soonest = math.inf
        share = self._passed >= FAIR_SHARE - 1
        for periodic in (True, False) if share else (False, True):
            found, seconds = self._next_of(self._lines[periodic], wait)
            if found is not None:
                self._passed = 0 if periodic or not self._lines[True] else self._passed + 1
                return found, 0.0
            soonest = min(soonest, seconds)
        return None, soonest

    def _next_of(self, lines: dict[Flow, Lanes[Called]], wait: Callable[[str], float]) -> tuple[Called | None, float]:
        soonest = math.inf
        for kind in sorted({flow.kind for flow in lines}, key=self._rank):
            if kind in _SLOW and self._slow_running >= self._slow_slots:
                continue
            flows = [flow for flow in lines if flow.kind == kind and not self._has_its_share(flow)]
            if not flows:
                continue
            seconds = wait(kind)
            if seconds > 0:
                soonest = min(soonest, seconds)
                continue
            flow = min(flows, key=self._rank)
            self._turn += 1
            self._served[kind] = self._served[flow] = self._turn
            call = lines[flow].pop()
            if not lines[flow].size:
                del lines[flow]
            return call, 0.0
        return None, soonest

    def _has_its_share(self, flow: Flow) -> bool:
        return bool(flow.namespace) and self._running[flow] >= self._namespace_slots

    def _rank(self, what: object) -> tuple[int, int]:
        return self._running[what], self._served.get(what, 0)

    def started(self, call: Called) -> None:
        """The call holds a slot."""
        self._running[call.flow] += 1
        self._running[call.flow.kind] += 1
        self._slow_running += call.flow.kind in _SLOW

    def ended(self, call: Called) -> None:
        """It does so no longer."""
        flow = call.flow
        self._running[flow.kind] -= 1
        self._running[flow] -= 1
        self._slow_running -= flow.kind in _SLOW
        if not self._running[flow]:
            del self._running[flow]
            if flow.namespace and flow not in self._lines[False] and flow not in self._lines[True]:
                self._served.pop(flow, None)

    def clear(self) -> list[Called]:
        """Take out all that wait."""
        waiting = self.waiting()
        self._free.clear()
        for lines in self._lines.values():
            lines.clear()
        return waiting

    def waiting(self) -> list[Called]:
        """The calls that wait."""
        lines = [line for lines in self._lines.values() for line in lines.values()]
        return [*self._free, *(call for line in lines for call in line.items())]
