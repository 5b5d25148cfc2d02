"""The election of a leader: one candidate for one Lease, from its first look to the release.

Data comes from the Lease (`leases.py`, `watching.py`); what is decided goes to the fence, which
every write asks (`fence.py`), and to the caller that started the elector. Follows client-go's
tools/leaderelection, and differs where it helps: candidates watch, expiry and fence are read off a
clock that counts suspended time, and a deleted Lease is left to its leader as long as promised."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Final

from controllers.runtime.api import AlreadyExists, ApiError, Conflict, NotFound, RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, ClockEvent, wait_for
from controllers.runtime.election.fence import Fence
from controllers.runtime.election.leases import LeaseAPI
from controllers.runtime.election.record import Lease, Observation, Record, acquired, read, renewed, stranger
from controllers.runtime.election.settings import JITTER, Callbacks, LeaseSettings
from controllers.runtime.election.watching import LeaseWatch
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

STUCK_SECONDS: Final = 20.0
"""How long a leader whose lease has run out may be seen as such until `health` complains: by then
it should be gone."""
_LOOK: Final = 1.0  # seconds between two looks whether the lease has run out
_RACES: Final = 3  # lost in a row until a candidate waits its turn again


class _Taken(Exception):
    """The Lease is in another's hands."""


class Elector:
    """One candidate for one Lease. To be started once; every method may be called from any thread.

    After the lease is lost or released the elector has ended for good.

    Metrics: leader_election_master_status{name}, leader_election_slowpath_total{name}.
    """

    def __init__(
        self,
        rest: RestClient,
        settings: LeaseSettings,
        callbacks: Callbacks | None = None,
        *,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`rest` must be unguarded, with its own connections. `chance` gives numbers in [0, 1)."""
        self.settings = settings
        self.fence = Fence(settings.lease, clock)
        self._api = LeaseAPI(rest, settings)
        self._callbacks = callbacks or Callbacks()
        self._clock = clock
        self._chance = chance
        self._news = threading.Condition(threading.Lock())
        self._observed = Observation(settings)
        self._current = False  # whether the Lease is, as far as we know, as it was last seen
        self._has_news = False  # from the watch
        self._stranger = ""  # how another leader differs from us
        self._stopping = False
        self._keeps = ""  # why the lease is not released when it stops
        self._leading = False
        self._lost = ""
        self._held = Record()  # as leader: what we last put into the Lease
        self._renewed_at = 0.0  # as leader: the start of the last renewal that succeeded
        self._error: Exception | None = None  # why the last try failed
        self._races = 0
        self._watch = LeaseWatch(
            self._api, settings, see=self._see_and_wake, changed=self._wake, pause=self._jittered, clock=clock
        )
        self._telling = threading.Lock()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)
        self._watchdog = threading.Thread(target=self._watch_over, name="leader-election-watchdog", daemon=True)
        metrics = metrics or Metrics()
        self._master = metrics.gauge(
            "leader_election_master_status",
            "Whether this process is the leader of the lease of that name (1) or a candidate (0).",
            ("name",),
        ).labels(name=settings.name)
        self._master.set(0)
        self._slow = metrics.counter(
            "leader_election_slowpath_total",
            "Renewals for which the Lease had to be read again, because somebody else had written to it.",
            ("name",),
        ).labels(name=settings.name)

    # ---- for everybody

    def start(self) -> None:
        """Begin as a candidate."""
        self._thread.start()
        self._watchdog.start()

    def stop(self, unfinished: str = "") -> None:
        """Give up the candidacy, or the lease: the fence closes, the lease goes. Does not block.

        To be called when all work that needs the lease has ended. Where some has not, `unfinished`
        names it: then the lease is left to expire, so that no other begins while that work may
        still change something."""
        with self._news:
            self._keeps = unfinished
            self._stopping = True
            self._news.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait until it has ended after `stop`; False when `seconds` were too short."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def leading(self) -> bool:
        """Whether this process leads. The fence knows better whether it still does."""
        return self._leading

    @property
    def lost(self) -> str:
        """Why the lease was lost; "" while it was not. Also when the elector hangs."""
        # The elector's thread may hang in a request; the fence knows all the same.
        if not self._lost and self._leading and not self._stopping and not self.fence.held():
            return self._not_renewed()
        return self._lost

    @property
    def waits_for(self) -> str:
        """The identity of another that leads; "" where there is none, or nothing is known yet."""
        holder = "" if self._leading else self._observed.holder
        return "" if holder == self.settings.identity else holder

    @property
    def uid(self) -> str:
        """The Lease's UID, "" while it is not known."""
        metadata = (self._observed.lease or {}).get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        return uid if isinstance(uid, str) else ""

    def problem(self) -> str:
        """What is wrong, for a health check; "" while all is well.

        A leader is well until its last renewal is 20 seconds older than the lease lasts, as in Go:
        by then it should have ended. A standby is, unless the leader serves something else: then it
        may wait for ever.
        """
        if self._stranger and not self._leading:
            return self._stranger
        overdue = self._clock.boottime() - self._renewed_at - self.settings.lease_duration
        if self._leading and overdue > STUCK_SECONDS:
            return f"failed election to renew leadership on lease {self.settings.name}"
        return ""

    # ---- the thread

    def _run(self) -> None:
        try:
            log.info("attempting to acquire leader lease %s as %s...", self.settings.lease, self.settings.identity)
            while (pause := self.step()) is not None:
                with self._news:
                    wait_for(self._clock, self._news, self._is_due, pause)
        except Exception:
            log.exception("the election for %s failed; this is a bug", self.settings.lease)
            self._lose("the election itself failed, see the log")
        finally:
            self._watch.stop()

    def _watch_over(self) -> None:
        """The watchdog: tell that the lease has run out where the elector hangs and does not."""
        ask = ClockEvent(self._clock)
        while self._thread.is_alive():
            if reason := self.lost:
                self.tell_lost(reason)
                self._lost = self._lost or reason
                self._wake()
                return
            ask.wait(min(_LOOK, max(0.05, self.fence.left())))

    def tell_lost(self, reason: str) -> None:
        """Close the fence and see that `on_lost` is called, once. Returns when it has: where it
        ends the process, nobody else acts on the loss before, and wakes a call under way, say."""
        self.fence.revoke(reason)
        with self._telling:
            if not self._told:
                self._told = True
                self._callbacks.on_lost(reason)

    def _is_due(self) -> bool:
        return self._stopping or bool(self._lost) or (self._has_news and not self._leading)

    def step(self) -> float | None:
        """Do what is due now; returns the seconds until more is due, None at the end. For the
        elector's own thread."""
        self._has_news = False
        if self._lost:
            if self._leading:
                self._lose(self._lost)  # the watchdog was first
            return None
        if not self._stopping:
            return self._lead() if self._leading else self._stand()
        if self._leading and not self.fence.held():
            self._lose(self._not_renewed())  # another thread noticed first; a lease that may be lost is not released
        elif self._leading:
            self._release()
        return None

    # ---- as a candidate

    def _stand(self) -> float:
        try:
            if not (self._current and self._watch.live):
                self._see(self._api.read())
            wait = self._take_if_free()
        except (Conflict, AlreadyExists):
            self._races += 1
            self._current = False  # another candidate was faster, or a label changed: look again, at once
            return 0.0 if self._races < _RACES else self._jittered()
        except ApiError as error:
            self._current = False
            self._complain("failed to acquire lease", error)
            return self._jittered()
        self._error = None
        return wait

    def _take_if_free(self) -> float:
        with self._news:
            observed = self._observed
            lease, record, left = observed.lease, observed.record, observed.free_at() - self._clock.boottime()
        # Its record must stand unchanged, by our own clock, for as long as its holder asked for.
        if left > 0:
            self._watch.start()
            self._races = 0
            # A watch that works tells of a release; without it we look once a retry period.
            return left if self._watch.live else min(left, self._jittered())
        began = self._clock.boottime()
        # Replaced only as last seen: its resourceVersion makes two leaders impossible.
        new = acquired(lease, self.settings, self._clock.time(), record)
        self._hold(self._api.create(new) if lease is None else self._api.replace(new), began)
        return self._begin(record)

    def _begin(self, before: Record | None) -> float:
        if not self.fence.held():
            return 0.0  # the answer took longer than the lease: once more
        self._watch.stop()
        self._leading = True
        self._error = None
        self._master.set(1)
        late = before is not None and before.holder not in ("", self.settings.identity)
        why = f", which {before.holder} did not renew" if before is not None and late else ""
        log.info("successfully acquired lease %s%s", self.settings.lease, why)
        self._callbacks.event("became leader")
        self._callbacks.on_leading()
        return self.settings.retry_period

    def _see(self, lease: Lease | None) -> None:
        """The Lease as the API server has it."""
        now = self._clock.boottime()
        with self._news:
            if self._leading:
                return  # a late word of the watch
            before = self._observed.holder
            self._observed.see(lease, now)
            self._current = True
            holder = self._observed.holder
            former, found = self._stranger, stranger(lease, self.settings)
            self._stranger = found
        if holder and holder not in (before, self.settings.identity):
            log.info("the leader of %s is %s; this process stands by", self.settings.lease, holder)
        if found and found != former:
            log.warning("%s", found)
            self._callbacks.on_stranger(found)

    def _see_and_wake(self, lease: Lease | None) -> None:
        self._see(lease)
        self._wake()

    def _wake(self) -> None:
        with self._news:
            self._has_news = True
            self._news.notify_all()

    # ---- as the leader

    def _lead(self) -> float | None:
        settings = self.settings
        now = self._clock.boottime()
        until = self._renewed_at + settings.renew_within
        if now >= until:
            why = f": {self._error}" if self._error is not None else ""
            self._lose(f"the lease {settings.lease} was not renewed for {now - self._renewed_at:.1f} s{why}")
            return None
        try:
            self._renew(until)
        except _Taken as taken:
            self._lose(str(taken))
            return None
        except ApiError as error:
            self._complain("failed to renew lease", error)
        else:
            if self._error is not None:
                log.info("the lease %s is renewed again", settings.lease)
            self._error = None
        next_at = min(now + settings.retry_period, self._renewed_at + settings.renew_within)
        return max(0.0, next_at - self._clock.boottime())

    def _renew(self, until: float) -> None:
        """Renew by `until`. The Lease is put back as it was last seen; where it has changed since,
        or where the last try failed and may have been applied all the same, it is read first."""
        lease = self._observed.lease
        # After a failed try the Lease may be ours at a newer version: it is read first.
        if lease is not None and self._error is None:
            try:
                self._put(lease, until)
                return
            except (Conflict, NotFound) as conflict:
                log.debug("the lease %s has changed, reading it: %s", self.settings.lease, conflict)
        # Somebody has written to it, or our last try has failed and may have been applied.
        self._slow.inc()
        lease = self._api.read(self._left(until))
        if lease is None:
            log.warning("the lease %s was deleted while this process leads; creating it again", self.settings.lease)
        # Deleted is not lost: what was promised to us still holds, so it is created again.
        elif (holder := read(lease).holder) not in ("", self.settings.identity):
            raise _Taken(f"{holder} has taken the lease {self.settings.lease}")
        self._put(lease, until)

    def _put(self, lease: Lease | None, until: float) -> None:
        began, now = self._clock.boottime(), self._clock.time()
        if lease is None:
            new = acquired(None, self.settings, now, self._held)
            self._hold(self._api.create(new, self._left(until)), began)
        else:
            self._hold(self._api.replace(renewed(lease, self.settings, self._held, now), self._left(until)), began)

    def _left(self, until: float) -> float:
        return until - self._clock.boottime()

    def _hold(self, lease: Lease, began: float) -> None:
        """The API server has put us into the Lease, by a request that began then."""
        with self._news:
            self._observed.see(lease, began)
            self._current = True
        self._held = read(lease)
        self._renewed_at = began
        # From the start of the request: that moment is certain, the server's is not.
        self.fence.extend(began + self.settings.held_for)

    def _lose(self, reason: str) -> None:
        was_leading, self._leading, self._lost = self._leading, False, reason
        self.tell_lost(reason)  # first: who reads the log may hang, and the next leader does not wait
        self._master.set(0)
        log.critical("leaderelection lost: %s", reason)
        if was_leading:
            self._callbacks.event("stopped leading")

    def _release(self) -> None:
        """Give the lease up, so that another can take it at once. What fails here costs others the
        lease's duration."""
        settings = self.settings
        self.fence.revoke("this process is ending" if self._keeps else "it was released")
        self._leading = False
        self._master.set(0)
        # A call to the cloud may still change something: the next leader must not begin before.
        if self._keeps:
            log.warning(
                "the lease %s is not released, others take over in %d s: %s",
                settings.lease, settings.whole_seconds, self._keeps,
            )  # fmt: skip
            self._callbacks.event("stopped leading")
            return
        until = self._clock.boottime() + settings.renew_deadline
        try:
            if self._api.release(self._observed.lease, self._clock.time(), lambda: self._left(until)):
                log.info("released the lease %s", settings.lease)
        except ApiError as error:
            log.warning(
                "the lease %s could not be released, others take over in %d s: %s",
                settings.lease, settings.whole_seconds, error,
            )  # fmt: skip
        self._callbacks.event("stopped leading")

    # ---- both

    def _not_renewed(self) -> str:
        return f"the lease {self.settings.lease} was not renewed in time"

    def _jittered(self) -> float:
        return self.settings.retry_period * (1 + JITTER * self._chance())

    def _complain(self, what: str, error: ApiError) -> None:
        """A warning for the first failure in a row, and for each of another kind."""
        again = self._error is not None and type(error) is type(self._error)
        log.log(logging.DEBUG if again else logging.WARNING, "%s %s, retrying: %s", what, self.settings.lease, error)
        self._error = error
