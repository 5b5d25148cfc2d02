"""Who asked the API server for what: every finished request of its audit log, with the client's own
mark.

The managers share a user name, as two replicas do; each has a token of its own, and the token's UID
tells them apart.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen


class Tail:
    """Follows a file of lines from where it ends now (or will begin); reads only what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def read(self) -> list[bytes]:
        """The lines that were completed since the last reading."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line]


WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@frozen
class Request:
    """One answered request, in Unix seconds: when it came and when it was answered."""

    who: str
    """UID of the client's token, or what else tells clients apart."""
    verb: str
    resource: str
    """With its subresource: "nodes/status"; "" where it was about no object."""
    name: str
    namespace: str
    code: int
    began: float
    ended: float
    agent: str = ""
    uri: str = ""
    lists: bool = False
    """Whether it asked for everything of its kind: as a list, or as a watch that begins with
    all."""
    body: Mapping[str, Any] = field(factory=dict)
    """What was sent, where the audit policy keeps it: of Leases."""

    @property
    def writes(self) -> bool:
        """Whether it changed an object, or would have."""
        return self.verb in WRITES and not self.resource.endswith("reviews")


def token_uid(event: Mapping[str, Any]) -> str:
    """The UID of the client's token."""
    return str(event["user"].get("uid", ""))


def username(event: Mapping[str, Any]) -> str:
    """The client's name."""
    return str(event["user"].get("username", ""))


class AuditLog:
    """The requests since this reader was made. For one thread."""

    def __init__(self, log: Path, who: Callable[[Mapping[str, Any]], str] = token_uid) -> None:
        """`who` tells clients apart, by an Event of the log."""
        self._tail, self._who = Tail(log), who
        self.requests: list[Request] = []

    def read(self) -> list[Request]:
        """All requests so far."""
        self.requests += parse(self._tail.read(), self._who)
        return self.requests

    def by(self, who: str) -> list[Request]:
        """The requests of one client so far."""
        return [one for one in self.read() if one.who == who]

    def of(self, resource: str, *verbs: str) -> list[Request]:
        """The requests for a resource so far that were carried out, of these verbs."""
        return [one for one in self.read() if one.resource == resource and one.verb in verbs and one.code < 300]


def parse(lines: Iterable[bytes], who: Callable[[Mapping[str, Any]], str] = token_uid) -> Iterable[Request]:
    """The requests in lines of an audit log."""
    for line in lines:
        event = json.loads(line)
        about = event.get("objectRef") or {}
        if event["stage"] not in ("ResponseComplete", "Panic", "ResponseStarted"):
            continue
        yield Request(
            who=who(event),
            verb=event["verb"],
            resource="/".join(filter(None, (about.get("resource", ""), about.get("subresource", "")))),
            name=about.get("name", ""),
            namespace=about.get("namespace", ""),
            code=event.get("responseStatus", {}).get("code", 0),
            began=seconds_of(event["requestReceivedTimestamp"]),
            ended=seconds_of(event["stageTimestamp"]),
            agent=event.get("userAgent", ""),
            uri=event.get("requestURI", ""),
            lists=event["verb"] == "list" or "sendInitialEvents=true" in event.get("requestURI", ""),
            body=event.get("requestObject", {}) if about.get("resource") == "leases" else {},
        )


def rights_used(requests: Iterable[Request], named: Collection[str]) -> set[tuple[str, str, str]]:
    """(verb, resource, name) of these requests; the name for the `named` resources only, for which
    a rule can be about one object. What every user may ask about itself is left out."""
    return {
        (one.verb, one.resource, one.name if one.resource in named and one.verb != "create" else "")
        for one in requests
        if one.resource and not one.resource.startswith("selfsubject")
    }


def seconds_of(stamp: str) -> float:
    """A timestamp of the API server's, in Unix seconds."""
    return datetime.datetime.fromisoformat(stamp).timestamp()
