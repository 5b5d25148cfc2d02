"""Neutron in the double: networks, ports, a router, floating IPs, security groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlencode

from attrs import define, field
from doublebase import Query, Record, Refused, answer, like, listed, new_id, one, refuse

_KINDS = {
    "networks": "network", "subnets": "subnet", "ports": "port", "routers": "router", "floatingips": "floatingip",
    "security-groups": "security_group", "security-group-rules": "security_group_rule",
}  # fmt: skip
_MISSING = {
    "networks": ("no network", "Network {} could not be found."),
    "subnets": ("no subnet", "Subnet {} could not be found."),
    "ports": ("no port", "Port {} could not be found."),
    "routers": ("no router", "Router {} could not be found"),
    "floatingips": ("no address", "Floating IP {} could not be found"),
    "security-groups": ("no group", "Security group {} does not exist"),
    "security-group-rules": ("rule deleted twice", "Security group rule {} does not exist"),
}


def _networks() -> dict[str, dict[str, Record]]:
    """What is there before anybody asks: as it was in the recording."""
    things: dict[str, list[Record]] = {
        "networks": answer("networks")["networks"], "ports": [], "floatingips": [], "security-group-rules": [],
        "subnets": [one("subnet"), one("external subnets")], "routers": [one("router")], "security-groups": [],
    }  # fmt: skip
    router, inside = things["routers"][0], things["subnets"][0]
    gateway = {"subnet_id": inside["id"], "ip_address": inside["gateway_ip"]}
    port = one("router's ports")
    things["ports"].append(
        {**port, "id": new_id(), "device_id": router["id"], "network_id": inside["network_id"], "fixed_ips": [gateway]}
    )
    return {kind: {thing["id"]: thing for thing in listed} for kind, listed in things.items()}


@define
class Neutron:
    """Objects by kind and ID."""

    exhausted: bool = False
    """No quota is left, for anything."""
    max_routes: int = 1000
    things: dict[str, dict[str, Record]] = field(factory=_networks)
    _numbers: int = 0

    @property
    def ids(self) -> dict[str, str]:
        """Of what is there at the start, by the names that the lab has for them."""
        networks = {thing["name"]: thing for thing in self.things["networks"].values()}
        inside, outside = networks["nodes"], networks["public"]
        return {
            "project_id": inside["project_id"], "network": inside["id"], "subnet": inside["subnets"][0],
            "external": outside["id"], "external_subnet": outside["subnets"][0], "router": one("router")["id"],
        }  # fmt: skip

    def create_port(self, subnet: str, step: str = "port", **more: object) -> Record:
        """A port with an address of its own, like the one of that step of the recording."""
        made = one(step)
        self._numbers += 1
        number = self._numbers
        mac = f"fa:16:3e:00:{number // 256:02x}:{number % 256:02x}"
        of = self.things["subnets"][subnet]
        address = str(ip_network(of["cidr"])[number + 20])
        made |= {"id": new_id(), "mac_address": mac, "allowed_address_pairs": [], "revision_number": 1, "tags": []}
        made |= {"network_id": of["network_id"], "fixed_ips": [{"subnet_id": subnet, "ip_address": address}], **more}
        self.things["ports"][made["id"]] = made
        return made

    def delete_port(self, port: str) -> None:
        """It goes; its floating IP stays, without a port."""
        self.things["ports"].pop(port, None)
        for fip in self.things["floatingips"].values():
            if fip["port_id"] == port:
                self._connect(fip, None)

    def answer(self, method: str, path: str, query: Query, body: Any, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Status and document."""
        if path == "/":
            return 200, answer("neutron versions")
        if path == "/v2.0/extensions":
            return 200, answer("extensions")
        found = re.fullmatch(r"/v2\.0/([a-z-]+)(?:/([^/]+)(?:/(\w+))?)?(?:/(.+))?", path)
        if found is None or (kind := found[1]) not in _KINDS:
            raise Refused(501, {"NeutronError": {"type": "Double", "message": f"no {method} {path}", "detail": ""}})
        things, key, action = self.things[kind], found[2], found[3]
        if key is None:
            return (201, self._create(kind, body)) if method == "POST" else (200, self._listing(kind, path, query))
        if (thing := things.get(key)) is None:
            step, message = _MISSING[kind]
            raise refuse(step, message=message.format(key))
        if (match := headers.get("If-Match", "")) and match != f"revision_number={thing['revision_number']}":
            message = f"Constrained to {match.rpartition('=')[2]}, but current revision is {thing['revision_number']}"
            raise refuse("stale revision", message=message)
        if action == "tags":
            thing |= {"tags": body["tags"], "revision_number": thing["revision_number"] + 1}
            return 200, {"tags": thing["tags"]}
        if method == "DELETE":
            self._delete(kind, thing)
            return 204, None
        if method == "PUT":
            self._update(kind, thing, body[_KINDS[kind]], action)
        shown = self._shown(kind, thing)
        if action is not None:
            shown = {**one("routes added"), **shown}
        return 200, {_KINDS[kind]: shown}

    def _shown(self, kind: str, thing: Record) -> Record:
        if kind != "security-groups":
            return thing
        inside = one("group")["security_group_rules"][0]
        more = {key: inside[key] for key in ("standard_attr_id", "belongs_to_default_sg", "tags")}
        every = self.things["security-group-rules"].values()
        rules = [{**rule, **more} for rule in every if rule["security_group_id"] == thing["id"]]
        return {**thing, "security_group_rules": rules}

    def _listing(self, kind: str, path: str, query: Query) -> Record:
        def wrong(key: str) -> Refused:
            return Refused(400, {"NeutronError": {"type": "HTTPBadRequest", "message": f"['{key}']", "detail": ""}})

        things = [self._shown(kind, thing) for thing in self.things[kind].values()]
        found, full, _ = listed(things, query, wrong)
        name = kind.replace("-", "_")
        document: Record = {name: found}
        if query.get("limit") and found:
            given = {key: values for key, values in query.items() if key != "marker"}
            href = f"http://cloud{path}?{urlencode(given, doseq=True)}&marker="
            links = [{"rel": "next", "href": f"{href}{found[-1]['id']}"}] if full else []
            document[f"{name}_links"] = [
                *links, {"rel": "previous", "href": f"{href}{found[0]['id']}&page_reverse=True"}
            ]  # fmt: skip
        return document

    def _create(self, kind: str, body: Any) -> Record:
        name = _KINDS[kind]
        if f"{name}s" in body:
            return {f"{name}s": [self._create(kind, {name: each})[name] for each in body[f"{name}s"]]}
        if self.exhausted and kind in ("floatingips", "security-groups"):
            raise refuse(f"no quota for {'groups' if kind == 'security-groups' else 'addresses'}")
        made = getattr(self, f"_new_{name}")(body[name])
        self.things[kind][made["id"]] = made
        return {name: self._shown(kind, made)}

    def _new_security_group(self, wanted: Record) -> Record:
        made = {**one("group made"), "id": new_id(), "description": "", **wanted}
        for family in ("IPv4", "IPv6"):  # Neutron lets everything out
            rule = {"security_group_id": made["id"], "ethertype": family, "direction": "egress"}
            self._create("security-group-rules", {"security_group_rule": rule})
        return made

    def _new_security_group_rule(self, wanted: Record) -> Record:
        empty = dict.fromkeys(("protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id"))
        made = {**one("rule made"), "id": new_id(), "ethertype": "IPv4", "description": "", **empty, **wanted}
        made["normalized_cidr"] = made["remote_ip_prefix"]
        compared = ("security_group_id", "direction", "ethertype", *empty)
        for rule in self.things["security-group-rules"].values():
            if all(rule[key] == made[key] for key in compared):
                message = f"Security group rule already exists. Rule id is {rule['id']}."
                raise refuse("rule twice", message=message)
        return made

    def _new_floatingip(self, wanted: Record) -> Record:
        network = self.things["networks"].get(wanted["floating_network_id"])
        if network is None:
            raise refuse("address of no network")
        if not network["router:external"]:
            raise refuse("address of an internal network")
        if wanted.get("floating_ip_address"):
            raise refuse("address chosen")
        cidr = ip_network(self.things["subnets"][wanted.get("subnet_id") or network["subnets"][0]]["cidr"])
        used = {fip["floating_ip_address"] for fip in self.things["floatingips"].values()}
        free = next(str(host) for host in list(cidr.hosts())[9:] if str(host) not in used)
        made = {**one("address made"), "id": new_id(), "description": "", "tags": [], "floating_ip_address": free}
        made |= {key: wanted[key] for key in ("floating_network_id", "description") if key in wanted}
        self._connect(made, wanted.get("port_id"))
        return made

    def _new_port(self, wanted: Record) -> Record:
        network = self.things["networks"][wanted["network_id"]]
        return self.create_port(network["subnets"][0], **{**wanted, "device_id": wanted.get("device_id", "")})

    def _connect(self, fip: Record, port: str | None) -> None:
        if port is None:
            fip |= dict.fromkeys(("port_id", "router_id", "fixed_ip_address", "port_details"))
            return
        if (to := self.things["ports"].get(port)) is None:
            raise refuse("no port", message=f"Port {port} could not be found.")
        if any(other["port_id"] == port and other["id"] != fip["id"] for other in self.things["floatingips"].values()):
            raise refuse("port has one")
        fip |= {"port_id": port, "router_id": self.ids["router"], "fixed_ip_address": to["fixed_ips"][0]["ip_address"]}
        fip["port_details"] = like(to, one("address made")["port_details"])

    def _update(self, kind: str, thing: Record, wanted: Record, action: str | None) -> None:
        before = dict(thing)
        if action in ("add_extraroutes", "remove_extraroutes") or "routes" in wanted:
            thing["routes"] = self._routes(thing["routes"], wanted["routes"], action)
        elif kind == "floatingips" and "port_id" in wanted:
            self._connect(thing, wanted["port_id"])
        for group in wanted.get("security_groups", ()):
            if group not in self.things["security-groups"] and group not in thing["security_groups"]:
                raise refuse("no such group on port", message=f"Security group {group} does not exist")
        if "allowed_address_pairs" in wanted:
            mac = {"mac_address": thing["mac_address"]}
            wanted = {**wanted, "allowed_address_pairs": [{**mac, **pair} for pair in wanted["allowed_address_pairs"]]}
        thing |= {key: value for key, value in wanted.items() if key not in ("routes", "port_id")}
        if thing != before or action is None:
            thing["revision_number"] += 1

    def _routes(self, has: list[Record], wanted: list[Record], action: str | None) -> list[Record]:
        routes = wanted if action is None else [route for route in has if route not in wanted]
        routes = [*routes, *wanted] if action == "add_extraroutes" else routes
        nets = [ip_network(thing["cidr"]) for thing in self.things["subnets"].values()]
        if any(not any(ip_address(route["nexthop"]) in net for net in nets) for route in routes):
            message = f"Invalid format for routes: {routes}, the nexthop is not connected with router"
            raise refuse("next hop away", message=message)
        # Not recorded, both: as Neutron says it of the quota router_route, and of max_routes.
        if self.exhausted and len(routes) > len(has):
            message = "Quota exceeded for resources: ['router_route']."
            raise Refused(409, {"NeutronError": {"type": "OverQuota", "message": message, "detail": ""}})
        if len(routes) > self.max_routes:
            message = f"Unable to complete operation for {self.ids['router']}. "
            message += f"The number of routes exceeds the maximum {self.max_routes}."
            raise Refused(400, {"NeutronError": {"type": "RoutesExhausted", "message": message, "detail": ""}})
        return routes

    def _delete(self, kind: str, thing: Record) -> None:
        ports = self.things["ports"].values()
        if kind == "security-groups" and any(thing["id"] in port["security_groups"] for port in ports):
            raise refuse("group in use", message=f"Security Group {thing['id']} in use.")
        if kind == "ports":
            self.delete_port(thing["id"])
        self.things[kind].pop(thing["id"], None)
        rules = self.things["security-group-rules"]
        for rule in [rule for rule in rules.values() if rule["security_group_id"] == thing["id"]]:
            del rules[rule["id"]]
