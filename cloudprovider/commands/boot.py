"""The command `node-info`: its arguments, and what it prints or writes, for the scripts that boot a
machine.

Standard output and the file of --write hold a complete result or nothing; all else goes to standard
error.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attrs import evolve

from cloudprovider.commands.asking import FINE, PROBLEMS, WRONG_USAGE, Failure, Started, in_time
from cloudprovider.commands.kubelet import FORMATS, is_here, node_ips, rendered
from cloudprovider.helpers.addresses import AddressChoice
from cloudprovider.helpers.labels import kubelet_hostname, kubelet_may_set
from cloudprovider.internal.output import results_only, write_whole
from cloudprovider.internal.problem import Problem
from cloudprovider.kinds import CIDR, Kind, ListOf, OneOf
from cloudprovider.wellknown import NODE_ADDRESS_INTERNAL_IP

if TYPE_CHECKING:
    from cloudprovider.commands.nodeinfo import NodeInfo

T = TypeVar("T")

_CODES = (
    "Exit codes: 0 the result is printed or written; 1 the provider cannot tell it, however often it is asked; 2 wrong "
    "usage, config or file; 3 the cloud answered that this machine is no instance of it; 4 no complete answer in time."
)
_MODE = 0o644


def add_node_info(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the others."""
    command = commands.add_parser(
        "node-info",
        help="tell what the kubelet of this machine should be started with",
        description="Asks the provider what the machine is that this runs on, and prints it for its kubelet: node "
        "name, provider ID, addresses, and labels for instance type, zone and region. It runs as the machine boots, "
        "without a cluster, and asks again until the cloud or its metadata service answers. Nothing is changed in the "
        "cloud.",
        epilog=_CODES,
    )
    command.add_argument("--cloud-provider", required=True, metavar="NAME", help="the provider, as for the manager")
    command.add_argument("--cloud-config", default="", metavar="FILE", help="as for the manager")
    command.add_argument(
        "-o", "--output", choices=tuple(FORMATS), help="default: flags; env is a file for systemd's EnvironmentFile"
    )
    command.add_argument(
        "--write", default="", metavar="FILE", help="write the result into this file, as a whole, and print nothing"
    )
    command.add_argument(
        "--without-additional-labels",
        action="store_true",
        help="leave the provider's own labels to the manager: it never changes those that a kubelet set",
    )
    command.add_argument(
        "--node-address-families",
        type=_kind(ListOf(OneOf("ipv4", "ipv6"))),
        default=(),
        metavar="FAMILY,...",
        help="as for the manager: ipv4, ipv6 or both, the preferred one first",
    )
    command.add_argument(
        "--node-address-exclude",
        type=_kind(ListOf(CIDR)),
        default=(),
        metavar="CIDR,...",
        help="as for the manager: IP ranges whose addresses are left out",
    )
    command.add_argument(
        "--hostname", default="", metavar="NAME", help="this machine's host name (default: what the kernel says)"
    )
    command.add_argument(
        "--resolv-conf",
        nargs="?",
        const="/etc/resolv.conf",
        default="",
        metavar="FILE",
        help="print this resolver file (default /etc/resolv.conf) as the provider adapts it, for the kubelet's "
        "resolvConf, and nothing else",
    )
    command.add_argument(
        "--timeout", type=seconds(86400), default=300.0, metavar="SECONDS", help="for all tries together (default 300)"
    )
    command.add_argument(
        "--retry-period", type=seconds(86400), default=2.0, metavar="SECONDS", help="between two tries (default 2)"
    )
    command.set_defaults(run=_node_info)


def seconds(most: int) -> Callable[[str], float]:
    """For an argument: reads a number of seconds, up to `most`."""

    def read(text: str) -> float:
        try:
            if 0 < (found := float(text)) <= most:
                return found
        except ValueError:
            pass  # the same words
        raise argparse.ArgumentTypeError(f"must be a number of seconds, more than 0 and at most {most}")

    return read


def _kind(kind: Kind[T]) -> Callable[[str], T]:
    """For an argument: reads a value of this kind."""

    def read(text: str) -> T:
        try:
            return kind.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _node_info(given: argparse.Namespace) -> int:
    if given.output and given.resolv_conf:
        _tell("--output and --resolv-conf exclude each other")
        return WRONG_USAGE
    try:
        # What a plugin prints must not become a flag of the kubelet.
        with results_only():
            text = _result(given)
        if given.write:
            _write(Path(given.write), text)
        else:
            # Bytes: a locale of a booting machine is often plain ASCII.
            sys.stdout.buffer.write(_bytes(text))
            sys.stdout.buffer.flush()
    except Failure as failure:
        _tell(str(failure))
        return failure.code
    return FINE


def _result(given: argparse.Namespace) -> str:
    # Only here, as the other commands need not wait for them: the client's models take a second to
    # import.
    from cloudprovider.commands.nodeinfo import TimeLimit, node_info
    from cloudprovider.commands.resolvconf import adapted

    resolver = _read(Path(given.resolv_conf)) if given.resolv_conf else ""
    limit = TimeLimit(given.timeout, given.retry_period, tell=_tell)
    with Started(given.cloud_provider, given.cloud_config) as started:
        if given.resolv_conf:

            def scrubbed() -> str:
                provider = started.provider(limit.for_a_call)
                return in_time(lambda: adapted(resolver, provider.scrub_dns), limit.for_a_call)

            return limit.until_answered(scrubbed, started.described, started.where)
        info = node_info(started, kubelet_hostname(given.hostname or socket.gethostname()), limit)
    # As the manager chooses, or it would change what the kubelet has just written.
    choice = AddressChoice(given.node_address_families, given.node_address_exclude)
    info = evolve(info, metadata=evolve(info.metadata, node_addresses=choice.of(info.metadata.node_addresses)))
    if given.without_additional_labels:
        info = evolve(info, metadata=evolve(info.metadata, additional_labels={}))
    ips = node_ips(info, is_here)
    _warn(info, ips)
    return rendered(given.output or "flags", info, ips)


def _warn(info: NodeInfo, ips: tuple[str, ...]) -> None:
    internal = [one.address for one in info.metadata.node_addresses if one.type == NODE_ADDRESS_INTERNAL_IP]
    # Told, as the kubelet picks an address by itself then, which may be another network's.
    if internal and not ips:
        _tell(
            f"warning: no --node-ip: no interface of this machine has the internal address that the cloud has for it "
            f"({', '.join(internal)}), and a kubelet would refuse it"
        )

    refused = sorted(key for key in info.metadata.additional_labels if not kubelet_may_set(key))
    if refused:
        _tell(f"warning: no kubelet may set the provider's labels {', '.join(refused)}: left out")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise Failure(
            Problem(f"{path} cannot be read: {error.strerror}", "give a resolver file"), WRONG_USAGE
        ) from error


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, _bytes(text), _MODE)
    except OSError as error:
        problem = Problem(f"{path} cannot be written: {error.strerror}", "give a file in a folder that is there")
        raise Failure(problem, PROBLEMS) from error


def _bytes(text: str) -> bytes:
    """A resolver file may hold any bytes, in its comments say."""
    return text.encode("utf-8", "surrogateescape")


def _tell(line: str) -> None:
    print(f"node-info: {line}", file=sys.stderr)
