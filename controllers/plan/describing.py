"""What a write changes, in words: an object before and after it, as rows of the plan. Pure; no I/O.

`cluster.py` comes with both. Each part of an object that our controllers write has an action of its
own; whatever else is written, by vendors' controllers too, is "patch" with the fields' names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.plan.rows import Change, Row, Subject, Value

JSON = Mapping[str, Any]

_IGNORED: Final = frozenset({"kind", "apiVersion"})
_IGNORED_METADATA: Final = frozenset({"resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"})
_ADDED: Final = {"taint": "taint", "finalizer": "add finalizer"}
_REMOVED: Final = {"taint": "untaint", "finalizer": "remove finalizer"}

Facet = tuple[str, str]
"""Action and field."""


def written(controller: str, subject: Subject, before: JSON | None, after: JSON | None) -> list[Row]:
    """The rows of one write: created from nothing, deleted where nothing is left."""
    if before is None:
        return [Row(controller, subject, "create")]
    if after is None:
        return [Row(controller, subject, "delete")]
    old, new = dict(facets(before, subject.kind)), dict(facets(after, subject.kind))
    groups: dict[str, list[Change]] = {}
    # That it changes is a row; what it holds is shown nowhere.
    if subject.kind == "Secret" and any(before.get(part) != after.get(part) for part in ("data", "stringData")):
        groups["patch"] = [Change("data", None, "(hidden)")]
    for facet in sorted({*old, *new}):
        was, now = old.get(facet), new.get(facet)
        if was == now:
            continue
        action, field = facet
        named = _ADDED.get(action, action) if now is not None else _REMOVED.get(action, action)
        groups.setdefault(named, []).append(Change(field, was, now))
    # To initialise a node writes many fields: to its reader that is one thing.
    if subject.kind == "Node" and any(
        change.field.startswith(f"{TAINT_EXTERNAL_CLOUD_PROVIDER}:") for change in groups.get("untaint", ())
    ):
        groups = {"initialise": [Change(_full(name, one.field), one.before, one.after) for name, one in _all(groups)]}
    elif subject.kind == "PersistentVolume" and "label" in groups:
        groups = {"label volume": [one for _, one in _all(groups)]}
    return [Row(controller, subject, action, tuple(changes)) for action, changes in groups.items()]


def _all(groups: Mapping[str, list[Change]]) -> Iterator[tuple[str, Change]]:
    return ((name, change) for name, changes in groups.items() for change in changes)


def _full(action: str, field: str) -> str:
    return f"taint {field}" if action in ("taint", "untaint") else field


def facets(obj: JSON, kind: str = "") -> Iterator[tuple[Facet, Value]]:
    """Everything of an object that a row may show."""
    for part, content in obj.items():
        # Every object has them, and no write changes them.
        if part in _IGNORED:
            continue
        if kind == "Secret" and part in ("data", "stringData"):
            continue
        for name, value in content.items() if isinstance(content, Mapping) else (("", content),):
            if part == "metadata" and name in _IGNORED_METADATA:
                continue
            yield from _PARTS.get(f"{part}.{name}", _leaves)(f"{part}.{name}" if name else part, value)


def _leaves(path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        yield ("patch", path), tuple(value)
    elif value is not None:
        yield ("patch", path), _shown(value)


def _map(action: str) -> Any:
    def read(_path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
        return (((action, key), _shown(one)) for key, one in (value or {}).items())

    return read


def _finalizers(_path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
    return ((("finalizer", name), "set") for name in value or ())


def _taints(_path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
    return (
        (("taint", f"{taint.get('key')}:{taint.get('effect')}"), taint.get("value") or "set") for taint in value or ()
    )


def _conditions(_path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
    for one in value or ():
        reason = f" ({one['reason']})" if one.get("reason") else ""
        yield ("set condition", str(one.get("type"))), f"{one.get('status')}{reason}"


def _addresses(_path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
    found = tuple(f"{one.get('type')}={one.get('address')}" for one in value or ())
    yield ("set addresses", "addresses"), found or None


def _load_balancer(_path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
    points = (value or {}).get("ingress") or ()
    yield ("set status", "load balancer"), tuple(str(p.get("ip") or p.get("hostname")) for p in points) or None


def _pod_cidrs(_path: str, value: Any) -> Iterator[tuple[Facet, Value]]:
    yield ("set pod CIDR", "podCIDRs"), tuple(value or ()) or None


def _nothing(_path: str, _value: Any) -> Iterator[tuple[Facet, Value]]:
    return iter(())


_PARTS: Final = {
    "metadata.labels": _map("label"),
    "metadata.annotations": _map("annotate"),
    "metadata.finalizers": _finalizers,
    "spec.taints": _taints,
    "spec.podCIDRs": _pod_cidrs,
    "spec.podCIDR": _nothing,  # the first of podCIDRs
    "status.addresses": _addresses,
    "status.conditions": _conditions,
    "status.loadBalancer": _load_balancer,
}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
