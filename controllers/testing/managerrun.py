"""The whole manager in a thread of the test's process, with the provider object that the test
holds. It runs as the program runs it, but for signals and the process's end; periods are short."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen
from prometheus_client.parser import text_string_to_metric_families

from cloudprovider import CloudConfig, Interface
from cloudprovider.internal.configsecrets import conceal_config
from cloudprovider.testing.waiting import eventually
from controllers.app import CATALOG, WEBHOOKS, ControllerEntry, Manager, NeverLed, Options, WebhookEntry, parse
from controllers.process.logs import OURS, TextFormatter
from controllers.runtime.api import ClientBuilder
from controllers.runtime.metrics import Metrics
from controllers.testing.handles import CLUSTER_CIDR

log = logging.getLogger(__name__)

QUICK: Final = (
    "--leader-elect=false",
    "--secure-port=0",
    "--cluster-name=test",
    "--node-monitor-period=200ms",
    "--node-deletion-window=10ms",
    "--node-deletion-young-grace=0s",
    "--node-status-update-frequency=2s",
    "--load-balancer-node-window=50ms",
    "--load-balancer-node-window-limit=500ms",
    "--load-balancer-drift-check-period=2s",
    "--load-balancer-orphan-check-period=2s",
    "--route-reconciliation-period=1s",
    "--shutdown-drain-timeout=10s",
)
"""The flags of every run, before the test's own."""
ROUTES: Final = ("--allocate-node-cidrs", f"--cluster-cidr={CLUSTER_CIDR}")
"""Further ones for a provider with routes."""
_START: Final = 90.0  # seconds until it is ready
_END: Final = 30.0  # seconds beyond its own limit until it counts as stuck


@frozen(kw_only=True)
class Program:
    """What a vendor's main.py gives to `main`, by the same names."""

    catalog: Sequence[ControllerEntry] = CATALOG
    flags: Sequence[type[Any]] = ()
    defaults: Mapping[str, str] = field(factory=dict)
    webhooks: Sequence[WebhookEntry] = WEBHOOKS


