"""The command line: argv in, exit code out. What `cloud-controller-manager` runs, and what a
vendor's main.py calls.

Exit codes: 0 after a signal and for --help and --version, 2 for bad flags (all of them listed,
nothing touched), 1 foreverything else; with --dry-run and `teardown` 0, 3 or 1, as they say.
Nothing heavy is imported before the flags are known to be good, so that --help answers at once; the
API server is asked for the first lists while the rest is imported."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TextIO

from controllers.catalog import CATALOG, WEBHOOKS
from controllers.flags.parse import NO_PROVIDER, Outcome, parse
from controllers.options.declare import flags_of
from controllers.process import logs
from controllers.process.ending import end_at_once, finish, starting
from controllers.process.startup import import_lightly, share_one_heap
from controllers.program import DISTRIBUTION, PROGRAM, version
from controllers.registration.entry import ControllerEntry, enabled
from controllers.registration.options import Options
from controllers.webhooks.webhook import WebhookEntry

if TYPE_CHECKING:
    from controllers.manager.manager import Manager
    from controllers.plan.run import PlanRun
    from controllers.teardown.run import Teardown

log = logging.getLogger(__name__)

BAD_FLAGS = 2
_COLLECT_AFTER = 20_000
"""Objects more than at the last collection. Garbage that holds itself waits for it, and the heap
keeps the size that it had with that garbage: objects that live on are scattered over it."""
_TURN = 0.001
"""Seconds for which a thread may compute while others want to. With Python's own 5 ms an answer
that goes through four threads waits for as many turns of each of the others: the first write of a
start came 10 to 30 ms later. The CPU time is the same."""
FAILED = 1
TEARDOWN = "teardown"
"""The first argument of a run that deletes what the cluster owns in the cloud."""


def run() -> None:
    """The console script. Ends the process with `main`'s code."""
    sys.exit(main())


def main(
    argv: Sequence[str] | None = None,
    *,
    default_provider: str | None = None,
    catalog: Sequence[ControllerEntry] = CATALOG,
    flags: Sequence[type[Any]] = (),
    defaults: Mapping[str, str] | None = None,
    webhooks: Sequence[WebhookEntry] = WEBHOOKS,
) -> int:
    """Run the manager until SIGTERM or SIGINT, or `teardown`; returns the exit code.

    `argv` without the program's name (default: this process's); `default_provider` is used when
    --cloud-provider is not given; `catalog` adds a vendor's own controllers, `webhooks` its
    admission webhooks. `flags` are a vendor's own options classes, whose fields are made by
    `controllers.options.option`: they reach the provider's factory as `CloudConfig.of(...)`, and
    controllers as `Context.options.of(...)`. `defaults` replaces defaults by the names of flags, as
    they would be typed: {"node-monitor-period": "30s"}. Raises ValueError where these contradict
    what there is: a mistake of the program.

    To be called once, in the main thread: it takes the signals and the root logger. A thread that
    is no daemon and goes on, a provider call that never returns or a thread of the plugin's, cannot
    be joined; then the process is ended from here, with the same code.
    """
    args = sys.argv[1:] if argv is None else argv
    command, taken = "", flags
    if args[:1] == [TEARDOWN]:
        from controllers.teardown.options import TeardownOptions

        command, args, taken = TEARDOWN, args[1:], (TeardownOptions, *flags)
    outcome = parse(args, catalog, default_provider, flags=taken, defaults=defaults, webhooks=webhooks)
    return finish(_main(outcome, catalog, flags, webhooks, command))


