"""A cloud in this process that speaks several APIs, each as far as the provider uses it: the calls
that libcloud's drivers make to list machines, to ask about one, and to build load balancers.

Written after the clouds' own documentation and libcloud's recorded answers. What the provider does
not call is not here: it gets a 501.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from attrs import define, evolve, field, frozen
from typing_extensions import override

SECRET = "s3cret-of-the-tests-4f1c9a"
PAGE = 2


@frozen
class Server:
    """A machine."""

    id: str
    name: str
    running: bool = True
    number: int = 1

    @property
    def private(self) -> str:
        return f"10.7.{self.number // 200}.{self.number % 200 + 1}"

    @property
    def public(self) -> str:
        return f"198.51.100.{self.number % 250 + 1}"


@define
class Balancer:
    """A load balancer with one port."""

    id: int
    name: str
    port: int
    protocol: str
    vip: int
    nodes: dict[int, dict[str, Any]] = field(factory=dict)


@define
class Double:
    """The cloud's inside. `numeric`: IDs are numbers."""

    numeric: bool = True
    servers: dict[str, Server] = field(factory=dict)
    balancers: dict[int, Balancer] = field(factory=dict)
    requests: list[str] = field(factory=list)
    answers: dict[str, tuple[int, str]] = field(factory=dict)
    """Answers in place of the cloud's own, by a part of "METHOD path"."""
    hidden: set[str] = field(factory=set)
    """IDs that listings leave out."""
    url: str = ""
    lock: threading.RLock = field(factory=threading.RLock)
    numbers: Iterator[int] = field(factory=lambda: itertools.count(1001))

    def create(self, name: str) -> Server:
        """A machine that runs."""
        with self.lock:
            number = next(self.numbers)
            key = str(number) if self.numeric else f"0b7a3c1e-0000-4000-8000-{number:012d}"
            self.servers[key] = Server(key, name, number=number - 1000)
            return self.servers[key]

    def stop(self, key: str) -> None:
        """Switch a machine off."""
        with self.lock:
            self.servers[key] = evolve(self.servers[key], running=False)

    def start(self, key: str) -> None:
        """Switch a machine on again."""
        with self.lock:
            self.servers[key] = evolve(self.servers[key], running=True)

    def named(self, name: str) -> Server:
        """The machine of this name."""
        return next(one for one in self.servers.values() if one.name == name)

    def listed(self) -> list[Server]:
        """What a listing has."""
        return [one for one in self.servers.values() if one.id not in self.hidden]

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """Status and document."""
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self.lock:
            self.requests.append(f"{method} {target}")
            for part, (status, text) in self.answers.items():
                if part in f"{method} {target}":
                    return status, text
            for pattern, call in _ROUTES:
                if found := re.fullmatch(pattern, f"{method} {parts.path}"):
                    return call(self, found, query, json.loads(body) if body else None)
        return 501, {"message": f"the double has no {method} {parts.path}"}


Route = Callable[[Double, "re.Match[str]", Mapping[str, str], Any], tuple[int, Any]]


def _droplet(one: Server) -> dict[str, Any]:
    networks = [("private", one.private), ("public", one.public)]
    return {
        "id": int(one.id), "name": one.name, "status": "active" if one.running else "off",
        "created_at": "2026-01-02T03:04:05Z", "size_slug": "s-2vcpu-4gb", "region": {"name": "Frankfurt 1"},
        "networks": {"v4": [{"type": kind, "ip_address": ip} for kind, ip in networks], "v6": []},
    }  # fmt: skip


