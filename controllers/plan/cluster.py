"""In the API server's place in a dry run: no write is sent; each becomes rows, and is answered.

The object as it would be then goes to the watches of its kind, and is what the next read shows. So
what follows from a write is planned too. Requests come from `clients.py`, rows go to the plan.
Events are not written; the warnings among them are shown. An answer is what kube-apiserver would
give, but for its validation, admission and permissions."""

from __future__ import annotations

import copy
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from cloudprovider.internal.cleaning import one_line
from cloudprovider.internal.jsonpatch import PatchError
from cloudprovider.internal.patching import apply_patch
from controllers.plan.describing import written
from controllers.plan.requests import QUESTION, Changes, Place, Request, place_of
from controllers.plan.rows import Kind, Plan, Row, Subject
from controllers.runtime.api import ApiError, NotFound
from controllers.runtime.cache import InformerFactory
from controllers.runtime.write import to_json

log = logging.getLogger(__name__)

JSON = dict[str, Any]
Answer = tuple[int, JSON]

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_KINDS: Final = {
    "configmaps": "ConfigMap",
    "leases": "Lease",
    "nodes": "Node",
    "persistentvolumes": "PersistentVolume",
    "secrets": "Secret",
    "serviceaccounts": "ServiceAccount",
    "services": "Service",
}
"""Of requests that do not name it; of other kinds the path's word is shown."""
_REASONS: Final = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 415: "UnsupportedMediaType", 422: "Invalid"}


