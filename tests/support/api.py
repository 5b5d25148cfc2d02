"""An API server as a test sees it, embedded or real: plain requests over ``http.client``, not our
own client."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/events"
NAMESPACES = "/api/v1/namespaces"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/cloud-controller-manager"
"""The managers' own; the server keeps others there."""

JSON = dict[str, Any]
T = TypeVar("T")


def each(act: Callable[[T], object], many: Iterable[T]) -> None:
    """Do it for each of them, eight at a time."""
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(act, many):
            continue


class Refused(Exception):
    """The server answered with an error Status; ``status`` and ``body`` hold it."""

    def __init__(self, method: str, path: str, status: int, body: JSON) -> None:
        super().__init__(f"{method} {path}: {status} {body.get('reason')}: {body.get('message')}")
        self.status = status
        self.body = body


class API:
    """Requests to one API server with one token, from any thread. Connections with TLS are kept: a
    handshake costs more than most requests."""

    def __init__(self, url: str, token: str, ca_file: Path | None = None) -> None:
        self.url, self.token, self.ca_file = url, token, ca_file
        self._context: ssl.SSLContext | None = None
        self._idle: list[http.client.HTTPConnection] = []

    def __del__(self) -> None:
        for connection in self._idle:
            connection.close()

    def request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, JSON]:
        """Send one request; returns the status and the parsed body ({} where it is empty, or no
        JSON)."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": "application/json"}
        sent = None if body is None else json.dumps(body)
        try:
            connection, kept = self._idle.pop(), True
        except IndexError:
            connection, kept = self._connect(), False
        try:
            connection.request(method, path, sent, headers)
            response = connection.getresponse()
            data = response.read()
        except BaseException as error:
            connection.close()
            if kept and isinstance(error, ConnectionError | ssl.SSLError):  # the server closed it meanwhile
                return self.request(method, path, body, content_type)
            raise
        if self._context is not None and not response.will_close:
            self._idle.append(connection)
        else:
            connection.close()
        if response.status >= 400 and "json" not in (response.getheader("Content-Type") or ""):
            return response.status, {}  # "404 page not found", of a group that is not served yet
        return response.status, json.loads(data) if data else {}

    def _connect(self) -> http.client.HTTPConnection:
        parsed = urllib.parse.urlsplit(self.url)
        assert parsed.hostname is not None
        if parsed.scheme != "https":
            return http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=30)
        if self._context is None:
            self._context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        return http.client.HTTPSConnection(parsed.hostname, parsed.port, timeout=30, context=self._context)

    def _must(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> JSON:
        status, answer = self.request(method, path, body, content_type)
        if status >= 400:
            raise Refused(method, path, status, answer)
        return answer

    def get(self, path: str) -> JSON:
        return self._must("GET", path)

    def find(self, path: str) -> JSON | None:
        """The object at ``path``, or None where the server answers 404."""
        status, answer = self.request("GET", path)
        if status == 404:
            return None
        if status >= 400:
            raise Refused("GET", path, status, answer)
        return answer

    def items(self, path: str) -> list[JSON]:
        return list(self.get(path)["items"])

    def create(self, path: str, obj: JSON) -> JSON:
        return self._must("POST", path, obj)

    def patch(self, path: str, body: object, content_type: str = MERGE) -> JSON:
        return self._must("PATCH", path, body, content_type)

    def delete(self, path: str, version: str = "") -> None:
        """Delete the object, if it is there; with a `version` only if it is this one."""
        status, answer = self.request(
            "DELETE", path, {"preconditions": {"resourceVersion": version}} if version else None
        )
        if status >= 400 and status != 404:
            raise Refused("DELETE", path, status, answer)

    def events_of(self, name: str) -> list[JSON]:
        """The Events about the object of that name, oldest first; none of the API server's own.

        kube-apiserver repairs its tables of cluster IPs and ports by itself, and says so on a
        Service that was made just before.
        """
        about = [
            event
            for event in self.items(EVENTS)
            if event["involvedObject"].get("name") == name
            and not any(
                str(who).endswith("allocator-repair-controller")
                for who in (event.get("source", {}).get("component"), event.get("reportingComponent"))
            )
        ]
        return sorted(about, key=lambda event: str(event.get("firstTimestamp")))

    def reasons(self, name: str) -> list[str]:
        """The reasons of the Events about the object of that name, oldest first."""
        return [event["reason"] for event in self.events_of(name)]

    def event_messages(self, name: str) -> dict[str, str]:
        """The messages of these Events, by reason."""
        return {event["reason"]: event["message"] for event in self.events_of(name)}

    def versions(self, path: str) -> dict[str, str]:
        """The resourceVersions of the objects at that path, by name: another one is a write."""
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in self.items(path)}

    def clear(self) -> None:
        """Remove every node, event, volume, certificate request, service and namespace of a test: a
        clean cluster for the next one."""
        for collection in (NODES, "/api/v1/persistentvolumes"):
            for item in self.items(collection):
                if item["metadata"].get("finalizers"):
                    self.patch(f"{collection}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
            self._empty(collection)
        for path in self._leftovers():
            obj = self.find(path)
            if obj is not None and obj["metadata"].get("finalizers"):
                self.patch(path, {"metadata": {"finalizers": None}})
            self.delete(path)
        self._empty("/apis/certificates.k8s.io/v1/certificatesigningrequests")
        self._empty("/api/v1/namespaces/default/events")
        self._empty("/api/v1/namespaces/kube-system/events")
        for namespace in self.items(NAMESPACES):
            name = namespace["metadata"]["name"]
            if name != "default" and not name.startswith("kube-"):
                self._remove_namespace(name)

    def _empty(self, collection: str) -> None:
        status, answer = self.request("DELETE", collection)
        if status == 501:  # the embedded server deletes no collections
            for item in self.items(collection):
                self.delete(f"{collection}/{item['metadata']['name']}")
        elif status >= 400 and status != 404:
            raise Refused("DELETE", collection, status, answer)

    def _remove_namespace(self, name: str) -> None:
        """The part of the namespace controller, which does not run here; only events are left in
        this one."""
        path = f"{NAMESPACES}/{name}"
        self._empty(f"{path}/events")
        self.delete(path)
        left = self.find(path)
        if left is not None:
            self._must("PUT", f"{path}/finalize", {**left, "spec": {"finalizers": []}})

    def _leftovers(self) -> Iterator[str]:
        yield LEASE
        for item in self.items("/api/v1/services"):
            meta = item["metadata"]
            if meta["name"] != "kubernetes":
                yield f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}"
