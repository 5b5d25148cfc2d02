"""The way through the APIs that is recorded from OpenStack's own services, and walked again with
the double: the same requests, so that statuses and shapes of the answers can be compared.

    OPENSTACK_VENV=... python -m pytest examples/openstack/tests/test_openstack_double.py
"""

from __future__ import annotations

import json
import re
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import requests
from attrs import define, field

RECORDED = Path(__file__).with_name("recorded.json")
_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_URL = re.compile(r"http://127\.0\.0\.1:\d+")
_NOWHERE = "deadbeef-0000-4000-8000-000000000000"


class Cloud(Protocol):
    """What the services' lab and the double have in common."""

    user: str
    password: str
    project: str
    project_id: str
    network: str
    subnet: str
    external: str
    router: str

    def url(self, service: str) -> str:
        """Where the service is."""

    def create_server(self, name: str) -> str:
        """An active server's ID."""

    def delete_server(self, server: str) -> None:
        """End it."""

    def exhausted(self) -> AbstractContextManager[None]:
        """No quota in the body."""


@define
class Walk:
    """One walk, and what it has seen: by the names of steps, the requests and their answers."""

    cloud: Cloud
    token: str = ""
    seen: dict[str, dict[str, Any]] = field(factory=dict)

    def step(self, name: str, method: str, service: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask, and remember; the answer's document."""
        sent = {"X-Auth-Token": self.token, "User-Agent": "openstack-lab", "OpenStack-API-Version": "compute 2.96"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        answer = requests.request(method, f"{self.cloud.url(service)}{path}", json=body, headers=sent, timeout=90)
        self.token = answer.headers.get("X-Subject-Token", self.token)
        document = answer.json() if answer.content else None
        asked = {"request": f"{method} {service} {path}", "body": body}
        self.seen[name] = {**asked, "status": answer.status_code, "answer": document}
        return document

    def settled(self, balancer: str, *, gone: bool = False) -> None:
        """Wait until it is ACTIVE, or gone."""
        url = f"{self.cloud.url('octavia')}/v2.0/lbaas/loadbalancers/{balancer}"
        sent = {"X-Auth-Token": self.token, "User-Agent": "openstack-lab"}
        end = time.monotonic() + 300
        while time.monotonic() < end:
            answer = requests.get(url, headers=sent, timeout=90)
            if answer.status_code == 404 if gone else answer.json()["loadbalancer"]["provisioning_status"] == "ACTIVE":
                return
            time.sleep(0.02)
        raise TimeoutError(f"load balancer {balancer} is not {'gone' if gone else 'ACTIVE'}")

    def recording(self) -> str:
        """All steps as JSON, one on each line; IDs are numbered, and tokens and times left out."""
        ids: dict[str, str] = {}

        def number(found: re.Match[str]) -> str:
            return ids.setdefault(found[0], f"{len(ids):08x}-0000-4000-8000-000000000000")

        lines = []
        for name, step in self.seen.items():
            text = _ID.sub(number, json.dumps(step))
            text = re.sub(r"(gAAAA)[\w-]+", r"\1", _URL.sub("http://cloud", text))
            text = text.replace(self.cloud.password, "PASSWORD")
            lines.append(f"{json.dumps(name)}: {text}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def walk(cloud: Cloud) -> Walk:
    """Everything, in order; what it makes is deleted in the end."""
    on = Walk(cloud)
    _login(on)
    servers = {name: cloud.create_server(name) for name in ("walk-1", "walk-2")}
    try:
        _servers(on, servers)
        _networks(on, servers)
        _groups(on, servers["walk-1"])
        _routes(on)
        balancer = _balancer(on)
        _parts(on, balancer)
        _full(on)
        _floating(on, balancer)
        _quotas(on)
        _ends(on, balancer)
    finally:
        for one in servers.values():
            cloud.delete_server(one)
    return on


def _login(on: Walk) -> None:
    cloud = on.cloud

    def login(password: str, project: str = cloud.project) -> Any:
        user = {"name": cloud.user, "domain": {"id": "default"}, "password": password}
        scope = {"project": {"name": project, "domain": {"id": "default"}}}
        return {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}

    on.step("keystone versions", "GET", "keystone", "/v3")
    on.step("wrong password", "POST", "keystone", "/v3/auth/tokens", login("wrong"))
    on.step("wrong project", "POST", "keystone", "/v3/auth/tokens", login(cloud.password, "nowhere"))
    for service in ("nova", "neutron", "octavia"):
        path = {"nova": "/v2.1/servers", "neutron": "/v2.0/ports", "octavia": "/v2.0/lbaas/loadbalancers"}[service]
        on.step(f"{service} without a token", "GET", service, path, X_Auth_Token="gAAAAnone")
    on.step("login", "POST", "keystone", "/v3/auth/tokens", login(cloud.password))
    on.step("nova versions", "GET", "nova", "/v2.1/")
    on.step("neutron versions", "GET", "neutron", "/")
    on.step("octavia versions", "GET", "octavia", "/")


def _servers(on: Walk, servers: dict[str, str]) -> None:
    on.step("servers", "GET", "nova", "/v2.1/servers/detail?name=%5Ewalk-%281%7C2%29%24")
    first = on.step("page 1", "GET", "nova", "/v2.1/servers/detail?name=walk-&limit=1")["servers"][0]["id"]
    second = on.step("page 2", "GET", "nova", f"/v2.1/servers/detail?name=walk-&limit=1&marker={first}")
    last = second["servers"][0]["id"]
    on.step("page 3", "GET", "nova", f"/v2.1/servers/detail?name=walk-&limit=1&marker={last}")
    on.step("wrong marker", "GET", "nova", f"/v2.1/servers/detail?marker={_NOWHERE}")
    on.step("server names", "GET", "nova", "/v2.1/servers?name=%5Ewalk-1%24")
    on.step("server", "GET", "nova", f"/v2.1/servers/{servers['walk-1']}")
    on.step("no server", "GET", "nova", f"/v2.1/servers/{_NOWHERE}")
    on.step("wrong filter", "GET", "nova", "/v2.1/servers/detail?name=%28")


def _networks(on: Walk, servers: dict[str, str]) -> None:
    cloud = on.cloud
    on.step("networks", "GET", "neutron", "/v2.0/networks")
    on.step("external networks", "GET", "neutron", "/v2.0/networks?router%3Aexternal=True")
    on.step("network by name", "GET", "neutron", "/v2.0/networks?name=nodes")
    on.step("network", "GET", "neutron", f"/v2.0/networks/{cloud.network}")
    on.step("no network", "GET", "neutron", f"/v2.0/networks/{_NOWHERE}")
    on.step("subnets", "GET", "neutron", f"/v2.0/subnets?network_id={cloud.network}")
    on.step("external subnets", "GET", "neutron", f"/v2.0/subnets?network_id={cloud.external}")
    on.step("subnet", "GET", "neutron", f"/v2.0/subnets/{cloud.subnet}")
    on.step("no subnet", "GET", "neutron", f"/v2.0/subnets/{_NOWHERE}")
    on.step("extensions", "GET", "neutron", "/v2.0/extensions")
    two = "&".join(f"device_id={one}" for one in servers.values())
    ports = on.step("ports of servers", "GET", "neutron", f"/v2.0/ports?{two}")["ports"]
    on.step("ports' fields", "GET", "neutron", f"/v2.0/ports?{two}&fields=id&fields=fixed_ips")
    address = ports[0]["fixed_ips"][0]["ip_address"]
    where = f"fixed_ips=ip_address%3D{address}&network_id={cloud.network}"
    on.step("port by address", "GET", "neutron", f"/v2.0/ports?{where}")
    page = f"/v2.0/ports?network_id={cloud.network}&{two}&limit=1"
    first = on.step("ports' page 1", "GET", "neutron", page)["ports"][0]["id"]
    on.step("ports' page 2", "GET", "neutron", f"{page}&marker={first}")
    port = f"/v2.0/ports/{ports[0]['id']}"
    on.step("port", "GET", "neutron", port)
    on.step("no port", "GET", "neutron", f"/v2.0/ports/{_NOWHERE}")
    pairs = {"port": {"allowed_address_pairs": [{"ip_address": "10.244.7.0/24"}]}}
    revision = on.step("address pairs", "PUT", "neutron", port, pairs)["port"]["revision_number"]
    stale = f"revision_number={revision - 1}"
    on.step("stale revision", "PUT", "neutron", port, {"port": {"allowed_address_pairs": []}}, If_Match=stale)
    current = f"revision_number={revision}"
    on.step("current revision", "PUT", "neutron", port, {"port": {"allowed_address_pairs": []}}, If_Match=current)


def _groups(on: Walk, server: str) -> None:
    group = {"security_group": {"name": "walk", "description": "of the walk"}}
    made = on.step("group made", "POST", "neutron", "/v2.0/security-groups", group)["security_group"]["id"]
    path = f"/v2.0/security-groups/{made}"
    rule = {"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 30080,
            "port_range_max": 30080, "remote_ip_prefix": "10.24.0.0/20", "security_group_id": made}  # fmt: skip
    wanted = {"security_group_rule": rule}
    first = on.step("rule made", "POST", "neutron", "/v2.0/security-group-rules", wanted)["security_group_rule"]["id"]
    on.step("rule twice", "POST", "neutron", "/v2.0/security-group-rules", wanted)
    more = [{**rule, "port_range_min": port, "port_range_max": port} for port in (30081, 30082)]
    on.step("rules in bulk", "POST", "neutron", "/v2.0/security-group-rules", {"security_group_rules": more})
    on.step("rules", "GET", "neutron", f"/v2.0/security-group-rules?security_group_id={made}")
    on.step("group", "GET", "neutron", path)
    on.step("groups by name", "GET", "neutron", "/v2.0/security-groups?name=walk")
    on.step("no group", "GET", "neutron", f"/v2.0/security-groups/{_NOWHERE}")
    on.step("group's tags", "PUT", "neutron", f"{path}/tags", {"tags": ["walk", "other"]})
    on.step("groups by tag", "GET", "neutron", "/v2.0/security-groups?tags=walk")
    ports = on.step("server's port", "GET", "neutron", f"/v2.0/ports?device_id={server}")["ports"]
    port, before = f"/v2.0/ports/{ports[0]['id']}", ports[0]["security_groups"]
    on.step("group on port", "PUT", "neutron", port, {"port": {"security_groups": [*before, made]}})
    on.step("group in use", "DELETE", "neutron", path)
    on.step("no such group on port", "PUT", "neutron", port, {"port": {"security_groups": [_NOWHERE]}})
    on.step("group off port", "PUT", "neutron", port, {"port": {"security_groups": before}})
    on.step("rule deleted", "DELETE", "neutron", f"/v2.0/security-group-rules/{first}")
    on.step("rule deleted twice", "DELETE", "neutron", f"/v2.0/security-group-rules/{first}")
    on.step("group deleted", "DELETE", "neutron", path)


def _routes(on: Walk) -> None:
    path = f"/v2.0/routers/{on.cloud.router}"
    routes = [{"destination": f"10.244.{n}.0/24", "nexthop": f"10.24.3.{n}"} for n in (1, 2)]
    on.step("router", "GET", "neutron", path)
    on.step("no router", "GET", "neutron", f"/v2.0/routers/{_NOWHERE}")
    on.step("router's ports", "GET", "neutron", f"/v2.0/ports?device_id={on.cloud.router}")
    on.step("routes added", "PUT", "neutron", f"{path}/add_extraroutes", {"router": {"routes": routes}})
    on.step("routes added twice", "PUT", "neutron", f"{path}/add_extraroutes", {"router": {"routes": routes}})
    away = [{"destination": "10.244.9.0/24", "nexthop": "192.168.77.1"}]
    on.step("next hop away", "PUT", "neutron", f"{path}/add_extraroutes", {"router": {"routes": away}})
    on.step("route removed", "PUT", "neutron", f"{path}/remove_extraroutes", {"router": {"routes": routes[:1]}})
    on.step("route removed twice", "PUT", "neutron", f"{path}/remove_extraroutes", {"router": {"routes": routes[:1]}})
    on.step("routes set", "PUT", "neutron", path, {"router": {"routes": []}})


def _balancer(on: Walk) -> str:
    wanted = {"name": "walk", "description": "d", "vip_subnet_id": on.cloud.subnet, "tags": ["walk-a", "walk-b"]}
    lbs = "/v2.0/lbaas/loadbalancers"
    made = str(on.step("balancer made", "POST", "octavia", lbs, {"loadbalancer": wanted})["loadbalancer"]["id"])
    path = f"{lbs}/{made}"
    listener = {"protocol": "TCP", "protocol_port": 80, "loadbalancer_id": made}
    on.step("immutable", "POST", "octavia", "/v2.0/lbaas/listeners", {"listener": listener})
    on.step("immutable for deletion", "DELETE", "octavia", f"{path}?cascade=true")
    on.settled(made)
    on.step("balancer", "GET", "octavia", path)
    on.step("no balancer", "GET", "octavia", f"{lbs}/{_NOWHERE}")
    on.step("no balancer to delete", "DELETE", "octavia", f"{lbs}/{_NOWHERE}?cascade=true")
    on.step("balancers by name", "GET", "octavia", f"{lbs}?name=walk")
    on.step("balancers by tags", "GET", "octavia", f"{lbs}?tags=walk-a,walk-b")
    on.step("balancers by any tag", "GET", "octavia", f"{lbs}?tags-any=walk-a,nothing")
    on.step("balancers by no tag", "GET", "octavia", f"{lbs}?tags=nothing")
    on.step("balancer of no subnet", "POST", "octavia", lbs, {"loadbalancer": {"vip_subnet_id": _NOWHERE}})
    on.step("balancer of nothing", "POST", "octavia", lbs, {"loadbalancer": {"name": "walk"}})
    flavor = {"loadbalancer": {**wanted, "flavor_id": _NOWHERE}}
    on.step("balancer of no flavor", "POST", "octavia", lbs, flavor)
    zone = {"loadbalancer": {**wanted, "availability_zone": "nowhere"}}
    on.step("balancer of no zone", "POST", "octavia", lbs, zone)
    on.step("flavors", "GET", "octavia", "/v2.0/lbaas/flavors")
    on.step("zones", "GET", "octavia", "/v2.0/lbaas/availabilityzones")
    on.step("providers", "GET", "octavia", "/v2.0/lbaas/providers")
    on.step("renamed", "PUT", "octavia", path, {"loadbalancer": {"name": "walk", "tags": ["walk-a"]}})
    on.settled(made)
    return made


def _parts(on: Walk, balancer: str) -> None:
    lbaas, subnet = "/v2.0/lbaas", on.cloud.subnet
    wanted = {"name": "l", "protocol": "TCP", "protocol_port": 80, "loadbalancer_id": balancer,
              "allowed_cidrs": ["198.51.100.0/24"], "tags": ["walk"]}  # fmt: skip
    made = on.step("listener made", "POST", "octavia", f"{lbaas}/listeners", {"listener": wanted})
    listener = made["listener"]["id"]
    on.settled(balancer)
    on.step("listener's port taken", "POST", "octavia", f"{lbaas}/listeners", {"listener": wanted})
    on.step("listeners", "GET", "octavia", f"{lbaas}/listeners?loadbalancer_id={balancer}")
    path = f"{lbaas}/listeners/{listener}"
    more = {"listener": {"allowed_cidrs": ["203.0.113.0/25"], "timeout_client_data": 60000}}
    on.step("listener changed", "PUT", "octavia", path, more)
    on.settled(balancer)
    on.step("listener", "GET", "octavia", path)
    on.step("no listener", "GET", "octavia", f"{lbaas}/listeners/{_NOWHERE}")
    of = {"name": "p", "listener_id": listener, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
    sticky = {**of, "session_persistence": {"type": "SOURCE_IP"}}
    pool = on.step("pool made", "POST", "octavia", f"{lbaas}/pools", {"pool": sticky})["pool"]["id"]
    on.settled(balancer)
    on.step("second pool of listener", "POST", "octavia", f"{lbaas}/pools", {"pool": of})
    place = {"protocol_port": 30080, "subnet_id": subnet}
    members = [{"address": f"10.24.1.{n}", "name": f"n{n}", **place} for n in (1, 2)]
    on.step("members set", "PUT", "octavia", f"{lbaas}/pools/{pool}/members", {"members": members})
    on.settled(balancer)
    listed = on.step("members", "GET", "octavia", f"{lbaas}/pools/{pool}/members")["members"]
    third = [{"address": "10.24.1.3", "name": "n3", **place}]
    add = f"{lbaas}/pools/{pool}/members?additive_only=True"
    on.step("members added", "PUT", "octavia", add, {"members": third})
    on.settled(balancer)
    one = {"member": {**third[0], "name": "n4", "address": "10.24.1.4"}}
    on.step("member made", "POST", "octavia", f"{lbaas}/pools/{pool}/members", one)
    on.settled(balancer)
    on.step("member twice", "POST", "octavia", f"{lbaas}/pools/{pool}/members", one)
    on.step("member deleted", "DELETE", "octavia", f"{lbaas}/pools/{pool}/members/{listed[0]['id']}")
    on.settled(balancer)
    on.step("no members", "GET", "octavia", f"{lbaas}/pools/{_NOWHERE}/members")
    monitor = {"healthmonitor": {"pool_id": pool, "type": "HTTP", "delay": 5, "timeout": 3, "max_retries": 1,
                                 "url_path": "/healthz", "name": "h"}}  # fmt: skip
    watching = on.step("monitor made", "POST", "octavia", f"{lbaas}/healthmonitors", monitor)["healthmonitor"]["id"]
    on.settled(balancer)
    on.step("monitor twice", "POST", "octavia", f"{lbaas}/healthmonitors", monitor)
    slow = {"healthmonitor": {"delay": 7, "timeout": 4, "max_retries": 2}}
    on.step("monitor changed", "PUT", "octavia", f"{lbaas}/healthmonitors/{watching}", slow)
    on.settled(balancer)
    on.step("monitor wrong", "PUT", "octavia", f"{lbaas}/healthmonitors/{watching}", {"healthmonitor": {"delay": -1}})
    on.step("monitors", "GET", "octavia", f"{lbaas}/healthmonitors?pool_id={pool}")
    on.step("pool", "GET", "octavia", f"{lbaas}/pools/{pool}")
    on.step("pools", "GET", "octavia", f"{lbaas}/pools?loadbalancer_id={balancer}")
    on.step("pool changed", "PUT", "octavia", f"{lbaas}/pools/{pool}", {"pool": {"lb_algorithm": "SOURCE_IP"}})
    on.settled(balancer)
    on.step("status tree", "GET", "octavia", f"{lbaas}/loadbalancers/{balancer}/status")
    on.step("monitor deleted", "DELETE", "octavia", f"{lbaas}/healthmonitors/{watching}")
    on.settled(balancer)
    on.step("not without cascade", "DELETE", "octavia", f"{lbaas}/loadbalancers/{balancer}")


def _full(on: Walk) -> None:
    members = [{"address": "10.24.1.1", "protocol_port": 31443, "subnet_id": on.cloud.subnet, "name": "n1"}]
    monitor = {"name": "ah", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1}
    pool: dict[str, Any] = {"name": "ap", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members}
    pool |= {"healthmonitor": monitor}
    listener = {"name": "a", "protocol": "TCP", "protocol_port": 443, "allowed_cidrs": ["198.51.100.0/24"],
                "default_pool": pool}  # fmt: skip
    wanted = {"name": "walk-full", "vip_subnet_id": on.cloud.subnet, "tags": ["walk-f"], "listeners": [listener]}
    lbs = "/v2.0/lbaas/loadbalancers"
    made = on.step("full balancer made", "POST", "octavia", lbs, {"loadbalancer": wanted})["loadbalancer"]["id"]
    on.settled(made)
    on.step("full balancer", "GET", "octavia", f"{lbs}/{made}")
    first = on.step("balancers' page 1", "GET", "octavia", f"{lbs}?limit=1&sort=id")["loadbalancers"][0]["id"]
    on.step("balancers' page 2", "GET", "octavia", f"{lbs}?limit=1&sort=id&marker={first}")
    on.step("full balancer deleted", "DELETE", "octavia", f"{lbs}/{made}?cascade=true")
    on.step("full balancer going", "GET", "octavia", f"{lbs}/{made}")
    on.settled(made, gone=True)
    on.step("full balancer gone", "GET", "octavia", f"{lbs}/{made}")


def _floating(on: Walk, balancer: str) -> None:
    cloud, fips = on.cloud, "/v2.0/floatingips"
    lb = on.step("balancer's port", "GET", "octavia", f"/v2.0/lbaas/loadbalancers/{balancer}")["loadbalancer"]
    on.step("VIP's port", "GET", "neutron", f"/v2.0/ports/{lb['vip_port_id']}")
    wanted = {"floating_network_id": cloud.external, "port_id": lb["vip_port_id"], "description": "walk"}
    made = on.step("address made", "POST", "neutron", fips, {"floatingip": wanted})["floatingip"]
    path = f"{fips}/{made['id']}"
    on.step("address of the port", "GET", "neutron", f"{fips}?port_id={lb['vip_port_id']}")
    on.step("address by itself", "GET", "neutron", f"{fips}?floating_ip_address={made['floating_ip_address']}")
    on.step("address's tags", "PUT", "neutron", f"{path}/tags", {"tags": ["walk"]})
    on.step("addresses by tag", "GET", "neutron", f"{fips}?tags=walk")
    on.step("address", "GET", "neutron", path)
    on.step("no address", "GET", "neutron", f"{fips}/{_NOWHERE}")
    on.step("port has one", "POST", "neutron", fips, {"floatingip": wanted})
    nowhere = {"floatingip": {"floating_network_id": _NOWHERE}}
    on.step("address of no network", "POST", "neutron", fips, nowhere)
    inside = {"floatingip": {"floating_network_id": cloud.network}}
    on.step("address of an internal network", "POST", "neutron", fips, inside)
    chosen = {"floatingip": {"floating_network_id": cloud.external, "floating_ip_address": "203.0.113.77"}}
    on.step("address chosen", "POST", "neutron", fips, chosen)
    on.step("address off", "PUT", "neutron", path, {"floatingip": {"port_id": None}})
    on.step("address on", "PUT", "neutron", path, {"floatingip": {"port_id": lb["vip_port_id"]}})
    on.step("address deleted", "DELETE", "neutron", path)
    on.step("address deleted twice", "DELETE", "neutron", path)


def _quotas(on: Walk) -> None:
    cloud = on.cloud
    with cloud.exhausted():
        wanted = {"floatingip": {"floating_network_id": cloud.external}}
        on.step("no quota for addresses", "POST", "neutron", "/v2.0/floatingips", wanted)
        group = {"security_group": {"name": "walk-2"}}
        on.step("no quota for groups", "POST", "neutron", "/v2.0/security-groups", group)
        lb = {"loadbalancer": {"name": "walk-2", "vip_subnet_id": cloud.subnet}}
        on.step("no quota for balancers", "POST", "octavia", "/v2.0/lbaas/loadbalancers", lb)


def _ends(on: Walk, balancer: str) -> None:
    on.step("balancer deleted", "DELETE", "octavia", f"/v2.0/lbaas/loadbalancers/{balancer}?cascade=true")
    on.step("balancer deleted twice", "DELETE", "octavia", f"/v2.0/lbaas/loadbalancers/{balancer}?cascade=true")
    on.settled(balancer, gone=True)
    port = on.seen["VIP's port"]["answer"]["port"]["id"]
    on.step("VIP's port gone", "GET", "neutron", f"/v2.0/ports/{port}")