def _main(
    outcome: Outcome,
    catalog: Sequence[ControllerEntry],
    flags: Sequence[type[Any]],
    webhooks: Sequence[WebhookEntry],
    command: str,
) -> int:
    program = f"{_program(sys.argv[0] if sys.argv else '')} {command}".strip()
    if outcome.values["help"]:
        from controllers.cli.helptext import help_text, teardown_help

        own = {"teardown", "cloud calls", *(row.section for kind in flags for row in flags_of(kind))}
        print(teardown_help(program, outcome.flags, own) if command else help_text(program, outcome.flags), end="")
        return 0
    if (form := outcome.values["version"]) != "false":
        print(_version(form))
        return 0
    problems = (
        *map(_with_names, outcome.problems),
        *_provider_problems(outcome),
        *_migration_problems(outcome.values),
        # What the controllers that are on have against their flags, and the files that those name.
        *(line for entry in enabled(outcome.values["controllers"], catalog) for line in entry.problems(outcome.values)),
    )
    if problems or outcome.options is None:
        _list_problems(program, problems, sys.stderr)
        return BAD_FLAGS
    from cloudprovider.internal.systems import unsupported

    if reason := unsupported():
        print(reason, file=sys.stderr)
        return FAILED
    given = outcome.options.manager
    share_one_heap()  # before the first thread, which is the log's
    logs.setup(given.logging_format, given.verbosity, prefix="dry run: " if given.plan.enabled else "")
    for warning in outcome.warnings:
        log.warning("%s", warning)
    from cloudprovider.internal.output import results_only
    from controllers.flags.effective import changed

    # Standard output is for the plan alone: a provider that prints would spoil it for machines.
    with logs.uncaught(), results_only() if given.plan.enabled or command else nullcontext() as plan:
        try:
            differ = " ".join(changed(outcome.options, outcome.flags))
            log.info("flags that differ from the defaults: %s", differ or "none")
            return _start(outcome.options, catalog, flags, webhooks, plan, command)
        except BaseException:
            # The program's top: a cleaned log line in place of Python's own traceback.
            log.exception("the program failed; this is a bug")
            return FAILED


def _start(
    options: Options,
    catalog: Sequence[ControllerEntry],
    flags: Sequence[type[Any]],
    webhooks: Sequence[WebhookEntry],
    plan: TextIO | None,
    command: str,
) -> int:
    # To the end: a signal that comes before the manager has taken them would be lost.
    with starting() as begun:
        # All that is imported and made on the way to a manager stays: the collector would walk it
        # for nothing.
        gc.disable()
        sys.setswitchinterval(_TURN)
        try:
            runs = _teardown(options, flags) if command else _built(options, catalog, flags, webhooks)
            gc.freeze()  # nor later
        finally:
            gc.enable()
        try:
            return FAILED if runs is None else _run(runs, options, plan, begun)
        finally:
            gc.unfreeze()


def _built(
    options: Options,
    catalog: Sequence[ControllerEntry],
    flags: Sequence[type[Any]],
    webhooks: Sequence[WebhookEntry],
) -> Manager | PlanRun | None:
    """Import and build everything; None when that cannot be, which then has been logged."""
    import_lightly()
    from controllers.manager import earlylists
    from controllers.manager.permissions import NAMESPACE
    from controllers.runtime.api import ClientBuilder, ClientConfigError, ClientSettings
    from controllers.runtime.metrics import Metrics

    given = options.manager
    log.info("%s starts with provider %s", _version("true"), given.cloud_provider)
    metrics = Metrics()
    failures: list[Exception] = []
    clients = informers = None
    try:
        clients = ClientBuilder.from_options(
            kubeconfig=given.kubeconfig or None,
            master=given.master or None,
            settings=ClientSettings(
                qps=max(0.0, given.kube_api_qps),
                burst=given.kube_api_burst,
                content_type=given.kube_api_content_type,
                service_accounts=NAMESPACE if given.use_service_account_credentials else None,
                over_http=given.allow_credentials_over_http,
                cluster_name=given.cluster_name,
            ),
            metrics=metrics,
        )
        if not given.plan.enabled:
            # The API server takes longer to answer than what follows takes to import.
            informers = earlylists.begin(clients, enabled(given.controllers, catalog))
    except ClientConfigError as error:
        failures.append(error)

    # Imported only now, while the API server answers: neither is needed to ask it.
    from prometheus_client import ProcessCollector

    from cloudprovider import CloudProviderError
    from controllers.manager.manager import Manager
    from controllers.manager.provider_host import ManagerError, load_provider, log_failure

    ProcessCollector(registry=metrics.registry)
    try:
        provider, config = load_provider(given.cloud_provider, given.cloud_config, [options.of(kind) for kind in flags])
        if clients is None:
            pass  # what is wrong with both is logged together
        elif given.plan.enabled:
            from controllers.plan.run import PlanRun

            return PlanRun(options, provider, clients, config=config, catalog=catalog)
        else:
            return Manager(
                options,
                provider,
                clients,
                config=config,
                catalog=catalog,
                webhooks=webhooks,
                informers=informers,
            )
    except (CloudProviderError, ManagerError) as error:
        failures.insert(0, error)
    if informers is not None:
        informers.stop(0.0)  # first: it would log that its client is closed
    if clients is not None:
        clients.close()
    for failure in failures:
        log_failure(failure)
    return None


