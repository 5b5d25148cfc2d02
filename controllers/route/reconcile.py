"""Stage 4: RECONCILE. A key in, one unit of work out: calls of the cloud (stage 5) and the node's
condition (stage 6).

A node's key creates and deletes that node's routes, as `planning.py` decides; `LIST` is for
`listing.py`. A route is deleted only by the rules of changes.py, on a fresh listing, and after a
quorum read proved that its target is no node of this cluster, or one without that pod CIDR."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_spec import V1NodeSpec

from cloudprovider import QuotaExceeded, RetryError, Route
from cloudprovider.checks.answers import SameID
from cloudprovider.helpers import provider_id_of, same_provider_id
from controllers.cloudcalls import CLOUD_ERRORS, PRIORITY_NEW, PRIORITY_NORMAL, CallsClosed
from controllers.route import changes
from controllers.route.planning import BLACKHOLE, LIST
from controllers.route.table import is_machine
from controllers.runtime.api import ApiError, ObjectNotFound, RestClient
from controllers.runtime.cache import NODES, MalformedObject, key_of, quorum_list, uid_of
from controllers.runtime.queue import DONE, Parked, Result, TerminalError, pending

if TYPE_CHECKING:
    from cloudprovider.ips import IPNetwork
    from controllers.cloudcalls.capabilities import RouteCalls
    from controllers.route.changes import Entry, Step
    from controllers.route.condition import NetworkCondition
    from controllers.route.listing import RouteListing, RouteMetrics
    from controllers.route.planning import Planner
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

_BUSY = 0.1  # seconds until a destination that another key works on is tried again
_MOMENT = 10.0  # seconds for which one read of the nodes serves


class RouteConflict(Exception):
    """The route cannot be made: another node of this cluster holds its destination."""


class RouteRefused(TerminalError):
    """The route is not made. The next comparison of all nodes asks again."""


class RouteReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        rest: RestClient,
        routes: RouteCalls,
        planner: Planner,
        listing: RouteListing,
        condition: NetworkCondition,
        recorder: EventRecorder,
        metrics: RouteMetrics,
        same_id: SameID = same_provider_id,
    ) -> None:
        self._rest = rest
        self._lister = planner.lister
        self._routes = routes
        self._table = planner.table
        self._recorder = recorder
        self._cluster_name = listing.cluster_name
        self._condition = condition
        self._metrics = metrics
        self._planner = planner
        self._listing = listing
        self._same_id = same_id
        self._lock = threading.Lock()
        self._read: dict[IPNetwork, list[tuple[str, str]]] = {}
        self._read_for = (0, 0.0)  # the moment for which the nodes were read

    def reconcile(self, key: str) -> Result:
        """Do what the key asks for. Raises their errors, or RouteConflict."""
        if key == LIST:
            return self._listing.run()
        # Nothing is created or deleted beside routes that are not known: they may be any node's.
        # The listing, which is on its way or being retried, comes back to everything.
        if not self._table.version or self._listing.refused:
            return DONE
        trigger = self._metrics.trigger_of(key)
        try:
            blackhole = key.startswith(BLACKHOLE)
            result = self._clear(changes.network(key.removeprefix(BLACKHOLE)), key) if blackhole else self._node(key)
        except (CallsClosed, RetryError):
            raise
        except Exception:
            self._metrics.failed(key, trigger)
            raise
        if result.requeue_after is None:
            self._metrics.finished(key, trigger)
        return result

    def _node(self, name: str) -> Result:
        node = self._lister.get(name)
        waited, rooms = self._listing.takes_its_turn(name)
        wanted = {}
        if node is None:
            self._condition.forget(name)
        else:
            if self._planner.take_recreated(name, node):
                # Its machine may be another too, though name and pod CIDR are the same: only the
                # cloud knows whether the route leads there, or nowhere.
                self._listing.refresh()
            self._planner.note_node(name, node)
            try:
                wanted = changes.pod_cidrs(node)
            except ValueError as error:
                raise TerminalError(f"node {name} has a pod CIDR that is none: {error}") from error
        had = self._planner.destinations_of(name)
        if node is None and not had:
            self._listing.room()  # the cloud may have taken its route with the machine
        errors: list[Exception] = []
        missing = unsure = busy = False
        for net in [*wanted, *(net for net in had if net not in wanted)]:
            with self._table.claim(net) as mine:
                if not mine:
                    # Another key is at work there: the node that had this range before, say.
                    busy, unsure = True, unsure or net in wanted
                    continue
                try:
                    done = self._carry_out(self._planner.step(net, wanted.get(net, ""), name, node), name, node)
                    unsure = unsure or (not done and net in wanted)
                except CallsClosed:
                    raise
                except (*CLOUD_ERRORS, ApiError, RouteConflict, RouteRefused) as error:
                    errors.append(error)
                    if node is not None and net in wanted:
                        missing = True
                        if isinstance(error, QuotaExceeded):
                            self._listing.wait_for_room(name, rooms)
                        if not isinstance(error, RetryError):
                            self._report(node, net, wanted[net], error)
        if node is not None and (missing or (not unsure and (wanted or had))):
            try:
                self._condition.report(node, bool(wanted) and not missing)
            except ApiError as error:
                errors.append(error)
        # One route that went makes room for one node: the others wait on, and cost no call.
        if waited and not any(isinstance(error, QuotaExceeded) for error in errors):
            self._listing.next_in_turn()  # it has its route, or needs none, or fails for another reason
        if errors:
            try:
                raise min(errors, key=_order)
            finally:
                errors.clear()  # the traceback holds this frame
        return Result(requeue_after=_BUSY) if busy else DONE

    def _clear(self, net: IPNetwork, key: str) -> Result:
        """Remove blackholes at a destination that no node has."""
        with self._table.claim(net) as mine:
            if not mine:
                return Result(requeue_after=_BUSY)
            self._carry_out(self._planner.step(net, "", "", None), key, None)
        return DONE

    def _carry_out(self, step: Step, key: str, node: V1Node | None) -> bool:
        """Delete, then create; False when a fresh listing, under way then, is needed first."""
        if step.rival:
            raise RouteConflict(
                f"node {step.rival} has the same pod CIDR, or one that overlaps, and had its route first. Fix: delete "
                "the Node that should not have it, so that it registers anew"
            )
        if step.refused:
            raise RouteRefused(step.refused)
        net = step.destination
        if step.outdated and not step.create and node is not None:
            self._recorder.event(
                node,
                "Warning",
                "RouteOutdated",
                f"The route to {step.cidr} is kept, although {step.outdated}: it was deleted and made "
                "again for this, and the cloud lists it so again. The node's pods may not be "
                "reachable. Fix: see where the cloud's route leads. If it is right, the provider lists "
                "another address than it routes to",
            )
        if step.delete and not self._listing.serves(key, step.delete):
            return False
        for entry in step.delete:
            replaces_own = step.create and entry.target == key
            if not entry.route.blackhole and not replaces_own and (owner := self._owner(net, entry)):
                if step.create:  # two Nodes with one pod CIDR: who had its route first keeps it
                    raise RouteConflict(f"it leads to node {owner}, which the API server still has with this pod CIDR")
                continue  # our cache is behind; the node's event comes
            self._delete(net, entry, key)
            if not step.create or entry is not step.delete[0]:  # else its place is for the one that is made now
                self._listing.room()
            if replaces_own:
                self._planner.outdated(net, key, step.outdated)
        if step.create and node is not None:
            self._create(net, key, node)
            if any(entry.route.blackhole for entry in step.delete):
                self._planner.revived(net, node)
        return True

    def _owner(self, net: IPNetwork, entry: Entry) -> str:
        """The node that a route leads to and that the API server, by quorum read, has with this pod
        CIDR; "" if there is none."""
        name = entry.target
        if is_machine(name):
            claimants = ((one, machine) for one, machine in self._claimants(net) if machine)
            return next((one for one, machine in claimants if self._same_id(machine, name)), "")
        try:
            return name if net in changes.pod_cidrs(NODES.parse(self._rest.get(NODES.path(name=name)))) else ""
        except ObjectNotFound:
            return ""
        except (MalformedObject, ValueError) as error:
            log.warning("node %s cannot be read, so its routes are kept: %s", name, error)
            return name

    def _claimants(self, net: IPNetwork) -> Sequence[tuple[str, str]]:
        """Name and provider ID of the nodes with this pod CIDR, by quorum read: one list of nodes
        serves for a moment: all routes of a listing whose machines no known node has."""
        with self._lock:
            # A retry of what a listing brought up, minutes later, has a proof of its own.
            moment = self._table.version, self._table.age // _MOMENT
            if self._read_for != moment:
                claimants: dict[IPNetwork, list[tuple[str, str]]] = {}
                for name, machine, nets in quorum_list(self._rest, NODES, _claims_of):
                    for one in nets:
                        claimants.setdefault(one, []).append((name, machine))
                self._read_for, self._read = moment, claimants
            return self._read.get(net, ())

    def _delete(self, net: IPNetwork, entry: Entry, key: str) -> None:
        self._table.writing(net)
        try:
            self._routes.delete(self._cluster_name, entry.route, priority=PRIORITY_NORMAL)
        except Exception:
            # Whether it is there, only a listing can say: until then it is neither kept nor gone.
            self._table.doubt(net, entry)
            raise
        self._table.deleted(net, entry)
        self._planner.deleted(net, entry.target)
        self._metrics.changed(key)
        kind = "machine" if is_machine(entry.target) else "node"
        target = "nowhere (a blackhole)" if entry.route.blackhole else f"{kind} {entry.target}"
        log.info("deleted route: %s to %s, named %r", net, target, entry.route.name)

    def _create(self, net: IPNetwork, name: str, node: V1Node) -> None:
        route = Route(
            name="",
            target_node=name,
            destination_cidr=str(net),  # without the host bits that the API server takes in a pod CIDR
            target_node_addresses=changes.node_addresses(node),
            target_provider_id=provider_id_of(node),
        )
        self._table.writing(net)
        self._routes.create(self._cluster_name, uid_of(node), route, priority=PRIORITY_NEW)
        # A listing that began before this call may lack it: ours is the later word.
        self._table.created(net, route)
        self._planner.created(net, name, node)
        self._metrics.changed(name)
        log.info("created route: %s to node %s", net, name)

    def waits(self, key: str, error: RetryError, long: bool) -> None:
        """Report what the cloud is at work on, where the key is a node's."""
        node = self._lister.get(key)
        if node is not None:
            kind, message = pending("this node's route", error, long)
            self._recorder.event(node, kind, "RoutePending", message)

    def _report(self, node: V1Node, net: IPNetwork, cidr: str, error: Exception) -> None:
        message = f"Could not create route {uid_of(node)} {cidr} for node {key_of(node)}: {error}"
        kept = self._planner.in_the_way(net, key_of(node))
        if kept:
            message = f"{message}. In its place is a route that is left alone: {kept}"
        self._recorder.event(node, "Warning", "FailedToCreateRoute", message)


def _claims_of(raw: dict[str, Any]) -> tuple[str, str, Collection[IPNetwork]]:
    """A node's name, provider ID and pod CIDRs, whatever else in it may be malformed."""
    spec = raw.get("spec") or {}
    node = V1Node(spec=V1NodeSpec(pod_cidr=spec.get("podCIDR"), pod_cidrs=spec.get("podCIDRs")))
    return str(raw["metadata"]["name"]), str(spec.get("providerID") or ""), changes.valid_pod_cidrs(node)


def _order(error: Exception) -> int:
    """Which of a node's errors says when its key comes back: the one that must not come before a
    call has ended; then those that are tried again; then what waits for another route to go, and
    for the next comparison."""
    last = 2 if isinstance(error, QuotaExceeded) else 3 if isinstance(error, TerminalError) else 1
    return 0 if isinstance(error, Parked) else last
