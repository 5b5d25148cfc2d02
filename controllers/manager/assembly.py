"""One provider and its controllers over shared caches, from the first part to the end of the last.

Stage: around all of them. What the manager and a plan run (`controllers/plan`) have in common:
entries of the catalog come in with the options, controllers run, and at the end all is stopped in
order. When the parts begin, and what may be written, says who holds one of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from cloudprovider import CloudConfig, Interface, StopSignal
from cloudprovider.internal.configsecrets import conceal_config
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.endpoints.health import Health, HealthMetrics
from controllers.manager import earlylists
from controllers.manager.accesscheck import AccessCheck
from controllers.manager.migration import LeaderMigration, MigrationProblems, share
from controllers.manager.migration import read as read_migration
from controllers.manager.provider_host import ManagerError, ProviderHost
from controllers.manager.runner import Built, ControllerRunner, StopEvent
from controllers.manager.servercheck import ServerCheck, advice
from controllers.manager.shutdown import ShutdownGroups, Stoppable
from controllers.registration.entry import Context, ControllerEntry, enabled
from controllers.registration.options import Options
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.runtime.queue import WorkQueueCollector

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0
"""Seconds between two lines about what is waited for."""
_SOON = 1.0  # seconds that the first listing of a large cluster takes
# Seconds of the drain, half of it at most, for what follows the controllers' own: last Events.
_AFTER_DRAIN = 3.0


class Assembly:
    """The parts of one run. For one thread; `fail` and `abort` from any."""

    def __init__(
        self,
        options: Options,
        provider: Interface,
        clients: ClientBuilder,
        *,
        config: CloudConfig | None,
        catalog: Sequence[ControllerEntry],
        start_interval: float = 0.0,
    ) -> None:
        """`config` is what the provider was made from: its secrets are concealed wherever text
        leaves the process. `start_interval`: seconds between the starts of two controllers. Raises
        ManagerError when an option names no controller."""
        self._options = options
        self._provider = provider
        self._clients = clients
        self._config = config
        conceal_config(config.data if config else None)
        self._catalog = catalog
        self.entries = enabled(options.manager.controllers, catalog)
        if not self.entries:
            raise ManagerError("no controller is left to run: see --controllers")
        self.migration = self._read_migration()
        self.shares = share(self.entries, self.migration)
        self.metrics = clients.metrics
        self.clock = SYSTEM_CLOCK
        self.drain = options.manager.shutdown_drain_timeout
        """Seconds that `stop` takes at most."""
        self.failure: ManagerError | None = None
        self.aborted = False
        self.host: ProviderHost | None = None
        self.health = Health(self.clock, HealthMetrics(self.metrics).observe)
        self.groups = ShutdownGroups(self.clock, lambda: self.aborted)
        """What runs, in the order of its stop."""
        self.runner = ControllerRunner(
            self.health,
            self.metrics,
            self.clock,
            interval=start_interval,
            started=partial(self.groups.add_thread, "controllers"),
            failed=self.fail,
        )

    def stop_event(self, stop: StopSignal) -> StopEvent:
        """Set when `stop` is, or when a part has failed."""
        return StopEvent(stop, lambda: self.failure is not None)

    def informers(self, begun: InformerFactory | None = None) -> InformerFactory:
        """The caches that the controllers share, in place of those that have `begun` where there
        are none. They fill at once, so that a takeover begins without a listing."""
        informers = begun or earlylists.make(self._clients, self.entries, self.clock)
        self.groups.add("clients", Stoppable("clients", lambda _seconds: True, self._clients.close))
        self.health.informers = informers
        server = ServerCheck(
            self._clients.rest(earlylists.IDENTITY),
            self.clock,
            needs_restart=lambda: self._clients.needs_restart,
            end=lambda why: self.fail(ManagerError(why), None),
        )
        self.groups.in_background("clients", "API server check", server.run)
        self.health.notes.append(server.checks)
        self.health.vital.append(server.liveness)
        self.groups.add("informers", Stoppable("informers", informers.stop))
        return informers

    def access_check(self) -> AccessCheck:
        """In the background: what is missing is logged, and nothing waits for the answer."""
        rest = self._clients.rest(earlylists.IDENTITY, guarded=False)
        check = AccessCheck(
            rest,
            accounts=lambda name: self._clients.rest(name, guarded=False),
            forbidden=lambda: rest.reachability.forbidden,
            clock=self.clock,
        )
        self.groups.in_background("access check", "access check", check.run)
        self.health.notes.append(check.checks)
        return check

    def initialized(
        self,
        informers: InformerFactory,
        ending: StopSignal,
        *,
        guard: Callable[[str], object],
        gateway: Callable[..., CloudCalls] = CloudCalls,
    ) -> Context | None:
        """Initialise the provider: what controllers are built from, or None when it was time to end
        before that. `guard` as of CloudCalls; `gateway` makes one, and takes its arguments."""
        cloud = gateway(
            self._provider,
            options=self._options.of(CloudCallOptions),
            metrics=self.metrics,
            clock=self.clock,
            guard=guard,
        )
        allowed = self._options.manager.allow_untagged_cloud
        host = self.host = ProviderHost(
            self._provider, cloud, self._config, allow_untagged_cloud=allowed, clock=self.clock
        )
        self.groups.add("cloud calls", Stoppable("cloud calls", host.close, host.cancel))
        self.groups.add(
            "provider", Stoppable(f"provider {cloud.provider_name}", lambda _seconds: True, host.ask_to_stop)
        )
        self.health.cloud = cloud
        if not host.initialize(self._clients, informers, ending):
            return None
        return Context(
            options=self._options,
            clients=self._clients,
            informers=informers,
            cloud=cloud,
            metrics=self.metrics,
            clock=self.clock,
            drain=self.drain - min(_AFTER_DRAIN, self.drain / 2),
            controllers=frozenset(entry.name for entry in (*self.shares.main, *self.shares.migrated)),
        )

    def construct(self, context: Context) -> list[Built]:
        """The enabled controllers that have something to do, but for those that the leader
        migration leaves to another component. Raises ManagerError where one cannot run."""
        for entry, component in self.shares.elsewhere:
            log.info("%s is left to %s, as the leader migration says", entry.name, component)
        entries = [*self.shares.main, *self.shares.migrated]
        built = []
        for entry in entries:
            try:
                controller = entry.start(context)
            except ValueError as error:
                fix = "" if "Fix: " in str(error) else f". Fix: leave it out with --controllers=*,-{entry.name}"
                raise ManagerError(f"{entry.name} cannot run: {error}{fix}.") from error
            if controller is not None:
                built.append((entry, controller))
        if entries and not built:
            raise ManagerError("no controller is left to run: the log lines above say why each one is off.")
        return [*built, *self._stand_ins(context, built)]

    def _stand_ins(self, context: Context, built: Sequence[Built]) -> list[Built]:
        """What runs in the place of controllers that are off, but for those that a leader migration
        moves: another component may run them."""
        running = {entry.name for entry, _ in built}
        moved = {entry.name for entry in (*self.shares.migrated, *(one for one, _ in self.shares.elsewhere))}
        found: list[Built] = []
        for entry in self._catalog:
            # What a former run left, an orphaned load balancer or a finalizer, must not stay
            # unseen.
            if entry.name not in running | moved:
                stand_in = entry.stand_in(context, entry in self.entries)
                if stand_in is not None:
                    found.append((attrs.evolve(entry, name=f"{entry.name}-off", rules=()), stand_in))
        return found

    def filled(
        self, informers: InformerFactory, ending: StopSignal, *, late: Callable[[], object] = lambda: None
    ) -> bool:
        """Start the caches that the built controllers asked for, and wait for their first listing;
        False when it was time to end before that. `late` is called when it takes longer than a
        second."""
        informers.start()
        # A controller that is off for want of a capability reads nothing: its caches cost memory.
        informers.drop_unclaimed()
        began = self.clock.monotonic()
        if informers.wait_for_sync(ending, _SOON):
            return True
        late()
        while not informers.wait_for_sync(ending, LOG_SECONDS):
            if ending.is_set():
                return False
            self.log_unsynced(self.clock.monotonic() - began)
        return True

    def log_unsynced(self, waited: float) -> None:
        """Log which caches wait for the API server, and what to look at."""
        tip = advice(self._clients.rest(earlylists.IDENTITY), self._clients.server)
        log.warning("waiting %.0f s for the API server's first answer: %s%s", waited, self.health.unsynced(), tip)

    def unfinished(self) -> str:
        """The calls that may still change the cloud; "" where there are none."""
        return self.host.unfinished() if self.host is not None else ""

    def fail(self, failure: ManagerError, cause: BaseException | None) -> None:
        """A part that must not end has ended: the run is over, and `failure` says why."""
        failure.__cause__ = cause
        self.failure = self.failure or failure
        # At once: draining takes its time.
        log.critical("%s; stopping everything else", failure, exc_info=cause)

    def abort(self, failure: ManagerError) -> None:
        """End without draining."""
        self.aborted = True
        self.failure = self.failure or failure

    def stop(self) -> list[str]:
        """Stop everything; returns what had not ended when the time was up."""
        self.health.stopping()
        # Else a request that the server asked to repeat in a minute takes up the whole drain.
        self._clients.stop_retrying()
        began = self.clock.monotonic()
        left = [*self.groups.stop(0.0 if self.aborted else self.drain)]
        left += [f"a call for {key}" for key in self.health.overdue()]
        queues = [(queue, queue.oldest_running().key) for queue in WorkQueueCollector.of(self.metrics).queues()]
        left += [f"{queue.noun} {key} ({queue.name})" for queue, key in queues if key is not None]
        took = self.clock.monotonic() - began
        if left and not self.aborted:
            log.warning("drained for %.1f s; work that has not ended: %s", took, ", ".join(left))
        elif not self.aborted:
            log.info("drained in %.1f s, nothing left behind", took)
        return left

    def _read_migration(self) -> LeaderMigration | None:
        options = self._options.manager.leader_migration
        try:
            return read_migration(options.config) if options.enabled else None
        except MigrationProblems as error:
            raise ManagerError(f"--leader-migration-config={options.config}: {error}") from error
