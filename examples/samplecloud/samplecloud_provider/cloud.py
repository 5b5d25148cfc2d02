"""The cloud: machines, load balancers and routes in one JSON document, in memory or in a file.

Stands where a vendor has an API client. Every operation takes the lock, reads the document, and
writes it back when it changed something; with a file that holds between processes too, and what a
person edits counts at once.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import asdict, define, evolve, field, fields, frozen, validators

from cloudprovider import CallInterrupted, current_call

_LOOK = 0.01  # seconds between two looks at whether a lock is free and the host still waits


class NoSuchBalancer(LookupError):
    """The cloud answered: there is no such load balancer."""


class NoSuchCluster(LookupError):
    """The cloud answered: there is no such cluster."""


class CloudBroken(Exception):
    """The cloud could not answer."""


class RangeExhausted(Exception):
    """Every address for load balancers is taken."""


def _strings(values: Sequence[str]) -> tuple[str, ...]:
    given: tuple[object, ...] = tuple(values) if isinstance(values, list | tuple) else (None,)  # JSON holds anything
    texts = tuple(one for one in given if isinstance(one, str))
    if len(texts) < len(given):
        raise TypeError("must be a list of strings")
    return texts


_text = validators.instance_of(str)


@frozen
class _Thing:
    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Raises TypeError or ValueError when the document holds something else."""
        unknown = raw.keys() - {attribute.name for attribute in fields(cls)}
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}")
        return cls(**raw)


@frozen
class Instance(_Thing):
    """A machine."""

    id: str = field(validator=_text)
    name: str = field(validator=_text)
    zone: str = field(validator=_text)
    region: str = field(validator=_text)
    type: str = field(validator=_text)
    addresses: tuple[str, ...] = field(converter=_strings)
    """Private IP addresses first."""
    public_addresses: tuple[str, ...] = field(default=(), converter=_strings)
    running: bool = field(default=True, validator=validators.instance_of(bool))
    ssh_keys: tuple[str, ...] = field(default=(), converter=_strings)
    """As in "ada ssh-ed25519 AAAA...": a user who may log in, and a public key of theirs."""
    pod_cidrs: tuple[str, ...] = field(default=(), converter=_strings)
    """The ranges that its pods have addresses of; none: the cloud has not chosen yet."""


@frozen
class Balancer(_Thing):
    """A load balancer."""

    name: str = field(validator=_text)
    address: str = field(validator=_text)
    cluster: str = field(validator=_text)
    service: str = field(default="", validator=_text)
    """ "namespace/name" of the Service that it was made for."""
    uid: str = field(default="", validator=_text)
    """That Service's UID: names are given again, UIDs are not."""
    vpc: str = field(default="", validator=_text)
    subnet: str = field(default="", validator=_text)
    ports: tuple[str, ...] = field(default=(), converter=_strings)
    """As in "80/TCP->30080": the port outside, and the one on the machines."""
    allowed: tuple[str, ...] = field(default=(), converter=_strings)
    health_check: str = field(default="", validator=_text)
    internal: bool = field(default=False, validator=validators.instance_of(bool))
    algorithm: str = field(default="round-robin", validator=_text)
    idle_timeout: float = field(default=60.0, converter=float)
    """Seconds."""
    targets: tuple[str, ...] = field(default=(), converter=_strings)
    """IDs of instances."""
    ready_at: float = field(default=0.0, converter=float)
    """Unix seconds."""


@frozen
class Rule(_Thing):
    """A route: traffic for `cidr` goes to an instance."""

    name: str = field(validator=_text)
    cluster: str = field(validator=_text)
    cidr: str = field(validator=_text)
    instance: str = field(validator=_text)


@frozen
class Disk(_Thing):
    """A disk, in one zone or in several."""

    id: str = field(validator=_text)
    zones: tuple[str, ...] = field(default=(), converter=_strings)
    region: str = field(default="", validator=_text)


