"""Services: the defaults, addresses and ports that a provider sees, and the rules that a cloud
controller's writes can break.

Follows pkg/registry/core/service and pkg/apis/core/validation of k8s.io/kubernetes, for a cluster
with one IPv4 range. What people write into a Service and no controller does (port names, traffic
policies, IP families) is not checked: the real server does that.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    StatusError,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from cloudprovider.testing.apiserver.kinds.kind import NAME_FIELDS, FieldGetter, Strategy, read
from cloudprovider.testing.apiserver.kinds.names import dns_label, dns_subdomain, ip_problem

FIELDS: Final[Mapping[str, FieldGetter]] = {
    **NAME_FIELDS,
    "spec.clusterIP": read("spec", "clusterIP"),
    "spec.type": read("spec", "type"),
}
CIDR: Final = "10.96.0.0/16"
PORTS: Final = range(30000, 32768)
_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")


class ServiceStrategy(Strategy):
    """Rules of services. Holds the addresses and ports of one server; called with the lock held."""

    allow_create_on_update = True
    returns_deleted_object = True

    def __init__(self) -> None:
        block = ipaddress.IPv4Network(CIDR)
        usable = block.num_addresses - 2
        # Who asks for an address by name mostly takes a low one.
        self._addresses = (str(block[1 + (at + usable // 256) % usable]) for at in itertools.count())
        self._address_count = usable
        self._ports = itertools.cycle((*PORTS[86:], *PORTS[:86]))
        self._held: set[str | int] = set()

    def default(self, obj: JSON) -> None:
        """What the API fills in at every write."""
        spec: JSON = {"type": "ClusterIP", "sessionAffinity": "None", **obj["spec"]}
        if spec["sessionAffinity"] == "ClientIP":
            given = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
            if given.get("timeoutSeconds") is None:
                spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
        else:
            spec.pop("sessionAffinityConfig", None)
        if spec.get("ports"):
            spec["ports"] = [_default_port(port) for port in spec["ports"]]
        if _is_external(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
            self._default_status(obj)
        if spec != obj["spec"]:
            obj["spec"] = spec

    @staticmethod
    def _default_status(obj: JSON) -> None:
        balancer = obj["status"].get("loadBalancer", {})
        ingress = balancer.get("ingress") or []
        filled = [{**one, "ipMode": "VIP"} if one.get("ip") and "ipMode" not in one else one for one in ingress]
        if filled != ingress:
            obj["status"] = {**obj["status"], "loadBalancer": {**balancer, "ingress": filled}}

    def prepare_create(self, obj: JSON) -> None:
        """Choose addresses and ports; a new service has no status."""
        spec = obj["spec"] = dict(obj["spec"])
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        self._allocate(spec, {})
        obj["status"] = {"loadBalancer": {}}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Keep or choose addresses and ports, drop what does not go with the new type."""
        obj["status"] = old["status"]
        if obj["spec"]["type"] != "LoadBalancer" and old["status"].get("loadBalancer"):
            obj["status"] = {**old["status"], "loadBalancer": {}}
        before = old["spec"]
        if obj["spec"] is before or obj["spec"] == before:
            return
        spec = obj["spec"] = dict(obj["spec"])
        _keep_allocated(spec, before)
        _drop_dependent(spec, before)
        self._allocate(spec, before)

    def _allocate(self, spec: JSON, before: JSON) -> None:
        if spec["type"] == "ExternalName":
            return
        headless = spec.get("clusterIP") == "None"
        dual = headless and not spec.get("selector")
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if dual else "SingleStack")
        if not spec.get("ipFamilies"):
            spec["ipFamilies"] = ["IPv4", "IPv6"] if dual else ["IPv4"]
        if not headless and not before.get("clusterIPs"):
            address = (spec.get("clusterIPs") or [""])[0] or self._free(self._addresses, self._address_count)
            spec["clusterIP"], spec["clusterIPs"] = address, [address]
        if spec["type"] in _WITH_NODE_PORTS and spec.get("ports") and spec.get("allocateLoadBalancerNodePorts", True):
            given: dict[int, int] = {}  # TCP and UDP of a number share a node port
            for port in spec["ports"]:
                number = port.get("nodePort") or given.get(port["port"]) or self._free(self._ports, len(PORTS))
                given[port["port"]] = number
            spec["ports"] = [
                {**port, "nodePort": port.get("nodePort") or given[port["port"]]} for port in spec["ports"]
            ]
        if _needs_health_check(spec) and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = self._free(self._ports, len(PORTS))

    def _free(self, candidates: Iterator[Any], count: int) -> Any:
        for one in itertools.islice(candidates, count):
            if one not in self._held:
                return one
        why = "failed to allocate: range is full"
        message = f"Internal error occurred: {why}"
        raise StatusError(500, "InternalError", message, details={"causes": [{"message": why}]})

    def created(self, obj: JSON) -> None:
        """Its addresses and ports are taken."""
        self._held |= _held_by(obj["spec"])

    def updated(self, obj: JSON, old: JSON) -> None:
        """What it held is free, what it holds is taken."""
        self._held -= _held_by(old["spec"])
        self._held |= _held_by(obj["spec"])

    def deleted(self, obj: JSON) -> None:
        """Its addresses and ports are free."""
        self._held -= _held_by(obj["spec"])

    def validate(self, obj: JSON) -> list[Cause]:
        """A new service."""
        spec = obj["spec"]
        if spec["type"] not in _TYPES:
            return [not_supported("spec.type", spec["type"], _TYPES)]
        if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
            return [required("spec.ports")]
        return []

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """The step from old to new."""
        spec, before = obj["spec"], old["spec"]
        causes = self.validate(obj)
        name = spec.get("loadBalancerClass")
        if spec["type"] == before["type"] == "LoadBalancer" and name != before.get("loadBalancerClass"):
            causes.append(invalid_value("spec.loadBalancerClass", name, "may not change once set"))
        return causes

    def validate_status(self, obj: JSON, old: JSON) -> list[Cause]:
        """The load balancer's ingress points; addresses that were there before may stay."""
        ingress: Sequence[JSON] = obj["status"].get("loadBalancer", {}).get("ingress") or ()
        path = "status.loadBalancer.ingress"
        if obj["spec"]["type"] != "LoadBalancer" and ingress:
            return [forbidden_value(path, "may only be used when `spec.type` is 'LoadBalancer'")]
        known = {one.get("ip", "") for one in old["status"].get("loadBalancer", {}).get("ingress") or ()}
        return [cause for at, point in enumerate(ingress) for cause in _ingress(point, f"{path}[{at}]", known)]

    def validate_name(self, name: str) -> list[str]:
        """A DNS label, which may start with a digit since 1.36."""
        return dns_label(name)