class ManagerRun:
    """A manager that is started and ended any number of times, one at a time. For the test's
    thread.

    `flags` come after `QUICK`, so that they win. Raises ValueError with all problems of the flags.
    """

    def __init__(
        self,
        kubeconfig: str | Path,
        provider: Interface,
        flags: Sequence[str] = (),
        *,
        config: CloudConfig | None = None,
        program: Program = Program(),
    ) -> None:
        self._kubeconfig = str(kubeconfig)
        self._provider = provider
        self._config = config
        self._program = program
        self._log = ManagerLog([type(provider).__module__.partition(".")[0]])
        argv = [f"--cloud-provider={provider.provider_name()}", f"--kubeconfig={kubeconfig}", *QUICK]
        # The test's own flags last, so that they win.
        argv += [*(ROUTES if provider.routes() is not None else ()), *flags]
        outcome = parse(
            argv, program.catalog, flags=program.flags, defaults=program.defaults, webhooks=program.webhooks
        )
        if outcome.options is None:
            raise ValueError("the manager's flags are wrong: " + "; ".join(outcome.problems))
        self.options: Options = outcome.options
        self.manager: Manager | None = None
        """The one that runs, or ran last."""
        self._metrics = Metrics()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> ManagerRun:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, provider: Interface | None = None) -> None:
        """Start it, and wait until every controller runs. Raises what kept it from that.

        `provider`: another object than before. A provider is initialised once in its life, so a
        second start, as after a restart of the process, has a new one.
        """
        if self.is_running:
            raise RuntimeError("the manager runs already")
        self._provider = provider or self._provider
        # Before anything is built: what a provider says as it starts is part of the story.
        self._log.open()
        # As the program does; a test's log may be published, too.
        conceal_config(self._config.data if self._config else None)
        # Of this run alone: a registry takes no metric twice.
        self._metrics, self._stop, self._error = Metrics(), threading.Event(), None
        clients = ClientBuilder.from_options(self._kubeconfig, metrics=self._metrics)
        manager = self.manager = Manager(
            self.options,
            self._provider,
            clients,
            config=self._config,
            catalog=self._program.catalog,
            webhooks=self._program.webhooks,
        )
        self._thread = threading.Thread(target=self._run, args=(manager, self._stop), name="manager", daemon=True)
        self._thread.start()
        ready = manager.health.endpoint("readyz")
        eventually(
            # A start that fails ends the wait at once, with its own error in place of a timeout.
            lambda: not self.is_running or all(check.ok for check in ready()),
            _START,
            lambda: f"the manager is not ready; its log:\n{self.log}",
        )
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop it as SIGTERM does: work under way is finished. Raises what it died of. May be
        called twice."""
        self._stop.set()
        self._join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def kill(self) -> None:
        """End it as SIGKILL does: what waits is forgotten, and nothing that changes the cluster or
        the cloud is sent.

        A call to the provider that is under way is cancelled, and goes on as far as the provider
        does not look at `current_call()`, as a request goes on that has left already.
        """
        if self.manager is not None:
            # Before the stop signal, or it would drain first.
            self.manager.abort("killed by the test")
        self._stop.set()
        self._join()
        self._error = None

    def close(self) -> None:
        """Stop it, and keep the log no longer than this. Raises what it died of. May be called
        twice."""
        try:
            self.stop()
        finally:
            self._log.close()

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def failure(self) -> str:
        """Why it ended although it was not asked to; "" while it has not."""
        return "" if self._error is None else f"{type(self._error).__name__}: {self._error}"

    @property
    def log(self) -> str:
        """What it wrote, in all its runs, as on standard error."""
        return self._log.text

    def metric(self, sample: str, **labels: str) -> float:
        """The sum of the samples of this name on /metrics that have these labels, of the present
        run; 0 for none."""
        return sum(
            one.value
            for family in text_string_to_metric_families(self._metrics.text().decode())
            for one in family.samples
            if one.name == sample and labels.items() <= one.labels.items()
        )

    def _run(self, manager: Manager, stop: threading.Event) -> None:
        try:
            manager.run(stop)
        # Stopped as a standby: nothing failed.
        except NeverLed:
            return
        except BaseException as error:  # noqa: BLE001 - a thread's top: raised again in the test's
            self._error = error

    def _join(self) -> None:
        if self._thread is None:
            return
        # Bounded: a provider call that never returns must fail the test, not hang it.
        self._thread.join(self.options.manager.shutdown_drain_timeout + _END)
        if self._thread.is_alive():
            raise AssertionError(f"the manager did not end; its log:\n{self.log}")


MARK: Final = "in_manager_log"
"""The attribute of a record that is in a ManagerLog."""


class ManagerLog(logging.Handler):
    """Keeps the lines of these loggers and ours, from INFO on, from `open` to `close`.
    Thread-safe."""

    def __init__(self, packages: Iterable[str] = ()) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(TextFormatter())
        self._loggers = [logging.getLogger(name) for name in dict.fromkeys((*OURS, *packages))]
        self._before: list[tuple[logging.Logger, int]] = []
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """All lines so far."""
        return "".join(f"{line}\n" for line in list(self._lines))

    def open(self) -> None:
        """Begin to listen; nothing happens if it does already."""
        if self._before:
            return
        for logger in self._loggers:
            self._before.append((logger, logger.level))
            # pytest leaves the root at WARNING: without this the log would be empty.
            if not logger.isEnabledFor(logging.INFO):
                logger.setLevel(logging.INFO)
            logger.addHandler(self)

    def close(self) -> None:
        """Stop listening, and give the loggers the levels that they had. The lines stay."""
        before, self._before = self._before, []
        for logger, level in before:
            logger.removeHandler(self)
            logger.setLevel(level)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's line."""
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler: a record that cannot be shown must not stop the program
            self.handleError(record)
        # By it the plugin leaves the line out of pytest's own capture, which would repeat it.
        setattr(record, MARK, True)
