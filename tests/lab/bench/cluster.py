"""A real API server for one measurement, filled with nodes of 12.8 KB, and the Services that are
put into it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes.client.models.v1_node import V1Node

from controllers.node.changes import initialization
from tests.lab.bench.ccm import NAME, metadata_of
from tests.lab.envtest.server import Identity, RealAPIServer
from tests.support.api import API, NODES, each
from tests.support.nodes import big_node

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

    def create(self, path: str, objects: Iterable[JSON]) -> None:
        """Create objects over a few connections. Raises Refused."""
        each(partial(self.api.create, path), objects)


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
