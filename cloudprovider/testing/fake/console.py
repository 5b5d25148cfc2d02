"""The fake cloud's console: what a person does to a cloud beside its API's clients, and sees in it.

For tests and demos. Nothing here is counted, delayed, struck by faults or logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from cloudprovider.testing.fake.config import InstanceConfig
from cloudprovider.testing.fake.gate import CALLS, CallRecord
from cloudprovider.testing.fake.loadbalancers import delete_load_balancer
from cloudprovider.testing.fake.records import (
    INSTANCES,
    LOAD_BALANCERS,
    REMOVED_INSTANCES,
    ROUTES,
    VOLUMES,
    Instance,
    LoadBalancerRecord,
    Mark,
    RouteRecord,
    Volume,
)
from cloudprovider.testing.fake.store import Store

__all__ = ["Console"]


class Console:
    """See the module. Thread-safe. A name that does not exist raises KeyError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # ---- instances

    def add_instance(self, name: str, **fields: Any) -> Instance:
        """A new machine; `fields` as in the configuration. A taken name gets a new machine in its place."""
        record = InstanceConfig(name=name, **fields).record()
        with self._store.write() as change:
            change.put(INSTANCES, name, record)
            change.delete(REMOVED_INSTANCES, name)
        return record

    def remove_instance(self, name: str) -> None:
        """The machine is gone for good."""
        with self._store.write() as change:
            if not change.delete(INSTANCES, name):
                raise KeyError(f"no instance {name}")
            change.put(REMOVED_INSTANCES, name, Mark())

    def change_instance(self, name: str, **fields: Any) -> Instance:
        """Give a machine other fields of its record: `type`, `zone`, `addresses`, `labels`, `shutdown`, `id`."""
        with self._store.write() as change:
            record = change.get(INSTANCES, name)
            if record is None:
                raise KeyError(f"no instance {name}")
            changed: Instance = evolve(record, **fields)
            change.put(INSTANCES, name, changed)
        return changed

    def set_shutdown(self, name: str, shutdown: bool = True) -> None:
        """Switch a machine off, or on."""
        self.change_instance(name, shutdown=shutdown)

    def instances(self) -> list[Instance]:
        """All machines, by name."""
        with self._store.read() as view:
            return view.scan(INSTANCES)

    # ---- load balancers

    def load_balancers(self) -> list[LoadBalancerRecord]:
        """All load balancers, by name."""
        with self._store.read() as view:
            return view.scan(LOAD_BALANCERS)

    def delete_load_balancer(self, name: str) -> None:
        """Somebody deletes it by hand."""
        with self._store.write() as change:
            if not delete_load_balancer(change, name):
                raise KeyError(f"no load balancer {name}")

    def change_load_balancer(self, name: str, **fields: Any) -> LoadBalancerRecord:
        """Somebody changes it by hand: `backends`, `ports`, `hostname` ..."""
        with self._store.write() as change:
            record = change.get(LOAD_BALANCERS, name)
            if record is None:
                raise KeyError(f"no load balancer {name}")
            changed: LoadBalancerRecord = evolve(record, **fields)
            change.put(LOAD_BALANCERS, name, changed)
        return changed

    # ---- routes and volumes

    def routes(self) -> list[RouteRecord]:
        """The whole route table, by name."""
        with self._store.read() as view:
            return view.scan(ROUTES)

    def add_route(self, name: str, destination_cidr: str, **fields: Any) -> RouteRecord:
        """A route that another system or person made; `foreign` unless said otherwise."""
        record = RouteRecord(name=name, destination_cidr=destination_cidr, **{"cluster": "", "foreign": True, **fields})
        with self._store.write() as change:
            change.put(ROUTES, name, record)
        return record

    def remove_route(self, name: str) -> None:
        """Somebody deletes a route by hand."""
        with self._store.write() as change:
            if not change.delete(ROUTES, name):
                raise KeyError(f"no route {name}")

    def add_volume(self, volume_id: str, **fields: Any) -> Volume:
        """A new disk."""
        record = Volume(id=volume_id, **fields)
        with self._store.write() as change:
            change.put(VOLUMES, volume_id, record)
        return record

    # ---- what the API's clients did

    def counts(self) -> dict[str, int]:
        """How often each method was called, by every process that shares the cloud."""
        with self._store.read() as view:
            return view.counters("calls/")

    def calls(self, *methods: str) -> list[CallRecord]:
        """The calls that change the cloud, in the order in which they began; of these methods, if any are named."""
        with self._store.read() as view:
            return [one for one in view.scan(CALLS) if not methods or one.method in methods]

    def overlaps(self) -> Sequence[tuple[CallRecord, CallRecord]]:
        """Pairs of changing calls about the same key that ran at the same time. There should be none."""
        by_key: dict[str, list[CallRecord]] = {}
        found: list[tuple[CallRecord, CallRecord]] = []
        for one in self.calls():
            earlier = by_key.setdefault(one.key, [])
            found += [(other, one) for other in earlier if one.started < (other.ended or float("inf"))]
            earlier.append(one)
        return found