class DryRunInterceptor:
    """Answers in the API server's place. Thread-safe; one write at a time."""

    def __init__(
        self,
        plan: Plan,
        controllers: Mapping[str, Sequence[str]],
        read: Callable[[str], JSON],
        *,
        at_work: Callable[[], str] = lambda: "",
        evidence: Callable[[str], str] = lambda _node: "",
    ) -> None:
        """`controllers`: the controllers of each client's name. `at_work()` says whose thread the
        present one is, where a client is shared. `read` asks the API server for one object, and
        raises as RestClient.get. `evidence` says why a Node may be deleted.
        """
        self._plan = plan
        self._controllers = controllers
        self._read = read
        self._at_work = at_work
        self._evidence = evidence
        self.informers: InformerFactory | None = None
        """Complete caches: what is in them need not be read again."""
        self._lock = threading.RLock()
        self._objects: dict[tuple[str, str, str], JSON | None] = {}
        self._originals: dict[tuple[str, str, str], JSON | None] = {}
        self._watches: dict[tuple[str, str], Changes] = {}
        self._version = 0  # the latest that is known

    def tell(self, place: Place, watch: Changes) -> None:
        """Show this watch what would be written there, in place of the one before it."""
        with self._lock:
            # An informer that lists again opens a new watch, and reads the old one no more.
            self._watches[place.prefix, place.plural] = watch
            if watch.version.isdecimal():
                self._version = max(self._version, int(watch.version))

    def busy(self) -> bool:
        """Whether something that would be written is not in its cache yet, or not with all
        handlers."""
        with self._lock:
            coming = any(watch.busy for watch in self._watches.values())
        return coming or (self.informers is not None and self.informers.busy())

    def original(self, prefix: str, plural: str, key: str) -> JSON | None:
        """An object that was written to, as it was before; None where none was."""
        with self._lock:
            return self._originals.get((prefix, plural, key))

    def answer(self, request: Request) -> Answer | None:
        """Status and JSON of the answer to every write but a question, and to a read of what was
        written; None: the request is to be sent."""
        request = evolve(request, body=_parsed(request.body))
        place = place_of(request.path)
        # What this run has written must show when it is read: else it would be written again.
        if request.method in _READS:
            return None if place is None or not place.name else self._shown(place)
        if QUESTION.fullmatch(request.path):
            return None
        if place is None:
            return _status(403, f"{request.method} {request.path} is not answered in a dry run")
        # An Event changes nothing that a controller reads: only the warnings are worth a row.
        if place.plural == "events":
            return self._event(request)
        with self._lock:
            try:
                return self._write(request, place)
            except ApiError as error:
                # No answer counts as an outage: the controller retries, and the row says "unknown".
                return _status(error.status or 503, str(error), place)
            except PatchError as error:
                # The real server may take what our patching does not: no guess is shown as a plan.
                self._cannot_tell(request, place, str(error))
                return _status(422, str(error), place)

    def shown(self, path: str, data: bytes) -> bytes:
        """The body of a sent read, with what was written since."""
        place = place_of(path)
        with self._lock:
            # Of a single object this run's own version was the answer already.
            if place is None or place.name:
                return data
            kind = (place.prefix, place.plural)
            mine = {key: obj for (*where, key), obj in self._objects.items() if tuple(where) == kind}
            if not mine:
                return data
            content = json.loads(data)
            if not isinstance(content.get("items"), list):
                return data
            items = [(_key(item), item) for item in content["items"]]
            content["items"] = [mine.get(key, item) for key, item in items if mine.get(key, item) is not None]
            content.setdefault("metadata", {})["resourceVersion"] = str(self._version)
            return json.dumps(content).encode()

    # ---- inside

    def _shown(self, place: Place) -> Answer | None:
        with self._lock:
            if place.object not in self._objects or place.subresource not in ("", "status"):
                return None
            found = self._objects[place.object]
            return _gone(place) if found is None else (200, copy.deepcopy(found))

    def _write(self, request: Request, place: Place) -> Answer:
        if request.method == "POST":
            return self._create(request, place)
        # Which objects a deletion of a whole collection would take, the server alone can say.
        if not place.name:
            self._cannot_tell(request, place, f"{request.method} of a whole collection")
            return _status(403, "not answered in a dry run", place)
        before = self._load(place)
        if before is None:
            return _gone(place)
        body = request.body if isinstance(request.body, dict) else {}
        given = body.get("preconditions") if request.method == "DELETE" else body.get("metadata")
        refusal = _refusal(before, given or {}, place)
        if refusal is not None:
            return refusal
        if request.method == "DELETE":
            return self._delete(request, place, before)
        after = apply_patch(before, request.body, request.content_type) if request.method == "PATCH" else body
        after = copy.deepcopy(after)
        after = _limited(before, after, place.subresource)
        # As the server: a write that changes nothing makes no version and wakes no watch.
        if _without_version(after) != _without_version(before):
            after["metadata"]["resourceVersion"] = self._next(before)
            metadata = after["metadata"]
            # The last finalizer of an object under deletion takes the object with it.
            over = bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")
            self._done(request, place, before, after, None if over else after)
        return 200, copy.deepcopy(after)

    def _create(self, request: Request, place: Place) -> Answer:
        if place.name:
            self._cannot_tell(request, place, f"the answer to a POST of {place.subresource} cannot be known")
            return _status(403, "not answered in a dry run", place)
        body = copy.deepcopy(request.body) if isinstance(request.body, dict) else {}
        metadata = body.setdefault("metadata", {})
        name = metadata.get("name") or f"{metadata.get('generateName', 'unnamed-')}planned"
        place = Place(place.prefix, place.plural, place.namespace, name, "")
        try:
            known = self._load(place)
        except ApiError as error:
            log.debug("whether %s exists is not known: %s", request.path, error)
            known = None
        if known is not None:
            return _status(409, f'{place.plural} "{name}" already exists', place, reason="AlreadyExists")
        metadata.update(
            name=name, uid=f"planned-{place.plural}-{place.key}", resourceVersion=self._next({"metadata": {}})
        )
        if place.namespace:
            metadata["namespace"] = place.namespace
        self._done(request, place, None, body, body)
        return 201, copy.deepcopy(body)

    def _delete(self, request: Request, place: Place, before: JSON) -> Answer:
        left = None
        # As the server: it stays until whoever set a finalizer has done its work.
        if before["metadata"].get("finalizers"):
            left = copy.deepcopy(before)
            left["metadata"].update(deletionTimestamp="1970-01-01T00:00:00Z", resourceVersion=self._next(before))
        self._done(request, place, before, None, left)
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _done(
        self, request: Request, place: Place, before: JSON | None, after: JSON | None, present: JSON | None
    ) -> None:
        """Record the write, and show it to those who watch."""
        # Of several writes the first one knows what there was before this run.
        self._originals.setdefault(place.object, before)
        subject = self._subject(place, after or before or {})
        rows = written(self._controller(request), subject, before, after)
        if after is None and subject.kind == "Node":
            rows = [evolve(row, note=self._evidence(subject.name)) for row in rows]
        self._plan.record(*rows)
        self._objects[place.object] = present
        watch = self._watches.get((place.prefix, place.plural))
        if watch is not None and present is not None:
            watch.put("MODIFIED" if before else "ADDED", present)
        elif watch is not None and before is not None:
            watch.put("DELETED", {**before, "metadata": {**before["metadata"], "resourceVersion": self._next(before)}})

    def _next(self, obj: JSON) -> str:
        version = str(obj["metadata"].get("resourceVersion") or "0")
        # A version is opaque by contract: ours has to be another one, no more.
        if not version.isdecimal():
            return f"{version}+"
        self._version = max(self._version, int(version)) + 1
        return str(self._version)

    def _load(self, place: Place) -> JSON | None:
        """The object as it is now; None without one. The caller's own copy, or never changed."""
        if place.object in self._objects:
            return self._objects[place.object]
        informer = self.informers.find(place.prefix, place.plural) if self.informers is not None else None
        cached = informer.lister.get(place.key) if informer is not None else None
        # All caches are complete by now, and a read less for each object is written to.
        if cached is not None:
            return to_json(cached)
        middle = f"/namespaces/{place.namespace}" if place.namespace else ""
        try:
            return self._read(f"{place.prefix}{middle}/{place.plural}/{place.name}")
        except NotFound:
            return None

    def _event(self, request: Request) -> Answer:
        body = request.body if isinstance(request.body, dict) else {}
        # Of core/v1 the first, of events.k8s.io the second.
        about = body.get("involvedObject") or body.get("regarding") or {}
        if body.get("type") == "Warning" and about.get("name"):
            subject = Subject(str(about.get("kind")), str(about["name"]), str(about.get("namespace") or ""))
            note = one_line(body.get("message") or body.get("note") or "")
            row = Row(self._controller(request), subject, str(body.get("reason")), note=note, kind=Kind.WARNING)
            self._plan.record(row)
        return 201, body

    def _cannot_tell(self, request: Request, place: Place, why: str) -> None:
        action = f"{request.method} {place.subresource}".strip()
        subject = self._subject(place, {})
        self._plan.record(Row(self._controller(request), subject, action, note=one_line(why), kind=Kind.UNKNOWN))

    def _subject(self, place: Place, obj: Mapping[str, Any]) -> Subject:
        kind = obj.get("kind") or _KINDS.get(place.plural) or place.plural
        return Subject(str(kind), place.name, place.namespace)

    def _controller(self, request: Request) -> str:
        # Controllers may share an account; then the thread in which it is asked tells whose it is.
        names = self._controllers.get(request.client, (request.client,))
        own = self._at_work() if len(names) > 1 else ""
        return own if own in names else names[0]


