"""The fake cloud's console: what people do to a cloud besides its clients, and what they see there.

Nothing here is delayed, counted or struck by faults. Changes are logged beside those that came by
the capabilities, with methods that begin with "console."; so a test can tell who changed what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import evolve

from cloudprovider.testing.fake.calls import CallBook
from cloudprovider.testing.fake.config import InstanceConfig
from cloudprovider.testing.fake.records import (
    Cluster,
    Instance,
    LoadBalancerRecord,
    ResourceRecord,
    RouteRecord,
    Volume,
    World,
)

T = TypeVar("T")


class Console:
    """Changes and shows one cloud. Thread-safe. Naming something that does not exist raises
    KeyError."""

    def __init__(self, world: World, calls: CallBook) -> None:
        self._world = world
        self._calls = calls

    # ---- machines

    def add_instance(self, name: str, **fields: Any) -> Instance:
        """A new machine; `fields` as in the configuration.

        Where the name is taken, or was once, the new machine has another ID than those before.
        Raises pydantic's ValidationError, a ValueError.
        """
        # The rules of the file: a machine that no configuration could have proves nothing.
        entry = InstanceConfig.model_validate({"name": name, **fields})
        return self._change("add_instance", name, lambda: ("created", self._world.put_instance(entry.instance())))

    def remove_instance(self, name: str) -> None:
        """The machine is gone for good. Routes to it become blackholes."""

        def change() -> tuple[str, None]:
            self._world.remove_instance(name)
            return "deleted", None

        self._change("remove_instance", name, change)

    def recreate_instance(self, name: str) -> Instance:
        """The machine is replaced by one of the same name and kind with another ID, for which the
        cloud has chosen no pod CIDRs yet."""
        old = self.instance(name)
        # In two steps, as in a cloud: between them a question finds no machine.
        self.remove_instance(name)
        # A new ID: a kubelet that comes back by the same name is on another machine.
        new = evolve(old, id="", shutdown=False, pod_cidrs=())
        return self._change("add_instance", name, lambda: ("created", self._world.put_instance(new)))

    def change_instance(self, name: str, **fields: Any) -> Instance:
        """Give a machine other fields of its record: `type`, `zone`, `region`, `addresses`,
        `labels`, `taints` (each key, value, effect), `annotations`, `shutdown`, `pod_cidrs`."""

        def change() -> tuple[str, Instance]:
            old = _there(self._world.instances, "instance", name)
            new = evolve(old, **fields)
            return "unchanged" if new == old else "updated", self._world.put_instance(new)

        return self._change("change_instance", name, change)

    def rename_instance(self, name: str, new: str) -> Instance:
        """Give a machine another name; it keeps its ID, and the rules that lead to it."""
        return self._change("rename_instance", name, lambda: ("updated", self._world.rename_instance(name, new)))

    def set_shutdown(self, name: str, shutdown: bool = True) -> None:
        """Switch a machine off, or on."""
        self.change_instance(name, shutdown=shutdown)

    def instances(self) -> list[Instance]:
        """All machines, by name."""
        return self._listed(self._world.instances)

    def instance(self, name: str) -> Instance:
        """One machine."""
        with self._world.lock:
            return _there(self._world.instances, "instance", name)

    def ssh_keys(self, name: str = "") -> list[tuple[str, str]]:
        """(user, "<type> <base64>") of the keys that were installed; with a machine's name, of
        those that it has."""
        with self._world.lock:
            machine = _there(self._world.instances, "instance", name).id if name else ""
            keys = [key for _, key in sorted(self._world.ssh_keys.items())]
        return [(key.user, key.line) for key in keys if not name or machine in key.machines]

    # ---- load balancers

    def load_balancers(self) -> list[LoadBalancerRecord]:
        """All load balancers, by name."""
        return self._listed(self._world.load_balancers)

    def load_balancer(self, name: str) -> LoadBalancerRecord:
        """One load balancer."""
        with self._world.lock:
            return _there(self._world.load_balancers, "load balancer", name)

    def delete_load_balancer(self, name: str) -> None:
        """Somebody deletes it by hand."""
        self._remove("delete_load_balancer", "load_balancers", name)

    def change_load_balancer(self, name: str, **fields: Any) -> LoadBalancerRecord:
        """Somebody changes it by hand: `backends`, `ports`, `ingress`, `source_ranges` ..."""
        found: LoadBalancerRecord = self._evolve("change_load_balancer", "load_balancers", name, fields)
        return found

    # ---- routes, volumes, clusters

    def routes(self) -> list[RouteRecord]:
        """The whole route table, by name."""
        return self._listed(self._world.routes)

    def add_route(self, name: str, destination_cidr: str, **fields: Any) -> RouteRecord:
        """A rule that another system or person made; `foreign` unless said otherwise."""
        # Foreign by default: what a person adds is what controllers must leave alone.
        record = RouteRecord(name=name, destination_cidr=destination_cidr, **{"cluster": "", "foreign": True, **fields})
        return self._put("add_route", "routes", name, record)

    def change_route(self, name: str, **fields: Any) -> RouteRecord:
        """Somebody changes a rule by hand: `target_node`, `blackhole`, `destination_cidr` ..."""
        found: RouteRecord = self._evolve("change_route", "routes", name, fields)
        return found

    def remove_route(self, name: str) -> None:
        """Somebody deletes a rule by hand."""
        self._remove("remove_route", "routes", name)

    def add_volume(self, volume_id: str, **fields: Any) -> Volume:
        """A new disk; `fields` are `zones`, `region`, `labels`."""
        return self._put("add_volume", "volumes", volume_id, Volume(id=volume_id, **fields))

    def remove_volume(self, volume_id: str) -> None:
        """The disk is gone."""
        self._remove("remove_volume", "volumes", volume_id)

    def resources(self) -> list[ResourceRecord]:
        """What else was made for clusters, by ID."""
        return self._listed(self._world.resources)

    def add_resource(self, id: str, cluster: str, *, kind: str = "security group", name: str = "") -> ResourceRecord:
        """Something else that was made for a cluster: a security group."""
        return self._put("add_resource", "resources", id, ResourceRecord(id, kind, cluster, name))

    def add_cluster(self, name: str, master: str = "") -> Cluster:
        """A new cluster in the account."""
        return self._put("add_cluster", "clusters", name, Cluster(name, master))

    # ---- how it is done

    def _listed(self, table: Mapping[str, T]) -> list[T]:
        with self._world.lock:
            return [table[name] for name in sorted(table)]

    def _put(self, method: str, kind: str, key: str, record: T) -> T:
        def change() -> tuple[str, T]:
            table = self._world.table(kind)
            effect = "updated" if key in table else "created"
            table[key] = record
            return effect, record

        return self._change(method, key, change)

    def _evolve(self, method: str, kind: str, key: str, fields: Mapping[str, Any]) -> Any:
        def change() -> tuple[str, Any]:
            table = self._world.table(kind)
            old = _there(table, kind, key)
            new = table[key] = evolve(old, **fields)
            return "unchanged" if new == old else "updated", new

        return self._change(method, key, change)

    def _remove(self, method: str, kind: str, key: str) -> None:
        def change() -> tuple[str, None]:
            table = self._world.table(kind)
            _there(table, kind, key)
            del table[key]
            return "deleted", None

        self._change(method, key, change)

    def _change(self, method: str, key: str, change: Callable[[], tuple[str, T]]) -> T:
        with self._world.lock:
            word, result = change()
            # After the change, under the world's lock: the log has the order in which changes were
            # made.
            with self._calls.logged(f"console.{method}", [key]):
                self._calls.effect(word)
        return result


def _there(table: Mapping[str, T], kind: str, key: str) -> T:
    if key not in table:
        raise KeyError(f"there is no {kind} {key}")
    return table[key]
