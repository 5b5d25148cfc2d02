"""The fake cloud behind HTTP, for managers in other languages than Python, which share it by
`FakeCloud.share`.

A call is `POST /METHOD` with a JSON object: `caller`, `cluster`, and what the method takes:
`service`, `nodes` (Node objects, metadata and providerID are enough), `route`, `hint`. The cloud
works on its own side, as real ones do: what was asked is done, whatever becomes of the process that
asked.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from attrs import frozen
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, InstanceMetadata, InstanceNotFound, Route
from cloudprovider.testing.fake import Caller, CallRecord, FakeCloud

JSON = dict[str, Any]

CHANGING: Final = frozenset(
    {"ensure_load_balancer", "update_load_balancer", "ensure_load_balancer_deleted", "create_route", "delete_route"}
)
"""The methods that change the cloud."""


@frozen
class CloudCall:
    """One call, in Unix seconds of the cloud's clock: when it came, and when it was answered (inf:
    not yet)."""

    caller: str
    method: str
    key: str
    """What it was about."""
    began: float
    ended: float = float("inf")


class CloudServer:
    """Serves `cloud` on a free port of the loopback interface while it is entered. `calls` may be
    read at any time."""

    def __init__(self, cloud: FakeCloud) -> None:
        self.cloud = cloud
        self._methods = _methods(cloud)
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = server._answer(self.path.strip("/"), body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def calls(self) -> list[CloudCall]:
        """Every call so far, in the order in which they came."""
        return [_call(one) for one in self.cloud.calls.log() if one.caller.name]

    def __enter__(self) -> CloudServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _answer(self, method: str, body: JSON) -> tuple[int, object]:
        try:
            with self.cloud.calls.calling_for(Caller(0, str(body.get("caller")))):
                return 200, self._methods[method](body)
        except InstanceNotFound as error:
            return 404, {"error": str(error)}
        except CloudProviderError as error:
            return 500, {"error": str(error)}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """A manager that is killed breaks its connections; that is no news here."""


def _methods(cloud: FakeCloud) -> Mapping[str, Callable[[JSON], object]]:
    instances, batch, balancers, routes = (
        cloud.instances_v2(), cloud.instances_batch(), cloud.load_balancer(), cloud.routes()
    )  # fmt: skip
    assert instances is not None
    assert batch is not None
    assert balancers is not None
    assert routes is not None

    def many(found: Mapping[str, object]) -> JSON:
        return {
            name: {"error": str(one), "gone": isinstance(one, InstanceNotFound)}
            if isinstance(one, CloudProviderError)
            else (metadata(one) if isinstance(one, InstanceMetadata) else getattr(one, "name", None))
            for name, one in found.items()
        }

    return {
        "instance_exists": lambda body: instances.instance_exists(_node(body)),
        "instance_shutdown": lambda body: instances.instance_shutdown(_node(body)),
        "instance_metadata": lambda body: metadata(instances.instance_metadata(_node(body))),
        "instances_metadata": lambda body: many(batch.instances_metadata(_nodes(body))),
        "instances_state": lambda body: many(batch.instances_state(_nodes(body))),
        "get_load_balancer": lambda body: _status(balancers.get_load_balancer(body["cluster"], _service(body))),
        "ensure_load_balancer": lambda body: _status(
            balancers.ensure_load_balancer(body["cluster"], _service(body), _nodes(body))
        ),
        "update_load_balancer": lambda body: balancers.update_load_balancer(
            body["cluster"], _service(body), _nodes(body)
        ),
        "ensure_load_balancer_deleted": lambda body: balancers.ensure_load_balancer_deleted(
            body["cluster"], _service(body)
        ),
        "list_routes": lambda body: [
            {"name": one.name, "target": one.target_node, "cidr": one.destination_cidr, "blackhole": one.blackhole}
            for one in routes.list_routes(body["cluster"])
        ],
        "create_route": lambda body: routes.create_route(body["cluster"], body["hint"], _route(body)),
        "delete_route": lambda body: routes.delete_route(body["cluster"], _route(body)),
    }


def metadata(found: InstanceMetadata) -> JSON:
    """The metadata of an instance as it travels."""
    return {
        "providerID": found.provider_id,
        "type": found.instance_type,
        "zone": found.zone,
        "region": found.region,
        "addresses": [{"type": one.type, "address": one.address} for one in found.node_addresses],
    }


def _call(record: CallRecord) -> CloudCall:
    ended = float("inf") if record.ended is None else record.time + record.ended - record.started
    return CloudCall(record.caller.name, record.method, "/".join(record.keys[:2]), record.time, ended)


def _service(body: JSON) -> V1Service:
    service = V1Service.from_dict(body["service"])
    assert service is not None
    return service


def _node(body: JSON) -> V1Node:
    (node,) = _nodes(body)
    return node


def _nodes(body: JSON) -> list[V1Node]:
    nodes = [V1Node.from_dict(raw) for raw in body.get("nodes") or ()]
    return [node for node in nodes if node is not None]


def _route(body: JSON) -> Route:
    route = body["route"]
    return Route(route.get("name", ""), route["target"], route["cidr"], blackhole=route.get("blackhole", False))


def _status(status: V1LoadBalancerStatus | None) -> list[str] | None:
    """Its addresses; None where there is no load balancer."""
    return None if status is None else [one.ip or "" for one in status.ingress or ()]
