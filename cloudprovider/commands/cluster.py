"""The command `cluster`: an API server with Nodes that stays up until Ctrl-C, for a program that is
started beside it.

Arguments come in; a kubeconfig goes out, then a line for whatever the program beside it does to
Nodes and Services. `cloudprovider.testing` has the parts: the embedded API server, and the kubelets
of its Nodes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from cloudprovider.commands.asking import FINE, PROBLEMS, WRONG_USAGE, Failure
from cloudprovider.helpers.labels import node_name_problems
from cloudprovider.internal.cleaning import few
from cloudprovider.internal.problem import Problem
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER

if TYPE_CHECKING:
    from cloudprovider.testing.apiserver import EmbeddedAPIServer

_BEAT = 10.0  # seconds between two renewals of a kubelet's Lease
_LOOK = 0.3  # seconds between two looks at what is new
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NODES = 1


@frozen
class _Joining:
    """One Node to register."""

    name: str
    provider_id: str = ""


def add_cluster(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the others."""
    command = commands.add_parser(
        "cluster",
        help="start a small cluster on this machine, for your program, until Ctrl-C",
        description="Starts an API server on this machine, registers Nodes that wait for their cloud provider, and "
        "writes a kubeconfig. Then start your cloud-controller-manager with it, in another terminal. Each change of a "
        "Node or Service is shown in a line. All that the cluster holds is gone after Ctrl-C. There are no pods, no "
        "kubelets and no network.",
        epilog="Exit codes: 0 ended by Ctrl-C, 1 it could not be started, 2 wrong usage.",
    )
    command.add_argument(
        "--kubeconfig",
        default="kubeconfig",
        metavar="FILE",
        help="where to write the kubeconfig (default: kubeconfig, in this folder); removed at the end",
    )
    command.add_argument("--port", type=_port, default=0, help="of the API server, on 127.0.0.1 (default: a free one)")
    command.add_argument("--token", default="", help="that the kubeconfig shows to the API server (default: random)")
    command.add_argument(
        "--nodes",
        type=int,
        default=None,
        metavar="N",
        help=f"register Nodes node-1 to node-N (default: {_NODES}, or none with --node)",
    )
    command.add_argument(
        "--node",
        action="append",
        default=[],
        type=_joining,
        metavar="NAME[=PROVIDER-ID]",
        help="register a Node of this name; with the provider ID that its kubelet knows, if it does; may be repeated",
    )
    command.add_argument(
        "--service",
        action="append",
        default=[],
        metavar="NAME",
        help="create a Service of type LoadBalancer with port 80; may be repeated",
    )
    command.add_argument(
        "--silence",
        default="",
        metavar="NAME",
        help="start nothing; in the cluster that runs with this --kubeconfig the kubelet of this Node falls silent, so "
        "that your program asks whether the Node's machine still exists",
    )
    command.set_defaults(run=_cluster)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError("must be from 0 (a free one) to 65535")
    return int(text)


def _joining(text: str) -> _Joining:
    name, _, provider_id = text.partition("=")
    if problems := node_name_problems(name):
        raise argparse.ArgumentTypeError("; ".join(problems))
    return _Joining(name, provider_id)


def _cluster(given: argparse.Namespace) -> int:
    stop = threading.Event()
    try:
        if given.silence:
            _silence(given)
            return FINE
        with _ended_by_signals(stop):
            _serve(given, stop)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    return FINE


