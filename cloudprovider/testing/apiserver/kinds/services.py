"""Services: what the service controller and its tests need of the real server's defaults, cluster
IPs, node ports and rules.

Follows pkg/registry/core/service and pkg/apis/core/validation of k8s.io/kubernetes, for a cluster
with one IPv4 range. Left out is what no cloud controller reads or writes:
the syntax of session affinity, app protocols, external IPs and traffic distribution, changes of IP
families, and warnings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from cloudprovider.testing.apiserver.kinds.allocation import Allocator, held_ports
from cloudprovider.testing.apiserver.kinds.kind import NAME_FIELDS, FieldGetter, Strategy, read
from cloudprovider.testing.apiserver.kinds.names import (
    cidr_problem,
    dns_label,
    dns_subdomain,
    ip_problem,
    qualified_name,
)

FIELDS: Final[Mapping[str, FieldGetter]] = {
    **NAME_FIELDS,
    "spec.clusterIP": read("spec", "clusterIP"),
    "spec.type": read("spec", "type"),
}
CIDR: Final = "10.96.0.0/16"
_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")
_POLICIES: Final = ("Cluster", "Local")
_ONLY_BALANCER: Final = "may only be used when `type` is 'LoadBalancer'"
_SET_ONCE: Final = "may not change once set"
_PORT_RANGE: Final = "must be between 1 and 65535, inclusive"


class ServiceStrategy(Strategy):
    """Rules of services. Holds the addresses and ports of one server; its methods run with the
    store's lock held."""

    allow_create_on_update = True
    returns_deleted_object = True

    def __init__(self) -> None:
        self._allocator = Allocator(CIDR)

    # -- defaults
    # ----------------------------------------------------------------------------------------------------

    def default(self, obj: JSON) -> None:
        """What the API fills in at every write."""
        spec: JSON = {"type": "ClusterIP", "sessionAffinity": "None", **obj["spec"]}
        if spec["sessionAffinity"] == "ClientIP":
            spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
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

    # -- create and update
    # -------------------------------------------------------------------------------------------

    def prepare_create(self, obj: JSON) -> None:
        """Choose addresses and ports; a new service has no status. Raises StatusError (422)."""
        spec = obj["spec"] = dict(obj["spec"])
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        self._allocate(obj, None)
        obj["status"] = {"loadBalancer": {}}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Keep or choose addresses and ports, drop what does not go with the new type. Raises
        StatusError (422)."""
        obj["status"] = old["status"]
        if obj["spec"]["type"] != "LoadBalancer" and old["status"].get("loadBalancer"):
            obj["status"] = {**old["status"], "loadBalancer": {}}
        before = old["spec"]
        if obj["spec"] is before or obj["spec"] == before:
            return
        spec = obj["spec"] = dict(obj["spec"])
        _keep_allocated(spec, before)
        _drop_dependent(spec, before)
        self._allocate(obj, old)

    def _allocate(self, obj: JSON, old: JSON | None) -> None:
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        headless = spec.get("clusterIP") == "None"
        dual = headless and not spec.get("selector")
        spec.setdefault("ipFamilyPolicy", "RequireDualStack" if dual else "SingleStack")
        if not spec.get("ipFamilies"):
            spec["ipFamilies"] = ["IPv4", "IPv6"] if dual else ["IPv4"]
        if not headless and (old is None or not old["spec"].get("clusterIPs")):
            address = self._allocator.address(obj, (spec.get("clusterIPs") or [""])[0])
            spec["clusterIP"], spec["clusterIPs"] = address, [address]
        if spec["type"] in _WITH_NODE_PORTS and spec.get("ports"):
            spec["ports"] = self._allocator.ports(obj, old)
        if _needs_health_check(spec) and not (old is not None and _needs_health_check(old["spec"])):
            taken = {*held_ports(obj), *(held_ports(old) if old is not None else ())}
            spec["healthCheckNodePort"] = self._allocator.health_port(obj, taken)

    def created(self, obj: JSON) -> None:
        """Its addresses and ports are taken."""
        self._allocator.take(obj)

    def updated(self, obj: JSON, old: JSON) -> None:
        """What it held is free, what it holds is taken."""
        if obj["spec"] is not old["spec"]:
            self._allocator.release(old)
            self._allocator.take(obj)

    def deleted(self, obj: JSON) -> None:
        """Its addresses and ports are free."""
        self._allocator.release(obj)

    # -- validation
    # --------------------------------------------------------------------------------------------------

    def validate(self, obj: JSON) -> list[Cause]:
        """A new service."""
        spec = obj["spec"]
        kind, ports = spec["type"], spec.get("ports") or []
        if kind not in _TYPES:
            return [not_supported("spec.type", kind, _TYPES)]
        causes: list[Cause] = []
        if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
            causes.append(required("spec.ports"))
        if kind == "ExternalName" and not spec.get("externalName"):
            causes.append(required("spec.externalName"))
        for at, port in enumerate(ports):
            causes += _port(port, f"spec.ports[{at}]", len(ports) > 1, [one.get("name", "") for one in ports[:at]])
            if kind == "ClusterIP" and port.get("nodePort"):
                why = "may not be used when `type` is 'ClusterIP'"
                causes.append(forbidden_value(f"spec.ports[{at}].nodePort", why))
        if kind != "LoadBalancer":
            causes += [
                forbidden_value(f"spec.{shown}", _ONLY_BALANCER)
                for field, shown in _OF_BALANCERS.items()
                if spec.get(field) not in (None, [])
            ]
        else:
            for at, one in enumerate(spec.get("loadBalancerSourceRanges") or ()):
                path = f"spec.LoadBalancerSourceRanges[{at}]"
                causes += [invalid_value(path, one, why) for why in cidr_problem(one.strip())]
            name = spec.get("loadBalancerClass")
            if name is not None:
                causes += [invalid_value("spec.loadBalancerClass", name, why) for why in qualified_name(name)]
        return causes + _families(spec) + _traffic(spec)

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """The step from old to new."""
        spec, before = obj["spec"], old["spec"]
        if spec is before:
            return []
        causes: list[Cause] = []
        new, held = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
        if held and new != held and "ExternalName" not in (spec["type"], before["type"]):
            causes.append(invalid_value("spec.clusterIPs[0]", new, _SET_ONCE))
        name = spec.get("loadBalancerClass")
        if spec["type"] == before["type"] == "LoadBalancer" and name != before.get("loadBalancerClass"):
            causes.append(invalid_value("spec.loadBalancerClass", name, _SET_ONCE))
        both = _needs_health_check(spec) and _needs_health_check(before)
        if both and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
            causes.append(forbidden_value("spec.healthCheckNodePort", "field is immutable"))
        return causes + self.validate(obj)

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


_OF_BALANCERS: Final = {
    "loadBalancerSourceRanges": "LoadBalancerSourceRanges",
    "allocateLoadBalancerNodePorts": "allocateLoadBalancerNodePorts",
    "loadBalancerClass": "loadBalancerClass",
}
"""Fields that only a LoadBalancer has, as messages name them."""


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
        if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]  # old clients know the single one only
    if spec["type"] in _WITH_NODE_PORTS and before["type"] in _WITH_NODE_PORTS and spec.get("ports"):
        held = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
        used = {port.get("nodePort", 0) for port in spec["ports"]}
        free = {name: number for name, number in held.items() if number and number not in used}
        spec["ports"] = [
            {**port, "nodePort": free[port.get("name", "")]}
            if not port.get("nodePort") and port.get("name", "") in free
            else port
            for port in spec["ports"]
        ]
    if _needs_health_check(spec) and _needs_health_check(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort", 0)


def _drop_dependent(spec: JSON, before: JSON) -> None:
    """Drop what the old type needed, the new one does not, and the client did not touch."""
    kind, former = spec["type"], before["type"]
    gone: list[str] = []
    if kind == "ExternalName" != former:
        gone += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
    if former == "LoadBalancer" != kind:
        gone += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    if _needs_health_check(before) and not _needs_health_check(spec):
        gone.append("healthCheckNodePort")
    if _is_external(before) and not _is_external(spec):
        gone.append("externalTrafficPolicy")
    for field in gone:
        if spec.get(field) == before.get(field):
            spec.pop(field, None)
    held = {port.get("nodePort", 0) for port in before.get("ports") or ()} | {0}
    untouched = all(port.get("nodePort", 0) in held for port in spec.get("ports") or ())
    if former in _WITH_NODE_PORTS and kind not in _WITH_NODE_PORTS and spec.get("ports") and untouched:
        spec["ports"] = [{key: value for key, value in port.items() if key != "nodePort"} for port in spec["ports"]]


def _port(port: JSON, path: str, needs_name: bool, names: Sequence[str]) -> list[Cause]:
    """What is wrong with one port; `names` are those of the ports before it."""
    causes: list[Cause] = []
    name, number, protocol, target = port.get("name", ""), port["port"], port["protocol"], port["targetPort"]
    if needs_name and not name:
        causes.append(required(f"{path}.name"))
    elif name:
        causes += [invalid_value(f"{path}.name", name, why) for why in dns_label(name)]
        if name in names:
            causes.append(duplicate(f"{path}.name", name))
    if not 1 <= number <= 65535:
        causes.append(invalid_value(f"{path}.port", number, _PORT_RANGE))
    if protocol not in ("SCTP", "TCP", "UDP"):
        causes.append(not_supported(f"{path}.protocol", protocol, ["SCTP", "TCP", "UDP"]))
    if isinstance(target, int) and not 1 <= target <= 65535:
        causes.append(invalid_value(f"{path}.targetPort", target, _PORT_RANGE))
    return causes


def _families(spec: JSON) -> list[Cause]:
    """What is asked for and not configured on this cluster; headless services may have any."""
    if spec["type"] == "ExternalName" or spec.get("clusterIP") == "None":
        return []
    causes: list[Cause] = []
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        causes.append(invalid_value("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why))
    return causes + [
        invalid_value(f"spec.ipFamilies[{at}]", family, "not configured on this cluster")
        for at, family in enumerate(spec.get("ipFamilies") or ())
        if family != "IPv4"
    ]


def _traffic(spec: JSON) -> list[Cause]:
    causes: list[Cause] = []
    policy, path = spec.get("externalTrafficPolicy", ""), "spec.externalTrafficPolicy"
    if not _is_external(spec):
        if policy:
            causes.append(invalid_value(path, policy, "may only be set for externally-accessible services"))
    elif policy not in _POLICIES:
        causes.append(not_supported(path, policy, _POLICIES) if policy else required(path))
    port = spec.get("healthCheckNodePort", 0)
    if port and not _needs_health_check(spec):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        causes.append(invalid_value("spec.healthCheckNodePort", port, why))
    internal = spec.get("internalTrafficPolicy")
    if internal is not None and internal not in _POLICIES:
        causes.append(not_supported("spec.internalTrafficPolicy", internal, _POLICIES))
    return causes


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
