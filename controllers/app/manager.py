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
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from cloudprovider import CloudConfig, Interface, StopSignal
from controllers.app.catalog import CATALOG, WEBHOOKS
from controllers.app.entry import Context, ControllerEntry, Rule, enabled
from controllers.app.foundation import TELL, Foundation
from controllers.app.leading.leadership import LISTEN, Leadership, lease_lost
from controllers.app.leading.migration import LeaderMigration, MigrationProblems, Shares, share
from controllers.app.leading.migration import read as read_migration
from controllers.app.leading.moving import Moving
from controllers.app.options import Options
from controllers.app.permissions.accounts import asked_rights
from controllers.app.permissions.check import AccessCheck
from controllers.app.permissions.own import election_rules, migration_rules
from controllers.app.runner import ControllerRunner, Ending, construct
from controllers.app.serving import Health, HealthMetrics
from controllers.app.startup import ManagerError, ProviderHost
from controllers.app.webhooks.entry import WebhookEntry
from controllers.app.webhooks.entry import enabled as enabled_webhooks
from controllers.app.webhooks.options import WebhookOptions
from controllers.app.webhooks.rights import WEBHOOK_RULES
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.election import LeaseLost
from controllers.runtime.metrics import Metrics

if TYPE_CHECKING:
    from controllers.app.dryrun.mode import DryRun, Outcome

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks at what ends the process
_LOOK_MOVING = 0.25  # the same while controllers wait for the second lease of a leader migration
_FRESH = 2.0  # seconds after which a candidate that knows of no leader does what a standby does
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
        webhooks: Sequence[WebhookEntry] = WEBHOOKS,
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
        given = options.of(WebhookOptions)
        serves = given.secure_port and not options.manager.dry_run.enabled
        self._webhooks = enabled_webhooks(given.webhooks, webhooks) if serves else []
        self.metrics = Metrics() if metrics is None else metrics
        self._clock = clock
        self._drain = options.manager.shutdown_drain_timeout
        self._failure: ManagerError | None = None
        self._leadership: Leadership | None = None
        self._lost = False
        self._migration, self._shares = self._planned()
        self._moving: Moving | None = None
        self._dry_run = self._rehearsal() if options.manager.dry_run.enabled else None
        self._host: ProviderHost | None = None
        self._context: Context | None = None
        self.health = Health(clock, HealthMetrics(self.metrics).observe)
        self._base = Foundation(
            options, clients, health=self.health, metrics=self.metrics, clock=clock, abandoned=lambda: self._lost
        )
        self._runner = ControllerRunner(
            self.health,
            self.metrics,
            clock,
            interval=0.0 if options.manager.dry_run.enabled else options.manager.controller_start_interval,
            started=partial(self._base.add_thread, "controllers"),
            failed=self._failed,
        )
        self.address: tuple[str, int] | None = None
        """Where health and metrics are served over plain HTTP, once they are."""
        self.secure_address: tuple[str, int] | None = None
        """Where HTTPS is served, once it is."""
        self.webhook_address: tuple[str, int] | None = None
        """Where webhooks are served, once they are."""

    def run(self, stop: StopSignal) -> Outcome | None:
        """Start everything, work until `stop` is set, drain and return. Blocks.

        With --dry-run it returns by itself, with what would be done. Raises ManagerError, after stopping what was
        started, when a part cannot start or ends before `stop`, and without draining when the lease is lost.
        """
        ending = Ending(stop, lambda: self._failure is not None)
        outcome = None
        try:
            if self._dry_run is not None:
                outcome = self._rehearse(self._dry_run, ending)
            elif self._start(ending):
                self._watch(ending)
        finally:
            self._stop()
        if self._failure is not None:
            raise self._failure
        return outcome

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
        base = self._base
        base.in_background("serving", "health watch", self.health.run)
        dry_run = self._dry_run
        if dry_run is None:
            serving = base.serve(self._catalog)
            self.address, self.secure_address = serving.plain_address, serving.secure_address
        informers = base.informers(self._entries, once=dry_run is not None)
        access = base.access_check()
        if dry_run is None:
            self._begin_election()
        if self._webhooks and not self._serve_webhooks(informers, ending):
            return False
        if not self._elected(informers, access, ending):
            return False
        context = self._context or self._initialized(informers, ending)
        if context is None:
            return False
        for entry, component in self._shares.elsewhere:
            log.info("%s is left to %s, as the leader migration says", entry.name, component)
        own = [*self._shares.main, *self._shares.migrated]
        built = construct(own, context)
        access.ask_about(self._rules([entry for entry, _ in built]))
        informers.start()
        informers.drop_unclaimed()
        if not base.synced(informers, ending):
            return False
        if dry_run is not None:
            return self._runner.start(dry_run.watch(context, access, self._runner, built), ending)
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

    def _serve_webhooks(self, informers: InformerFactory, ending: StopSignal) -> bool:
        """On every replica, before it leads: webhooks ask the provider, which may only read until then."""
        context = self._initialized(informers, ending)
        if context is None:
            return False
        informers.start()  # those that the provider asked for
        self._base.webhooks(self._webhooks, context, leads=self._leads)
        self.webhook_address = self._base.webhook_address
        return True

    def _initialized(self, informers: InformerFactory, ending: StopSignal) -> Context | None:
        """What everything is built from, once the provider is initialised; None when it was time to end before that."""
        stand_in = None if self._dry_run is None else self._dry_run.cloud
        host = self._host = self._base.provider_host(
            self._provider, self._config, guard=self._may_write, stand_in=stand_in
        )
        if not host.initialize(self._clients, informers, ending):
            return None
        self._context = Context(
            options=self._options,
            clients=self._clients,
            informers=informers,
            cloud=host.cloud,
            metrics=self.metrics,
            clock=self._clock,
            drain=max(0.0, self._drain - _AFTER_DRAIN),
        )
        return self._context

    def _leads(self) -> bool:
        return self._leadership is None or self._leadership.leading

    def _rehearsal(self) -> DryRun:
        from controllers.app.dryrun.mode import DryRun

        return DryRun(self._clients, self._provider, self._entries, self._clock)

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

    def _may_write(self, *about: str) -> None:
        """The guard of all clients and cloud calls. Raises LeaseLost, or NotSent in a dry run."""
        if self._dry_run is not None:
            self._dry_run.refuse(*about)
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
            self._base.groups.add("leader election", part)
        if (migration := self._migration) is not None:
            self._moving = Moving(migration.lease, lambda: self._candidate(leadership, migration.lease), self._clock)
            self._base.groups.add("leader election", self._moving.part)

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
            elif self._clock.monotonic() - told >= TELL:
                told = self._clock.monotonic()
                self._base.tell_unsynced(told - began)
        return True

    def _prepare(self) -> None:
        """What a takeover should not have to wait for."""
        for entry in self._entries:
            if entry.module:
                importlib.import_module(entry.module)

    def _rules(self, entries: Sequence[ControllerEntry]) -> list[Rule]:
        if self._dry_run is not None:
            return [rule for entry in entries for rule in entry.rules]
        own = election_rules(self._options.manager.leader_election)
        if self._migration is not None and self._shares.migrated:
            own = (*own, *migration_rules(self._options.manager.leader_election, self._migration.lease))
        if self._webhooks and not self._options.of(WebhookOptions).tls_cert_file:
            own = (*own, *WEBHOOK_RULES)
        if self._options.manager.use_service_account_credentials:
            return [*own, *asked_rights(entries)]
        return [*own, *(rule for entry in entries for rule in entry.rules)]

    def _failed(self, failure: ManagerError, cause: BaseException | None) -> None:
        failure.__cause__ = cause
        log.critical("%s; stopping everything else", failure, exc_info=cause)  # at once: draining takes its time
        if self._failure is None:
            self._failure = failure

    def _rehearse(self, dry_run: DryRun, ending: StopSignal) -> Outcome | None:
        """What would be done; None when it was time to end before anything was known. Raises ManagerError when the
        time is over before the controllers run."""
        given = self._options.manager
        until = self._clock.monotonic() + given.dry_run.timeout
        over = Ending(ending, lambda: self._clock.monotonic() >= until)
        if not self._start(over):
            if over.is_set() and not ending.is_set():
                raise ManagerError(
                    f"nothing can be planned: after {given.dry_run.timeout:g} s (--dry-run-timeout) the controllers do "
                    f"not run yet. Waiting for: {self.health.unsynced()}"
                )
            return None
        left = dry_run.wait(ending, until)
        self._drain = 0.0  # what still goes on is nobody's loss
        return dry_run.outcome(left, given.cloud_provider, given.cluster_name)

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
        left = [*self._base.groups.stop(0.0 if self._lost else self._drain)]
        left += [f"a call for {key}" for key in self.health.overdue()]
        took = self._clock.monotonic() - began
        if self._lost:
            return
        if left:
            log.warning("drained for %.1f s; work that has not ended: %s", took, ", ".join(left))
        else:
            log.info("drained in %.1f s, nothing left behind", took)
