"""Services: defaults, cluster IPs and node ports, the fields that go with a type.

Follows pkg/registry/core/service (strategy, storage, alloc) and pkg/apis/core/v1/defaults.go of
k8s.io/kubernetes, for a cluster with one IPv4 range. Validation is in `service_rules`. One oddity is left out: the real
server keeps an internalTrafficPolicy in services of the type ExternalName and hides it from readers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final

from cloudprovider.testing.apiserver import service_addresses as addresses
from cloudprovider.testing.apiserver import service_rules as rules
from cloudprovider.testing.apiserver.allocation import Allocator, held_ports, refused
from cloudprovider.testing.apiserver.errors import JSON, Cause
from cloudprovider.testing.apiserver.kinds import NAME_FIELDS, FieldGetter, Strategy, read
from cloudprovider.testing.apiserver.names import dns_label

FIELDS: Final[Mapping[str, FieldGetter]] = {
    **NAME_FIELDS,
    "spec.clusterIP": read("spec", "clusterIP"),
    "spec.type": read("spec", "type"),
}


class ServiceStrategy(Strategy):
    """Rules of services. Holds the addresses and ports of one server; its methods run with the store's lock held."""

    allow_create_on_update = True
    returns_deleted_object = True

    def __init__(self, cidr: str) -> None:
        self._allocator = Allocator(cidr)

    def for_dry_run(self) -> Strategy:
        """The same rules with an allocator that takes nothing."""
        dry = copy.copy(self)
        dry._allocator = self._allocator.for_dry_run()
        return dry

    # -- defaults ----------------------------------------------------------------------------------------------------

    def default(self, obj: JSON) -> None:
        """What the API fills in at every write."""
        spec = obj["spec"]
        changed: JSON = {}
        kind = spec.get("type") or "ClusterIP"
        if "type" not in spec:
            changed["type"] = kind
        if "sessionAffinity" not in spec:
            changed["sessionAffinity"] = "None"
        affinity = spec.get("sessionAffinity") or "None"
        config = spec.get("sessionAffinityConfig")
        if affinity == "ClientIP" and (config or {}).get("clientIP", {}).get("timeoutSeconds") is None:
            changed["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
        ports = [_default_port(port) for port in spec.get("ports") or ()]
        if ports != (spec.get("ports") or []):
            changed["ports"] = ports
        if rules.externally_accessible({**spec, "type": kind}) and "externalTrafficPolicy" not in spec:
            changed["externalTrafficPolicy"] = "Cluster"
        if "internalTrafficPolicy" not in spec and kind in ("ClusterIP", "NodePort", "LoadBalancer"):
            changed["internalTrafficPolicy"] = "Cluster"
        if kind == "LoadBalancer" and "allocateLoadBalancerNodePorts" not in spec:
            changed["allocateLoadBalancerNodePorts"] = True
        if changed or (affinity == "None" and config is not None):
            obj["spec"] = {**spec, **changed}
            if affinity == "None":
                obj["spec"].pop("sessionAffinityConfig", None)
        if kind == "LoadBalancer":
            self._default_status(obj)

    @staticmethod
    def _default_status(obj: JSON) -> None:
        balancer = obj["status"].get("loadBalancer", {})
        ingress = balancer.get("ingress") or []
        filled = [{**one, "ipMode": "VIP"} if one.get("ip") and "ipMode" not in one else one for one in ingress]
        if filled != ingress:
            obj["status"] = {**obj["status"], "loadBalancer": {**balancer, "ingress": filled}}

    # -- create and update -------------------------------------------------------------------------------------------

    def prepare_create(self, obj: JSON) -> None:
        """Choose addresses and ports; a new service has no status. Raises StatusError (422)."""
        spec = obj["spec"] = dict(obj["spec"])
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        self._families(obj, None)
        if spec["type"] != "ExternalName" and not addresses.is_headless(spec):
            wanted = (spec.get("clusterIPs") or [""])[0]
            address = self._allocator.choose_address(obj, wanted)
            spec["clusterIP"], spec["clusterIPs"] = address, [address]
        if spec["type"] in ("NodePort", "LoadBalancer") and spec.get("ports"):
            spec["ports"] = self._allocator.choose_ports(obj, None)
        if rules.needs_health_check(spec):
            spec["healthCheckNodePort"] = self._allocator.choose_health_port(obj, set(held_ports(obj)))
        if spec["type"] == "ExternalName":
            spec.pop("internalTrafficPolicy", None)
        obj["status"] = {"loadBalancer": {}}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Keep or choose addresses and ports, drop what does not go with the new type. Raises StatusError (422)."""
        if obj["spec"] is not old["spec"] and obj["spec"] != old["spec"]:
            spec = obj["spec"] = dict(obj["spec"])
            before = old["spec"]
            _keep_allocated(spec, before)
            _pair_cluster_ips(spec, before)
            self._families(obj, old)
            self._update_addresses(obj, old)
            self._update_ports(obj, old)
            _drop_dependent(spec, before)
            if spec["type"] == "ExternalName":
                spec.pop("internalTrafficPolicy", None)
        obj["status"] = old["status"]
        if obj["spec"]["type"] != "LoadBalancer" and old["status"].get("loadBalancer"):
            obj["status"] = {**old["status"], "loadBalancer": {}}

    def _update_addresses(self, obj: JSON, old: JSON) -> None:
        spec, before = obj["spec"], old["spec"]
        if before["type"] == "ExternalName" and spec["type"] != "ExternalName" and not addresses.is_headless(spec):
            address = self._allocator.choose_address(obj, (spec.get("clusterIPs") or [""])[0])
            spec["clusterIP"], spec["clusterIPs"] = address, [address]

    def _update_ports(self, obj: JSON, old: JSON) -> None:
        spec, before = obj["spec"], old["spec"]
        if spec["type"] in ("NodePort", "LoadBalancer") and spec.get("ports"):
            spec["ports"] = self._allocator.choose_ports(obj, old)
        if rules.needs_health_check(spec) and not rules.needs_health_check(before):
            taken = {*held_ports(old), *held_ports(obj)}
            spec["healthCheckNodePort"] = self._allocator.choose_health_port(obj, taken)

    def _families(self, obj: JSON, old: JSON | None) -> None:
        """Fill in ipFamilyPolicy and ipFamilies. Raises StatusError (422) for what this cluster has not got."""
        spec = obj["spec"]
        before: JSON = old["spec"] if old is not None else {}
        if spec["type"] == "ExternalName" or addresses.keeps_families(spec, before):
            return
        selectorless = addresses.is_none(spec) and not spec.get("selector")
        if "ipFamilyPolicy" not in spec:
            default = "RequireDualStack" if selectorless else "SingleStack"
            spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or default
        causes = addresses.cluster_ip_fields(spec)
        if not causes:
            causes = (addresses.reduce_families(spec, before) if before else []) + addresses.family_rules(spec)
        if causes:
            raise refused(obj, *causes)
        families = list(spec.get("ipFamilies") or ["IPv4"])
        if selectorless:
            if len(families) < 2 and spec["ipFamilyPolicy"] != "SingleStack":
                families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        else:
            causes = addresses.unavailable_families(spec, families)
        if causes:
            raise refused(obj, *causes)
        spec["ipFamilies"] = families

    # -- validation and bookkeeping ------------------------------------------------------------------------------------

    def validate(self, obj: JSON) -> list[Cause]:
        """A new service."""
        return rules.validate(obj, None)

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """The step from old to new."""
        if obj["spec"] is old["spec"] and obj["metadata"].get("annotations") == old["metadata"].get("annotations"):
            return []
        return rules.validate_step(obj["spec"], old["spec"]) + rules.validate(obj, old)

    def validate_status(self, obj: JSON, old: JSON) -> list[Cause]:
        """The load balancer's ingress points."""
        return rules.validate_ingress(obj["status"], obj["spec"], old["status"])

    def warnings(self, obj: JSON) -> list[str]:
        """Fields without effect, and values in an odd form."""
        return rules.warnings(obj)

    def validate_name(self, name: str) -> list[str]:
        """A DNS label, which may start with a digit since 1.36."""
        return dns_label(name)

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


def _default_port(port: JSON) -> JSON:
    protocol, target = port.get("protocol") or "TCP", port.get("targetPort")
    if target in (0, "", None):
        target = port["port"]
    if port.get("protocol") == protocol and port.get("targetPort") == target:
        return port
    return {**port, "protocol": protocol, "targetPort": target}


def _allocates_ports(spec: JSON) -> bool:
    return spec["type"] == "NodePort" or (
        spec["type"] == "LoadBalancer" and bool(spec.get("allocateLoadBalancerNodePorts", True))
    )


def _keep_allocated(spec: JSON, before: JSON) -> None:
    """A client that leaves out what was allocated for it keeps it."""
    if "ExternalName" not in (spec["type"], before["type"]):
        if not spec.get("clusterIP"):
            _set(spec, "clusterIP", before.get("clusterIP", ""))
        if not spec.get("clusterIPs") and before.get("clusterIPs"):
            spec["clusterIPs"] = before["clusterIPs"]
    if _allocates_ports(spec) and _allocates_ports(before):
        held = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
        used = {port.get("nodePort", 0) for port in before.get("ports") or ()} & {
            port.get("nodePort", 0) for port in spec.get("ports") or ()
        }
        ports = []
        for port in spec.get("ports") or ():
            known = held.get(port.get("name", ""), 0)
            ports.append(
                {**port, "nodePort": known} if not port.get("nodePort") and known and known not in used else port
            )
        if ports:
            spec["ports"] = ports
    if rules.needs_health_check(spec) and rules.needs_health_check(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort", 0)


def _pair_cluster_ips(spec: JSON, before: JSON) -> None:
    """Old clients know `clusterIP` only: make `clusterIPs` follow it."""
    single, several = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    old_single, old_several = before.get("clusterIP", ""), before.get("clusterIPs") or []
    if old_several and not several and single == old_single:
        spec["clusterIPs"] = old_several
    elif single != old_single and several == old_several:
        if old_single and not single:
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIPs"] = [single]


def _drop_dependent(spec: JSON, before: JSON) -> None:
    """Drop what the old type needed, the new one does not, and the client did not touch."""
    kind, old_kind = spec["type"], before["type"]
    with_ports = ("NodePort", "LoadBalancer")
    if kind == "ExternalName" and old_kind != "ExternalName":
        if all(spec.get(field) == before.get(field) for field in ("clusterIP", "clusterIPs")):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        for field in ("ipFamilies", "ipFamilyPolicy"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)
    if old_kind in with_ports and kind not in with_ports:
        held = {port.get("nodePort", 0) for port in before.get("ports") or ()}
        if all(port.get("nodePort", 0) in {0, *held} for port in spec.get("ports") or ()) and spec.get("ports"):
            spec["ports"] = [{key: value for key, value in port.items() if key != "nodePort"} for port in spec["ports"]]
    untouched = (
        ("healthCheckNodePort", rules.needs_health_check(before) and not rules.needs_health_check(spec)),
        ("allocateLoadBalancerNodePorts", old_kind == "LoadBalancer" != kind),
        ("loadBalancerClass", old_kind == "LoadBalancer" != kind),
        ("externalTrafficPolicy", rules.externally_accessible(before) and not rules.externally_accessible(spec)),
    )
    for field, no_longer in untouched:
        if no_longer and spec.get(field) == before.get(field):
            spec.pop(field, None)


def _set(spec: JSON, field: str, value: str) -> None:
    if value:
        spec[field] = value
    else:
        spec.pop(field, None)