def _held_by(spec: JSON) -> set[str | int]:
    ports = {port.get("nodePort", 0) for port in spec.get("ports") or ()}
    return {*(spec.get("clusterIPs") or ()), *ports, spec.get("healthCheckNodePort", 0)} - {0, "", "None"}


def _is_external(spec: JSON) -> bool:
    """Is the service reachable from outside of the cluster?"""
    return spec["type"] in _WITH_NODE_PORTS or (spec["type"] == "ClusterIP" and bool(spec.get("externalIPs")))


def _needs_health_check(spec: JSON) -> bool:
    return spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _default_port(port: JSON) -> JSON:
    protocol, target = port.get("protocol") or "TCP", port.get("targetPort")
    if target in (0, "", None):
        target = port["port"]
    if port.get("protocol") == protocol and port.get("targetPort") == target:
        return port
    return {**port, "protocol": protocol, "targetPort": target}


def _keep_allocated(spec: JSON, before: JSON) -> None:
    """A client that leaves out what was allocated for it keeps it."""
    if "ExternalName" not in (spec["type"], before["type"]):
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(field) and before.get(field):
                spec[field] = before[field]
    if spec["type"] in _WITH_NODE_PORTS and spec.get("ports"):
        held = {port.get("name", ""): port["nodePort"] for port in before.get("ports") or () if port.get("nodePort")}
        spec["ports"] = [
            {**port, "nodePort": held[port.get("name", "")]}
            if not port.get("nodePort") and port.get("name", "") in held
            else port
            for port in spec["ports"]
        ]
    if _needs_health_check(spec) and not spec.get("healthCheckNodePort") and before.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before["healthCheckNodePort"]


def _drop_dependent(spec: JSON, before: JSON) -> None:
    """Drop what the old type needed and the new one does not."""
    gone: list[str] = []
    if spec["type"] == "ExternalName":
        gone += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
    if spec["type"] != "LoadBalancer":
        gone += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    if not _needs_health_check(spec):
        gone.append("healthCheckNodePort")
    if not _is_external(spec):
        gone.append("externalTrafficPolicy")
    for field in gone:
        if spec.get(field) == before.get(field):
            spec.pop(field, None)
    if before["type"] in _WITH_NODE_PORTS and spec["type"] not in _WITH_NODE_PORTS and spec.get("ports"):
        spec["ports"] = [{key: value for key, value in port.items() if key != "nodePort"} for port in spec["ports"]]


def _ingress(point: JSON, path: str, known: set[Any]) -> list[Cause]:
    address, mode, hostname = point.get("ip", ""), point.get("ipMode"), point.get("hostname", "")
    causes: list[Cause] = []
    if address and address not in known:
        causes += [invalid_value(f"{path}.ip", address, why) for why in ip_problem(address)]
    if mode is None and address:
        causes.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif mode is not None and not address:
        causes.append(forbidden_value(f"{path}.ipMode", "may not be specified when `ip` is not set"))
    elif mode is not None and mode not in ("Proxy", "VIP"):
        causes.append(not_supported(f"{path}.ipMode", mode, ["Proxy", "VIP"]))
    if hostname:
        causes += [invalid_value(f"{path}.hostname", hostname, why) for why in dns_subdomain(hostname)]
        if not ip_problem(hostname):
            causes.append(invalid_value(f"{path}.hostname", hostname, "must be a DNS name, not an IP address"))
    return causes
