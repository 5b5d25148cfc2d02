"""What the clients of a plan run ask for: one request, the object that its path names, and a watch.
No I/O.

`clients.py` makes them; `cluster.py` answers them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final
from urllib.parse import unquote

from attrs import frozen

from controllers.runtime.api import LineStream

QUESTION: Final = re.compile(
    r"/apis/(authentication|authorization)\.k8s\.io/[^/]+/"
    r"(tokenreviews|selfsubjectreviews|subjectaccessreviews|selfsubject(access|rules)reviews)"
)
"""The paths where a POST asks something without changing anything: reviews."""
_OF_NAMESPACES: Final = frozenset({"status", "finalize"})


@frozen(kw_only=True)
class Request:
    """One request, before it is sent."""

    client: str
    """The identity, as in `ClientBuilder.rest(name)`."""
    method: str
    path: str
    """Without the query."""
    content_type: str
    body: Any
    """As the caller gave it: an object, or JSON as text or bytes; None without one."""


@frozen
class Place:
    """One path of the API. Empty parts are not in it."""

    prefix: str
    """"/api/v1", "/apis/GROUP/VERSION"."""
    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """The object's key in a cache."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def object(self) -> tuple[str, str, str]:
        """Which object it is, whatever the subresource."""
        return self.prefix, self.plural, self.key


def place_of(path: str) -> Place | None:
    """None for paths that are no resource's, such as /readyz."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        prefix, rest = "/".join(["", *parts[:2]]), parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        prefix, rest = "/".join(["", *parts[:3]]), parts[3:]
    else:
        return None
    namespace = ""
    # /namespaces/NAME/status is of the namespace itself, not of a kind inside it.
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES):
        namespace, rest = rest[1], rest[2:]
    plural, name, *sub = [*rest, "", ""][: max(2, len(rest))]
    return Place(prefix, plural, namespace, name, "/".join(sub))


class Changes(LineStream):
    """A watch whose events `put` gives. One thread reads; all else is for any thread.

    Its reader has applied what it took before it asks for more."""

    def __init__(self, version: str, bookmarks: float) -> None:
        """From this version; a bookmark after so many seconds without an event."""
        self.version = version
        self._bookmarks = bookmarks
        self._events: SimpleQueue[bytes | None] = SimpleQueue()
        self._put = self._taken = self._applied = 0

    @property
    def busy(self) -> bool:
        """Whether an event is not in the cache yet."""
        return self._applied < self._put

    def put(self, event: str, obj: Mapping[str, Any]) -> None:
        """One event, of an object at a later version than any before."""
        self.version = obj["metadata"]["resourceVersion"]
        self._put += 1
        self._events.put(_event(event, obj))

    def open(self) -> None:
        """Nothing is to be opened."""

    def close(self) -> None:
        """End the iteration."""
        self._events.put(None)

    def __next__(self) -> bytes:
        self._applied = self._taken
        try:
            piece = self._events.get(timeout=self._bookmarks)
        except Empty:
            return _event("BOOKMARK", {"metadata": {"resourceVersion": self.version}})
        if piece is None:
            raise StopIteration
        self._taken += 1
        return piece


def _event(event: str, obj: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": obj}).encode()
