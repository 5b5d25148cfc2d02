"""What every replica runs below its controllers, leading or not: HTTP servers, caches, the access check, the gateway.

Stage: around all of them. Data comes from the options, which are checked already, and the clients; each part goes to
`groups.py` as soon as it runs, so that all are stopped in order, and reports to the health checks. `manager.py` says
what is started when, and what follows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from cloudprovider import CloudConfig, Interface, StopSignal
from controllers.app.apiserver import ServerCheck, advice
from controllers.app.entry import Context, ControllerEntry
from controllers.app.flags.effective import configz, flagz
from controllers.app.groups import Groups, Part
from controllers.app.options import Options, split_address
from controllers.app.permissions.check import AccessCheck
from controllers.app.serving import Health, Serving, ServingError, ServingOptions
from controllers.app.startup import ManagerError, ProviderHost
from controllers.app.webhooks.entry import WebhookEntry
from controllers.app.webhooks.options import WebhookOptions
from controllers.cloudcalls import CloudCallOptions, StandIn
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

TELL = 5.0
"""Seconds between two lines about what is waited for."""
_IDENTITY = "shared-informers"
_SLICE = 0.25  # seconds between two looks whether there is still a reason to wait for a thread


class Foundation:
    """Builds the parts, starts them, and has them in `groups`. For the manager's thread; each part is made once.

    `abandoned()` says that the process ends without draining: then no thread is waited for.
    """

    def __init__(
        self,
        options: Options,
        clients: ClientBuilder,
        *,
        health: Health,
        metrics: Metrics,
        clock: Clock,
        abandoned: Callable[[], bool],
    ) -> None:
        self._options = options
        self._clients = clients
        self._health = health
        self._metrics = metrics
        self._clock = clock
        self._abandoned = abandoned
        self.groups = Groups(clock)
        """What runs, in the order of its stop."""
        self.webhook_address: tuple[str, int] | None = None
        """Where webhooks are served, once they are."""

    def serve(self, catalog: Sequence[ControllerEntry]) -> Serving:
        """Health, metrics and settings over HTTP and HTTPS. Raises ManagerError."""
        wanted = self._options.manager.health_bind_address
        try:
            serving = Serving(
                self._options.of(ServingOptions),
                self._health,
                self._metrics,
                self._clients,
                plain=split_address(wanted) if wanted else None,
                configz=lambda: configz(self._options, catalog),
                flagz=lambda: flagz(self._options),
                clock=self._clock,
            )
            serving.start()
        except ServingError as error:
            raise ManagerError(str(error)) from error
        self.groups.add("serving", Part("HTTP servers", serving.stop))
        self.in_background("serving", "certificates", serving.run)
        return serving

    def informers(self, entries: Sequence[ControllerEntry], *, once: bool = False) -> InformerFactory:
        """The caches that these controllers share. They fill at once, so that a takeover begins without a listing.

        `once` as of InformerFactory.
        """
        informers = InformerFactory(self._clients.rest(_IDENTITY), metrics=self._metrics, clock=self._clock, once=once)
        self.groups.add("clients", Part("clients", lambda _seconds: True, self._clients.close))
        self._health.watch_informers(informers)
        server = ServerCheck(self._clients.rest(_IDENTITY), clock=self._clock)
        self.in_background("clients", "API server check", server.run)
        self._health.watch_notes(server.checks)
        self.groups.add("informers", Part("informers", informers.stop))
        for entry in entries:
            for resource in entry.informers():
                informers.warm(resource)
        return informers

    def access_check(self) -> AccessCheck:
        """In the background: what is missing is told, and nothing waits for the answer."""
        rest = self._clients.rest(_IDENTITY, guarded=False)
        check = AccessCheck(
            rest,
            accounts=lambda name: self._clients.rest(name, guarded=False),
            forbidden=lambda: rest.reachability.forbidden,
            clock=self._clock,
        )
        self.in_background("access check", "access check", check.run)
        self._health.watch_notes(check.checks)
        return check

    def provider_host(
        self,
        provider: Interface,
        config: CloudConfig | None,
        *,
        guard: Callable[[str], None],
        stand_in: StandIn | None = None,
    ) -> ProviderHost:
        """The gateway to this provider, which is not initialised yet. `guard` and `stand_in` as of CloudCalls."""
        host = ProviderHost(
            provider,
            config,
            options=self._options.of(CloudCallOptions),
            allow_untagged_cloud=self._options.manager.allow_untagged_cloud,
            metrics=self._metrics,
            clock=self._clock,
            guard=guard,
            stand_in=stand_in,
        )
        self.groups.add("cloud calls", Part("cloud calls", host.close, host.cancel))
        self.groups.add(
            "provider", Part(f"provider {host.cloud.provider_name}", lambda _seconds: True, host.ask_to_stop)
        )
        self._health.watch_cloud(host.cloud)
        return host

    def webhooks(self, entries: Sequence[WebhookEntry], context: Context, *, leads: Callable[[], bool]) -> bool:
        """Serve those of these webhooks that have something to do; False where none has. Raises ManagerError."""
        from controllers.admission import Desk
        from controllers.app.webhooks.serving import WebhookServing

        built = [(entry.webhook, entry.construct(context)) for entry in entries]
        served = [(webhook, handler) for webhook, handler in built if handler is not None]
        if not served:
            return False
        try:
            desk = Desk(served, metrics=self._metrics, clock=self._clock)
            rest = self._clients.rest("webhook-certificates")
            options = self._options.of(WebhookOptions)
            serving = WebhookServing(options, desk, rest, leads=leads, clock=self._clock)
            serving.start()
        except (ServingError, ValueError) as error:
            raise ManagerError(str(error)) from error
        self.webhook_address = serving.address
        self.groups.add("webhooks", Part("webhook server", serving.stop))
        self.in_background("webhooks", "webhook certificate", serving.run)
        self._health.watch_notes(serving.checks)
        self._health.watch_readiness(serving.ready)
        return True

    def synced(self, informers: InformerFactory, stop: StopSignal) -> bool:
        """Wait for every cache's first listing, telling what keeps it; False when `stop` came first."""
        began = self._clock.monotonic()
        while not informers.wait_for_sync(stop, TELL):
            if stop.is_set():
                return False
            self.tell_unsynced(self._clock.monotonic() - began)
        return True

    def tell_unsynced(self, waited: float) -> None:
        """Log which caches wait for the API server, and what to look at."""
        tip = advice(self._clients.rest(_IDENTITY), self._clients.server)
        log.warning("waiting %.0f s for the API server's first answer: %s%s", waited, self._health.unsynced(), tip)

    def in_background(self, group: str, name: str, run: Callable[[StopSignal], None]) -> None:
        """Run this in a thread of its own until the group is stopped."""
        ask = ClockEvent(self._clock)
        thread = threading.Thread(target=run, args=(ask,), name=name.replace(" ", "-"), daemon=True)
        thread.start()
        self.add_thread(group, name, thread, ask.set)

    def add_thread(self, group: str, name: str, thread: threading.Thread, ask: Callable[[], None]) -> None:
        """A thread has been started, which `ask` tells to end."""
        self.groups.add(group, Part(name, lambda seconds: self._joined(thread, seconds), ask))

    def _joined(self, thread: threading.Thread, seconds: float) -> bool:
        """Wait for a thread, but for none once the process is abandoned: nothing that it does would count."""
        until = self._clock.monotonic() + seconds
        while not self._abandoned() and (left := until - self._clock.monotonic()) > 0:
            thread.join(min(left, _SLICE))
            if not thread.is_alive():
                return True
        return not thread.is_alive()
