"""``localcloud``: the daemon, and commands for a daemon that runs.

Exit codes: 0, 1 for what the cloud refused or could not do, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path

from localcloud import actions
from localcloud.client import ApiError, Client
from localcloud.inputs import TYPES, ZONES
from localcloud.kernel import KernelError
from localcloud.layout import BadLayout, Layout
from localcloud.serve import DEFAULT_PORT, Settings, StartError, destroy, read_token, serve
from localcloud.state import BadState

__all__ = ["main"]

_STATE = "/var/lib/localcloud"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. `machine exec` replaces the process."""
    args = _parser().parse_args(arguments)
    try:
        if args.run is None:
            return _daemon(args)
        client = Client(args.url, read_token(Path(args.token_file)))
        result: actions.Result = args.run(client, args)
    except ApiError as exc:
        return _failed(*exc.problems)
    except (StartError, BadState, BadLayout, KernelError, OSError, actions.BadCommand) as exc:
        return _failed(str(exc))
    if result.command:
        os.execvp(result.command[0], result.command)
    print(json.dumps(result.document, indent=2) if args.json else result.text, end="\n" if args.json else "")
    return 0


def _failed(*problems: str) -> int:
    for problem in problems:
        print(f"localcloud: {problem}", file=sys.stderr)
    return 1


def _daemon(args: argparse.Namespace) -> int:
    layout = Layout(name=args.name, base=args.base, pool=args.pool, folder=Path(args.state))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if args.verbose:  # not the libraries: pyroute2 has 30 lines for each of ours
        logging.getLogger("localcloud").setLevel(logging.DEBUG)
    if args.command == "destroy":
        destroy(layout)
        return 0
    token_file = Path(args.token_file or Path(args.state) / "token")
    settings = Settings(layout=layout, token_file=token_file, listen=args.listen, rate=args.rate, memory=args.memory)
    serve(settings, ready=lambda url: print(f"localcloud: ready at {url}", flush=True))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcloud", description="A cloud on one Linux machine.")
    kinds = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    _daemon_commands(kinds)
    client = _client_options()
    _machine_commands(_group(kinds, "machine", "machines"), client)
    _route_commands(_group(kinds, "route", "routes in the router"), client)
    _balancer_commands(_group(kinds, "lb", "load balancers"), client)
    _key_commands(_group(kinds, "sshkey", "SSH keys, which every machine has"), client)
    _command(kinds, "zones", "list the zones", actions.zones, client)
    _command(kinds, "types", "list the types of machines", actions.types, client)
    return parser