@define
class Document:
    """Everything there is: by ID, by name, by name; the addresses of control planes by cluster;
    disks by ID."""

    instances: dict[str, Instance] = field(factory=dict)
    balancers: dict[str, Balancer] = field(factory=dict)
    rules: dict[str, Rule] = field(factory=dict)
    clusters: dict[str, str] = field(factory=dict)
    disks: dict[str, Disk] = field(factory=dict)

    @classmethod
    def from_json(cls, text: str) -> Document:
        """Raises `CloudBroken` when the text is something else."""
        try:
            raw = json.loads(text)
            return cls(
                {key: Instance.from_json(value) for key, value in raw["instances"].items()},
                {key: Balancer.from_json(value) for key, value in raw["balancers"].items()},
                {key: Rule.from_json(value) for key, value in raw["rules"].items()},
                {str(key): str(value) for key, value in raw.get("clusters", {}).items()},
                {key: Disk.from_json(value) for key, value in raw.get("disks", {}).items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise CloudBroken(f"the cloud's state cannot be read: {type(exc).__name__}: {exc}") from exc

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


class Cloud:
    """The operations of the cloud. Thread-safe; with a file also between processes."""

    def __init__(
        self,
        instances: tuple[Instance, ...] = (),
        state_file: str = "",
        clusters: Mapping[str, str] | None = None,
        disks: tuple[Disk, ...] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._path = Path(state_file) if state_file else None
        self._memory = Document(
            {instance.id: instance for instance in instances},
            clusters=dict(clusters or {}),
            disks={disk.id: disk for disk in disks},
        ).to_json()

    @contextmanager
    def document(self) -> Generator[Document]:
        """The document, to be read or changed in the body of a with statement; an exception changes
        nothing.

        Raises `CloudBroken` when the file cannot be read or written, and what
        `current_call().check` raises when the host gives up while others hold the document.
        """
        with _held(self._lock), self._file_lock():
            before = self._read()
            document = Document.from_json(before)
            yield document
            after = document.to_json()
            if after != before:
                self._write(after)

    def control_plane(self, cluster: str) -> str:
        """The address of a cluster's control plane. Raises `NoSuchCluster`."""
        with self.document() as document:
            if cluster in document.clusters:
                return document.clusters[cluster]
        raise NoSuchCluster(f"there is no cluster {cluster!r}")

    def balancer(self, name: str) -> Balancer | None:
        """The load balancer of this name, None when there is none."""
        with self.document() as document:
            return document.balancers.get(name)

    def put_balancer(self, wanted: Balancer, pool: str) -> Balancer:
        """Create the load balancer, or change it to what is wanted; address and time of building
        stay. Idempotent.

        Raises `RangeExhausted` when the range `pool` has no address left.
        """
        with self.document() as document:
            present = document.balancers.get(wanted.name)
            if present is None:
                taken = {balancer.address for balancer in document.balancers.values()}
                free = (str(ip) for ip in ipaddress.ip_network(pool).hosts() if str(ip) not in taken)
                address = next(free, "")
                if not address:
                    raise RangeExhausted(f"all of {len(taken)} addresses are taken")
                result = evolve(wanted, address=address)
            else:
                result = evolve(wanted, address=present.address, ready_at=present.ready_at)
            document.balancers[wanted.name] = result
            return result

    def set_targets(self, name: str, targets: Sequence[str]) -> None:
        """Have the load balancer send its traffic to these instances. Raises `NoSuchBalancer`."""
        with self.document() as document:
            present = document.balancers.get(name)
            if present is None:
                raise NoSuchBalancer(f"there is no load balancer {name!r}")
            document.balancers[name] = evolve(present, targets=targets)

    def balancers_of(self, cluster: str) -> list[Balancer]:
        """Every load balancer of the cluster."""
        with self.document() as document:
            return [balancer for balancer in document.balancers.values() if balancer.cluster == cluster]

    def remove_balancer(self, name: str) -> None:
        """Absent already is fine."""
        with self.document() as document:
            document.balancers.pop(name, None)

    def _file_lock(self) -> _FileLock:
        return _FileLock(self._path)

    def _read(self) -> str:
        if self._path is None:
            return self._memory
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            self._write(self._memory)
            return self._memory
        except OSError as exc:
            raise CloudBroken(f"the cloud's state cannot be read: {exc}") from exc

    def _write(self, text: str) -> None:
        if self._path is None:
            self._memory = text
            return
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_text(text, encoding="utf-8")
            os.replace(new, self._path)
        except OSError as exc:
            raise CloudBroken(f"the cloud's state cannot be written: {exc}") from exc


@contextmanager
def _held(lock: threading.Lock) -> Generator[None]:
    """Hold the lock; wait for it no longer than the host waits for this call."""
    while not lock.acquire(timeout=_LOOK):
        current_call().check()
    try:
        yield
    finally:
        lock.release()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _FileLock:
    """Keeps other processes out, by a file beside the state."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> None:
        if self._path is None:
            return
        try:
            self._descriptor = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
            while not _locked(self._descriptor):
                current_call().pause(_LOOK)
        except OSError as exc:
            self.__exit__()
            raise CloudBroken(f"the cloud's state cannot be locked: {exc}") from exc
        except CallInterrupted:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