def _teardown(options: Options, flags: Sequence[type[Any]]) -> Teardown | None:
    """As `_built`, without controllers, and without an API server where none is named."""
    import_lightly()
    from cloudprovider import CloudProviderError
    from controllers.manager.provider_host import ManagerError, load_provider, log_failure
    from controllers.route.registration import RouteOptions
    from controllers.runtime.api import ClientBuilder, ClientConfigError, ClientSettings
    from controllers.teardown.run import Teardown

    given = options.manager
    clients = None
    try:
        provider, config = load_provider(given.cloud_provider, given.cloud_config, [options.of(kind) for kind in flags])
        if given.kubeconfig or given.master:
            clients = ClientBuilder.from_options(
                kubeconfig=given.kubeconfig or None,
                master=given.master or None,
                settings=ClientSettings(over_http=given.allow_credentials_over_http, cluster_name=given.cluster_name),
            )
    except (CloudProviderError, ManagerError, ClientConfigError) as error:
        log_failure(error)
        return None
    return Teardown(options, provider, clients, config=config, cidrs=options.of(RouteOptions).cluster_cidrs)


def _run(runs: Manager | PlanRun | Teardown, options: Options, plan: TextIO | None, begun: Callable[[], None]) -> int:
    """`begun()` is called when the signals are taken."""
    from controllers.cli.process import Ended, run_until_signal
    from controllers.manager.manager import Manager

    # The caches are made of long-lived objects: at the default threshold the collector walks them
    # for nothing.
    gc.set_threshold(_COLLECT_AFTER, 20, 50)
    drain = options.manager.shutdown_drain_timeout

    def run(stop: threading.Event) -> Ended | None:
        begun()
        if isinstance(runs, Manager):
            runs.run(stop, on_lost=end_at_once)
            return None
        return Ended(runs.print_to(plan, stop))

    return run_until_signal(run, drain=drain, release=runs.release_held)


def _with_names(problem: str) -> str:
    """A problem of the flags; where the provider is missing, with those that are installed."""
    if problem != NO_PROVIDER:
        return problem
    from cloudprovider import cloud_providers

    return f"{problem}. Installed: {', '.join(cloud_providers()) or 'none'}"


def _provider_problems(outcome: Outcome) -> list[str]:
    """Is the provider's name known? Asked of the registry without importing any plugin."""
    from cloudprovider import RegistryError, get_cloud_provider, is_cloud_provider

    name = outcome.values["cloud-provider"]
    if not name or is_cloud_provider(name):
        return []
    try:
        get_cloud_provider(name)
    except RegistryError as error:
        return [f"--cloud-provider={name}: {error}"]
    return []


def _migration_problems(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with the file of --leader-migration-config."""
    path = values["leader-migration-config"]
    # Without leader election nothing is migrated, and its file counts for nothing, as in Go.
    if not path or not values["enable-leader-migration"] or not values["leader-elect"]:
        return []
    from controllers.manager import migration

    try:
        migration.read(path)
    except migration.MigrationProblems as error:
        return [f"--leader-migration-config={path}: {line}" for line in error.problems]
    return []


def _list_problems(program: str, problems: Sequence[str], to: TextIO) -> None:
    from cloudprovider.internal.cleaning import one_line

    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    print(f"{program}: {count} with the flags; nothing was started:", file=to)
    for problem in problems:
        print(f"  {one_line(problem)}", file=to)
    print(f"Every flag: {program} --help", file=to)


def _program(path: str) -> str:
    name = os.path.basename(path)
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    if started is not None and os.path.basename(started.origin or "") == name != "__main__.py":
        return f"python -m {started.name}"  # a file's name alone, main.py, says nothing
    return PROGRAM if name in ("", "-c", "-m", "__main__.py") else name


def _version(form: str) -> str:
    if form == "raw":
        return f"distribution={DISTRIBUTION} version={version()} python={sys.version.split()[0]}"
    return f"{PROGRAM} {version()}"
