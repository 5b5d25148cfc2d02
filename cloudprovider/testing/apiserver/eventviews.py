"""Events of events.k8s.io/v1: a second view of the Events that the core group stores, with stricter rules.

`VIEW` translates between the two forms; a write to either group shows in both. Follows pkg/apis/events/v1/conversion.go
and pkg/apis/core/validation/events.go of k8s.io/kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import JSON, Cause, invalid_value, required
from cloudprovider.testing.apiserver.events import EventStrategy, legacy_problems
from cloudprovider.testing.apiserver.kinds import NAME_FIELDS, FieldGetter, View, read
from cloudprovider.testing.apiserver.metadata import IMMUTABLE
from cloudprovider.testing.apiserver.names import dns_subdomain
from cloudprovider.testing.apiserver.schema import Context, DecodeError, struct

GROUP: Final = "events.k8s.io"
_CORE_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES: Final = {core: new for new, core in _CORE_NAMES.items()}

FIELDS: Final[Mapping[str, FieldGetter]] = {
    **NAME_FIELDS,
    **{
        f"regarding.{part}": read("involvedObject", part)
        for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": read("reason"),
    "reportingController": read("reportingComponent"),
    "type": read("type"),
}
"""Field labels by this group's names, read from the form that is stored."""


def _shown(obj: JSON) -> JSON:
    return _translated(obj, _NEW_NAMES, "EventsEvent", f"{GROUP}/v1")


def _kept(obj: JSON) -> JSON:
    return _translated(obj, _CORE_NAMES, "Event", "v1")


def _translated(obj: JSON, names: Mapping[str, str], type_name: str, version: str) -> JSON:
    renamed = {names.get(field, field): value for field, value in obj.items()}
    try:
        cleaned = struct(type_name).clean(renamed, None, "", Context())
    except DecodeError:  # an object that was put in raw
        cleaned = renamed
    head = {"kind": "Event", "apiVersion": version}
    return {**head, **cleaned, **head}


VIEW: Final = View(_shown, _kept)


class EventViewStrategy(EventStrategy):
    """Rules of this group: beside those of the core group an event has a time, a type, and no deprecated fields."""

    has_core_metadata = True

    def validate(self, obj: JSON) -> list[Cause]:
        """A new event."""
        event = _kept(obj)
        causes = legacy_problems(event, "reportingController") + _series(event)
        if event.get("eventTime") is None:
            causes.append(required("eventTime"))
        if event.get("type") not in ("Normal", "Warning"):
            causes.append(invalid_value("type", "", f"has invalid value: {event.get('type', '')}"))
        for field in ("firstTimestamp", "lastTimestamp", "count"):
            if event.get(field):
                causes.append(invalid_value(field, "", "needs to be unset"))
        if event["source"]:
            causes.append(invalid_value("source", "", "needs to be unset"))
        return causes

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """Only the series goes on."""
        event, before = _kept(obj), _kept(old)
        causes = legacy_problems(event, "reportingController")
        if event.get("series") != before.get("series"):
            causes += _series(event)
        for field, in_go in _FIXED:
            shown = field if field != "reportingComponent" else "reportingController"
            if (event.get(field) or None) != (before.get(field) or None):
                causes.append(invalid_value(shown, in_go(event.get(field)), IMMUTABLE))
        return causes

    def validate_name(self, name: str) -> list[str]:
        """A DNS subdomain."""
        return dns_subdomain(name)


def _series(event: JSON) -> list[Cause]:
    series = event.get("series")
    if series is None:
        return []
    causes: list[Cause] = []
    if series.get("count", 0) < 2:
        causes.append(invalid_value("series.count", "", "should be at least 2"))
    if series.get("lastObservedTime") is None:
        causes.append(required("series.lastObservedTime"))
    return causes


def _text(value: Any) -> Any:
    return value or ""


def _plain(value: Any) -> Any:
    return value


def _number(value: Any) -> Any:
    return value or 0


def _source(value: Any) -> Any:
    return {"Component": value.get("component", ""), "Host": value.get("host", "")}


def _reference(value: Any) -> Any:
    if value is None:
        return None
    parts = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    names = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")
    return {name: value.get(part, "") for name, part in zip(names, parts, strict=True)}


_FIXED: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("involvedObject", _reference),
    ("reason", _text),
    ("message", _text),
    ("source", _source),
    ("firstTimestamp", _plain),
    ("lastTimestamp", _plain),
    ("count", _number),
    ("type", _text),
    ("eventTime", _plain),
    ("action", _text),
    ("related", _reference),
    ("reportingComponent", _text),
    ("reportingInstance", _text),
)
"""What stays, each with how the real server's messages show it."""
