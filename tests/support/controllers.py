"""What controllers are built on, replaced by dicts and lists: API server, cache, Event recorder,
cloud.

No threads, no network, no waits. A test changes the `Server`, shows the change to the triggers when
it wants to, and reads what was written.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from attrs import define, field, frozen
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.internal.patching import apply_patch
from controllers.cloudcalls import Answer
from controllers.runtime.api import MERGE_PATCH, Response, from_status
from controllers.runtime.cache import NODES, key_of
from controllers.runtime.queue import WorkQueue

Raw = dict[str, Any]
T = TypeVar("T")

DELETED_AT = "2026-01-02T03:04:05Z"


def clone(value: Any) -> Any:
    """A copy of JSON, at a fifth of the cost of `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: clone(inner) for key, inner in value.items()}
    return [clone(inner) for inner in value] if isinstance(value, list) else value


class Event(NamedTuple):
    """An Event, and the name of the object that it is about."""

    name: str
    type: str
    reason: str
    message: str


@define
class Recorder:
    """Stands in for EventRecorder."""

    events: list[Event] = field(factory=list)
    about: list[Any] = field(factory=list)

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        self.about.append(obj)
        self.events.append(Event(_name_of(obj), type, reason, message))

    def reasons(self, name: str | None = None, *, type: str | None = None) -> list[str]:
        return [one.reason for one in self.events if name in (None, one.name) and type in (None, one.type)]

    def messages(self, type: str | None = None) -> list[str]:
        return [one.message for one in self.events if type in (None, one.type)]

    def clear(self) -> None:
        self.events.clear()
        self.about.clear()


def _name_of(obj: Any) -> str:
    if isinstance(obj, dict):
        return str(obj["metadata"]["name"])
    return str(getattr(obj, "name", None) or obj.metadata.name)


@define
class Lister(Generic[T]):
    """Stands in for an informer's lister: what the cache shows."""

    objects: dict[str, T] = field(factory=dict)

    def get(self, key: str) -> T | None:
        return self.objects.get(key)

    def list(self) -> list[T]:
        return list(self.objects.values())

    def take(self, triggers: Any, key: str, new: T | None) -> None:
        """The cache hears of one change, and tells the triggers."""
        old = self.objects.pop(key, None) if new is None else self.objects.get(key)
        if new is None:
            if old is not None:
                triggers.on_delete(old)
            return
        self.objects[key] = new
        if old is None:
            triggers.on_add(new, False)
        else:
            triggers.on_update(old, new)


class Crash(BaseException):
    """The process dies here."""


@frozen
class Fault:
    """The next call raises `error`, before or after it had its effect."""

    error: BaseException
    after: bool = False


def refuse(error: BaseException, times: float = float("inf")) -> Callable[..., None]:
    """A hook that raises `error`, so many times."""
    left = times

    def hook(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error

    return hook


def nothing(*_: Any) -> None:
    """A hook that does nothing."""


class Server:
    """The API server's nodes and Services, as a RestClient shows them: UIDs, versions,
    preconditions, finalizers."""

    def __init__(self) -> None:
        self.nodes: dict[str, Raw] = {}
        self.services: dict[str, Raw] = {}
        """By "namespace/name"."""
        self.version = 100
        self.log: deque[tuple[str, str, Raw | None]] = deque()
        """Every change: plural, key and object; None: deleted."""
        self.gets: list[tuple[str, Mapping[str, str]]] = []
        """Path and query of each read."""
        self.patches: list[tuple[str, Raw]] = []
        """("name" or "name/status", body) of each PATCH, those without effect too."""
        self.applied: list[tuple[str, Raw]] = []
        """Those that were not refused."""
        self.deletes: list[Raw] = []
        """Body of each DELETE."""
        self.deleted: list[str] = []
        self.faults: deque[Fault] = deque()
        self.before: Callable[[str, Raw], None] = nothing
        """Called with (name, body) before each write is looked at; may raise, or change things."""
        self.after: Callable[[str, Raw], None] = nothing
        """The same once it is applied."""
        self.on_change: Callable[[str, Raw | None], None] = nothing
        """Called with the key and the object, None where it is gone, after each change."""
        self.proxy_404 = False
        """Whether a proxy answers every read of an object."""
        self.refuses_status = False
        self.user_agent = "cloud-controller-manager/1.0"
        self.protobuf = True

    # ---- as people and other controllers use it

    def put(self, raw: Raw) -> None:
        """Create or replace a node or Service."""
        raw = clone(raw)
        metadata = raw["metadata"]
        namespace = metadata.get("namespace")
        self._store(f"{namespace}/{metadata['name']}" if namespace else metadata["name"], raw)

    def edit(self, key: str, change: Callable[[Raw], object]) -> None:
        """Change a node or Service in place."""
        raw = clone(self._kept(key)[key])
        change(raw)
        if raw != self._kept(key)[key]:
            self._store(key, raw)

    def set_type(self, key: str, type: str) -> None:
        """As the API server does it: a Service that is no LoadBalancer has no such status."""

        def change(raw: Raw) -> None:
            raw["spec"]["type"] = type
            if type != "LoadBalancer":
                raw["status"]["loadBalancer"] = {}

        self.edit(key, change)

    def delete(self, key: str) -> None:
        """As a user deletes: finalizers hold a Service."""
        if "/" in key:
            self.edit(key, lambda raw: raw["metadata"].update(deletionTimestamp=DELETED_AT))
        else:
            self._store(key, None)

    def _kept(self, key: str) -> dict[str, Raw]:
        return self.services if "/" in key else self.nodes

    def _store(self, key: str, raw: Raw | None) -> None:
        self.version += 1
        if raw is not None:
            raw["metadata"]["resourceVersion"] = str(self.version)
            if raw["metadata"].get("deletionTimestamp") and not raw["metadata"].get("finalizers"):
                raw = None
        if raw is None:
            self._kept(key).pop(key, None)
        else:
            self._kept(key)[key] = raw
        self.log.append(("services" if "/" in key else "nodes", key, clone(raw)))
        self.on_change(key, raw)

    # ---- as the controller uses it

    def get(self, path: str, *, query: Mapping[str, str] | None = None, **_: Any) -> Raw:
        self.gets.append((path, dict(query or {})))
        fault = self.faults.popleft() if self.faults else None
        if fault is not None:
            raise fault.error
        kept = self.services if "/services" in path else self.nodes
        if path.endswith(("/nodes", "/services")):
            wanted = (query or {}).get("fieldSelector", "").removeprefix("metadata.name=")
            items = [raw for raw in kept.values() if not wanted or raw["metadata"]["name"] == wanted]
            return {"metadata": {"resourceVersion": str(self.version)}, "items": clone(items)}
        key, name, _subresource = _parsed(path)
        if key not in kept or self.proxy_404:
            raise self.refused(404, "NotFound", "GET", path, {} if self.proxy_404 else {"name": name})
        found: dict[str, Any] = clone(kept[key])
        return found

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Any = None,
        content_type: str = MERGE_PATCH,
        **_: Any,
    ) -> Response:
        if method == "GET":
            found: Any = self.get(path, query=query)
            kind = "ServiceList" if path.endswith("/services") else "NodeList"
            return _answer({"kind": kind, **found} if isinstance(found, dict) else found)
        key, name, subresource = _parsed(path)
        if method == "DELETE":
            self.deletes.append(body)
            self.before(name, body)
            return self._delete(key, name, body, path)
        assert method == "PATCH", "no object is ever sent whole"
        sent = (f"{name}/{subresource}" if subresource else name, clone(body))
        self.patches.append(sent)
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not fault.after:
            raise fault.error
        self.before(name, body)
        if self.refuses_status and subresource:
            raise self.refused(500, "InternalError", method, path, {})
        answer = self.apply(path, body, content_type)
        self.applied.append(sent)
        self.after(name, body)
        if fault is not None:
            raise fault.error
        return _answer(answer)

    def apply(self, path: str, body: Raw, content_type: str = MERGE_PATCH) -> Raw:
        """A PATCH arrives: at once, or long after it was sent. Returns the object."""
        key, name, subresource = _parsed(path)
        old = self._kept(key).get(key)
        if old is None:
            raise self.refused(404, "NotFound", "PATCH", path, {"name": name})
        metadata = body.get("metadata", {})
        if metadata.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise self.refused(422, "Invalid", "PATCH", path, {"causes": [{"field": "metadata.uid"}]})
        if metadata.get("resourceVersion", old["metadata"]["resourceVersion"]) != old["metadata"]["resourceVersion"]:
            raise self.refused(409, "Conflict", "PATCH", path, {"name": name})
        new = clone(apply_patch(old, body, content_type))
        fixed = "spec" if subresource == "status" else "status"
        if fixed in old:
            new[fixed] = old[fixed]
        self.admit(path, old, new)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new != old:
            self._store(key, new)
        return self._kept(key).get(key) or new

    def admit(self, path: str, old: Raw, new: Raw) -> None:
        """Raise for what the API server would refuse in a PATCH of ours; may add to `new`."""
        added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if added and old["metadata"].get("deletionTimestamp"):
            raise self.refused(422, "Invalid", "PATCH", path, {"causes": [{"field": "metadata.finalizers"}]})

    def _delete(self, key: str, name: str, body: Raw, path: str) -> Response:
        found = self._kept(key).get(key)
        if found is None:
            raise self.refused(404, "NotFound", "DELETE", path, {"name": name})
        metadata = found["metadata"]
        if body["preconditions"] != {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}:
            raise self.refused(409, "Conflict", "DELETE", path, {"name": name})
        if metadata.get("finalizers"):
            self.edit(key, lambda raw: raw["metadata"].update(deletionTimestamp=DELETED_AT))
            return _answer(self._kept(key)[key])
        self._store(key, None)
        self.deleted.append(name)
        return _answer({"kind": "Status", "status": "Success", "details": {"name": name}})

    def refused(self, status: int, reason: str, method: str, path: str, details: Raw) -> Exception:
        """An error as the API server answers it."""
        body = {"kind": "Status", "reason": reason, "code": status, "details": details}
        return from_status(status, {}, json.dumps(body).encode(), method=method, path=path)


def _parsed(path: str) -> tuple[str, str, str]:
    """Key, name and subresource of an object's path."""
    parts = path.removeprefix("/api/v1/").split("/")
    key = f"{parts[1]}/{parts[3]}" if parts[0] == "namespaces" else parts[1]
    rest = parts[3:] if parts[0] == "namespaces" else parts[1:]
    return key, rest[0], rest[1] if len(rest) > 1 else ""


def _answer(body: Raw) -> Response:
    return Response(200, {}, json.dumps(body).encode())


def take_all(queue: WorkQueue[str]) -> list[str]:
    """Every key that is ready, each done at once."""
    keys = []
    while (key := queue.get(timeout=0)) is not None:
        keys.append(key)
        queue.done(key)
    return keys


def parsed_node(raw: Raw) -> V1Node:
    """A node as the cache has it."""
    return NODES.parse(clone(raw))


class NodeCloud:
    """Stands in for the questions about nodes of CloudCalls: answers by the node's name."""

    provider_name = "fake"

    def __init__(self, otherwise: Any = None, prefixes: Sequence[str] = ("fake://",)) -> None:
        self.provider_id_prefixes = tuple(prefixes)
        self.otherwise = otherwise
        """What is answered about a node that `says` does not have."""
        self.says: dict[str, Any] = {}
        """Answer or error, by the node's name."""
        self.silent: set[str] = set()
        """A call about them does not return."""
        self.asked: list[str] = []
        self.moment: Callable[[], None] = nothing
        """Called before and after each answer is made."""

    def answer(self, node: V1Node, deliver: Callable[[str, Any], None]) -> None:
        name = key_of(node)
        self.asked.append(name)
        self.moment()
        said = self.says.get(name, self.otherwise)
        self.moment()
        if name not in self.silent:
            deliver(name, Answer(node, said))

    def fetch_metadata(self, nodes: Sequence[V1Node], deliver: Callable[[str, Any], None], **_: Any) -> None:
        for node in nodes:
            self.answer(node, deliver)


@define
class Calls:
    """A cloud's side of calls: what was called, and what fails."""

    calls: list[tuple[str, str]] = field(factory=list)
    """(method, what about)."""
    fail: dict[object, Exception] = field(factory=dict)
    """Methods, or (method, what about), that raise."""
    faults: deque[Fault] = field(factory=deque)
    """These befall the next calls."""

    def enter(self, method: str, about: str) -> Fault | None:
        """A call begins; returns the fault that is to befall it at its end."""
        self.calls.append((method, about))
        error = self.fail.get(method) or self.fail.get((method, about))
        if error is not None:
            raise error
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not fault.after:
            raise fault.error
        return fault

    @staticmethod
    def leave(fault: Fault | None) -> None:
        if fault is not None:
            raise fault.error

    def count(self, method: str) -> int:
        return sum(called == method for called, _ in self.calls)

    def methods(self) -> list[str]:
        return [called for called, _ in self.calls]