def _daemon_commands(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--state", default=_STATE, metavar="DIR", help="state and disks (%(default)s)")
    where.add_argument("--name", default="lc", help="prefix of all that is made in the kernel (%(default)s)")
    where.add_argument("--base", default="10.90", help="first two numbers of all addresses (%(default)s)")
    where.add_argument(
        "--pool", default="198.51.100.0/24", type=_network, metavar="CIDR",
        help="the load balancers' addresses (%(default)s)",
    )  # fmt: skip
    where.add_argument("-v", "--verbose", action="store_true", help="log every request")
    where.set_defaults(run=None)
    daemon = kinds.add_parser("serve", parents=[where], help="run the cloud, as root, until SIGTERM; machines go on")
    daemon.add_argument("--token-file", metavar="FILE", help="the API's token, made if absent (DIR/token)")
    daemon.add_argument(
        "--listen", type=_listen, metavar="ADDRESS:PORT", help=f"the API's address (BASE.255.1:{DEFAULT_PORT})"
    )
    daemon.add_argument("--rate", type=_rate, default=0.0, metavar="N", help="take N requests a second; above, 429")
    daemon.add_argument("--memory", action="store_true", help="no kernel, no root: the API alone, to try it")
    kinds.add_parser("destroy", parents=[where], help="end all machines and remove what is in the kernel; disks stay")


def _client_options() -> argparse.ArgumentParser:
    client = argparse.ArgumentParser(add_help=False)
    url = os.environ.get("LOCALCLOUD_URL", f"http://10.90.255.1:{DEFAULT_PORT}")
    token = os.environ.get("LOCALCLOUD_TOKEN_FILE", f"{_STATE}/token")
    client.add_argument("--url", default=url, help="the API, or LOCALCLOUD_URL (%(default)s)")
    client.add_argument(
        "--token-file", default=token, metavar="FILE", help="its token, or LOCALCLOUD_TOKEN_FILE (%(default)s)"
    )
    client.add_argument("--json", action="store_true", help="print the API's document")
    return client


def _group(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help: str
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return kinds.add_parser(name, help=help).add_subparsers(required=True, metavar="COMMAND", dest=f"{name}_command")


def _command(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help: str,
    run: actions.Command,
    client: argparse.ArgumentParser,
    *operands: str,
) -> argparse.ArgumentParser:
    parser = kinds.add_parser(name, help=help, parents=[client])
    for operand in operands:
        parser.add_argument(operand.lower().replace("-", "_"), metavar=operand)
    parser.set_defaults(run=run)
    return parser


def _machine_commands(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    _command(kinds, "list", "list them", actions.list_machines, client)
    _command(kinds, "show", "show one", actions.show_machine, client, "MACHINE")
    create = _command(kinds, "create", "make one, and start it", actions.create_machine, client, "NAME")
    create.add_argument("--type", default=next(iter(TYPES)), help=f"{', '.join(TYPES)} (%(default)s)")
    create.add_argument("--zone", default=ZONES[0], help=f"{', '.join(ZONES)} (%(default)s)")
    create.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="may be given several times")
    create.add_argument("--taint", action="append", default=[], metavar="KEY[=VALUE]:EFFECT", help="as --label")
    create.add_argument("--annotation", action="append", default=[], metavar="KEY=VALUE", help="as --label")
    create.add_argument("--user-data", metavar="FILE", help="a script that it runs at each boot; - is standard input")
    _command(kinds, "delete", "end it and its disk", actions.delete_machine, client, "MACHINE")
    _command(kinds, "start", "power on", actions.start_machine, client, "MACHINE")
    _command(kinds, "stop", "power off", actions.stop_machine, client, "MACHINE")
    reboot = _command(kinds, "reboot", "power off and on", actions.reboot_machine, client, "MACHINE")
    reboot.add_argument("--new-address", action="store_true", help="with another InternalIP")
    _command(kinds, "console", "print the end of its console", actions.console, client, "MACHINE")
    run = _command(kinds, "exec", "run a program in it, as root on this host", actions.execute, client, "MACHINE")
    run.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="default: a shell")


def _route_commands(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    _command(kinds, "list", "list them", actions.list_routes, client)
    _command(kinds, "create", "make one", actions.create_route, client, "NAME", "DESTINATION", "MACHINE")
    _command(kinds, "delete", "delete one, whoever owns it", actions.delete_route, client, "NAME")


def _balancer_commands(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser
) -> None:
    _command(kinds, "list", "list them", actions.list_balancers, client)
    _command(kinds, "show", "show one and its targets' health", actions.show_balancer, client, "NAME")
    _command(kinds, "delete", "delete one, whoever owns it", actions.delete_balancer, client, "NAME")


def _key_commands(kinds: argparse._SubParsersAction[argparse.ArgumentParser], client: argparse.ArgumentParser) -> None:
    _command(kinds, "list", "list a user's keys", actions.list_keys, client, "USER")
    _command(kinds, "add", "add the public key of a file", actions.add_key, client, "USER", "FILE")
    _command(kinds, "clear", "remove all keys of a user", actions.clear_keys, client, "USER")


def _network(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(f"{text!r} is no IPv4 network: {exc}") from exc


def _listen(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} must be ADDRESS:PORT")
    return host, int(port)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of requests a second")
    return rate
