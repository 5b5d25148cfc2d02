"""What each command of a client asks the API, and how it shows the answer. `cli.py` parses them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attrs import field, frozen

from localcloud.client import ApiError, Client

Document = Mapping[str, Any]


class BadCommand(Exception):
    """The command line cannot be carried out; the text says why."""


@frozen
class Result:
    """What a command prints: the document with --json, or else the text. With a command line, that
    is run in place of this process."""

    document: Document
    text: str = ""
    command: list[str] = field(factory=list[str])


Command = Callable[[Client, argparse.Namespace], Result]


def list_machines(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", "/v1/machines")
    return Result(found, _machines(found["machines"]))


def show_machine(client: Client, args: argparse.Namespace) -> Result:
    found = _machine(client, args.machine)
    return Result(found, _machines([found]))


def create_machine(client: Client, args: argparse.Namespace) -> Result:
    body = {"name": args.name, "type": args.type, "zone": args.zone, "taints": args.taint}
    body["labels"], body["annotations"] = _pairs("label", args.label), _pairs("annotation", args.annotation)
    if args.user_data:
        body["userData"] = sys.stdin.read() if args.user_data == "-" else Path(args.user_data).read_text()
    made = client.call("POST", "/v1/machines", body)
    return Result(made, _machines([made]))


def delete_machine(client: Client, args: argparse.Namespace) -> Result:
    found = _machine(client, args.machine)
    client.call("DELETE", f"/v1/machines/{found['id']}")
    return Result({}, f"{found['name']} ({found['id']}) is deleted\n")


def start_machine(client: Client, args: argparse.Namespace) -> Result:
    return _powered(client, args, "start", {})


def stop_machine(client: Client, args: argparse.Namespace) -> Result:
    return _powered(client, args, "stop", {})


def reboot_machine(client: Client, args: argparse.Namespace) -> Result:
    return _powered(client, args, "reboot", {"newAddress": args.new_address})


def console(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", f"/v1/machines/{_machine(client, args.machine)['id']}/console")
    return Result(found, found["console"])


def execute(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", f"/v1/machines/{_machine(client, args.machine)['id']}/enter")
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    return Result(found, command=[*found["command"], *(program or ["/bin/sh"])])


def list_routes(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", "/v1/routes")
    rows = [
        (one["name"], one["destination"], one["machine"], one["gateway"] or "blackhole", one["owner"])
        for one in found["routes"]
    ]
    return Result(found, _table(("NAME", "DESTINATION", "MACHINE", "GATEWAY", "OWNER"), rows))


def create_route(client: Client, args: argparse.Namespace) -> Result:
    machine = _machine(client, args.machine)["id"]
    body = {"destination": args.destination, "machine": machine}
    made = client.call("PUT", f"/v1/routes/{quote(args.name, safe='')}", body)
    return Result(made, f"{made['destination']} goes to {machine} ({made['gateway'] or 'blackhole'})\n")


def delete_route(client: Client, args: argparse.Namespace) -> Result:
    client.call("DELETE", f"/v1/routes/{quote(args.name, safe='')}")
    return Result({}, f"the route {args.name} is deleted\n")


def list_balancers(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", "/v1/loadbalancers")
    rows = [
        (one["name"], one["address"], one["mode"], _ports(one), _healthy(one), one["owner"])
        for one in found["loadbalancers"]
    ]
    return Result(found, _table(("NAME", "ADDRESS", "MODE", "PORTS", "HEALTHY", "OWNER"), rows))


def show_balancer(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", f"/v1/loadbalancers/{quote(args.name, safe='')}")
    health = found["health"]
    sticky = f"clientIP, {found['affinitySeconds']} s" if found["affinity"] == "clientIP" else "none"
    lines = [
        ("address", found["address"]),
        ("owner", found["owner"]),
        ("labels", ", ".join(f"{key}={value}" for key, value in found["labels"].items())),
        ("mode", found["mode"]),
        ("ports", _ports(found)),
        ("source ranges", ", ".join(found["sourceRanges"]) or "all"),
        ("affinity", sticky),
        ("health check", f":{health['port']}{health['path']}" if health else "the machine runs"),
    ]
    rows = [
        (one["machine"], "yes" if one["healthy"] else "no", one["since"] or "not checked yet")
        for one in found["status"]["targets"]
    ]
    text = "".join(f"{name + ':':<15}{value}\n" for name, value in lines)
    return Result(found, text + _table(("TARGET", "HEALTHY", "SINCE"), rows))


def delete_balancer(client: Client, args: argparse.Namespace) -> Result:
    client.call("DELETE", f"/v1/loadbalancers/{quote(args.name, safe='')}")
    return Result({}, f"the load balancer {args.name} is deleted\n")


def list_keys(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", _keys(args.user))
    return Result(found, "".join(f"{key}\n" for key in found["keys"]))


def add_key(client: Client, args: argparse.Namespace) -> Result:
    words = Path(args.file).read_text().split()
    if len(words) < 2:
        raise BadCommand(f"{args.file} holds no public key: a type and base64, as in ssh-ed25519 AAAA...")
    present = client.call("GET", _keys(args.user))["keys"]
    made = client.call("PUT", _keys(args.user), {"keys": [*present, " ".join(words[:2])]})
    return Result(made, f"{args.user} has {len(made['keys'])} keys\n")


def clear_keys(client: Client, args: argparse.Namespace) -> Result:
    return Result(client.call("PUT", _keys(args.user), {"keys": []}), f"{args.user} has no keys\n")


def zones(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", "/v1/zones")
    return Result(found, "".join(f"{zone}\n" for zone in found["zones"]))


def types(client: Client, args: argparse.Namespace) -> Result:
    found = client.call("GET", "/v1/types")
    rows = [(one["name"], str(one["cpus"]), str(one["memoryGiB"])) for one in found["types"]]
    return Result(found, _table(("TYPE", "CPUS", "GIB"), rows))


def _machine(client: Client, asked: str) -> dict[str, Any]:
    """A machine by its name, or else by its ID. Raises ApiError where there is none."""
    named: list[dict[str, Any]] = client.call("GET", "/v1/machines", fields={"name": asked})["machines"]
    found = named or client.call("GET", "/v1/machines", fields={"id": asked})["machines"]
    if not found:
        raise ApiError(404, f"there is no machine with the name or ID {asked}")
    return found[0]


def _powered(client: Client, args: argparse.Namespace, verb: str, body: Document) -> Result:
    found = client.call("POST", f"/v1/machines/{_machine(client, args.machine)['id']}/{verb}", body)
    return Result(found, _machines([found]))


def _machines(found: Iterable[Document]) -> str:
    rows = []
    for one in found:
        addresses = {address["type"]: address["address"] for address in one["addresses"]}
        rows.append((one["id"], one["name"], one["state"], addresses.get("InternalIP", ""), one["type"], one["zone"]))
    return _table(("ID", "NAME", "STATE", "ADDRESS", "TYPE", "ZONE"), rows)


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    if wrong := [one for one in given if "=" not in one]:
        raise BadCommand(f"--{option} must be KEY=VALUE, not {', '.join(wrong)}")
    return dict(one.split("=", 1) for one in given)


def _keys(user: str) -> str:
    return f"/v1/sshkeys/{quote(user, safe='')}"


def _ports(one: Document) -> str:
    return ", ".join(f"{port['port']}/{port['protocol']} to {port['targetPort']}" for port in one["ports"])


def _healthy(one: Document) -> str:
    targets = one["status"]["targets"]
    return f"{sum(target['healthy'] for target in targets)} of {len(targets)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )
