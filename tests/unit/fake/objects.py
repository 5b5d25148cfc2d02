"""Nodes, Services and volumes as the fake cloud is asked about them, and calls beside the
test's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import Call, call_scope
from tests.support.there import there


def node(name: str, provider_id: str = "", **parts: Any) -> V1Node:
    spec = {"providerID": provider_id} if provider_id else {}
    metadata = {"name": name, **parts.pop("metadata", {})}
    return there(V1Node.from_dict({"metadata": metadata, "spec": spec, **parts}))


def nodes(*names: str) -> list[V1Node]:
    return [node(name) for name in names]


def service(name: str = "web", uid: str = "", **spec: Any) -> V1Service:
    made = V1Service.from_dict(
        {
            "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}], **spec},
        }
    )
    assert made is not None
    return made


def volume(name: str, handle: str = "") -> V1PersistentVolume:
    csi = {"csi": {"driver": "csi.cloud.example", "volumeHandle": handle}} if handle else {}
    return there(V1PersistentVolume.from_dict({"metadata": {"name": name}, "spec": csi}))


def in_thread(work: Callable[[], object], call: Call | None = None) -> Future[object]:
    """Start the work in a thread of its own, inside a call of a host."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            with call_scope(call or Call()):
                future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed over to the test
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
