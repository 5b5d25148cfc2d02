"""Arguments in, text or JSON and an exit code out: 0 all is well, 1 problems were found, 2 wrong
usage; see `asking`.

Results go to standard output, and nothing else does: what a plugin prints goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloudprovider.commands.asking import FINE, PROBLEMS, WRONG_USAGE
from cloudprovider.commands.boot import add_node_info, seconds
from cloudprovider.commands.chart import add_chart
from cloudprovider.commands.check import check
from cloudprovider.commands.cluster import add_cluster
from cloudprovider.commands.clusters import add_clusters
from cloudprovider.commands.new import Names, naming_problem, render, write
from cloudprovider.commands.newdiff import NOTE, changes, read_note
from cloudprovider.commands.providers import Listed, list_providers
from cloudprovider.commands.report import Report, Step
from cloudprovider.internal.output import aligned, counted, results_only
from cloudprovider.kinds import ListOf
from cloudprovider.loading.plugins import wrong_groups

_EDIT = {False: "Your cloud's client goes into", True: "Then write your API's paths and fields into"}
_CODES = "Exit codes: 0 all is well, 1 problems were found, 2 wrong usage."


def run() -> None:
    """Run with this process's arguments, and end it with the exit code."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads the results has enough, as `| head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        code = 128 + signal.SIGPIPE  # as the shell says of any other program
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # `check` has reported them; waiting would be forever
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. `argv` without the program's name (default: this
    process's)."""
    try:
        given = parser().parse_args(argv)
    except SystemExit as ended:  # argparse has printed the help, or what is wrong
        return int(ended.code or 0)
    command: Any = given.run
    return int(command(given))


def parser() -> argparse.ArgumentParser:
    """The commands and their arguments."""
    program = argparse.ArgumentParser(
        prog="python -m cloudprovider",
        description="Tools for those who write or run a cloud provider. No cluster is needed.",
        epilog=_CODES,
    )
    commands = program.add_subparsers(title="commands", required=True, metavar="COMMAND")

    providers = commands.add_parser(
        "providers",
        help="list the installed providers, and which of them cannot be loaded",
        description="Lists the installed providers. Each one's module is imported; its factory is not called, so "
        "capabilities are those of the class that the factory says it returns. `check` asks a started one.",
        epilog=_CODES,
    )
    _add_output(providers)
    providers.set_defaults(run=_providers)

    checking = commands.add_parser(
        "check",
        help="check one provider, from its entry point to its cloud's answers",
        description="Checks an installed provider without a cluster, and tells all that is wrong and what to do: entry "
        "point, factory, config, name, methods, capabilities; it calls initialize and asks the cloud questions that "
        "change nothing, so that wrong credentials are seen. Nothing is created, changed or deleted in the cloud.",
        epilog=_CODES,
    )
    checking.add_argument("name", metavar="NAME", help="as in --cloud-provider")
    checking.add_argument("--cloud-config", default="", metavar="FILE", help="as for the manager")
    checking.add_argument(
        "--node",
        default="",
        metavar="NAME",
        help="a node whose machine runs: also ask what the manager would write on it, check that, and show it",
    )
    checking.add_argument(
        "--provider-id", default="", metavar="ID", help="with --node: the provider ID that the node carries already"
    )
    checking.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="with --node: take the node as it is in this cluster"
    )
    checking.add_argument(
        "--services",
        default="",
        metavar="FILE",
        help="Services, as `kubectl get services -A -o yaml` prints them: say which of them would be refused, and why",
    )
    checking.add_argument(
        "--load-balancer-classes",
        type=lambda text: tuple(ListOf.parts(text)) or ("",),
        default=("",),
        metavar="CLASS,...",
        help='with --services: those of these classes, as for the manager (default "": Services without a class)',
    )
    checking.add_argument("--offline", action="store_true", help="neither call initialize nor ask the cloud")
    checking.add_argument(
        "--timeout",
        type=seconds(3600),
        default=10.0,
        metavar="SECONDS",
        help="for each call of the provider (default 10)",
    )
    checking.add_argument("--traceback", action="store_true", help="show the tracebacks of what the provider raised")
    _add_output(checking)
    checking.set_defaults(run=_check)

    new = commands.add_parser(
        "new",
        help="write a new provider package",
        description="Writes a provider package whose tests pass as written: entry point, configuration, instances, "
        "load balancers, conformance and end-to-end tests, Dockerfile, workflow. It works over a cloud that is "
        "simulated in memory; with --http, over an HTTP API.",
        epilog=_CODES,
    )
    new.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the provider's name, as in --cloud-provider and in provider IDs; with --diff as the package says",
    )
    new.add_argument("--directory", default="", metavar="D", help="the folder to create (default: NAME-provider)")
    new.add_argument(
        "--http",
        action="store_true",
        help="for a cloud with an HTTP API: also an HTTP client with time limits and error mapping, instances in "
        "batches, routes, and a test server that speaks the API. You edit its paths and fields",
    )
    new.add_argument(
        "--diff",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="PATH",
        help="write nothing, and show as a unified diff what the template of this version would change in the package "
        "in this folder (default: the present one), which an earlier version wrote. Exit code 1: there is something",
    )
    new.set_defaults(run=_new)

    for add in (add_chart, add_cluster, add_node_info, add_clusters):
        add(commands)
    return program


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def _providers(given: argparse.Namespace) -> int:
    with results_only():
        listed, unreadable = list_providers()
        wrong = wrong_groups()
    if given.output == "json":
        _print_json(
            {
                "providers": [one.as_json() for one in listed],
                "unreadable": list(unreadable),
                "wrongGroups": [one.as_json() for one in wrong],
            }
        )
    else:
        print(_table(listed))
        for line in unreadable:
            print(f"unreadable metadata: {line}")
        for problem in wrong:
            print(problem)
    # A script that installs providers learns of any of them by the exit code.
    return PROBLEMS if unreadable or wrong or any(one.problem for one in listed) else FINE


