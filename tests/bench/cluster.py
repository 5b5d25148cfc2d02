"""A real API server for one measurement, filled with nodes of 12.8 KB, and the Services that are
put into it."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kubernetes.client.models.v1_node import V1Node

from controllers.node.changes import initialization
from tests.bench.ccm import NAME, metadata_of
from tests.envtest.server import Identity, RealAPIServer
from tests.support.api import API, NODES, STRATEGIC
from tests.support.nodes import big_node

FILL_THREADS = 8

JSON = dict[str, Any]


class BenchCluster:
    """A fresh API server with these nodes, which knows these identities too. A context manager."""

    def __init__(self, nodes: Sequence[JSON], identities: Sequence[Identity] = ()) -> None:
        self.server = RealAPIServer(audit_level="Metadata", identities=identities)
        self.count = len(nodes)
        self._nodes = nodes

    def __enter__(self) -> BenchCluster:
        try:
            self.server.start()
            self.api = API(self.server.url, self.server.token, self.server.ca_file)
            while self.api.find("/api/v1/namespaces/default") is None:
                time.sleep(0.05)  # a fresh server makes its namespaces by itself; nothing is measured yet
            self.create(NODES, self._nodes)
        except BaseException:
            self.server.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def kubeconfig(self, folder: Path, identity: Identity | None = None) -> Path:
        """A kubeconfig in that folder, for the administrator or another identity."""
        return self.server.write_kubeconfig(folder / "kubeconfig", token=None if identity is None else identity.token)

    def node(self, name: str) -> JSON:
        return self.api.get(f"{NODES}/{name}")

    def create(self, path: str, objects: Sequence[JSON]) -> None:
        """Create objects over a few connections. Raises RuntimeError where one is refused."""
        self.send([("POST", path, obj) for obj in objects])

    def send(self, requests: Sequence[tuple[str, str, JSON | None]]) -> None:
        """Send requests, each a method, a path and a body, over a few connections. A PATCH is a
        strategic one. Raises RuntimeError where one is refused."""
        local = threading.local()
        context = ssl.create_default_context(cafile=str(self.server.ca_file))
        address = self.server.url.removeprefix("https://")

        def send(method: str, path: str, body: JSON | None) -> None:
            kind = STRATEGIC if method == "PATCH" else "application/json"
            headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": kind}
            if not hasattr(local, "connection"):
                local.connection = http.client.HTTPSConnection(address, context=context, timeout=60)
            local.connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = local.connection.getresponse()
            answered = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {answered[:200]!r}")

        with concurrent.futures.ThreadPoolExecutor(min(FILL_THREADS, len(requests) or 1)) as pool:
            list(pool.map(lambda one: send(*one), requests))


def new_nodes(count: int, prefix: str = "node", *, images: int = 50) -> list[JSON]:
    """Nodes as kubelets register them: they wait for their initialisation."""
    return [big_node(name, images=images) for name in names(prefix, count)]


def known_nodes(names: Iterable[str], *, ready: bool = True) -> list[JSON]:
    """Nodes that were initialised already."""
    return [_known(name, ready) for name in names]


def initialised(raw: JSON) -> JSON:
    """A node as our controller leaves it, to which nothing has to be done."""
    node = V1Node.from_dict(raw)
    assert node is not None
    status, rest = initialization(node, metadata_of(raw["metadata"]["name"])).patches
    raw["status"]["addresses"] = status.body["status"]["addresses"][1:]
    raw["metadata"] |= {key: {**raw["metadata"].get(key, {}), **more} for key, more in rest.body["metadata"].items()}
    raw["spec"] = {"providerID": rest.body["spec"]["providerID"]}
    return raw


def _known(name: str, ready: bool) -> JSON:
    node = big_node(name)
    node["spec"] = {"providerID": f"{NAME}://{name}"}
    for condition in node["status"]["conditions"]:
        if condition["type"] == "Ready" and not ready:
            condition["status"] = "Unknown"
    return node


def names(prefix: str, count: int) -> list[str]:
    """prefix-00000 and so on."""
    return [f"{prefix}-{number:05d}" for number in range(count)]
