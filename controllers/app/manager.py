"""The manager: starts a provider and its controllers over shared clients and caches, and stops them in order.

Stage: around all of them. Data comes from `flags/parse.py` (checked options) and the registry (a provider). Every
replica builds clients and informers, whose caches fill, and becomes a candidate for the lease
(`leading/leadership.py`). The one that leads goes on: provider -> gateway -> controllers. It stops when its stop signal
is set: what is under way is drained, then the lease is released. It raises when a part dies that must not, and without
draining when the lease is lost. It installs no signal handlers and never ends the process: `process.py` does.

Order and checks follow k8s.io/cloud-provider app/controllermanager.go (Run, startControllers) and sample/basic_main.go
(the cluster-ID check), with two differences: a controller that cannot run stops the start instead of being skipped, and
the manager waits for an API server that does not answer yet, saying so, instead of ending after ten seconds.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Sequence

import attrs

from cloudprovider import CloudConfig, Interface, StopSignal
from controllers.app.apiserver import ServerCheck, advice
from controllers.app.catalog import CATALOG
from controllers.app.entry import Context, ControllerEntry, Rule, enabled
from controllers.app.flags.effective import configz, flagz
from controllers.app.groups import Groups, Part
from controllers.app.leading.leadership import LISTEN, Leadership, lease_lost
from controllers.app.leading.migration import LeaderMigration, MigrationProblems, Shares, share
from controllers.app.leading.migration import read as read_migration
from controllers.app.leading.moving import Moving
from controllers.app.options import Options, split_address
from controllers.app.permissions.accounts import asked_rights
from controllers.app.permissions.check import AccessCheck
from controllers.app.permissions.own import election_rules, migration_rules
from controllers.app.runner import ControllerRunner, Ending, construct
from controllers.app.serving import Health, HealthMetrics, Serving, ServingError, ServingOptions
from controllers.app.startup import ManagerError, ProviderHost
from controllers.cloudcalls import CloudCallOptions
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, ClockEvent
from controllers.runtime.election import LeaseLost
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_IDENTITY = "shared-informers"
_LOOK = 1.0  # seconds between two looks at what ends the process
_LOOK_MOVING = 0.25  # the same while controllers wait for the second lease of a leader migration
_FRESH = 2.0  # seconds after which a candidate that knows of no leader does what a standby does
_SLICE = 0.25  # seconds between two looks whether there is still a reason to wait for a thread
_TELL = 5.0  # seconds between two lines about what is waited for
_AFTER_DRAIN = 3.0  # seconds of the drain kept for what follows the controllers' own: last Events, informers


class Manager:
    """One run of one provider's controllers.

    `options` are checked already; `config` is what the provider was made from: its secrets are concealed wherever text
    leaves the process. Raises ManagerError when an option names no controller. `run` may be called once; the other
    methods from any thread. `on_lost(failure)` is called as soon as a lease is lost, perhaps twice.
    """

    def __init__(
        self,
        options: Options,
        provider: Interface,
        clients: ClientBuilder,
        *,
        config: CloudConfig | None = None,
        catalog: Sequence[ControllerEntry] = CATALOG,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        on_lost: Callable[[ManagerError], None] = lambda _failure: None,
    ) -> None:
        self._on_lost = on_lost
        self._options = options
        self._provider = provider
        self._clients = clients
        clients.guard = self._may_write
        self._config = config
        self._catalog = catalog
        self._entries = enabled(options.manager.controllers, catalog)
        if not self._entries:
            raise ManagerError("no controller is left to run: see --controllers")
        self.metrics = Metrics() if metrics is None else metrics
        self._clock = clock
        self._drain = options.manager.shutdown_drain_timeout
        self._groups = Groups(clock)
        self._failure: ManagerError | None = None
        self._leadership: Leadership | None = None
        self._lost = False
        self._migration, self._shares = self._planned()
        self._moving: Moving | None = None
        self._host: ProviderHost | None = None
        self.health = Health(clock, HealthMetrics(self.metrics).observe)
        self._runner = ControllerRunner(
            self.health,
            self.metrics,
            clock,
            interval=options.manager.controller_start_interval,
            started=self._started,
            failed=self._failed,
        )
        self.address: tuple[str, int] | None = None
        """Where health and metrics are served over plain HTTP, once they are."""
        self.secure_address: tuple[str, int] | None = None
        """Where HTTPS is served, once it is."""

    def run(self, stop: StopSignal) -> None:
        """Start everything, work until `stop` is set, drain and return. Blocks.

        Raises ManagerError, after stopping what was started, when a part cannot start or ends before `stop`, and
        without draining when the lease is lost.
        """
        ending = Ending(stop, lambda: self._failure is not None)
        try:
            if self._start(ending):
                self._watch(ending)
        finally:
            self._stop()
        if self._failure is not None:
            raise self._failure

    def release_held(self) -> int:
        """Let the controllers do what they hold back now, as an operator asks; returns how many objects that are."""
        if not self._runner.holds_back:
            leader = self._leadership.leader if self._leadership is not None else ""
            log.warning(
                "SIGUSR1: no controller of this process holds back deletions; send the signal to the leader%s",
                f", {leader}" if leader else "",
            )
        return self._runner.release_held()

    def abandon(self, reason: str) -> None:
        """End without draining, the lease being lost, or a test's kill: no change leaves any more. From any thread."""
        self._lost = True
        if self._leadership is not None:
            self._leadership.fence.revoke(reason)
        failure = lease_lost(reason)
        self._failure = self._failure or failure
        self._on_lost(failure)
        if self._host is not None:
            self._host.cancel()

    def _start(self, ending: StopSignal) -> bool:
        """True when everything runs; False when it was time to end before that."""
        self._in_background("serving", "health watch", self.health.run)
        self._serve()
        informers = self._informers()
        access = self._access_check()
        self._begin_election()
        if not self._elected(informers, access, ending):
            return False
        host = self._host = self._provider_host()
        if not host.initialize(self._clients, informers, ending):
            return False
        context = Context(
            options=self._options,
            clients=self._clients,
            informers=informers,
            cloud=host.cloud,
            metrics=self.metrics,
            clock=self._clock,
            drain=max(0.0, self._drain - _AFTER_DRAIN),
        )
        for entry, component in self._shares.elsewhere:
            log.info("%s is left to %s, as the leader migration says", entry.name, component)
        own = [*self._shares.main, *self._shares.migrated]
        built = construct(own, context)
        access.ask_about(self._rules([entry for entry, _ in built]))
        informers.start()
        informers.drop_unclaimed()
        if not self._synced(informers, ending):
            return False
        moving = [one for one in built if one[0] in self._shares.migrated]
        built = [one for one in built if one not in moving]
        if not self._runner.start(built, ending):
            return False
        names = ", ".join(entry.name for entry, _ in built) or "no controller"
        given = self._options.manager
        log.info("running: %s, for cluster %s with provider %s", names, given.cluster_name, given.cloud_provider)
        self.health.ready()
        if self._moving is not None and (second := self._moving.begin(moving, self._unfinished)) is not None:
            self.health.watch_notes(second.checks)
        return True

    def _planned(self) -> tuple[LeaderMigration | None, Shares]:
        options = self._options.manager.leader_migration
        try:
            migration = read_migration(options.config) if options.enabled else None
        except MigrationProblems as error:
            raise ManagerError(f"--leader-migration-config={options.config}: {error}") from error
        return migration, share(self._entries, migration)

    def _candidate(self, first: Leadership, lease: str) -> Leadership:
        """For the second lease of a leader migration, under the same identity."""
        return Leadership(
            attrs.evolve(first.settings, name=lease),
            self._clients,
            on_lost=self.abandon,
            metrics=self.metrics,
            check="leaderMigration",
            clock=self._clock,
        )

    def _may_write(self, *_about: str) -> None:
        """The guard of all clients and cloud calls. Raises LeaseLost."""
        if self._leadership is not None:
            self._leadership.fence.check()
        elif self._lost:
            raise LeaseLost("not sent: this manager has ended without draining")
        if self._moving is not None:
            self._moving.check()

    def _unfinished(self) -> str:
        return self._host.unfinished() if self._host is not None else ""

    def _begin_election(self) -> None:
        options = self._options.manager.leader_election
        if not options.leader_elect:
            return
        leadership = self._leadership = Leadership(
            options.settings(), self._clients, on_lost=self.abandon, metrics=self.metrics, clock=self._clock
        )
        self.health.watch_notes(leadership.checks)
        for part in leadership.start(self._unfinished):
            self._groups.add("leader election", part)
        if (migration := self._migration) is not None:
            self._moving = Moving(migration.lease, lambda: self._candidate(leadership, migration.lease), self._clock)
            self._groups.add("leader election", self._moving.part)

    def _elected(self, informers: InformerFactory, access: AccessCheck, ending: StopSignal) -> bool:
        """Wait until this process leads; False when it is time to end before that."""
        leadership = self._leadership
        if leadership is None:
            return not ending.is_set()
        began = told = self._clock.monotonic()
        stands_by = False
        while not leadership.leading:
            if ending.wait(LISTEN):
                return False
            if not leadership.leader and self._clock.monotonic() - began < _FRESH:
                continue
            if not stands_by:
                stands_by = True
                access.ask_about(self._rules(self._entries))
                self._prepare()
            if informers.has_synced():
                self.health.standing_by()
            elif self._clock.monotonic() - told >= _TELL:
                told = self._clock.monotonic()
                self._tell_unsynced(told - began)
        return True

    def _prepare(self) -> None:
        """What a takeover should not have to wait for."""
        for entry in self._entries:
            if entry.module:
                importlib.import_module(entry.module)

    def _serve(self) -> None:
        wanted = self._options.manager.health_bind_address
        try:
            serving = Serving(
                self._options.of(ServingOptions),
                self.health,
                self.metrics,
                self._clients,
                plain=split_address(wanted) if wanted else None,
                configz=lambda: configz(self._options, self._catalog),
                flagz=lambda: flagz(self._options),
                clock=self._clock,
            )
            serving.start()
        except ServingError as error:
            raise ManagerError(str(error)) from error
        self.address, self.secure_address = serving.plain_address, serving.secure_address
        self._groups.add("serving", Part("HTTP servers", serving.stop))
        self._in_background("serving", "certificates", serving.run)

    def _informers(self) -> InformerFactory:
        informers = InformerFactory(self._clients.rest(_IDENTITY), metrics=self.metrics, clock=self._clock)
        self._groups.add("clients", Part("clients", lambda _seconds: True, self._clients.close))
        self.health.watch_informers(informers)
        server = ServerCheck(self._clients.rest(_IDENTITY), clock=self._clock)
        self._in_background("clients", "API server check", server.run)
        self.health.watch_notes(server.checks)
        self._groups.add("informers", Part("informers", informers.stop))
        for entry in self._entries:
            for resource in entry.informers():
                informers.warm(resource)
        return informers

    def _access_check(self) -> AccessCheck:
        """In the background: what is missing is told, and nothing waits for the answer."""
        rest = self._clients.rest(_IDENTITY, guarded=False)
        check = AccessCheck(
            rest,
            accounts=lambda name: self._clients.rest(name, guarded=False),
            forbidden=lambda: rest.reachability.forbidden,
            clock=self._clock,
        )
        self._in_background("access check", "access check", check.run)
        self.health.watch_notes(check.checks)
        return check

    def _rules(self, entries: Sequence[ControllerEntry]) -> list[Rule]:
        own = election_rules(self._options.manager.leader_election)
        if self._migration is not None and self._shares.migrated:
            own = (*own, *migration_rules(self._options.manager.leader_election, self._migration.lease))
        if self._options.manager.use_service_account_credentials:
            return [*own, *asked_rights(entries)]
        return [*own, *(rule for entry in entries for rule in entry.rules)]

    def _in_background(self, group: str, name: str, run: Callable[[StopSignal], None]) -> None:
        """Run this in a thread of its own until the group is stopped."""
        ask = ClockEvent(self._clock)
        thread = threading.Thread(target=run, args=(ask,), name=name.replace(" ", "-"), daemon=True)
        thread.start()
        self._groups.add(group, Part(name, self._joined(thread), ask.set))

    def _provider_host(self) -> ProviderHost:
        host = ProviderHost(
            self._provider,
            self._config,
            options=self._options.of(CloudCallOptions),
            allow_untagged_cloud=self._options.manager.allow_untagged_cloud,
            metrics=self.metrics,
            clock=self._clock,
            guard=self._may_write,
        )
        self._groups.add("cloud calls", Part("cloud calls", host.close, host.cancel))
        self._groups.add(
            "provider", Part(f"provider {host.cloud.provider_name}", lambda _seconds: True, host.ask_to_stop)
        )
        self.health.watch_cloud(host.cloud)
        return host

    def _synced(self, informers: InformerFactory, stop: StopSignal) -> bool:
        began = self._clock.monotonic()
        while not informers.wait_for_sync(stop, _TELL):
            if stop.is_set():
                return False
            self._tell_unsynced(self._clock.monotonic() - began)
        return True

    def _tell_unsynced(self, waited: float) -> None:
        tip = advice(self._clients.rest(_IDENTITY), self._clients.server)
        log.warning("waiting %.0f s for the API server's first answer: %s%s", waited, self.health.unsynced(), tip)

    def _started(self, name: str, thread: threading.Thread, ask: Callable[[], None]) -> None:
        self._groups.add("controllers", Part(name, self._joined(thread), ask))

    def _failed(self, failure: ManagerError, cause: BaseException | None) -> None:
        failure.__cause__ = cause
        log.critical("%s; stopping everything else", failure, exc_info=cause)  # at once: draining takes its time
        if self._failure is None:
            self._failure = failure

    def _watch(self, ending: StopSignal) -> None:
        """Return when it is time to end, or something is beyond help."""
        moving = self._moving
        while not ending.wait(_LOOK_MOVING if moving and moving.waits else _LOOK):
            if moving is not None and not self._runner.start(moving.take(), ending):
                return
            if fatal := self.health.fatal():
                self._failed(ManagerError(f"{fatal}; only a restart frees them"), None)
            for one in (self._leadership, moving):
                if one is not None and one.lost:  # perhaps the elector itself hangs
                    self.abandon(one.lost)

    def _stop(self) -> None:
        self.health.stopping()
        self._clients.hurry()
        began = self._clock.monotonic()
        left = [*self._groups.stop(0.0 if self._lost else self._drain)]
        left += [f"a call for {key}" for key in self.health.overdue()]
        took = self._clock.monotonic() - began
        if self._lost:
            return
        if left:
            log.warning("drained for %.1f s; work that has not ended: %s", took, ", ".join(left))
        else:
            log.info("drained in %.1f s, nothing left behind", took)

    def _joined(self, thread: threading.Thread) -> Callable[[float], bool]:
        """Waits for a thread, but for none once the lease is lost: nothing that it does would count."""

        def wait(seconds: float) -> bool:
            until = self._clock.monotonic() + seconds
            while not self._lost and (left := until - self._clock.monotonic()) > 0:
                thread.join(min(left, _SLICE))
                if not thread.is_alive():
                    return True
            return not thread.is_alive()

        return wait
