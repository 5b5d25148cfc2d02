"""From what Octavia has to what a `Plan` wants: the body that creates all of it, and the single
changes of what is there, in their order. Pure.

A load balancer takes one change at a time: while it carries one out, it refuses others. So the
first step is made, and the rest is worked out again from what Octavia then has. New ports come
first, what is not needed goes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from attrs import frozen

from cloudprovider import InvalidService
from openstack_provider.ownership import SERVICE_PREFIX, Identity, is_owner
from openstack_provider.plan import IPV4, IPV6, Plan, PlannedPort, Target
from openstack_provider.rest import JSON

EVERYONE: Final = {IPV4: "0.0.0.0/0", IPV6: "::/0"}
_SETTLED: Final = {
    "listeners": (
        "connection_limit", "timeout_client_data", "timeout_member_connect", "timeout_member_data",
        "timeout_tcp_inspect", "default_tls_container_ref",
    ),
    "pools": ("lb_algorithm", "session_persistence"),
    "healthmonitors": (
        "delay", "timeout", "max_retries", "max_retries_down", "url_path", "http_method", "expected_codes",
    ),
}  # fmt: skip
"""What is put back where it is another, by the kind of part."""
_KEPT: Final = ("weight", "backup", "admin_state_up", "monitor_address", "tags")
"""What of a member is left as somebody set it."""


@frozen
class Step:
    """A request that changes something."""

    method: str
    path: str
    body: Mapping[str, Any]
    what: str
    """For a message."""


@frozen
class Spot:
    """Where a pool's members are reached on the nodes."""

    subnet: str
    """ "" for that of the load balancer."""
    node_port: int
    monitor_port: int | None


@frozen
class Actual:
    """What Octavia has of a load balancer. Members and monitors stand in their pools, as in the
    body that creates all of it."""

    balancer: JSON
    listeners: Sequence[JSON]
    pools: Sequence[JSON]


def created(
    plan: Plan, targets: Sequence[Target], vip: Mapping[str, Any], families: Sequence[str], tags: Sequence[str]
) -> JSON:
    """The body that creates a load balancer with all its parts."""
    listeners: list[JSON] = []
    for port in plan.ports:
        pool = {**port.pool, "members": members(_spot(plan, port), [], targets) or []}
        if port.monitor is not None:
            pool["healthmonitor"] = dict(port.monitor)
        listeners.append({**port.listener, **_allowed(plan, families), "default_pool": pool})
    told = {"name": plan.who.balancer, "description": plan.who.description, "tags": list(tags)}
    return {**told, "listeners": listeners, **vip}


def steps(plan: Plan, actual: Actual, targets: Sequence[Target], families: Sequence[str]) -> list[Step]:
    """What is to be done. The first can be carried out; further ones may lack an ID that only the
    first gives. Raises `InvalidService` for a port that another Service has on a shared load
    balancer."""
    done: list[Step] = []
    free = list(actual.listeners)
    used: set[str] = set()
    for port in plan.ports:
        slot = port.transport, port.number
        listener = next((one for one in free if (transport_of(one), one["protocol_port"]) == slot), None)
        if listener is not None:
            free.remove(listener)
            _refuse_others(listener, actual.balancer, plan.who)
            if listener["protocol"] != port.listener["protocol"]:
                # It cannot be changed, and there cannot be two on one port.
                done.append(_delete("listeners", listener))
                listener = None
        pool = _pool(port, listener, actual, used, plan.who)
        if pool is not None:
            used.add(pool["id"])
        done += _pool_steps(plan, port, pool, actual, targets)
        done += _listener_steps(plan, port, listener, pool, actual, families)
    doomed = [_delete("listeners", one) for one in free if plan.who.balancer in (one.get("tags") or ())]
    unused = [one for one in actual.pools if one["id"] not in used and plan.who.is_part("pool", one["name"])]
    return done + doomed + _not_others(unused, plan.who, actual)


def leaving(who: Identity, actual: Actual) -> list[Step]:
    """How a Service's ports go from a load balancer that stays: its listeners, then its pools."""
    mine = [one for one in actual.listeners if who.balancer in (one.get("tags") or ())]
    behind = {one["default_pool_id"] for one in mine}
    pools = [one for one in actual.pools if one["id"] in behind or who.is_part("pool", one["name"])]
    return [_delete("listeners", one) for one in mine] + _not_others(pools, who, actual)


