"""Plan mode (--dry-run): everything starts, nothing is written, and what would be done is told.

Stage: around all of them. The manager builds one of these in place of the lease's fence: it refuses every write of
every client and every call that changes the cloud, has stand-ins answer them, and says when the first pass is over.
The controllers know nothing of it. The outcome goes to `output.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from attrs import evolve, frozen
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import Interface, StopSignal
from cloudprovider.helpers import needs_initialization
from controllers.app.dryrun.cloud import CloudStandIn, Targets
from controllers.app.dryrun.cluster import ClusterStandIn
from controllers.app.dryrun.plan import Kind, Plan, Row
from controllers.app.dryrun.settling import Settling
from controllers.app.entry import Context, ControllerEntry
from controllers.app.permissions.check import AccessCheck
from controllers.app.runner import Built, ControllerRunner
from controllers.runtime import cache
from controllers.runtime.api import ClientBuilder, NotSent
from controllers.runtime.cache import NODES, key_of
from controllers.runtime.clock import Clock
from controllers.service.changes import Note, note_of
from controllers.service.targets import targets

__all__ = ["DryRun", "Outcome"]

log = logging.getLogger(__name__)

NOTHING: Final = 0
FAILED: Final = 1
SOMETHING: Final = 3

_IDENTITY: Final = "shared-informers"
_LOOK: Final = 0.1  # seconds between two looks at what is left
_QUIET: Final = 3  # so many looks in a row must show that nothing is, as work may slip from one place to another in one
_AGAIN: Final = 0.02  # seconds between these: sweeps bring up what is known already, again and again
_TELL: Final = 5.0
_SMALL: Final = 100  # nodes


@frozen(kw_only=True)
class Outcome:
    """What a dry run found."""

    provider: str
    cluster: str
    controllers: tuple[str, ...]
    rows: tuple[Row, ...]
    left: tuple[str, ...] = ()
    """What was not done when the time was over; empty when the first pass ended."""

    @property
    def complete(self) -> bool:
        """Whether all was asked that there was to ask."""
        return not self.left and not any(row.kind == Kind.UNKNOWN for row in self.rows)

    @property
    def code(self) -> int:
        """The exit code: 0 nothing to do, 3 something (or held back), 1 the plan is incomplete."""
        if not self.complete:
            return FAILED
        due = any(row.certain and row.kind in (Kind.CHANGE, Kind.HELD_BACK) for row in self.rows)
        return SOMETHING if due else NOTHING


class DryRun:
    """One dry run. For the manager's thread; the stand-ins in it are asked from any."""

    def __init__(
        self, clients: ClientBuilder, provider: Interface, entries: Sequence[ControllerEntry], clock: Clock
    ) -> None:
        """From now on no client of `clients` writes."""
        self._entries = entries
        self._clock = clock
        self._plan = Plan([entry.name for entry in entries])
        self._nodes: tuple[V1Node, ...] = ()
        reader = clients.rest(_IDENTITY, guarded=False)
        self.cloud = CloudStandIn(self._plan, provider, clock, built=self._built, targets=self._recorded)
        """For the gateway."""
        self._settling: Settling | None = None
        names: dict[str, list[str]] = {}
        for entry in entries:
            names.setdefault(entry.account, []).append(entry.name)
        self._cluster = ClusterStandIn(
            self._plan, names, reader.get, at_work=self._at_work, evidence=self.cloud.evidence
        )
        clients.stand_in = self._cluster

    def refuse(self, *about: str) -> None:
        """The guard of all clients and cloud calls. Raises NotSent."""
        raise NotSent(f"{' '.join(about)}: not sent, this is a dry run")

    def watch(self, context: Context, access: AccessCheck, runner: ControllerRunner, built: list[Built]) -> list[Built]:
        """All caches are complete, and these controllers are about to be started. Returns them."""
        self._cluster.watch(context.informers)
        found = context.informers.find(NODES.prefix, NODES.plural)
        self._nodes = tuple(found.lister.list()) if found is not None else ()
        self._settling = Settling(context.informers, context.cloud, access, context.metrics)
        self._settling.watch(built)
        runner.stop_signal = self._settling.stop_signal
        return built

    def wait(self, stop: StopSignal, until: float) -> list[str]:
        """Wait until the first pass is over; what is left at the time `until` (`clock.monotonic`), or when `stop` was
        set."""
        assert self._settling is not None, "watch() comes first"
        began = told = self._clock.monotonic()
        quiet = 0
        while True:
            left = self._settling.left()
            quiet = 0 if left else quiet + 1
            now = self._clock.monotonic()
            if quiet >= _QUIET or now >= until:
                return left
            if left and now - told >= _TELL:
                told = now
                log.info("after %.0f s there is left: %s", now - began, "; ".join(left))
            if stop.wait(_AGAIN if quiet else _LOOK):
                return left or ["a signal ended the dry run"]

    def outcome(self, left: Sequence[str], provider: str, cluster: str) -> Outcome:
        """What was found by now."""
        assert self._settling is not None, "watch() comes first"
        held = [self._with_evidence(row) for row in self._settling.undecided()]
        self._plan.record(*held, *self._settling.unknown(), *self._settling.missing())
        rows = self._plan.rows()
        told = {row.subject for row in rows if row.kind in (Kind.HELD_BACK, Kind.UNKNOWN)}
        shown = [row for row in rows if row.kind != Kind.WARNING or row.subject not in told]
        names = tuple(entry.name for entry in self._entries)
        return Outcome(provider=provider, cluster=cluster, controllers=names, rows=tuple(shown), left=tuple(left))

    def _with_evidence(self, row: Row) -> Row:
        evidence = self.cloud.evidence(row.subject.name)
        return evolve(row, note=f"{row.note}; {evidence}") if evidence else row

    def _at_work(self) -> str:
        return "" if self._settling is None else self._settling.at_work()

    # ---- what a Service tells of its load balancer

    def _note(self, service: V1Service) -> Note | None:
        """Our note, as it was before this run."""
        kind = cache.SERVICES
        raw = self._cluster.original(kind.prefix, kind.plural, key_of(service))
        return note_of(service if raw is None else V1Service.model_validate(raw, extra="ignore"))

    def _built(self, service: V1Service) -> bool:
        return self._note(service) is not None

    def _recorded(self, service: V1Service) -> Targets:
        """The targets that the note tells, where they are among those that are likely."""
        note = self._note(service)
        return None if note is None else self._likely.get(note.nodes)

    @cached_property
    def _likely(self) -> dict[str, tuple[str, ...]]:
        """Names of nodes by the digest that a note has of them: of the nodes that there were when this run began, of
        those without the new ones, and, in a small cluster, of those without any one."""
        nodes = self._nodes
        sets = [nodes, tuple(node for node in nodes if not needs_initialization(node))]
        if len(nodes) <= _SMALL:
            sets += [tuple(other for other in nodes if other is not node) for node in nodes]
        found = [targets(each, ready_only) for each in sets for ready_only in (False, True)]
        return {
            digest: tuple(key_of(node) for node in one.nodes)
            for one in reversed(found)
            for digest in (*one.good_enough, one.digest)
        }
