"""What every replica runs below its controllers, leading or not: HTTP servers, caches, the access
check, the gateway.

Each part goes to `shutdown.py` as soon as it runs, so that all are stopped in order, and reports to
the health checks. `manager.py` says what is started when."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cloudprovider import CloudConfig, Interface, StopSignal
from controllers.cloudcalls import CloudCallOptions, CloudCalls, DryRunBackend
from controllers.endpoints.checks import Check
from controllers.endpoints.health import Health
from controllers.endpoints.options import ServingOptions
from controllers.endpoints.pages import json_page, text_page
from controllers.endpoints.serving import Serving, ServingError
from controllers.flags.effective import configz, flagz
from controllers.manager import earlylists
from controllers.manager.accesscheck import AccessCheck
from controllers.manager.provider_host import ManagerError, ProviderHost
from controllers.manager.shutdown import ShutdownGroups, Stoppable
from controllers.registration.entry import Context, ControllerEntry
from controllers.registration.options import Options, split_address
from controllers.runtime.api import ApiError, ClientBuilder, RestClient
from controllers.runtime.cache import InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, ClockEvent
from controllers.runtime.metrics import Metrics
from controllers.webhooks.options import WebhookOptions
from controllers.webhooks.webhook import WebhookEntry

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0
"""Seconds between two lines about what is waited for."""
_AGAIN = 5.0  # seconds until something in the background is run again that raised
ASK_SECONDS = 5.0
"""Between two questions while the server answers."""
_ASK_AGAIN = 1.0  # seconds until the next question while it does not
_TIMEOUT = 4.0
_SOON = 1.0  # seconds that the first listing of a large cluster takes
_PATIENCE = 2.0  # seconds without an answer until it counts: one broken connection is nothing
_SLICE = 0.25  # seconds between two looks whether there is still a reason to wait for a thread


class SharedServices:
    """Builds the parts, starts them, and has them in `groups`. For the manager's thread; each part
    once.

    `abandoned()` says that the process ends without draining: then no thread is waited for."""

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
        self.groups = ShutdownGroups(clock)
        """What runs, in the order of its stop."""
        self.webhook_address: tuple[str, int] | None = None
        """Where webhooks are served, once they are."""

    def serve(self, catalog: Sequence[ControllerEntry], migration: Mapping[str, Any] | None = None) -> Serving:
        """Health, metrics and settings over HTTP and HTTPS. `migration`: the leader migration, as
        /configz shows it. Raises ManagerError."""
        wanted = self._options.manager.health_bind_address
        try:
            serving = Serving(
                self._options.of(ServingOptions),
                self._health,
                self._metrics,
                self._clients,
                plain=split_address(wanted) if wanted else None,
                settings={
                    "/configz": json_page(lambda: configz(self._options, catalog, migration)),
                    "/flagz": text_page(lambda: flagz(self._options)),
                },
                clock=self._clock,
            )
            serving.start()
        except ServingError as error:
            raise ManagerError(str(error)) from error
        self.groups.add("serving", Stoppable("HTTP servers", serving.stop))
        self.in_background("serving", "certificates", serving.run)
        return serving

    def informers(
        self, entries: Sequence[ControllerEntry], *, once: bool = False, begun: InformerFactory | None = None
    ) -> InformerFactory:
        """The caches that these controllers share, in place of those that have `begun` where there
        are none. They fill at once, so that a takeover begins without a listing.

        `once` as of InformerFactory.
        """
        informers = begun or earlylists.make(self._clients, entries, self._metrics, self._clock, once=once)
        self.groups.add("clients", Stoppable("clients", lambda _seconds: True, self._clients.close))
        self._health.watch_informers(informers)
        server = ServerCheck(self._clients.rest(earlylists.IDENTITY), clock=self._clock)
        self.in_background("clients", "API server check", server.run)
        self._health.watch_notes(server.checks)
        self.groups.add("informers", Stoppable("informers", informers.stop))
        return informers

    def access_check(self) -> AccessCheck:
        """In the background: what is missing is logged, and nothing waits for the answer."""
        rest = self._clients.rest(earlylists.IDENTITY, guarded=False)
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
        guard: Callable[[str], object],
        dry_run: DryRunBackend | None = None,
    ) -> ProviderHost:
        """The gateway to this provider, not initialised. `guard` and `dry_run` as of CloudCalls."""
        cloud = CloudCalls(
            provider,
            options=self._options.of(CloudCallOptions),
            metrics=self._metrics,
            clock=self._clock,
            guard=guard,
            dry_run=dry_run,
        )
        host = ProviderHost(
            provider,
            cloud,
            config,
            allow_untagged_cloud=self._options.manager.allow_untagged_cloud,
            clock=self._clock,
        )
        self.groups.add("cloud calls", Stoppable("cloud calls", host.close, host.cancel))
        self.groups.add(
            "provider", Stoppable(f"provider {host.cloud.provider_name}", lambda _seconds: True, host.ask_to_stop)
        )
        self._health.watch_cloud(host.cloud)
        return host

    def webhooks(self, entries: Sequence[WebhookEntry], context: Context, *, leads: Callable[[], bool]) -> bool:
        """Serve those of these webhooks that have something to do; False where none has. Raises
        ManagerError."""
        from controllers.webhooks.router import WebhookRouter
        from controllers.webhooks.serving import WebhookServing

        built = [(entry.webhook, entry.construct(context)) for entry in entries]
        served = [(webhook, handler) for webhook, handler in built if handler is not None]
        if not served:
            return False
        try:
            router = WebhookRouter(served, metrics=self._metrics, clock=self._clock)
            rest = self._clients.rest("webhook-certificates")
            options = self._options.of(WebhookOptions)
            serving = WebhookServing(options, router, rest, leads=leads, clock=self._clock)
            serving.start()
        except (ServingError, ValueError) as error:
            raise ManagerError(str(error)) from error
        self.webhook_address = serving.address
        self.groups.add("webhooks", Stoppable("webhook server", serving.stop))
        self.in_background("webhooks", "webhook certificate", serving.run)
        self._health.watch_notes(serving.checks)
        self._health.watch_readiness(serving.ready)
        return True

    def synced(self, informers: InformerFactory, stop: StopSignal, late: Callable[[], object] = lambda: None) -> bool:
        """Wait for every cache's first listing, and log what keeps it; False when `stop` came
        first. `late` is called when it takes longer than a second."""
        began = self._clock.monotonic()
        if informers.wait_for_sync(stop, _SOON):
            return True
        late()
        while not informers.wait_for_sync(stop, LOG_SECONDS):
            if stop.is_set():
                return False
            self.log_unsynced(self._clock.monotonic() - began)
        return True

    def log_unsynced(self, waited: float) -> None:
        """Log which caches wait for the API server, and what to look at."""
        tip = advice(self._clients.rest(earlylists.IDENTITY), self._clients.server)
        log.warning("waiting %.0f s for the API server's first answer: %s%s", waited, self._health.unsynced(), tip)

    def in_background(self, group: str, name: str, run: Callable[[StopSignal], None]) -> None:
        """Run this in a thread of its own until the group is stopped; when it raises, log that, and
        run it again."""
        ask = ClockEvent(self._clock)

        def keep_running() -> None:
            last = ""
            while not ask.is_set():
                try:
                    run(ask)
                    return
                except BaseException as error:  # a thread's top: its last answer must not stand for ever
                    again = last == repr(error)
                    last = repr(error)
                    log.log(
                        logging.DEBUG if again else logging.ERROR,
                        "%s failed, this is a bug; it is run again every %g s",
                        name, _AGAIN, exc_info=error,
                    )  # fmt: skip
                ask.wait(_AGAIN)

        thread = threading.Thread(target=keep_running, name=name.replace(" ", "-"), daemon=True)
        thread.start()
        self.add_thread(group, name, thread, ask.set)

    def add_thread(self, group: str, name: str, thread: threading.Thread, ask: Callable[[], None]) -> None:
        """A thread has been started, which `ask` asks to end."""
        self.groups.add(group, Stoppable(name, lambda seconds: self._joined(thread, seconds), ask))

    def _joined(self, thread: threading.Thread, seconds: float) -> bool:
        """Wait for a thread, but for none once the process is abandoned: nothing it does counts."""
        until = self._clock.monotonic() + seconds
        while not self._abandoned() and (left := until - self._clock.monotonic()) > 0:
            thread.join(min(left, _SLICE))
            if not thread.is_alive():
                return True
        return not thread.is_alive()


def advice(rest: RestClient, server: str) -> str:
    """What to look at while the API server gives no first answer, for the end of a log line; ""
    while it answers."""
    if rest.reachability.down_since is None:
        return ""
    return (
        f". The manager keeps trying. Check that {server} is the API server's address (server: in the kubeconfig, or "
        "--master), that it runs, and that DNS, a firewall or a proxy does not keep this process from it"
    )


class ServerCheck:
    """Asks every few seconds whether the API server answers, so that /healthz knows it soon.

    Every request of every client reports how it ended to `runtime/api/reachability.py`. Where
    nothing else is asked, or an answer never comes (a server that stands still, a network that
    swallows), the question from here does. `run` once in a thread; `checks` from any."""

    def __init__(self, rest: RestClient, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rest = rest
        self._clock = clock

    def run(self, stop: StopSignal) -> None:
        """Ask /readyz, whose answer may be anything: what counts is that there is one."""
        while True:
            try:
                self._rest.request("GET", "/readyz", accept="*/*", timeout=_TIMEOUT)
            except ApiError as error:
                log.debug("the API server's /readyz: %s", error)
            if stop.wait(ASK_SECONDS if self._rest.reachability.down_since is None else _ASK_AGAIN):
                return

    def checks(self) -> list[Check]:
        """One check, `api-server`."""
        reachability = self._rest.reachability
        since, error = reachability.down_since, reachability.error
        if since is None or self._clock.monotonic() - since < _PATIENCE:
            return [Check("api-server", True)]
        return [Check("api-server", False, f"no answer: {error}")]
