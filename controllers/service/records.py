"""Stage 4, its memory: what this process knows of each Service's load balancer, and when the same
is done again. Work is compared with it, so missed events are harmless.

Filled by the reconciler alone. A record holds digests, no nodes; it goes with its Service."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from cloudprovider.helpers import has_load_balancer_finalizer
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from controllers.runtime.cache import is_newer, uid_of, version_of
from controllers.service import changes
from controllers.service.changes import Note, Scope

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.cache import Lister
    from controllers.service.targets import Targets

# Two writers that disagree about a Service never end by themselves. The first changes are acted
# upon immediately, as a person's are; then each waits longer than the one before.
CHANGES: Final = Backoff(base=5.0, cap=300.0, at_once=5, quiet=600.0)
"""Ensuring a load balancer because its Service changed."""
TOLD: Final = Backoff(base=2.0, cap=30.0, at_once=1, quiet=120.0)
"""Ensuring a load balancer because the provider says that something else changed: its `look_again`,
or its `depends_on`. An endpoint that flaps must not cost the cloud a call each time."""
RESTORED: Final = Backoff(base=60.0, cap=3600.0, quiet=7200.0)
"""Putting back our finalizer or the address, which another program removes."""
LAZY: Final = 60.0
"""Seconds after which a note that was removed or changed is put back, once for each we wrote."""
LOOKING: Final = 300.0
"""Seconds for which a new process asks the cloud whether a note holds, if it fails."""
EMPTY: Final = Backoff(base=60.0, cap=math.inf)
"""Ensuring again a load balancer that has no address yet, if before the drift check."""
EMPTY_CAP: Final = 1800.0
"""The longest of these delays, where there is no drift check; then they end."""

SECONDS: Final = tuple(2.0**exponent for exponent in range(15))
"""Buckets of this controller's histograms, as Go's: 1 s to 4.5 h."""


class State(Enum):
    """How far a load balancer is. `decide.py` says what follows from each."""

    UNSURE = "the cloud may have nothing, half or all of it"
    RETARGETING = "built; which targets it has is unsure"
    CONFIRMED = "as the cloud confirmed; the note on the Service does not say so yet"
    WRITTEN = "as the cloud confirmed, and as the note on the Service says"
    ELSEWHERE = "another controller builds it (ImplementedElsewhere)"
    ABSENT = "a deletion failed, and a look after it found none; one such answer may be wrong, the next one counts"
    GONE = "the cloud confirmed the deletion; our note and finalizer are still to be taken off"
    RELEASED = "they are off, so a finalizer that appears now is another controller's; kept until it is wanted again"

    @property
    def deleted(self) -> bool:
        """Whether the cloud confirmed the deletion."""
        return self in (State.GONE, State.RELEASED)


@frozen
class Asked:
    """What was last asked of the cloud in one way, and when (`clock.monotonic`) it may be asked the
    same again. Anything else need not wait for that."""

    what: str
    since: float
    """When it was first asked, until it was answered."""
    not_before: float = 0.0
    failed: bool = False
    """It was not answered: asked again, it is the same question still."""


@frozen(kw_only=True)
class Record:
    """One Service's load balancer. It is there as soon as the cloud may have begun to build."""

    service: V1Service
    """As it was when the cloud was last called for it: for its deletion if it vanishes."""
    uid: str
    state: State = State.UNSURE
    spec: str = ""
    """Fingerprint that the cloud confirmed; "" when that is not certain."""
    nodes: str = ""
    """Digest of the targets that the cloud confirmed; "" when that is not certain."""
    status: V1LoadBalancerStatus | None = None
    """What the cloud answered when it was last asked to build."""
    new_status: bool = False
    """It has yet to be written on the Service."""
    removing: bool = False
    """The cloud was asked to delete it, and not to build it since: it needs no targets."""
    built: V1Service | None = None
    """The Service as the cloud last built it, while its load balancer is there: what targets are
    set for while a change of it waits or fails. None: it was never built, or is missing."""
    former: V1Service | None = None
    """The Service as this process knows that the cloud last built it, whatever became of it since:
    what the provider finds in `current_call().former`. Unlike `built` never a guess."""
    others: tuple[V1Service, ...] = ()
    """With which annotations, besides the present ones, the cloud was asked to build another load
    balancer that is still to go; each with spec and status of then."""
    annotations: changes.NotedAnnotations = ()
    """What the note says of `others`, and last of the present one; see `changes.Note`."""
    found: V1Service | None = None
    """The Service as this process first saw it, where it shows that another process may have built
    its load balancer. None once the cloud said whether it has one."""
    seen: V1LoadBalancerStatus | None = None
    """What a look at the cloud showed that the call after it did not change."""
    empty: int = 0
    """How often in a row the cloud answered without an address."""
    due: float = 0.0
    """Time (`clock.monotonic`) of the next look at the cloud."""
    ensure_due: float = 0.0
    """Time of the next call that repairs although nothing seems amiss."""
    version: str = ""
    """resourceVersion of the Service after our last write; a cache with an older one is behind."""
    written: V1Service | None = None
    """The Service as that write's answer showed it, for as long as the cache is behind."""
    asked: Mapping[str, Asked] = field(factory=dict)
    """By "ensure", "update", "delete", "delete others". Empty: this process has changed nothing."""
    looking: float | None = None
    """Since when (`clock.monotonic`) it cannot be checked whether a former process's note holds."""
    tried: str = ""
    """Fingerprint that the cloud was last asked to build, whatever came of it."""
    changes: Attempts = NO_ATTEMPTS
    """How often that became another one recently."""
    own: str = ""
    """Fingerprint of what was the owner's of `tried`, without the provider's `depends_on`; "" where
    that is not known."""
    told: Attempts = NO_ATTEMPTS
    """How often it was asked to build recently because the provider told of a change."""
    warned: bool = False
    """Whether the owner knows that the latest change waits."""
    condition_writes: Attempts = NO_ATTEMPTS
    """How often the condition LoadBalancerReady was written by itself recently."""
    said: str = ""
    """The reason in it when this process last wrote it; "" if it did not."""
    restores: Attempts = NO_ATTEMPTS
    """How often our finalizer or the address was put back recently."""
    restore_at: float = 0.0
    """When a note that was removed is put back. 0.0: it is not missed; inf: it was put back
    once since we last wrote it, and is not again."""

    @classmethod
    def blank(cls, service: V1Service) -> Record:
        """Nothing is known of its load balancer."""
        return cls(service=service, uid=uid_of(service))

    @classmethod
    def inherited(cls, service: V1Service) -> Record:
        """Nothing is known but what the Service shows: another process may have built for it."""
        note = changes.own_note(service)
        # Not by the finalizer: somebody may have removed it, and the targets must follow all the
        # same. Where the Go manager built it, there is an address and no note.
        built = note is not None or changes.ingress(changes.status_of(service))
        found = service if built else None
        annotations = () if note is None else note.annotations
        return cls(service=service, uid=uid_of(service), found=found, annotations=annotations)

    def taking_over(self, shown: V1LoadBalancerStatus | None) -> Record:
        """The record after the cloud said what it has of another process's load balancer (None:
        nothing): one that is there counts as built, so that its targets follow the nodes."""
        if self.found is None:
            return self
        built = self.found if changes.shows_built(self.found, shown) else self.built
        return evolve(self, found=None, built=built)

    @property
    def note(self) -> Note:
        """The note of what the cloud confirmed."""
        return Note(self.uid, self.spec, self.nodes, self.annotations, changes.class_of(self.service))

    @property
    def last_built(self) -> V1Service | None:
        """The Service as it was last built, with the status that this gave it."""
        if self.built is None or self.status is None:
            return self.built
        return changes.with_status(self.built, self.status)

    def former_of(self, service: V1Service) -> V1Service | None:
        """The present Service as it was last built; None where this process does not know."""
        return None if self.former is None else changes.as_built(service, self.former)

    @property
    def last_asked(self) -> V1Service | None:
        """The Service as the cloud was last called for it, whatever came of it. Its status was
        given by what is built."""
        return changes.with_status(self.service, None) if self.asked else None

    @property
    def is_untouched(self) -> bool:
        """Whether this process has neither built nor found anything."""
        return self.state is State.UNSURE and not self.asked

    def after(self, service: V1Service) -> Record:
        """The record after a write that was answered with this Service."""
        return evolve(self, version=version_of(service), written=service)

    def shows_our_write(self, service: V1Service) -> bool:
        """Whether the cache shows our last write, so that what differs was changed by someone
        else."""
        return is_newer(self.version, version_of(service)) is not True

    def is_behind_release(self, service: V1Service) -> bool:
        """Whether the cache does not show yet that our finalizer is off: nothing would hold it."""
        behind = is_newer(version_of(service), self.version) is not True
        return self.state is State.RELEASED and behind and has_load_balancer_finalizer(service)

    @property
    def needs_no_targets(self) -> bool:
        """Whether a change of the nodes changes nothing for it."""
        return self.removing or self.state is State.ELSEWHERE or self.state.deleted

    def pause(self, service: V1Service, scope: Scope | None, fingerprint: str) -> Attempts:
        """What a change of the Service to this fingerprint waits for. Nothing without one; and two
        owners that disagree are something else than what the provider tells of."""
        if self.tried in ("", fingerprint):
            return NO_ATTEMPTS
        told = scope is not None and changes.fingerprint(service, scope) == self.own
        return self.told if told else self.changes

    def asks_again(self, way: str, what: str = "") -> bool:
        """Whether the cloud was asked for the same before, and it is not done."""
        last = self.asked.get(way)
        return last is not None and last.failed and last.what == what

    def asking(self, way: str, now: float, what: str = "") -> Mapping[str, Asked]:
        """`asked`, as the cloud is asked for this now."""
        since = self.asked[way].since if self.asks_again(way, what) else now
        return {**self.asked, way: Asked(what, since)}


