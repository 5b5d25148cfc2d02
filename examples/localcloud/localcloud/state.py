"""What the cloud remembers, as one JSON file that is replaced whole: after a crash there is the old
state or the new one, never half of one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from localcloud.model import HealthCheck, LoadBalancer, Machine, Port, Route

__all__ = ["BadState", "State", "StateFile"]

VERSION = 1


class BadState(Exception):
    """The state file is there and cannot be read; the text says why and what to do."""


@frozen(kw_only=True)
class State:
    """Everything that the cloud has. Maps are never changed in place: `attrs.evolve` makes the next
    state."""

    machines: Mapping[str, Machine] = field(factory=dict[str, Machine])
    """By ID."""
    routes: Mapping[str, Route] = field(factory=dict[str, Route])
    """By name."""
    balancers: Mapping[str, LoadBalancer] = field(factory=dict[str, LoadBalancer])
    """By name."""
    ssh_keys: Mapping[str, tuple[str, ...]] = field(factory=dict[str, tuple[str, ...]])
    """By user."""
    last_machine: int = 0
    """The highest number of a machine's ID so far: IDs are never used again."""


class StateFile:
    """The file. `save` and `load` may be called from any thread, one at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> State:
        """The state; an empty one where there is no file. Raises BadState."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return State()
        except (OSError, UnicodeDecodeError) as exc:
            raise BadState(f"{self._path} cannot be read: {exc}") from exc
        try:
            return _state(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise BadState(
                f"{self._path} is not a state that this version can read ({type(exc).__name__}: {exc}): "
                "repair it, or move it away to begin with an empty cloud"
            ) from exc

    def save(self, state: State) -> None:
        """Replace the file; on the disk when this returns. Raises OSError, and the old file is
        kept."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"version": VERSION, **asdict(state)}, indent=1, sort_keys=True)
        fresh = self._path.with_name(f"{self._path.name}.new")
        with open(fresh, "w", encoding="utf-8", opener=_private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name, too
        finally:
            os.close(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # userData may hold secrets


def _state(document: Mapping[str, Any]) -> State:
    if document.get("version") != VERSION:
        raise ValueError(f"its version is {document.get('version')!r}, not {VERSION}")
    return State(
        machines={key: _machine(one) for key, one in document["machines"].items()},
        routes={key: Route(**one) for key, one in document["routes"].items()},
        balancers={key: _balancer(one) for key, one in document["balancers"].items()},
        ssh_keys={user: tuple(keys) for user, keys in document["ssh_keys"].items()},
        last_machine=int(document["last_machine"]),
    )


def _machine(document: Mapping[str, Any]) -> Machine:
    # One that an older version saved has none.
    return Machine(**{**document, "taints": tuple(document.get("taints", ()))})


def _balancer(document: Mapping[str, Any]) -> LoadBalancer:
    tuples = {name: tuple(document[name]) for name in ("targets", "draining", "source_ranges")}
    ports = tuple(Port(**port) for port in document["ports"])
    health = HealthCheck(**document["health"]) if document["health"] is not None else None
    return LoadBalancer(**{**document, **tuples, "ports": ports, "health": health})
