"""The fake cloud's console: what people do to a cloud besides its clients, and what they see there.

For tests and demonstrations. Nothing here is delayed, counted or struck by faults. Changes are logged beside those that
came by the capabilities, with methods that begin with "console."; so a test can tell who changed what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import evolve

from cloudprovider.testing.fake.calls import CallBook, CallRecord
from cloudprovider.testing.fake.config import FakeConfig, InstanceConfig
from cloudprovider.testing.fake.expand import instance_id, single
from cloudprovider.testing.fake.loadbalancers import remove_load_balancer
from cloudprovider.testing.fake.records import (
    CLUSTERS,
    INSTANCES,
    LOAD_BALANCERS,
    REMOVED_INSTANCES,
    ROUTES,
    SSH_KEYS,
    VOLUMES,
    Cluster,
    Instance,
    Kind,
    LoadBalancerRecord,
    Mark,
    RouteRecord,
    Volume,
)
from cloudprovider.testing.fake.routes import blackhole_routes
from cloudprovider.testing.fake.store import Store, Transaction

__all__ = ["Console"]

T = TypeVar("T")


class Console:
    """See the module. Thread-safe. Naming something that does not exist raises KeyError."""

    def __init__(self, config: FakeConfig, store: Store, calls: CallBook) -> None:
        self._config = config
        self._store = store
        self._calls = calls

    # ---- machines

    def add_instance(self, name: str, **fields: Any) -> Instance:
        """A new machine; `fields` as in the configuration.

        Where the name is taken, or was once, the new machine has another ID than those before. Raises pydantic's
        ValidationError, a ValueError.
        """
        entry = InstanceConfig.model_validate({"name": name, **fields})

        def change(tx: Transaction) -> tuple[str, Instance]:
            generation = tx.counter(f"generation/{name}") + 1
            while tx.find(INSTANCES, instance_id(name, generation)) is not None:
                generation += 1
            instance = single(entry, generation)
            tx.add(f"generation/{name}", generation - tx.counter(f"generation/{name}"))
            tx.put(INSTANCES, name, instance)
            tx.delete(REMOVED_INSTANCES, name)
            return "created", instance

        return self._change("add_instance", name, change)

    def remove_instance(self, name: str) -> None:
        """The machine is gone for good. Routes to it become blackholes, unless the configuration says otherwise."""

        def change(tx: Transaction) -> tuple[str, None]:
            _there(tx, INSTANCES, name)
            tx.delete(INSTANCES, name)
            tx.put(REMOVED_INSTANCES, name, Mark())
            if tx.counter(f"generation/{name}") == 0:
                tx.add(f"generation/{name}")
            if self._config.routes.blackhole_on_removal:
                blackhole_routes(tx, name)
            return "deleted", None

        self._change("remove_instance", name, change)

    def recreate_instance(self, name: str) -> Instance:
        """The machine is replaced by one of the same name and kind with another ID, for which the cloud has chosen no
        pod CIDRs yet."""
        with self._store.read() as view:
            old = _there(view, INSTANCES, name)
        self.remove_instance(name)
        return self.add_instance(
            name,
            type=old.type,
            zone=old.zone,
            region=old.region,
            addresses=old.addresses,
            labels=old.labels,
        )

    def change_instance(self, name: str, **fields: Any) -> Instance:
        """Give a machine other fields of its record: `type`, `zone`, `region`, `addresses`, `labels`, `shutdown`,
        `pod_cidrs`."""
        return self._evolve("change_instance", INSTANCES, name, fields)

    def set_shutdown(self, name: str, shutdown: bool = True) -> None:
        """Switch a machine off, or on."""
        self._evolve("set_shutdown", INSTANCES, name, {"shutdown": shutdown})

    def instances(self) -> list[Instance]:
        """All machines, by name."""
        return self._scan(INSTANCES)

    def instance(self, name: str) -> Instance:
        """One machine."""
        with self._store.read() as view:
            return _there(view, INSTANCES, name)

    def ssh_keys(self, name: str = "") -> list[tuple[str, str]]:
        """(user, "<type> <base64>") of the keys that were installed; with a machine's name, of those that it has."""
        with self._store.read() as view:
            machine = _there(view, INSTANCES, name).id if name else ""
            return [(key.user, key.line) for key in view.scan(SSH_KEYS) if not name or machine in key.machines]

    # ---- load balancers

    def load_balancers(self) -> list[LoadBalancerRecord]:
        """All load balancers, by name."""
        return self._scan(LOAD_BALANCERS)

    def load_balancer(self, name: str) -> LoadBalancerRecord:
        """One load balancer."""
        with self._store.read() as view:
            return _there(view, LOAD_BALANCERS, name)

    def delete_load_balancer(self, name: str) -> None:
        """Somebody deletes it by hand."""

        def change(tx: Transaction) -> tuple[str, None]:
            _there(tx, LOAD_BALANCERS, name)
            remove_load_balancer(tx, name)
            return "deleted", None

        self._change("delete_load_balancer", name, change)

    def change_load_balancer(self, name: str, **fields: Any) -> LoadBalancerRecord:
        """Somebody changes it by hand: `backends`, `ports`, `ingress`, `source_ranges` ..."""
        return self._evolve("change_load_balancer", LOAD_BALANCERS, name, fields)

    # ---- routes, volumes, clusters

    def routes(self) -> list[RouteRecord]:
        """The whole route table, by name."""
        return self._scan(ROUTES)

    def add_route(self, name: str, destination_cidr: str, **fields: Any) -> RouteRecord:
        """A rule that another system or person made; `foreign` unless said otherwise."""
        record = RouteRecord(name=name, destination_cidr=destination_cidr, **{"cluster": "", "foreign": True, **fields})
        return self._put("add_route", ROUTES, name, record)

    def change_route(self, name: str, **fields: Any) -> RouteRecord:
        """Somebody changes a rule by hand: `target_node`, `blackhole`, `destination_cidr` ..."""
        return self._evolve("change_route", ROUTES, name, fields)

    def remove_route(self, name: str) -> None:
        """Somebody deletes a rule by hand."""
        self._remove("remove_route", ROUTES, name)

    def add_volume(self, volume_id: str, **fields: Any) -> Volume:
        """A new disk; `fields` are `zones`, `region`, `labels`."""
        return self._put("add_volume", VOLUMES, volume_id, Volume(id=volume_id, **fields))

    def remove_volume(self, volume_id: str) -> None:
        """The disk is gone."""
        self._remove("remove_volume", VOLUMES, volume_id)

    def add_cluster(self, name: str, master: str = "") -> Cluster:
        """A new cluster in the account."""
        return self._put("add_cluster", CLUSTERS, name, Cluster(name, master))

    # ---- what the cloud's clients did; more of it in FakeCloud.calls

    def counts(self) -> Mapping[str, int]:
        """How often each method was called, by every process that shares the cloud."""
        return self._calls.counts()

    def calls(self, *methods: str) -> Sequence[CallRecord]:
        """The logged calls in the order in which they began; of these methods, if any are named."""
        return [one for one in self._calls.log(*methods) if not one.method.startswith("console.")]

    def overlaps(self) -> Sequence[tuple[CallRecord, CallRecord]]:
        """Pairs of changing calls about one load balancer that ran at the same time. There should be none."""
        return self._calls.overlaps()

    def _scan(self, kind: Kind[T]) -> list[T]:
        with self._store.read() as view:
            return view.scan(kind)

    def _put(self, method: str, kind: Kind[T], key: str, record: T) -> T:
        def change(tx: Transaction) -> tuple[str, T]:
            effect = "created" if tx.get(kind, key) is None else "updated"
            tx.put(kind, key, record)
            return effect, record

        return self._change(method, key, change)

    def _evolve(self, method: str, kind: Kind[T], key: str, fields: Mapping[str, Any]) -> T:
        def change(tx: Transaction) -> tuple[str, T]:
            old = _there(tx, kind, key)
            new = evolve(old, **fields)  # type: ignore[misc]  # every record is an attrs class
            if new != old:
                tx.put(kind, key, new)
            return "updated" if new != old else "unchanged", new

        return self._change(method, key, change)

    def _remove(self, method: str, kind: Kind[T], key: str) -> None:
        def change(tx: Transaction) -> tuple[str, None]:
            _there(tx, kind, key)
            tx.delete(kind, key)
            return "deleted", None

        self._change(method, key, change)

    def _change(self, method: str, key: str, change: Callable[[Transaction], tuple[str, T]]) -> T:
        with self._store.write() as tx:
            record = self._calls.begin(tx, f"console.{method}", [key], self._calls.caller())
            effect, result = change(tx)
            self._calls.end(tx, record, effect)
        return result


def _there(view: Any, kind: Kind[T], key: str) -> T:
    record: T | None = view.get(kind, key)
    if record is None:
        raise KeyError(f"there is no {kind.name} {key}")
    return record
