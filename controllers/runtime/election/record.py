"""What stands in a Lease, what it means to us, and what we write into it, with every field kept
that is not the record's. Pure: no I/O, no clock of its own.

Times in a record are text: other machines' clocks are never trusted, so they are compared and never
read. A lease expires when its record has stood unchanged, by our own clock, for as long as its
holder asked for. Follows client-go's tools/leaderelection."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from controllers.runtime.election.settings import LeaseSettings

Lease = Mapping[str, Any]
"""A Lease as the API server sends it, parsed from JSON."""


SERVES: Final = "kubernetes-cloud-provider/leader"
"""Annotation on Leases: the holder, and what it serves. Must never change."""


@attrs.frozen
class Record:
    """The election's part of a Lease. `holder` is empty where it is not held, `seconds` 0 where no
    duration stands."""

    holder: str = ""
    seconds: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0

    @property
    def is_release(self) -> bool:
        """Whether its holder has given it up, by the marks of ours and of Go's. Without them its
        holder was removed by hand (`kubectl patch`), and may go on as long as promised."""
        return not self.holder and self.seconds == 1 and self.acquired == self.renewed != ""


def read(lease: Lease) -> Record:
    """The record of a Lease. What is missing or of a wrong type is not there."""
    spec = lease.get("spec")
    found = spec if isinstance(spec, dict) else {}
    return Record(
        holder=_text(found.get("holderIdentity")),
        seconds=_number(found.get("leaseDurationSeconds")),
        acquired=_text(found.get("acquireTime")),
        renewed=_text(found.get("renewTime")),
        transitions=_number(found.get("leaseTransitions")),
    )


def acquired(lease: Lease | None, settings: LeaseSettings, now: float, before: Record | None = None) -> dict[str, Any]:
    """The Lease with which we take, or take back, the one at hand; `now` in unix seconds.

    None: there is none, so a new one; `before` is the record that stood in it when it was last
    seen. A lease that is ours already keeps its times and transitions, as in Go; each change of the
    holder is a transition.
    """
    old = (before or Record()) if lease is None else read(lease)
    stamp = _stamp(now)
    if old.holder == settings.identity:
        return _with(lease, settings, attrs.evolve(old, seconds=settings.whole_seconds, renewed=stamp))
    first = lease is None and before is None
    record = Record(
        holder=settings.identity,
        seconds=settings.whole_seconds,
        acquired=stamp,
        renewed=stamp,
        transitions=0 if first else old.transitions + 1,
    )
    return _with(lease, settings, record)


def renewed(lease: Lease, settings: LeaseSettings, held: Record, now: float) -> dict[str, Any]:
    """The Lease with which its leader, whose record was `held`, goes on; `now` in unix seconds."""
    return _with(lease, settings, attrs.evolve(held, renewed=_stamp(now)))


def released(lease: Lease, settings: LeaseSettings, now: float) -> dict[str, Any]:
    """The Lease with which its leader gives it up: it has no holder: any may take it."""
    stamp = _stamp(now)
    record = Record(holder="", seconds=1, acquired=stamp, renewed=stamp, transitions=read(lease).transitions)
    return _with(lease, settings, record)


def stranger(lease: Lease | None, settings: LeaseSettings) -> str:
    """How what the holder serves differs from what this candidate does, and the fix, for people; ""
    where it does not, or where nothing is known of it: an annotation tells of the holder that it
    names alone, as Go's managers keep those of former ones."""
    if lease is None:
        return ""
    try:
        told = json.loads(lease["metadata"]["annotations"][SERVES])
        theirs = {key: told[key] for key in settings.serves}
        if told["holder"] != read(lease).holder or not all(isinstance(value, str) for value in theirs.values()):
            return ""
    except (KeyError, TypeError, ValueError, RecursionError):
        return ""
    if theirs == settings.serves or told["holder"] in ("", settings.identity):
        return ""
    return (
        f"the Lease {settings.lease} is held by {told['holder']}, which serves {_shown(theirs)}; this process serves "
        f"{_shown(settings.serves)}, and does nothing while that one leads. Fix: give each manager a Lease of its own, "
        "with --leader-elect-resource-name"
    )


def _shown(serves: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in serves.items())


class Observation:
    """What a candidate has seen of a Lease, and since when it has stood unchanged. One thread.

    Moments are by the clock's `boottime`, taken when an answer arrived."""

    def __init__(self, settings: LeaseSettings) -> None:
        self._settings = settings
        self.lease: Lease | None = None
        self.record: Record | None = None
        """The last one seen; it stays when the Lease is deleted."""
        self._promised = -math.inf  # until then the last holder may take the lease for its own

    def see(self, lease: Lease | None, now: float) -> None:
        """The Lease as it was just read or watched; None when there is none.

        Only another record counts as a sign of life: labels and annotations may change for any
        reason. Of a Lease that is deleted the record stays in force, or its leader, which creates
        it again, and a candidate would both lead. For the same reason no change by hand shortens
        what a holder was promised: only its own release does.
        """
        self.lease = lease
        if lease is None or (record := read(lease)) == self.record:
            return
        before, self.record = self.record, record
        promised = now + (record.seconds or self._settings.whole_seconds)
        nobodys = before is None and not record.holder and not record.renewed  # made beforehand, for its rights
        if record.is_release or nobodys:
            self._promised = -math.inf
        elif before is None or record.holder not in ("", before.holder):
            self._promised = promised
        elif record.holder:
            self._promised = max(self._promised, promised)

    @property
    def holder(self) -> str:
        """Who held it when it was last seen; "" for none."""
        return self.record.holder if self.record is not None else ""

    def free_at(self) -> float:
        """From when on we may take it: minus infinity where it is free, or ours."""
        return -math.inf if self.holder == self._settings.identity else self._promised


def _with(lease: Lease | None, settings: LeaseSettings, record: Record) -> dict[str, Any]:
    new: dict[str, Any] = dict(lease) if lease is not None else {"metadata": _metadata(settings)}
    spec = new.get("spec")
    if record.holder == settings.identity:
        new["metadata"] = _serving(new.get("metadata"), settings)
    new |= {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "spec": {
            **(spec if isinstance(spec, dict) else {}),
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.seconds,
            "acquireTime": record.acquired or record.renewed,
            "renewTime": record.renewed,
            "leaseTransitions": record.transitions,
        },
    }
    return new


def _serving(metadata: Any, settings: LeaseSettings) -> dict[str, Any]:
    """The Lease's metadata with our word of what we serve, every other annotation kept."""
    kept = dict(metadata) if isinstance(metadata, dict) else {}
    if settings.serves:
        annotations = kept.get("annotations")
        told = json.dumps({"holder": settings.identity, **settings.serves})
        kept["annotations"] = {**(annotations if isinstance(annotations, dict) else {}), SERVES: told}
    return kept


def _metadata(settings: LeaseSettings) -> dict[str, str]:
    return {"name": settings.name, "namespace": settings.namespace}


def _stamp(now: float) -> str:
    """Six digits: the API server refuses fewer."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