def _parsed(body: object) -> object:
    """The official client hands on an object, ours may hand on JSON; None where it is neither."""
    if not isinstance(body, bytes | str):
        return body
    try:
        return json.loads(body)
    except ValueError:
        return None


def _refusal(before: JSON, given: Mapping[str, Any], place: Place) -> Answer | None:
    """What a precondition that does not hold is answered with."""
    metadata = before["metadata"]
    if given.get("uid") not in (None, metadata.get("uid")):
        # In the server's own words: our writers read this cause.
        causes = [{"field": "metadata.uid", "reason": "FieldValueInvalid", "message": "field is immutable"}]
        return _status(422, "metadata.uid: field is immutable", place, causes=causes)
    if given.get("resourceVersion") not in (None, "", metadata.get("resourceVersion")):
        return _status(409, "the object has been modified; please apply your changes to the latest version", place)
    return None


def _limited(before: JSON, after: JSON, subresource: str) -> JSON:
    """As the server takes a write to the object, or to its status (of which an approval is a part):
    the other part stays."""
    after["metadata"] = dict(after.get("metadata") or before["metadata"])
    if subresource in ("status", "approval"):
        return {**before, "metadata": after["metadata"], **({"status": after["status"]} if "status" in after else {})}
    if "status" in before:
        after["status"] = before["status"]
    else:
        after.pop("status", None)
    return after


def _without_version(obj: JSON) -> JSON:
    return {**obj, "metadata": {key: v for key, v in obj.get("metadata", {}).items() if key != "resourceVersion"}}


def _key(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata") or {}
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata.get("name"))


def _gone(place: Place) -> Answer:
    return _status(404, f'{place.plural} "{place.name}" not found', place)


def _status(code: int, message: str, place: Place | None = None, *, reason: str = "", causes: Any = None) -> Answer:
    details: JSON = {} if place is None else {"name": place.name, "kind": place.plural}
    if causes:
        details["causes"] = causes
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS.get(code, "InternalError"),
        "details": details,
        "code": code,
    }