@contextmanager
def _ended_by_signals(stop: threading.Event) -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    # SIGHUP too: who closes the terminal means the cluster to end, and its kubeconfig to go.
    before = {number: signal.signal(number, end) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve(given: argparse.Namespace, stop: threading.Event) -> None:
    # Only here, as the other commands need not wait for it.
    from cloudprovider.testing.apiserver import EmbeddedAPIServer

    joining = _wanted(given)
    path = Path(given.kubeconfig)
    _check_place(path)
    # Go's clients, and so kubectl, send a token over TLS only.
    server = EmbeddedAPIServer(port=given.port, token=given.token or None, tls=True)
    # Before it listens: the program beside it finds the Nodes with its first list.
    kubelets = _filled(server, joining, given.service)
    news = News()
    news.lines(server)  # what is there from the start is in the greeting
    try:
        server.start()
    except OSError as error:
        what = f"the API server cannot listen on port {given.port}: {error.strerror}"
        raise Failure(Problem(what, "choose another --port, or none for a free one")) from error
    try:
        written = _write(server, path)
        print(_greeting(server, path, [one.name for one in joining]), flush=True)
        due = time.monotonic()
        while not stop.wait(_LOOK):
            # By the clock, and not every n looks: printing may take long, and Leases run out after
            # 40 s.
            if time.monotonic() >= due:
                kubelets.beat()
                due += _BEAT
            for line in news.lines(server):
                print(line, flush=True)
        if path.is_file() and path.read_bytes() == written:  # else another cluster's, or changed by its owner
            path.unlink()
    finally:
        server.stop()
    print("The cluster has ended.", flush=True)


def _silence(given: argparse.Namespace) -> None:
    """Raises `Failure`; a cluster that this command did not start is never changed."""
    path = Path(given.kubeconfig)
    if not path.is_file():
        problem = Problem(f"there is no kubeconfig {path}", "start the cluster first, or name its file by --kubeconfig")
        raise Failure(problem)
    if not _is_ours(path):
        what = f"{path} is no kubeconfig of this command, and another cluster's nodes are not touched"
        raise Failure(Problem(what, "give the file of a running `cluster` with --kubeconfig"), WRONG_USAGE)
    from cloudprovider.commands.clusternode import silence

    silence(str(path), given.silence)
    print(f"The kubelet of node {given.silence} is silent: its condition Ready is Unknown.")


def _wanted(given: argparse.Namespace) -> Sequence[_Joining]:
    """The Nodes to register. Raises `Failure` for too many, and for a name that is given twice."""
    from cloudprovider.testing.kubelets import MOST_NODES

    count = (0 if given.node else _NODES) if given.nodes is None else given.nodes
    if not 0 <= count + len(given.node) <= MOST_NODES or count < 0:
        raise Failure(Problem(f"a cluster has 0 to {MOST_NODES} nodes", "give other --nodes"), WRONG_USAGE)
    joining = [*(_Joining(f"node-{number}") for number in range(1, count + 1)), *given.node]
    names = [one.name for one in joining]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Failure(Problem(f"two nodes are named {', '.join(twice)}", "give each --node another name"), WRONG_USAGE)
    return joining


def _filled(server: EmbeddedAPIServer, joining: Sequence[_Joining], services: Sequence[str]) -> Any:
    """The kubelets of the Nodes, which the server has now; and the Services."""
    from cloudprovider.testing import objects
    from cloudprovider.testing.apiserver import StatusError
    from cloudprovider.testing.kubelets import Kubelets

    kubelets = Kubelets(server)
    for node in joining:
        kubelets.join(node.name, node.provider_id)
    for name in services:
        try:
            server.create(objects.service(name))
        except StatusError as error:
            problem = Problem(f"--service={name}: {error}", "give each --service a DNS label as its name, once")
            raise Failure(problem, WRONG_USAGE) from error
    return kubelets


def _check_place(path: Path) -> None:
    """A kubeconfig of somebody's own is not written over. Raises `Failure`."""
    if not path.absolute().parent.is_dir():
        raise Failure(Problem(f"there is no folder {path.absolute().parent}", "create it, or give another file"))
    # A link that leads nowhere would be written through, to wherever it points.
    if not path.exists() and not path.is_symlink():
        return
    if not _is_ours(path):
        what = f"{path} exists, and was not written by this command"
        raise Failure(Problem(what, "give another file with --kubeconfig, or remove it"), WRONG_USAGE)


def _is_ours(path: Path) -> bool:
    """Whether this command wrote the kubeconfig."""
    from cloudprovider.testing.apiserver.server import KUBECONFIG_NAME

    try:
        # By its name for the cluster, which nobody else gives; most kubeconfigs are YAML, and no
        # JSON.
        return bool(json.loads(path.read_bytes())["current-context"] == KUBECONFIG_NAME)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(server: EmbeddedAPIServer, path: Path) -> bytes:
    try:
        return server.write_kubeconfig(path).read_bytes()
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise Failure(Problem(what, "give another file with --kubeconfig"), PROBLEMS) from error


def _greeting(server: EmbeddedAPIServer, path: Path, names: Sequence[str]) -> str:
    shown = few(names, 5) or "none"
    kubectl = f"kubectl --kubeconfig={path}"
    absent = "" if shutil.which("kubectl") else " (not on your PATH)"
    return "\n".join(
        [
            f"API server  {server.url}",
            f"kubeconfig  {path}",
            f"nodes       {shown}",
            "",
            "Try in another terminal:",
            f"  cloud-controller-manager --cloud-provider=NAME --kubeconfig={path} --leader-elect=false",
            f"  python my_main.py --kubeconfig={path} --leader-elect=false",
            f"With kubectl{absent}:",
            f"  {kubectl} get nodes --output=custom-columns=NAME:.metadata.name,ID:.spec.providerID",
            f"  {kubectl} describe nodes",
            f"  {kubectl} apply --validate=false --filename=SERVICE.yaml",
            "A kubelet falls silent, so that the manager asks for its machine:",
            f"  python -m cloudprovider cluster --kubeconfig={path} --silence={names[0] if names else 'NAME'}",
            "",
            "Ctrl-C ends the cluster. What changes in it:",
        ]
    )


@define
class News:
    """What has changed in a cluster since the last look, in lines for people."""

    _version: int = -1
    _nodes: Mapping[str, str] = field(factory=dict)
    _services: Mapping[str, str] = field(factory=dict)
    _events: Mapping[str, str] = field(factory=dict)

    def lines(self, server: EmbeddedAPIServer) -> list[str]:
        """The lines; none where nothing has changed."""
        # Most looks find nothing new: the objects are not read for that.
        if server.version == self._version:
            return []
        self._version = server.version
        nodes = {one["metadata"]["name"]: _node(one) for one in server.list("nodes")}
        services = {_name(one): _service(one) for one in server.list("services") if _is_balanced(one)}
        events = {_name(one): _event(one) for one in server.list("events") if one.get("type") == "Warning"}
        found = [*_changes("node", self._nodes, nodes), *_changes("Service", self._services, services)]
        # An Event that comes again has another count, and the same text: it is told once.
        found += [text for name, text in events.items() if self._events.get(name) != text]
        self._nodes, self._services, self._events = nodes, services, events
        return found


def _changes(kind: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name, text in now.items():
        if before.get(name) != text:
            yield f"{kind} {name}: {text}"
    for name in before.keys() - now.keys():
        yield f"{kind} {name}: deleted"


def _name(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _node(node: Mapping[str, Any]) -> str:
    taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
    silent = [f"Ready={one['status']}" for one in node["status"].get("conditions") or () if _is_silent(one)]
    # Nothing else is known of such a node, nor is it of interest.
    if TAINT_EXTERNAL_CLOUD_PROVIDER in taints:
        return ", ".join(["waits for its cloud provider", *silent])
    labels = node["metadata"].get("labels") or {}
    facts = [
        node["spec"].get("providerID", ""),
        labels.get("node.kubernetes.io/instance-type", ""),
        labels.get("topology.kubernetes.io/zone", ""),
        *(one["address"] for one in node["status"].get("addresses") or () if one["type"] != "Hostname"),
        *(f"taint {key}" for key in taints),
        *silent,
    ]
    return f"initialised: {', '.join(fact for fact in facts if fact)}"


def _is_silent(condition: Mapping[str, Any]) -> bool:
    return bool(condition["type"] == "Ready" and condition["status"] != "True")


def _is_balanced(service: Mapping[str, Any]) -> bool:
    return bool(service["spec"].get("type") == "LoadBalancer")


def _service(service: Mapping[str, Any]) -> str:
    points = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    addresses = ", ".join(point.get("ip") or point.get("hostname") or "?" for point in points)
    # It still has its address, which says the less important thing.
    if service["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    return addresses or "waits for its load balancer"


def _event(event: Mapping[str, Any]) -> str:
    about = event["involvedObject"]
    said = f": {event['message']}" if event.get("message") else ""
    return f"Event {event.get('reason', '')} of {about.get('kind', '')} {about.get('name', '')}{said}"
