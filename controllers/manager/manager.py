"""The manager: starts a provider and its controllers over shared clients and caches, in order.

Every replica builds clients and informers, whose caches fill, and becomes a candidate for the
lease. The one that leads goes on: provider -> gateway -> controllers. When its stop signal is set,
what is under way is drained, then the lease is released. It raises when a part dies that must not,
and without draining when the lease is lost. `controllers/cli/process.py` has the signals.

Order and checks follow k8s.io/cloud-provider app/controllermanager.go and sample/basic_main.go,
with two differences: a controller that cannot run stops the start, and the manager waits for an API
server that does not answer yet, saying so, instead of ending after ten seconds."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from cloudprovider import CloudConfig, Interface, StopSignal
from controllers.catalog import CATALOG, WEBHOOKS
from controllers.endpoints.options import ServingOptions
from controllers.endpoints.pages import json_page, text_page
from controllers.endpoints.serving import Serving, ServingError
from controllers.flags.effective import configz, flagz
from controllers.manager.accesscheck import AccessCheck
from controllers.manager.assembly import LOG_SECONDS, Assembly
from controllers.manager.leadership import LISTEN, Leadership, lease_lost
from controllers.manager.migration import MigrationLease
from controllers.manager.permissions import (
    election_rules,
    migration_rules,
    provider_rules,
    required_permissions,
)
from controllers.manager.provider_host import ManagerError, warn_of_installed
from controllers.manager.shutdown import Stoppable
from controllers.registration.entry import Context, ControllerEntry, Rule, enabled
from controllers.registration.options import Options, split_address
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.election import LeaseLost, LeaseSettings
from controllers.webhooks.options import WebhookOptions
from controllers.webhooks.webhook import WebhookEntry

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks at what ends the process
_LOOK_MIGRATING = 0.25  # the same while controllers wait for the second lease of a leader migration
_LISTEN_AT_FIRST = 0.002  # seconds between two looks whether this process leads, until it stands by
_FRESH = 2.0  # seconds after which a candidate that knows of no leader does what a standby does


class Manager:
    """One run of one provider's controllers.

    `options` are checked already; `config` is what the provider was made from: its secrets are
    concealed wherever text leaves the process. Raises ManagerError when an option names no
    controller, or asks for a plan. `run` may be called once; the other methods from any thread.
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
        informers: InformerFactory | None = None,
    ) -> None:
        """`informers`: those of `earlylists.begin` from the same clients, which fill already. The
        metrics are those of `clients`."""
        given = options.manager
        # A program that hands its flags on must not write what its user wanted to see.
        if given.plan.enabled:
            raise ManagerError("--dry-run: a Manager writes; a program of your own runs a PlanRun for this flag")
        self._options = options
        self._clients = clients
        self._begun = informers
        clients.guard = self._may_write
        self._catalog = catalog
        self._parts = Assembly(
            options,
            provider,
            clients,
            config=config,
            catalog=catalog,
            start_interval=given.controller_start_interval,
        )
        self.health = self._parts.health
        self.metrics = self._parts.metrics
        serving = options.of(WebhookOptions)
        self._webhooks = enabled(serving.webhooks, webhooks) if serving.secure_port else []
        self._webhook_rules: tuple[Rule, ...] = ()
        self._on_lost: Callable[[ManagerError], None] = lambda _failure: None
        self._leadership: Leadership | None = None
        self._second: MigrationLease | None = None
        self.address: tuple[str, int] | None = None
        """Where health and metrics are served over plain HTTP, once they are."""
        self.secure_address: tuple[str, int] | None = None
        """Where HTTPS is served, once it is."""
        self.webhook_address: tuple[str, int] | None = None
        """Where webhooks are served, once they are."""

    def run(self, stop: StopSignal, *, on_lost: Callable[[ManagerError], None] = lambda _failure: None) -> None:
        """Start everything, work until `stop` is set, drain and return. Blocks.

        `on_lost(failure)` is called as soon as a lease is lost, perhaps twice, from any thread.
        Raises ManagerError, after stopping what was started, when a part cannot start or ends
        before `stop`, without draining when the lease is lost, and when work is left behind that
        did not end within the drain.
        """
        self._on_lost = on_lost
        parts = self._parts
        ending = parts.stop_event(stop)
        left: list[str] = []
        try:
            if self._start(ending):
                self._watch(ending)
        finally:
            left = parts.stop()
        if parts.failure is not None:
            raise parts.failure
        if left:
            raise ManagerError(f"work is left behind that did not end in time: {', '.join(left)}")

    def release_held(self) -> int:
        """Let the controllers do what they hold back now, as an operator asks; returns how many
        objects that are."""
        return self._parts.runner.release_held(self._leadership.leader if self._leadership is not None else "")

    def abort(self, reason: str) -> None:
        """End without draining, the lease being lost, or a test's kill: no change leaves any more.
        From any thread."""
        failure = lease_lost(reason)
        if self._leadership is not None:
            self._leadership.fence.revoke(reason)
        self._on_lost(failure)  # first: where it ends the process, nothing here wakes a call before
        self._parts.abort(failure)
        if self._parts.host is not None:
            self._parts.host.cancel()

    def _start(self, ending: StopSignal) -> bool:
        """True when everything runs; False when it was time to end before that."""
        parts = self._parts
        parts.groups.in_background("serving", "health watch", self.health.run)
        installed = partial(warn_of_installed, self._options.manager.cloud_provider)
        parts.groups.in_background("serving", "installed files", installed)
        parts.runner.announce(entry.name for entry in parts.entries)
        self._serve()
        informers = parts.informers(begun=self._begun)
        access = parts.access_check()
        self._begin_election()
        context = None
        if self._webhooks:
            # On every replica, before it leads: webhooks ask the provider, which may only read
            # until then.
            context = parts.initialized(informers, ending, guard=self._may_write)
            if context is None:
                return False
            informers.start()  # those that the provider asked for
            self._serve_webhooks(context)
        if not self._elected(informers, access, ending):
            return False
        context = context or parts.initialized(informers, ending, guard=self._may_write)
        if context is None:
            return False
        built = parts.construct(context)
        # Of those alone that have something to do: a right that nobody uses is not missing.
        rules = [*self._rules([entry for entry, _ in built]), *provider_rules(informers)]
        # Permissions are asked about when the caches are full: the questions would slow that down.
        # Where they do not fill soon, a permission may be missing.
        if not parts.filled(informers, ending, late=lambda: access.ask_about(rules)):
            return False
        access.ask_about(rules)
        moving = [one for one in built if one[0] in self._parts.shares.migrated]
        built = [one for one in built if one not in moving]
        if not parts.runner.start(built, ending):
            return False
        # What stands in for a controller that is off is none: people look for names in this line.
        names = ", ".join(entry.name for entry, _ in built if entry in self._parts.entries) or "no controller"
        given = self._options.manager
        log.info("running: %s, for cluster %s with provider %s", names, given.cluster_name, given.cloud_provider)
        self.health.ready()
        # After its own controllers run, as in Go: the second lease may be another component's for
        # long.
        if self._second is not None and (second := self._second.begin(moving, parts.unfinished)) is not None:
            self.health.notes.append(second.checks)
        return True

    def _serve(self) -> None:
        """Health, metrics and settings over HTTP and HTTPS. Raises ManagerError."""
        parts, options, wanted = self._parts, self._options, self._options.manager.health_bind_address
        migration = None if parts.migration is None else parts.migration.as_configz()
        try:
            serving = Serving(
                options.of(ServingOptions),
                self.health,
                self.metrics,
                self._clients,
                plain=split_address(wanted) if wanted else None,
                settings={
                    "/configz": json_page(lambda: configz(options, self._catalog, migration)),
                    "/flagz": text_page(lambda: flagz(options)),
                },
                clock=parts.clock,
            )
            serving.start()
        except ServingError as error:
            raise ManagerError(str(error)) from error
        parts.groups.add("serving", Stoppable("HTTP servers", serving.stop))
        parts.groups.in_background("serving", "certificates", serving.run)
        self.address, self.secure_address = serving.plain_address, serving.secure_address

    def _serve_webhooks(self, context: Context) -> None:
        """Serve those of the webhooks that have something to do. Raises ManagerError."""
        from controllers.webhooks.router import WebhookRouter
        from controllers.webhooks.serving import WebhookServing

        built = [(entry.webhook, entry.construct(context)) for entry in self._webhooks]
        served = [(webhook, handler) for webhook, handler in built if handler is not None]
        if not served:
            return
        parts = self._parts
        try:
            router = WebhookRouter(served, metrics=self.metrics, clock=parts.clock)
            rest = self._clients.rest("webhook-certificates")
            options = self._options.of(WebhookOptions)
            serving = WebhookServing(options, router, rest, leads=self._leads, metrics=self.metrics, clock=parts.clock)
            serving.start()
        except (ServingError, ValueError) as error:
            raise ManagerError(str(error)) from error
        self.webhook_address, self._webhook_rules = serving.address, serving.rules
        parts.groups.add("webhooks", Stoppable("webhook server", serving.stop))
        parts.groups.in_background("webhooks", "webhook certificate", serving.run)
        self.health.notes.append(serving.checks)
        self.health.needs.append(serving.ready)

    def _watch(self, ending: StopSignal) -> None:
        """Return when it is time to end, or something is beyond help."""
        second = self._second
        while not ending.wait(_LOOK_MIGRATING if second and second.waits else _LOOK):
            if second is not None and not self._parts.runner.start(second.take(), ending):
                return
            if fatal := self.health.fatal():
                self._parts.fail(ManagerError(f"{fatal}; only a restart frees them"), None)

    def _may_write(self, *_about: str) -> float:
        """The guard of all clients and cloud calls: seconds that it holds. Raises LeaseLost."""
        left = math.inf
        if self._leadership is not None:
            # Each write asks: between two renewals the lease may have ended, after a suspend, say.
            left = self._leadership.fence.check()
        elif self._parts.aborted:
            raise LeaseLost("not sent: this manager has ended without draining")
        return left if self._second is None else min(left, self._second.check())

    # ---- the election

    def _leads(self) -> bool:
        return self._leadership is None or self._leadership.leading

    def _begin_election(self) -> None:
        options = self._options.manager.leader_election
        if not options.leader_elect:
            return
        given = self._options.manager
        serves = {"provider": given.cloud_provider, "cluster": given.cluster_name}
        leadership = self._leadership = self._candidate(
            attrs.evolve(options.settings(), serves=serves), "leaderElection"
        )
        self.health.notes.append(leadership.checks)
        groups = self._parts.groups
        for part in leadership.start(self._parts.unfinished):
            groups.add("leader election", part)
        if (migration := self._parts.migration) is not None:
            # Under the same identity. The other candidate is another program, on purpose.
            second = attrs.evolve(leadership.settings, name=migration.lease, serves={})
            self._second = MigrationLease(
                migration.lease, lambda: self._candidate(second, "leaderMigration"), self._parts.clock
            )
            groups.add("leader election", self._second.part)

    def _candidate(self, settings: LeaseSettings, check: str) -> Leadership:
        return Leadership(
            settings,
            self._clients,
            on_lost=self.abort,
            metrics=self.metrics,
            check=check,
            clock=self._parts.clock,
        )

    def _elected(self, informers: InformerFactory, access: AccessCheck, ending: StopSignal) -> bool:
        """Wait until this process leads; False when it is time to end before that."""
        leadership, clock = self._leadership, self._parts.clock
        if leadership is None:
            return not ending.is_set()
        began = logged = clock.monotonic()
        stands_by = False
        while not leadership.leading:
            # A lease without a holder is won in a moment.
            if ending.wait(LISTEN if stands_by else _LISTEN_AT_FIRST):
                return False
            if not leadership.leader and clock.monotonic() - began < _FRESH:
                continue
            if not stands_by:
                stands_by = True
                access.ask_about(self._rules(self._parts.entries))
                for entry in self._parts.entries:
                    if entry.module:
                        # A takeover should not have to wait for that.
                        importlib.import_module(entry.module)
            if informers.has_synced():
                self.health.standing_by()
            elif clock.monotonic() - logged >= LOG_SECONDS:
                logged = clock.monotonic()
                self._parts.log_unsynced(logged - began)
        return True

    def _rules(self, entries: Sequence[ControllerEntry]) -> list[Rule]:
        given = self._options.manager
        own = election_rules(given.leader_election)
        if self._parts.migration is not None and self._parts.shares.migrated:
            own = (*own, *migration_rules(given.leader_election, self._parts.migration.lease))
        own = (*own, *self._webhook_rules)
        if given.use_service_account_credentials:
            return [*own, *required_permissions(entries)]
        return [*own, *(rule for entry in entries for rule in entry.rules)]
