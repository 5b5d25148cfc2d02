"""Stage 4: takes a key and does one unit of work, asking the cloud (stage 5) and writing the condition (stage 6).

`LIST` asks for all routes once and hands the nodes that need something to the queue; a node's key creates and deletes
that node's routes. What fails is retried by its own key, with back-off, until it is done. A route is deleted only by
the rules of changes.py, on a fresh listing, and after a quorum read proved that its target is no node of this cluster,
or one without that pod CIDR.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cloudprovider import CloudProviderError, Route
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_NORMAL, CallsClosed, CloudCallError
from controllers.route import changes
from controllers.route.changes import Entry, Scope, State, Step
from controllers.route.condition import CREATED, NetworkCondition, status_of
from controllers.route.triggers import BLACKHOLE, LIST, LISTING, NODE
from controllers.runtime.api import ApiError, NotFound
from controllers.runtime.cache import NODES, MalformedObject, key_of, uid_of
from controllers.runtime.queue import DONE, Parked, Result, TerminalError

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.helpers.ips import IPNetwork
    from controllers.cloudcalls.capabilities import RouteCalls
    from controllers.route.table import RouteTable
    from controllers.runtime.api import RestClient
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.queue import WorkQueue
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

_BUSY = 0.1  # seconds until a destination that another key works on is tried again
_MOST_NAMED = 5
_CONTESTED_FOR = 86400.0  # seconds for which a route that was deleted and is back stays
_PERIODIC, _NODE_CHANGE = "periodic", "node_change"


class RouteConflict(Exception):
    """The route cannot be made: another node of this cluster holds its destination."""


class RouteReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        rest: RestClient,
        lister: Lister[V1Node],
        routes: RouteCalls,
        table: RouteTable,
        queue: WorkQueue[str],
        recorder: EventRecorder,
        *,
        cluster_name: str,
        cluster_cidrs: tuple[IPNetwork, ...],
        mask_sizes: Mapping[int, int],
        period: float,
        list_interval: float,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._routes = routes
        self._table = table
        self._queue = queue
        self._recorder = recorder
        self._cluster_name = cluster_name
        self._period = period
        self._list_interval = list_interval
        self._clock = clock
        self._condition = NetworkCondition(rest, clock)
        self._mask_sizes = {version: frozenset({size}) for version, size in mask_sizes.items()}
        self._known: set[str] = set()
        self._contested: dict[tuple[IPNetwork, str], float] = {}
        self._scope = Scope(cluster_cidrs, self._mask_sizes, self._known, self._contested)
        self._lock = threading.Lock()
        self._listing = False
        self._list_trigger = _PERIODIC
        self._handed_out: set[str] = set()  # keys that the last listings queued: periodic work
        self._changed: set[str] = set()  # keys whose work under way has changed the cloud
        self._left_alone: frozenset[str] = frozenset()
        self._syncs = metrics.counter(
            "route_controller_route_sync_total",
            "Comparisons with the cloud's routes: of one node, or of all when that failed or found nothing to do, "
            "by outcome (changed, noop, error) and trigger (periodic, node_change).",
            ("outcome", "trigger"),
        )
        self._alone = metrics.gauge(
            "route_controller_routes_left_alone",
            "Listed routes inside the cluster CIDRs that lead to no node of the cluster and stay, for now or for good.",
        )

    def reconcile(self, key: str) -> Result:
        """Do what the key asks for. Raises what the cloud or the API server answered, or RouteConflict."""
        if key == LIST:
            return self._list()
        if not self._table.version:
            return DONE  # the listing, which is on its way or being retried, comes back to everything
        trigger = _PERIODIC if key in self._handed_out else _NODE_CHANGE
        try:
            blackhole = key.startswith(BLACKHOLE)
            result = self._clear(changes.network(key.removeprefix(BLACKHOLE)), key) if blackhole else self._node(key)
        except CallsClosed:
            raise
        except Exception:
            self._changed.discard(key)
            self._count("error", trigger)
            raise
        if result.requeue_after is None:
            self._handed_out.discard(key)
            self._count("changed" if key in self._changed else "noop", trigger)
            self._changed.discard(key)
        return result

    def _count(self, outcome: str, trigger: str) -> None:
        self._syncs.labels(outcome=outcome, trigger=trigger).inc()

    # ---- all nodes

    def _list(self) -> Result:
        age = self._table.age
        if age < min(self._list_interval, self._period) / 2:  # asked for twice: this is what the second one wanted
            return Result(requeue_after=self._period - age)
        with self._lock:
            self._listing = True
            trigger = self._list_trigger
        started = self._clock.monotonic()
        try:
            self._table.install(self._routes.list(self._cluster_name, priority=PRIORITY_NEW), started)
        except CallsClosed:
            raise
        except Exception:
            self._count("error", trigger)
            raise
        finally:
            with self._lock:
                self._listing = False
        self._list_trigger = _PERIODIC
        for pair in [pair for pair, deleted in list(self._contested.items()) if deleted < started - _CONTESTED_FOR]:
            self._contested.pop(pair, None)
        if not self._hand_out(trigger):
            self._count("noop", trigger)
        return Result(requeue_after=self._period)

    def _hand_out(self, trigger: str) -> int:
        """Queue every node that needs something, and what is to be cleared away; returns how many keys that are."""
        nodes = {key_of(node): node for node in self._lister.list()}
        for name, node in nodes.items():
            self._remember(name, node)
        self._known.difference_update(self._known - nodes.keys() - set(self._table.targets()))
        claimed: set[IPNetwork] = set()
        keys: dict[str, int] = {}
        for name, node in nodes.items():
            claimed.update(_wanted(node))
            if self._has_work(name, node):
                keys[name] = NODE
        left_alone = []
        for net, entry in self._table.all():
            target, leftover = entry.route.target_node, self._is_leftover(net, entry)
            if entry.route.blackhole:
                if leftover and net not in claimed:
                    keys[f"{BLACKHOLE}{net}"] = 0
            elif target not in nodes:
                if leftover:
                    keys.setdefault(target, 0)
                elif self._scope.inside(net):
                    until = ", deleted if the next comparison still finds it" if self._removable(net, entry) else ""
                    left_alone.append(f"{entry.route.name or '(no name)'} ({net} to {target or 'no node'}{until})")
        for key, priority in keys.items():
            if trigger == _PERIODIC:
                self._handed_out.add(key)
            if not self._queue.num_requeues(key):  # else it comes by itself, after its back-off
                self._queue.add(key, priority)
        self._tell_left_alone(left_alone)
        return len(keys)

    def _removable(self, net: IPNetwork, entry: Entry) -> bool:
        return self._scope.removable(net, entry.route)

    def _is_leftover(self, net: IPNetwork, entry: Entry) -> bool:
        return changes.is_leftover(net, entry, self._scope, self._long_since())

    def _long_since(self) -> float:
        """A route that has been listed since then was seen by two comparisons, a good while apart."""
        return self._table.listed_at - self._period / 2

    def _has_work(self, name: str, node: V1Node) -> bool:
        wanted = _wanted(node)
        if any(self._step(net, cidr, name, node) for net, cidr in wanted.items()):
            return True
        if wanted and status_of(node) != CREATED[0]:
            return True
        return any(self._step(net, "", name, node) for net in self._table.destinations_of(name) if net not in wanted)

    def _tell_left_alone(self, routes: list[str]) -> None:
        self._alone.set(len(routes))
        news = frozenset(routes)
        if news - self._left_alone:
            shown = ", ".join(routes[:_MOST_NAMED])
            log.warning(
                "%d routes inside the cluster CIDRs lead to no node of this cluster and are left alone: %s%s",
                len(routes),
                shown,
                ", ..." if len(routes) > _MOST_NAMED else "",
            )
        self._left_alone = news

    def _ask_for_list(self, version: int) -> None:
        """Have the routes listed again, unless that has happened since `version` or is happening."""
        with self._lock:
            if self._listing or self._table.version != version or self._queue.num_requeues(LIST):
                return
            self._list_trigger = _NODE_CHANGE
            self._queue.add_after(LIST, max(0.0, self._list_interval - self._table.age), LISTING)

    # ---- one node

    def _node(self, name: str) -> Result:
        node = self._lister.get(name)
        wanted = {}
        if node is None:
            self._condition.forget(name)
        else:
            self._remember(name, node)
            try:
                wanted = changes.pod_cidrs(node)
            except ValueError as error:
                raise TerminalError(f"node {name} has a pod CIDR that is none: {error}") from error
        had = self._table.destinations_of(name)
        errors: list[Exception] = []
        missing = unsure = busy = False
        for net in [*wanted, *(net for net in had if net not in wanted)]:
            with self._table.claim(net) as mine:
                if not mine:
                    busy, unsure = True, unsure or net in wanted
                    continue
                try:
                    done = self._carry_out(self._step(net, wanted.get(net, ""), name, node), name, node)
                    unsure = unsure or (not done and net in wanted)
                except CallsClosed:
                    raise
                except (CloudProviderError, CloudCallError, Parked, ApiError, RouteConflict) as error:
                    errors.append(error)
                    if node is not None and net in wanted:
                        missing = True
                        self._tell(node, wanted[net], error)
        if node is not None and (missing or (not unsure and (wanted or had))):
            try:
                self._condition.say(node, bool(wanted) and not missing)
            except ApiError as error:
                errors.append(error)
        if errors:
            raise next((error for error in errors if isinstance(error, Parked)), errors[0])
        return Result(requeue_after=_BUSY) if busy else DONE

    def _clear(self, net: IPNetwork, key: str) -> Result:
        """Remove blackholes at a destination that no node has."""
        with self._table.claim(net) as mine:
            if not mine:
                return Result(requeue_after=_BUSY)
            self._carry_out(self._step(net, "", "", None), key, None)
        return DONE

    def _step(self, net: IPNetwork, cidr: str, name: str, node: V1Node | None) -> Step:
        def claimed_by(other: str) -> bool:
            found = self._lister.get(other)
            return found is not None and net in _wanted(found)

        return changes.step(
            net,
            cidr,
            name,
            node,
            self._table.at(net),
            self._scope,
            addresses_count=self._table.addresses_count,
            claimed_by=claimed_by,
            long_since=self._long_since(),
        )

    def _carry_out(self, step: Step, key: str, node: V1Node | None) -> bool:
        """Delete, then create; False when a fresh listing is needed first, which is then on its way."""
        if step.rival:
            raise RouteConflict(f"it leads to node {step.rival}, which has the same pod CIDR")
        net = step.destination
        if step.delete and not self._may_delete(key, step.delete):
            return False
        for entry in step.delete:
            owner = entry.route.target_node
            replaces_own = step.create and owner == key
            if not entry.route.blackhole and not replaces_own and not self._is_free(owner, net):
                if step.create:
                    raise RouteConflict(f"it leads to node {owner}, which the API server still has with this pod CIDR")
                continue  # our cache is behind; the node's event comes
            self._delete(net, entry, key)
        if step.create and node is not None:
            self._create(net, step.cidr, key, node)
        return True

    def _may_delete(self, key: str, entries: tuple[Entry, ...]) -> bool:
        """Deleting takes the route as the cloud names it, and of late; only a retry keeps to what it has begun."""
        version = self._table.version
        fresh = self._table.age <= self._list_interval or self._queue.num_requeues(key) > 0
        if fresh and all(entry.state is not State.CREATED for entry in entries):
            return True
        self._ask_for_list(version)
        return False

    def _is_free(self, owner: str, net: IPNetwork) -> bool:
        """Whether the API server, by quorum read, has no node of that name, or one without this pod CIDR."""
        try:
            node = NODES.parse(self._rest.get(NODES.path(name=owner)))
            return net not in changes.pod_cidrs(node)
        except NotFound as error:
            if error.details.get("name") != owner:
                raise  # a proxy's 404, say: it proves nothing about the node
            return True
        except (MalformedObject, ValueError) as error:
            log.warning("node %s cannot be read, so its routes stay: %s", owner, error)
            return False

    def _delete(self, net: IPNetwork, entry: Entry, key: str) -> None:
        self._table.writing(net)
        try:
            self._routes.delete(self._cluster_name, entry.route, priority=PRIORITY_NORMAL)
        except Exception:
            self._table.doubt(net, entry)
            raise
        self._table.deleted(net, entry)
        self._changed.add(key)
        target = entry.route.target_node
        if target and target not in self._known:
            self._contested[net, target] = self._clock.monotonic()
        log.info("deleted route %s: %s to %s", entry.route.name, net, target or "nowhere")

    def _create(self, net: IPNetwork, cidr: str, name: str, node: V1Node) -> None:
        route = Route(
            name="",
            target_node=name,
            destination_cidr=cidr,
            target_node_addresses=changes.node_addresses(node),
        )
        self._table.writing(net)
        self._routes.create(self._cluster_name, uid_of(node), route, priority=PRIORITY_NEW)
        self._table.created(net, route)
        self._changed.add(name)
        self._contested.pop((net, name), None)
        log.debug("created route for node %s: %s", name, cidr)

    def _tell(self, node: V1Node, cidr: str, error: Exception) -> None:
        message = f"Could not create route {uid_of(node)} {cidr} for node {key_of(node)}: {error}"
        self._recorder.event(node, "Warning", "FailedToCreateRoute", message)

    def _remember(self, name: str, node: V1Node) -> None:
        self._known.add(name)
        for net in _wanted(node):
            sizes = self._mask_sizes.get(net.version, frozenset())
            if net.prefixlen not in sizes and self._scope.inside(net):
                with self._lock:
                    sizes = self._mask_sizes.get(net.version, frozenset())
                    self._mask_sizes[net.version] = sizes | {net.prefixlen}


def _wanted(node: V1Node) -> dict[IPNetwork, str]:
    """As `changes.pod_cidrs`, {} where that fails: the node's own key says so."""
    try:
        return changes.pod_cidrs(node)
    except ValueError:
        return {}