def _check(given: argparse.Namespace) -> int:
    if (given.provider_id or given.kubeconfig) and not given.node:
        print("--provider-id and --kubeconfig need --node", file=sys.stderr)
        return WRONG_USAGE
    if given.provider_id and given.kubeconfig:
        print("--provider-id and --kubeconfig exclude each other: the node in the cluster has its own", file=sys.stderr)
        return WRONG_USAGE
    if given.node and given.offline:
        print("--node asks the cloud, and --offline forbids it", file=sys.stderr)
        return WRONG_USAGE
    with results_only():
        report = check(
            given.name,
            given.cloud_config,
            node=given.node,
            provider_id=given.provider_id,
            kubeconfig=given.kubeconfig,
            services=given.services,
            classes=given.load_balancer_classes,
            offline=given.offline,
            timeout=given.timeout,
        )
    if given.output == "json":
        _print_json(report.as_json())
    else:
        print(_steps(report))
    causes = [step for step in report.steps if step.error is not None]
    if given.traceback:
        for step in causes:
            print(f"\n{step.name}:", file=sys.stderr)
            traceback.print_exception(step.error)
    # In JSON nobody reads a hint, and it would spoil the document.
    elif causes and given.output == "text":
        print("--traceback shows where it was raised, in full.")
    return PROBLEMS if report.problems else FINE


def _new(given: argparse.Namespace) -> int:
    if given.diff is not None:
        return _diff(given)
    if given.name is None:
        print("new needs a NAME", file=sys.stderr)
        return WRONG_USAGE
    names = Names(given.name, http=given.http)
    folder = Path(given.directory or names.placeholders["distribution"])
    if (problem := naming_problem(given.name, folder)) is not None:
        print(problem, file=sys.stderr)
        return WRONG_USAGE
    try:
        written = write(names, folder)
    except OSError as error:
        print(f"{folder} cannot be written: {error.strerror}.", file=sys.stderr)
        return PROBLEMS
    print(f"wrote {len(written)} files into {folder}:")
    for path in written:
        print(f"  {path}")
    print(
        f"Next: cd {folder}; pip install --find-links=wheels/ -e '.[test]'; pytest. {_EDIT[names.http]} "
        f"{names.seam}; the SDK's wheel goes into wheels/, where no index has it."
    )
    return FINE


def _diff(given: argparse.Namespace) -> int:
    if not given.diff.is_dir():
        print(f"there is no folder {given.diff}", file=sys.stderr)
        return WRONG_USAGE
    try:
        note = read_note(given.diff)
        # A package from before notes does not say its name.
        if note is None and not given.name:
            print(f"{given.diff / NOTE} is missing. Fix: new NAME --diff PATH, with --http as then.", file=sys.stderr)
            return WRONG_USAGE
        if note is not None and given.name not in (None, note.name):
            print(f"the package in {given.diff} is of {note.name!r}, not of {given.name!r}", file=sys.stderr)
            return WRONG_USAGE
        names = Names(given.name or note.name, http=note.http) if note is not None else Names(given.name, given.http)
        found = list(changes(given.diff, note, render(names)))
    except (OSError, ValueError) as error:
        print(f"the package in {given.diff} cannot be compared: {error}", file=sys.stderr)
        return WRONG_USAGE
    for why, diff in found:
        print(f"# {why}\n{diff}")
    print(f"{len(found)} files would change" if found else "the template would change nothing", file=sys.stderr)
    return PROBLEMS if found else FINE


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def _table(listed: Sequence[Listed]) -> str:
    if not listed:
        return "No provider is installed."
    rows = [("NAME", "DISTRIBUTION", "VERSION", "ENTRY POINT", "CAPABILITIES")]
    rows += [(one.name, one.distribution, one.version, one.entry_point, one.shown_capabilities) for one in listed]
    lines = [aligned(rows)]
    for one in listed:
        if one.problem is not None:
            lines += ["", str(one.problem)]
    return "\n".join(lines)


def _steps(report: Report) -> str:
    of = f": {report.distribution}" if report.distribution else ""
    lines = [f"cloud provider {report.provider}{of}"]
    width = max(len(step.name) for step in report.steps)
    lines += [_step(step, width) for step in report.steps]
    count = len(report.problems)
    lines.append(f"{counted(count, 'problem')} found" if count else "no problem found")
    return "\n".join(lines)


def _step(step: Step, width: int) -> str:
    first, *rest = str(step.problem or step.text).splitlines()
    return "\n".join(
        [f"  {step.state:7}  {step.name:{width}}  {first}", *(f"{'':{width + 13}}{line}" for line in rest)]
    )