def _not_others(pools: Iterable[JSON], who: Identity, actual: Actual) -> list[Step]:
    """The deletion of those that stand behind no other Service's listener."""
    theirs = {one["default_pool_id"] for one in actual.listeners if who.balancer not in (one.get("tags") or ())}
    return [_delete("pools", one) for one in pools if one["id"] not in theirs]


def members(spot: Spot, present: Sequence[Mapping[str, Any]], targets: Sequence[Target]) -> list[JSON] | None:
    """The pool's members as they should be; None where they are. What belongs to a node of the
    list stays, also while the node has no address."""
    there = {(one["address"], one["protocol_port"]): one for one in present}
    names = {target.name for target in targets if not target.address}
    wanted = {key: _member(one["name"], key, spot, one) for key, one in there.items() if one.get("name") in names}
    for target in targets:
        if target.address:
            key = (target.address, spot.node_port)
            wanted[key] = _member(target.name, key, spot, there.get(key))
    return None if {_told(one) for one in wanted.values()} == {_told(one) for one in present} else list(wanted.values())


def _member(name: str, key: tuple[str, int], spot: Spot, present: Mapping[str, Any] | None) -> JSON:
    made: JSON = {"name": name, "address": key[0], "protocol_port": key[1]}
    subnet = spot.subnet if present is None else present.get("subnet_id")
    if subnet:
        made["subnet_id"] = subnet
    if spot.monitor_port or (present is not None and present.get("monitor_port")):
        made["monitor_port"] = spot.monitor_port  # None takes it away
    if present is not None:
        made |= {key: present[key] for key in _KEPT if present.get(key) is not None}
    return made


def _told(member: Mapping[str, Any]) -> tuple[Any, ...]:
    return (member.get("name"), member["address"], member["protocol_port"], member.get("monitor_port") or None)


def member_step(pool: str, wanted: Sequence[JSON]) -> Step:
    """Have these members in the pool: Octavia adds and removes in one go."""
    return Step("PUT", f"/lbaas/pools/{pool}/members", {"members": list(wanted)}, f"the {len(wanted)} members")


def join_step(pool: str, present: Sequence[JSON], wanted: Sequence[JSON], monitor_port: int | None) -> Step | None:
    """Have the one more member in the pool; None where more is to change. Nothing is said of the
    others, so none has to be read."""
    there = {_told(one) for one in present}
    new = [one for one in wanted if _told(one) not in there]
    if len(new) != 1 or len(wanted) != len(present) + 1:
        return None
    made = {**new[0], "monitor_port": monitor_port} if monitor_port else new[0]
    return Step("POST", f"/lbaas/pools/{pool}/members", {"member": made}, f"the member {made['name']}")


def _spot(plan: Plan, port: PlannedPort) -> Spot:
    return Spot(plan.networks.member_subnet, port.node_port, port.monitor_port)


def transport_of(listener: Mapping[str, Any]) -> str:
    """TCP, UDP or SCTP."""
    return str(listener["protocol"]) if listener["protocol"] in ("UDP", "SCTP") else "TCP"


def _refuse_others(listener: Mapping[str, Any], balancer: JSON, who: Identity) -> None:
    """One that was made by hand becomes the Service's only on its own load balancer: users name
    those to share."""
    tags = listener.get("tags") or ()
    is_anothers = any(tag.startswith(SERVICE_PREFIX) for tag in tags) or not is_owner(balancer, who)
    if who.balancer not in tags and is_anothers:
        raise InvalidService(f"port {listener['protocol_port']} of this load balancer is in use by another Service")


def _pool(
    port: PlannedPort, listener: Mapping[str, Any] | None, actual: Actual, used: set[str], who: Identity
) -> JSON | None:
    """The pool that serves the port, or is to: one of the right protocol that the listener has, or
    that an interrupted call left."""
    behind = listener["default_pool_id"] if listener is not None else None
    taken = {one["default_pool_id"] for one in actual.listeners}
    for one in sorted(actual.pools, key=lambda one: one["id"] != behind):
        is_left = one["name"] == port.pool["name"] and one["id"] not in taken
        if one["protocol"] == port.pool["protocol"] and one["id"] not in used and (one["id"] == behind or is_left):
            return one
    return None