def _droplets(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    servers, page = double.listed(), int(query.get("page", 1))
    last = max(1, -(-len(servers) // PAGE))
    pages = {"last": f"{double.url}/v2/droplets?page={last}"} if last > 1 else {}
    shown = servers[(page - 1) * PAGE : page * PAGE]
    return 200, {"droplets": [_droplet(one) for one in shown], "links": {"pages": pages}}


def _droplet_by_id(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    one = double.servers.get(found[1])
    missing = {"id": "not_found", "message": "The resource you were accessing could not be found."}
    return (200, {"droplet": _droplet(one)}) if one else (404, missing)


def _instance(one: Server) -> dict[str, Any]:
    return {
        "id": int(one.id), "label": one.name, "status": "running" if one.running else "offline", "region": "eu-west",
        "type": "g6-standard-2", "ipv4": [one.public, one.private.replace("10.7.", "192.168.")], "ipv6": None,
        "tags": [], "hypervisor": "kvm", "specs": {}, "alerts": {}, "backups": {}, "watchdog_enabled": True,
        "image": None, "created": "2026-01-02T03:04:05",
    }  # fmt: skip


def _instances(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    servers, page = double.listed(), int(query.get("page", 1))
    shown = servers[(page - 1) * PAGE : page * PAGE]
    pages = max(1, -(-len(servers) // PAGE))
    return 200, {"data": [_instance(one) for one in shown], "page": page, "pages": pages}


def _instance_by_id(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    one = double.servers.get(found[1])
    return (200, _instance(one)) if one else (404, {"errors": [{"reason": "Not found"}]})


def _token_v3(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    user = body["auth"]["identity"]["password"]["user"]
    if (user["name"], user["password"]) != ("ccm", SECRET):
        return 401, {"error": {"code": 401, "message": f"Could not authenticate with password {user['password']}"}}
    endpoint = {"interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": f"{double.url}/compute"}
    compute = {"type": "compute", "name": "nova", "id": "1", "endpoints": [{"id": "2", **endpoint}]}
    token = {
        "expires_at": "2036-01-02T03:04:05.000000Z", "issued_at": "2026-01-02T03:04:05.000000Z", "methods": [],
        "catalog": [compute], "user": {"id": "u", "name": "ccm", "domain": {"id": "default", "name": "Default"}},
        "project": {"id": "p", "name": "blue", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "r", "name": "member"}],
    }  # fmt: skip
    return 201, {"token": token}


def _nova(double: Double, one: Server) -> dict[str, Any]:
    addresses = {"blue": [{"addr": one.private, "version": 4}, {"addr": one.public, "version": 4}]}
    return {
        "id": one.id, "name": one.name, "status": "ACTIVE" if one.running else "SHUTOFF", "addresses": addresses,
        "hostId": "h", "tenant_id": "p", "user_id": "u", "metadata": {}, "created": "2026-01-02T03:04:05Z",
        "updated": "2026-01-02T03:04:05Z", "image": {"id": "i"}, "flavor": {"id": "3", "original_name": "m1.large"},
        "OS-EXT-AZ:availability_zone": "nova-a",
        "links": [{"rel": "self", "href": f"{double.url}/compute/servers/{one.id}"}],
    }  # fmt: skip


def _nova_servers(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    return 200, {"servers": [_nova(double, one) for one in double.listed()]}


def _nova_server(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    one = double.servers.get(found[1])
    missing = {"itemNotFound": {"code": 404, "message": f"Instance {found[1]} could not be found."}}
    return (200, {"server": _nova(double, one)}) if one else (404, missing)


def _token_v2(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    given = body["auth"]["RAX-KSKEY:apiKeyCredentials"]
    if (given["username"], given["apiKey"]) != ("ccm", SECRET):
        return 401, {"unauthorized": {"code": 401, "message": "Unable to authenticate user with credentials provided."}}
    catalog = [
        {
            "name": name,
            "type": kind,
            "endpoints": [{"region": "ORD", "tenantId": "p", "publicURL": f"{double.url}{at}"}],
        }
        for name, kind, at in (
            ("cloudServersOpenStack", "compute", "/compute"),
            ("cloudLoadBalancers", "rax:load-balancer", "/lb"),
        )
    ]
    token = {"id": "t", "expires": "2036-01-02T03:04:05.000Z", "tenant": {"id": "p", "name": "p"}}
    return 200, {"access": {"token": token, "serviceCatalog": catalog, "user": {"id": "u", "name": "ccm"}}}


def _shown(one: Balancer) -> dict[str, Any]:
    return {
        "id": one.id, "name": one.name, "port": one.port, "protocol": one.protocol, "algorithm": "ROUND_ROBIN",
        "status": "ACTIVE", "virtualIps": [{"id": one.vip, "address": f"198.18.4.{one.vip % 250}"}],
        "nodeCount": len(one.nodes),
    }  # fmt: skip


def _balancers(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    start = int(query["offset"])
    shown = sorted(double.balancers.values(), key=lambda one: one.id)[start : start + int(query["limit"])]
    return 200, {"loadBalancers": [_shown(one) for one in shown]}


def _create_balancer(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    asked = body["loadBalancer"]
    if not asked["nodes"]:
        return 400, {"message": "At least one node is required.", "code": 400}
    number, address = next(double.numbers), asked["virtualIps"][0]
    made = Balancer(number, asked["name"], asked["port"], asked["protocol"], address.get("id", number))
    double.balancers[number] = made
    _add(double, made, asked["nodes"])
    return 202, {"loadBalancer": {**_shown(made), "nodes": list(made.nodes.values())}}


def _add(double: Double, balancer: Balancer, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    added = [{**node, "id": next(double.numbers), "status": "ONLINE"} for node in nodes]
    balancer.nodes.update({node["id"]: node for node in added})
    return added


def _delete_balancer(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    return (202, "") if double.balancers.pop(int(found[1]), None) else (404, {"message": "Load balancer not found"})


def _nodes(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    return 200, {"nodes": list(double.balancers[int(found[1])].nodes.values())}


def _add_nodes(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    return 202, {"nodes": _add(double, double.balancers[int(found[1])], body["nodes"])}


def _change_node(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    double.balancers[int(found[1])].nodes[int(found[2])].update(body.get("node", body))
    return 202, ""


def _delete_node(double: Double, found: Any, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
    nodes = double.balancers[int(found[1])].nodes
    if len(nodes) == 1:
        return 422, {"message": "The last node of a load balancer cannot be removed.", "code": 422}
    return (202, "") if nodes.pop(int(found[2]), None) else (404, {"message": "Node not found"})


_ROUTES: tuple[tuple[str, Route], ...] = (
    (r"GET /v2/droplets", _droplets),
    (r"GET /v2/droplets/(\w+)", _droplet_by_id),
    (r"GET /v4/linode/instances", _instances),
    (r"GET /v4/linode/instances/(\w+)", _instance_by_id),
    (r"POST /v3/auth/tokens", _token_v3),
    (r"GET /compute/servers/detail", _nova_servers),
    (r"GET /compute/servers/([\w-]+)", _nova_server),
    (r"POST /v2.0/tokens", _token_v2),
    (r"GET /lb/loadbalancers", _balancers),
    (r"POST /lb/loadbalancers", _create_balancer),
    (r"DELETE /lb/loadbalancers/(\d+)", _delete_balancer),
    (r"GET /lb/loadbalancers/(\d+)/nodes", _nodes),
    (r"POST /lb/loadbalancers/(\d+)/nodes", _add_nodes),
    (r"PUT /lb/loadbalancers/(\d+)/nodes/(\d+)", _change_node),
    (r"DELETE /lb/loadbalancers/(\d+)/nodes/(\d+)", _delete_node),
)


@contextmanager
def served(double: Double) -> Iterator[Double]:
    """The double over HTTP, on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = double.answer(self.command, self.path, dict(self.headers), body)
            data = (document if isinstance(document, str) else json.dumps(document)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status == 429:
                self.send_header("Retry-After", "7")
            if self.path.startswith("/v3/auth"):
                self.send_header("X-Subject-Token", "t")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        @override
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that broke its connection, as the conformance suite does

    server = Quiet(("127.0.0.1", 0), Handler)
    double.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="double", daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
