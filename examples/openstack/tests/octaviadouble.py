"""Octavia in the double: load balancers with their listeners, pools, members and monitors.

A change makes the load balancer immutable (PENDING_*) until it has been read `polls` times.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from attrs import define, field
from doublebase import Query, Record, Refused, answer, listed, new_id, refuse
from doublebase import one as recorded
from neutrondouble import Neutron

_KINDS = {"loadbalancers": "loadbalancer", "listeners": "listener", "pools": "pool", "healthmonitors": "healthmonitor"}
_NAMES = {
    "loadbalancers": "Load Balancer", "listeners": "Listener", "pools": "Pool", "healthmonitors": "Health Monitor",
    "members": "Member",
}  # fmt: skip
_MADE = {
    "loadbalancers": "balancer made", "listeners": "listener made", "pools": "pool made", "members": "member made",
    "healthmonitors": "monitor made",
}  # fmt: skip
_PLAIN: dict[str, Record] = {
    "loadbalancers": {"name": "", "description": "", "tags": []},
    "listeners": {"name": "", "tags": [], "allowed_cidrs": None, "default_pool_id": None},
    "pools": {"name": "", "tags": [], "session_persistence": None},
    "members": {"name": "", "tags": []},
    "healthmonitors": {"name": "", "tags": [], "url_path": None, "http_method": None, "expected_codes": None},
}
"""What an object has where nobody says otherwise, and the recorded one had."""
_INSIDE = {
    "listeners",
    "pools",
    "members",
    "healthmonitor",
    "default_pool",
    "listener_id",
    "pool_id",
    "loadbalancer_id",
}


@define
class Octavia:
    """Objects by kind and ID; a member or a monitor knows its pool as "pool", the others their load
    balancer as "of"."""

    neutron: Neutron
    polls: int = 1
    """How many times a load balancer is read as PENDING after a change. 0: it is ready at once."""
    held: bool = False
    """Nothing gets ready."""
    exhausted: bool = False
    """No quota is left, for anything."""
    outcome: str = "ACTIVE"
    """What a load balancer becomes: ERROR, where a build fails."""
    things: dict[str, dict[str, Record]] = field(factory=lambda: {kind: {} for kind in _MADE})
    _left: dict[str, int] = field(factory=dict)
    _links: dict[str, str] = field(factory=dict)
    """What each object belongs to: a monitor or member to a pool, others to a load balancer."""

    def answer(self, method: str, path: str, query: Query, body: Any) -> tuple[int, Any]:
        """Status and document."""
        if path.rstrip("/") in ("", "/v2.0", "/v2"):
            return 200, answer("octavia versions")
        for kind, step in (("flavors", "flavors"), ("availabilityzones", "zones"), ("providers", "providers")):
            if path == f"/v2.0/lbaas/{kind}":
                return 200, answer(step)
        if (found := re.fullmatch(r"/v2(?:\.0)?/lbaas/pools/([^/]+)/members(?:/([^/]+))?", path)) is not None:
            return self._members(method, found[1], found[2], query, body)
        found = re.fullmatch(r"/v2(?:\.0)?/lbaas/(\w+)(?:/([^/]+)(/status)?)?", path)
        if found is None or (kind := found[1]) not in _KINDS:
            raise Refused(501, {"faultcode": "Server", "faultstring": f"the double has no {method} {path}"})
        if found[2] is None:
            if method == "POST":
                return 201, {_KINDS[kind]: self._create(kind, body[_KINDS[kind]])}
            return 200, self._listing(kind, path, query)
        thing = self._get(kind, found[2])
        lb = self.things["loadbalancers"][self._balancer_of(kind, thing["id"])]
        if method == "GET":
            if kind == "loadbalancers":
                self._read(lb["id"])
                if lb["id"] not in self.things[kind]:
                    raise self._missing(kind, lb["id"])
            return 200, self._tree(lb) if found[3] else {_KINDS[kind]: self._shown(kind, thing)}
        if kind == "loadbalancers" and method == "DELETE":
            self._delete_balancer(lb, cascade=query.get("cascade", [""])[0].lower() == "true")
            return 204, None
        if method == "DELETE":
            self._change(lb)
            self._delete(kind, thing["id"])
            return 204, None
        self._set(kind, dict(thing), body[_KINDS[kind]])  # a wrong request changes nothing
        self._change(lb)
        self._set(kind, thing, body[_KINDS[kind]])
        return 200, {_KINDS[kind]: self._shown(kind, thing, "PENDING_UPDATE")}

    def _missing(self, kind: str, key: str) -> Refused:
        return refuse("no balancer", message=f"{_NAMES[kind]} {key} not found.")

    def _get(self, kind: str, key: str) -> Record:
        if (thing := self.things[kind].get(key)) is None:
            raise self._missing(kind, key)
        return thing

    def _balancer_of(self, kind: str, key: str) -> str:
        while key not in self.things["loadbalancers"]:
            key = self._links[key]
        return key

    def _read(self, lb: str) -> None:
        """One look at a load balancer, which may be the one that finds it ready."""
        if lb not in self._left or self.held:
            return
        if self._left[lb] > 0:
            self._left[lb] -= 1
            return
        del self._left[lb]
        thing = self.things["loadbalancers"][lb]
        if thing["provisioning_status"] == "PENDING_DELETE":
            self._remove(lb)
        else:
            thing["provisioning_status"] = self.outcome

    def _change(self, lb: Record, status: str = "PENDING_UPDATE") -> None:
        if lb["provisioning_status"] not in ("ACTIVE", "ERROR" if status == "PENDING_DELETE" else "ACTIVE"):
            message = f"Load Balancer {lb['id']} is immutable and cannot be updated."
            if status == "PENDING_DELETE":
                message = f"Invalid state {lb['provisioning_status']} of loadbalancer resource {lb['id']}"
            raise refuse("immutable", message=message)
        lb["provisioning_status"] = status
        self._pend(lb["id"])

    def _pend(self, lb: str) -> None:
        self._left[lb] = self.polls
        if self.polls == 0:
            self._read(lb)

    def _inside(self, lb: str) -> list[tuple[str, str]]:
        """All that belongs to it, by kind and ID."""
        every = [(kind, key) for kind, things in self.things.items() for key in things if kind != "loadbalancers"]
        return [(kind, key) for kind, key in every if self._balancer_of(kind, key) == lb]

    def _remove(self, lb: str) -> None:
        for kind, key in self._inside(lb):
            del self.things[kind][key]
        self.neutron.delete_port(self.things["loadbalancers"].pop(lb)["vip_port_id"])

    def _delete_balancer(self, lb: Record, *, cascade: bool) -> None:
        if not cascade and self._inside(lb["id"]):
            message = f"Validation failure: Cannot delete Load Balancer {lb['id']} - it has children"
            raise refuse("not without cascade", message=message)
        self._change(lb, "PENDING_DELETE")

    def _delete(self, kind: str, key: str) -> None:
        del self.things[kind][key]
        if kind == "pools":
            for child in [one for one, of in self._links.items() if of == key]:
                for part in ("members", "healthmonitors"):
                    self.things[part].pop(child, None)
            for listener in self.things["listeners"].values():
                if listener["default_pool_id"] == key:
                    listener["default_pool_id"] = None

    def _shown(self, kind: str, thing: Record, status: str = "") -> Record:
        """As Octavia shows it, with IDs of what is connected."""

        def ids(*found: Record) -> list[Record]:
            return [{"id": one["id"]} for one in found]

        shown = {**thing, "provisioning_status": status or thing["provisioning_status"]}
        mine = [self.things[part][key] for part, key in self._inside(thing["id"])] if kind == "loadbalancers" else []
        if kind == "loadbalancers":
            shown["listeners"] = ids(*(one for one in mine if one["id"] in self.things["listeners"]))
            shown["pools"] = ids(*(one for one in mine if one["id"] in self.things["pools"]))
        elif kind == "pools":
            listeners = self.things["listeners"].values()
            shown["listeners"] = ids(*(one for one in listeners if one["default_pool_id"] == thing["id"]))
            shown["members"] = ids(*self._children("members", thing["id"]))
            if monitors := self._children("healthmonitors", thing["id"]):
                shown["healthmonitor_id"] = monitors[0]["id"]
        if kind in ("listeners", "pools"):
            shown["loadbalancers"] = [{"id": self._balancer_of(kind, thing["id"])}]
        if kind == "healthmonitors":
            shown["pools"] = [{"id": self._links[thing["id"]]}]
        return shown

    def _children(self, kind: str, of: str) -> list[Record]:
        return [one for key, one in self.things[kind].items() if self._links[key] == of]

    def _tree(self, lb: Record) -> Record:
        """The status tree."""
        words = ("id", "name", "operating_status", "provisioning_status")

        def told(thing: Record, *more: str) -> Record:
            return {key: thing[key] for key in (*words, *more)}

        listeners = []
        for listener in self._children("listeners", lb["id"]):
            pools = []
            for pool in (one for key, one in self.things["pools"].items() if key == listener["default_pool_id"]):
                members = [told(one, "address", "protocol_port") for one in self._children("members", pool["id"])]
                monitors = [told(one, "type") for one in self._children("healthmonitors", pool["id"])]
                watched = {"health_monitor": monitors[0] if monitors else None}  # as the services do
                pools.append({**told(pool), **watched, "members": members})
            listeners.append({**told(listener), "pools": pools})
        return {"statuses": {"loadbalancer": {**told(lb), "listeners": listeners}}}

    def _listing(self, kind: str, path: str, query: Query) -> Record:
        if kind == "loadbalancers":
            for key in list(self.things[kind]):
                self._read(key)
        things = [self._shown(kind, thing) for thing in self.things[kind].values()]
        if query.get("sort", [""])[0].startswith("id"):
            things.sort(key=lambda thing: str(thing["id"]))
        filters = {
            f"{parent}_id": lambda thing, wanted, name=f"{parent}s": any(one["id"] in wanted for one in thing[name])
            for parent in ("loadbalancer", "listener", "pool")
        }
        found, full, later = listed(things, query, _wrong, filters)
        given = urlencode({key: values for key, values in query.items() if key != "marker"}, doseq=True)
        links = []
        if found:
            href = f"http://cloud{path}?{given}&marker="
            back = {"href": f"{href}{found[0]['id']}&page_reverse=True", "rel": "previous"}
            onwards = {"href": f"{href}{found[-1]['id']}", "rel": "next"}
            links = [*([back] if later else []), *([onwards] if full else [])]
        return {kind: found, f"{kind}_links": links}

    def _set(self, kind: str, thing: Record, wanted: Record) -> None:
        for key in wanted:
            if key not in recorded(_MADE[kind]) and key not in _INSIDE:
                raise _wrong(key)
        if kind == "healthmonitors" and min(wanted.get(key, 1) for key in ("delay", "timeout", "max_retries")) < 0:
            raise refuse("monitor wrong")
        thing |= {key: value for key, value in wanted.items() if key not in _INSIDE}
        if thing.get("session_persistence"):
            thing["session_persistence"] = {
                **recorded("pool made")["session_persistence"],
                **thing["session_persistence"],
            }
        if kind == "healthmonitors" and thing["type"] in ("HTTP", "HTTPS"):
            thing |= {key: thing[key] or value for key, value in _HTTP.items()}

    def _add(self, kind: str, wanted: Record, of: str) -> Record:
        """A part of what is called `of`, with all that is in it."""
        made = {**recorded(_MADE[kind]), **_PLAIN[kind], "id": new_id(), "provisioning_status": "ACTIVE"}
        made = {key: value for key, value in made.items() if key not in _INSIDE and key not in ("loadbalancers",)}
        self._set(kind, made, wanted)
        self._links[made["id"]] = of
        self.things[kind][made["id"]] = made
        for member in wanted.get("members", ()):
            self._add("members", member, made["id"])
        if wanted.get("healthmonitor"):
            self._add("healthmonitors", wanted["healthmonitor"], made["id"])
        if kind == "listeners":
            pool = wanted.get("default_pool")
            made["default_pool_id"] = self._add("pools", pool, of)["id"] if pool else wanted.get("default_pool_id")
        return made

    def _create(self, kind: str, wanted: Record) -> Record:
        if self.exhausted:
            raise refuse("no quota for balancers", message=f"Quota has been met for resources: {_NAMES[kind]}")
        if kind == "loadbalancers":
            return self._create_balancer(wanted)
        of, listener = wanted.get("loadbalancer_id"), None
        if wanted.get("listener_id"):
            listener = self._get("listeners", wanted["listener_id"])
            of = self._links[listener["id"]]
        if kind == "healthmonitors":
            of = self._get("pools", wanted["pool_id"])["id"]
        lb = self._get("loadbalancers", self._balancer_of(kind, of) if of in self._links else str(of))
        self._taken(kind, wanted, str(of), listener)
        self._change(lb)
        made = self._add(kind, wanted, str(of))
        if listener is not None:
            listener["default_pool_id"] = made["id"]
        return self._shown(kind, made, "PENDING_CREATE")

    def _taken(self, kind: str, wanted: Record, of: str, listener: Record | None) -> None:
        """Refuse a second one in the same place. Octavia looks at that before it looks at the load
        balancer's state, but for listeners."""
        if kind == "listeners" and self.things["loadbalancers"][of]["provisioning_status"] == "ACTIVE":
            place = (wanted["protocol"] == "UDP", wanted["protocol_port"])
            for one in self._children(kind, of):
                if (one["protocol"] == "UDP", one["protocol_port"]) == place:
                    where = f"protocol {wanted['protocol']} and protocol_port {wanted['protocol_port']}"
                    message = f"Another Listener on this Load Balancer is already using {where}"
                    raise refuse("listener's port taken", message=message)
        if listener is not None and listener["default_pool_id"]:
            raise refuse("second pool of listener")
        if kind == "healthmonitors" and self._children(kind, of):
            raise refuse("monitor twice")

    def _create_balancer(self, wanted: Record) -> Record:
        subnet, network, port = (wanted.get(f"vip_{key}_id") for key in ("subnet", "network", "port"))
        if not (subnet or network or port):
            raise refuse("balancer of nothing")
        if wanted.get("flavor_id"):
            raise refuse("balancer of no flavor")
        if wanted.get("availability_zone"):
            raise refuse("balancer of no zone")
        if network and not subnet:
            subnet = self.neutron.things["networks"][network]["subnets"][0]
        if subnet and subnet not in self.neutron.things["subnets"]:
            raise refuse("balancer of no subnet", message=f"Subnet {subnet} not found.")
        made = {**recorded("balancer made"), **_PLAIN["loadbalancers"], "id": new_id()}
        if port:
            vip = self.neutron.things["ports"][port]
        else:
            names = {"name": f"octavia-lb-{made['id']}", "device_id": f"lb-{made['id']}"}
            vip = self.neutron.create_port(str(subnet), "VIP's port", **names)
        self._set("loadbalancers", made, wanted)
        address = vip["fixed_ips"][0]
        made |= {"vip_port_id": vip["id"], "vip_subnet_id": address["subnet_id"], "vip_network_id": vip["network_id"]}
        made |= {"vip_address": address["ip_address"], "provisioning_status": "PENDING_CREATE"}
        self.things["loadbalancers"][made["id"]] = made
        for kind in ("pools", "listeners"):
            for part in wanted.get(kind, ()):
                self._add(kind, part, made["id"])
        shown = self._shown("loadbalancers", made)
        shown["listeners"] = [self._whole("listeners", part["id"]) for part in shown["listeners"]]
        shown["pools"] = [self._whole("pools", part["id"]) for part in shown["pools"]]
        self._pend(made["id"])
        return shown

    def _whole(self, kind: str, key: str) -> Record:
        """With all that is in it, as Octavia answers when it is made together with its load
        balancer."""
        pending = {"provisioning_status": "PENDING_CREATE"}
        shown = {**self._shown(kind, self.things[kind][key]), **pending}
        if kind == "pools":
            shown["members"] = [{**one, **pending} for one in self._children("members", key)]
            for monitor in self._children("healthmonitors", key):
                shown["healthmonitor"] = {**monitor, **pending}
            shown.pop("healthmonitor_id", None)
        del shown["loadbalancers"]
        return shown

    def _members(self, method: str, pool: str, key: str | None, query: Query, body: Any) -> tuple[int, Any]:
        if pool not in self.things["pools"]:
            raise Refused(404, {**answer("no members"), "description": f"Pool {pool} not found."})
        if method == "GET":
            if key is not None:
                return 200, {"member": self._get("members", key)}
            found, _, _ = listed(self._children("members", pool), query, _wrong)
            return 200, {"members": found, "members_links": []}
        lb = self.things["loadbalancers"][self._balancer_of("pools", pool)]
        has = {(one["address"], one["protocol_port"]): one for one in self._children("members", pool)}
        if method == "POST":
            place = (body["member"]["address"], body["member"]["protocol_port"])
            if place in has:
                message = f"Another member on this pool is already using ip {place[0]} on protocol_port {place[1]}"
                raise refuse("member twice", message=message)
            self._change(lb)
            made = self._add("members", body["member"], pool)
            return 201, {"member": {**made, "provisioning_status": "PENDING_CREATE"}}
        if method == "PUT" and key is None:
            self._change(lb)
            self._batch(pool, has, body["members"], additive=query.get("additive_only", [""])[0].lower() == "true")
            return 202, None
        thing = self._get("members", str(key))
        self._change(lb)
        if method == "DELETE":
            del self.things["members"][thing["id"]]
            return 204, None
        self._set("members", thing, body["member"])
        return 200, {"member": {**thing, "provisioning_status": "PENDING_UPDATE"}}

    def _batch(self, pool: str, has: dict[tuple[str, int], Record], wanted: list[Record], *, additive: bool) -> None:
        named = {(one["address"], one["protocol_port"]): one for one in wanted}
        for place, member in named.items():
            if place in has:
                self._set("members", has[place], member)
            else:
                self._add("members", member, pool)
        for place, member in has.items():
            if place not in named and not additive:
                del self.things["members"][member["id"]]


_HTTP = {"url_path": "/", "http_method": "GET", "expected_codes": "200"}


def _wrong(key: str) -> Refused:
    return refuse("balancer of nothing", message=f"Unknown attribute or filter {key!r}")