def _pool_steps(
    plan: Plan, port: PlannedPort, pool: JSON | None, actual: Actual, targets: Sequence[Target]
) -> list[Step]:
    wanted = members(_spot(plan, port), pool.get("members", ()) if pool else (), targets)
    if pool is None:
        made = {**port.pool, "loadbalancer_id": actual.balancer["id"]}
        later = [Step("PUT", "", {}, "members")] * bool(wanted) + [Step("POST", "", {}, "monitor")] * bool(port.monitor)
        return [Step("POST", "/lbaas/pools", {"pool": made}, f"the pool of port {port.number}"), *later]
    done = _put("pools", pool, _differing("pools", port.pool, pool), f"the pool of port {port.number}")
    if wanted is not None:
        done.append(member_step(pool["id"], wanted))
    return done + _monitor_steps(port, pool)


def _monitor_steps(port: PlannedPort, pool: JSON) -> list[Step]:
    there = pool.get("healthmonitor")
    made: list[Step] = []
    if port.monitor is not None:
        body = {"healthmonitor": {**port.monitor, "pool_id": pool["id"]}}
        made = [Step("POST", "/lbaas/healthmonitors", body, f"the monitor of port {port.number}")]
    if there is None:
        return made
    if port.monitor is None or there["type"] != port.monitor["type"]:
        return [_delete("healthmonitors", there), *made]
    return _put("healthmonitors", there, _differing("healthmonitors", port.monitor, there), "a monitor")


def _listener_steps(
    plan: Plan, port: PlannedPort, listener: JSON | None, pool: JSON | None, actual: Actual, families: Sequence[str]
) -> list[Step]:
    if listener is None:
        made = {**port.listener, **_allowed(plan, families), "loadbalancer_id": actual.balancer["id"]}
        made["default_pool_id"] = pool["id"] if pool is not None else None
        return [Step("POST", "/lbaas/listeners", {"listener": made}, f"the listener of port {port.number}")]
    changed = _differing("listeners", {"default_tls_container_ref": None, **port.listener}, listener)
    present: dict[str, str] = listener.get("insert_headers") or {}
    headers = {key: one for key, one in present.items() if key != "X-Forwarded-For"}
    headers |= port.listener.get("insert_headers", {})
    if headers != present:
        changed["insert_headers"] = headers
    for key, ranges in _allowed(plan, families).items():
        if _limits(listener.get(key) or (), families) != _limits(ranges, families):
            changed[key] = ranges
    tags: list[str] = list(listener.get("tags") or ())
    if plan.who.balancer not in tags:
        # A listener without a Service's tag was made by hand: it becomes the Service's.
        changed |= {"tags": [*tags, plan.who.balancer], "name": port.listener["name"]}
    if pool is None or listener["default_pool_id"] != pool["id"]:
        changed["default_pool_id"] = pool["id"] if pool is not None else None
    return _put("listeners", listener, changed, f"the listener of port {port.number}")


def _allowed(plan: Plan, families: Sequence[str]) -> JSON:
    """Who may connect, where listeners limit that."""
    return {"allowed_cidrs": plan.sources(families)} if plan.at_listeners else {}


def _limits(ranges: Iterable[str], families: Sequence[str]) -> set[str]:
    """Who may connect, where no range means everyone."""
    wide = {EVERYONE[family] for family in families}
    named = set(ranges) or wide
    return {one for one in named if one in wide or EVERYONE[IPV6 if ":" in one else IPV4] not in named}


def _differing(kind: str, wanted: Mapping[str, Any], present: Mapping[str, Any]) -> JSON:
    keys = [key for key in _SETTLED[kind] if key in wanted]
    return {key: wanted[key] for key in keys if _plain(wanted[key]) != _plain(present.get(key))}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get("type")  # of a persistence, of which Octavia tells more
    return value if isinstance(value, int) else value or None


def _put(kind: str, present: Mapping[str, Any], changed: JSON, what: str) -> list[Step]:
    path = f"/lbaas/{kind}/{present['id']}"
    return [Step("PUT", path, {kind.removesuffix("s"): changed}, what)] if changed else []


def _delete(kind: str, present: Mapping[str, Any]) -> Step:
    return Step("DELETE", f"/lbaas/{kind}/{present['id']}", {}, f"the deletion of {present['name']}")