@frozen
class Schedule:
    """When a load balancer is looked at, and ensured, unasked (periods in seconds; 0: never)."""

    drift: float
    ensure: float
    chance: Callable[[], float] = random.random

    def next_look(self, now: float, empty: int = 0) -> float:
        """After so many answers without an address: soon, if one may be about to come."""
        return now + EMPTY.delay(empty - 1) if self.is_unfinished(empty) else self._spread(self.drift, now)

    def next_ensure(self, now: float) -> float:
        return self._spread(self.ensure, now)

    def is_unfinished(self, empty: int) -> bool:
        """Whether the cloud answered without an address so lately that one may be about to come."""
        return empty > 0 and EMPTY.delay(empty - 1) < (self.drift or EMPTY_CAP)

    def _spread(self, period: float, now: float) -> float:
        """After half of the period to all of it, so that they do not all come together."""
        return now + period * (0.5 + 0.5 * self.chance()) if period else math.inf


_REWOUND: Final = {State.WRITTEN: State.CONFIRMED, State.RELEASED: State.GONE}


class Records:
    """Records by the Service's key. Thread-safe; the work queue keeps two threads off one key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._rewound: set[str] = set()
        self._again: set[str] = set()
        self._lagging: dict[str, tuple[str, float]] = {}
        """By key: the digest of the targets that it had, and since when it lacks others."""

    def get(self, key: str) -> Record | None:
        """The record of a Service."""
        with self._lock:
            return self._records.get(key)

    def put(self, key: str, record: Record) -> Record:
        """Remember it, and return it."""
        with self._lock:
            self._records[key] = record
        return record

    def put_if_absent(self, key: str, record: Record) -> None:
        """Remember it, unless something is remembered already."""
        with self._lock:
            self._records.setdefault(key, record)

    def rewind(self, key: str) -> None:
        """The API server was restored from a backup: what we wrote counts as not written, from the
        key's next run on. The cloud's word stays."""
        with self._lock:
            if key in self._records:
                self._rewound.add(key)

    def begin(self, key: str, now: float) -> bool:
        """A run of the key begins; returns whether it is to be built or repaired because the
        provider asked for it. A run under way meanwhile would have put its own record over what was
        rewound."""
        with self._lock:
            record = self._records.get(key)
            if key in self._rewound and record is not None:
                state = _REWOUND.get(record.state, record.state)
                record = evolve(record, state=state, version="", written=None)
                self._records[key] = evolve(record, new_status=True, restore_at=0.0)
            self._rewound.discard(key)
            return key in self._again and not self._told_left(key, now)

    def look_again(self, key: str, now: float) -> float:
        """The provider asks for another look at it: seconds until it is to be built or repaired,
        whatever is remembered of it."""
        with self._lock:
            self._again.add(key)
            return self._told_left(key, now)

    def again_due(self, key: str, now: float) -> float:
        """Seconds until it is to be built or repaired because the provider asked for it; inf
        without that."""
        with self._lock:
            return self._told_left(key, now) if key in self._again else math.inf

    def looked_again(self, key: str) -> None:
        """It is about to be; or it needs no load balancer. What the provider asks for from now on
        counts again."""
        with self._lock:
            self._again.discard(key)

    def _told_left(self, key: str, now: float) -> float:
        record = self._records.get(key)
        return 0.0 if record is None else record.told.left(now)

    def drop(self, key: str) -> None:
        """Forget it; does nothing where there is none."""
        with self._lock:
            self._records.pop(key, None)
            self._again.discard(key)

    def outdated(self, targets: Targets, resting: Callable[[str], float]) -> list[str]:
        """The keys of all load balancers whose targets are others than these. What is not built yet
        and failed takes its targets at its own turn: `resting(key)` seconds from now."""
        with self._lock:
            return [
                key
                for key, record in self._records.items()
                if not (
                    targets.cover(record.nodes) or record.needs_no_targets or (record.built is None and resting(key))
                )
            ]

    def lagging(self, targets: Targets, now: float) -> tuple[int, float]:
        """How many load balancers that are there have other targets than these, and since when the
        first of them. `now` counts for those that were not known to lag.

        Each load balancer that got targets since counts from the change after that."""
        with self._lock:
            former, self._lagging = self._lagging, {}
            for key, record in self._records.items():
                there = record.built is not None or record.found is not None
                if there and not (record.needs_no_targets or targets.cover(record.nodes)):
                    digest, since = former.get(key, (record.nodes, now))
                    # "" is no success: what it has is unsure since a call that failed.
                    served = record.nodes not in ("", digest)
                    self._lagging[key] = (record.nodes, now) if served else (digest, since)
            return len(self._lagging), min([since for _, since in self._lagging.values()], default=now)

    def vanished(self, services: Lister[V1Service]) -> list[str]:
        """The keys of load balancers that may be in the cloud, and whose Service is gone."""
        with self._lock:
            records = [(key, record) for key, record in self._records.items() if not record.state.deleted]
        return [
            key for key, record in records if (service := services.get(key)) is None or uid_of(service) != record.uid
        ]

    def __contains__(self, key: str) -> bool:
        with self._lock:
            return key in self._records

    def __len__(self) -> int:
        with self._lock:
            return sum(not record.state.deleted for record in self._records.values())
