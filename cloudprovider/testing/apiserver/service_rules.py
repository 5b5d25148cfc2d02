"""Validation of services. Pure; called by `services`.

Follows validateService and its helpers in pkg/apis/core/validation/validation.go of k8s.io/kubernetes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from cloudprovider.testing.apiserver.addresses import (
    cidr_problem,
    cidr_warnings,
    ip_problem,
    ip_warnings,
)
from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from cloudprovider.testing.apiserver.metadata import validate_labels
from cloudprovider.testing.apiserver.names import dns_subdomain, qualified_name
from cloudprovider.testing.apiserver.service_addresses import address_step, cluster_ip_fields, is_headless, is_none
from cloudprovider.testing.apiserver.service_ports import duplicate_ports, port_rules

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"
_ONLY_BALANCER: Final = "may only be used when `type` is 'LoadBalancer'"
_SET_ONCE: Final = "may not change once set"


def externally_accessible(spec: JSON) -> bool:
    """Can traffic from outside the cluster reach it?"""
    kind = spec.get("type")
    return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def needs_health_check(spec: JSON) -> bool:
    """Does it need a health check node port?"""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def validate(obj: JSON, old: JSON | None) -> list[Cause]:
    """What is wrong with a service; values that the old one had already are not looked at again."""
    spec = obj["spec"]
    causes: list[Cause] = []
    kind = spec["type"]
    ports = spec.get("ports") or []
    if not ports and not is_headless(spec) and kind != "ExternalName":
        causes.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort") and is_headless(spec):
        causes.append(invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        causes += _external_name(spec)
    names: set[str] = set()
    for at, port in enumerate(ports):
        causes += port_rules(port, f"spec.ports[{at}]", len(ports) > 1, names)
    causes += validate_labels(spec.get("selector") or {}, "spec.selector")
    causes += _affinity(spec)
    if kind != "ExternalName":
        causes += cluster_ip_fields(spec)
    before = old["spec"] if old is not None else {}
    for at, address in enumerate(spec.get("externalIPs") or ()):
        if address not in (before.get("externalIPs") or ()):
            causes += _external_ip(address, f"spec.externalIPs[{at}]")
    if kind not in _TYPES:
        causes.append(not_supported("spec.type", kind, _TYPES))
    if kind == "ClusterIP":
        causes += [
            forbidden_value(f"spec.ports[{at}].nodePort", "may not be used when `type` is 'ClusterIP'")
            for at, port in enumerate(ports)
            if port.get("nodePort")
        ]
    causes += duplicate_ports(ports)
    causes += _source_ranges(obj, old)
    if "allocateLoadBalancerNodePorts" in spec and kind != "LoadBalancer":
        causes.append(forbidden_value("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCER))
    causes += _balancer_class(spec)
    causes += _traffic(spec)
    return causes


def warnings(obj: JSON) -> list[str]:
    """What a client should know about a valid service."""
    spec = obj["spec"]
    found: list[str] = []
    external, kind = spec.get("externalIPs") or (), spec["type"]
    headless = kind == "ClusterIP" and is_none(spec)
    if headless:
        ignored = (
            ("loadBalancerIP", spec.get("loadBalancerIP")),
            ("externalIPs", external),
            ("SessionAffinity", spec["sessionAffinity"] != "None"),
        )
        found += [f"spec.{field} is ignored for headless services" for field, is_set in ignored if is_set]
    for at, address in enumerate(external):
        found += ip_warnings(f"spec.externalIPs[{at}]", address)
    if external and not headless and kind != "ExternalName":
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("loadBalancerIP"):
        found += ip_warnings("spec.loadBalancerIP", spec["loadBalancerIP"])
    for at, cidr in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        found += cidr_warnings(f"spec.loadBalancerSourceRanges[{at}]", cidr)
    if kind == "ExternalName" and external:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if kind != "ExternalName" and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def validate_step(spec: JSON, before: JSON) -> list[Cause]:
    """What may not change from one spec to the next."""
    causes: list[Cause] = []
    if "ExternalName" not in (spec["type"], before["type"]):
        causes += address_step(spec, before)
    name = spec.get("loadBalancerClass")
    if spec["type"] == before["type"] == "LoadBalancer" and name != before.get("loadBalancerClass"):
        causes.append(invalid_value("spec.loadBalancerClass", name, _SET_ONCE))
    causes += _balancer_class(spec)
    if not needs_health_check(spec) or not needs_health_check(before):
        return causes
    if spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        causes.append(forbidden_value("spec.healthCheckNodePort", "field is immutable"))
    return causes


def validate_ingress(status: JSON, spec: JSON, before: JSON) -> list[Cause]:
    """What is wrong with `status.loadBalancer.ingress`, beside addresses that were there before."""
    ingress: Sequence[JSON] = status.get("loadBalancer", {}).get("ingress") or ()
    path = "status.loadBalancer.ingress"
    if spec["type"] != "LoadBalancer" and ingress:
        return [forbidden_value(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    known = {one.get("ip", "") for one in before.get("loadBalancer", {}).get("ingress") or ()}
    causes: list[Cause] = []
    for at, point in enumerate(ingress):
        here = f"{path}[{at}]"
        address, mode, hostname = point.get("ip", ""), point.get("ipMode"), point.get("hostname", "")
        if address and address not in known:
            causes += [invalid_value(f"{here}.ip", address, why) for why in ip_problem(address)]
        if mode is None and address:
            causes.append(required(f"{here}.ipMode", "must be specified when `ip` is set"))
        elif mode is not None and not address:
            causes.append(forbidden_value(f"{here}.ipMode", "may not be specified when `ip` is not set"))
        elif mode is not None and mode not in ("Proxy", "VIP"):
            causes.append(not_supported(f"{here}.ipMode", mode, ["Proxy", "VIP"]))
        if hostname:
            causes += [invalid_value(f"{here}.hostname", hostname, why) for why in dns_subdomain(hostname)]
            if not ip_problem(hostname):
                causes.append(invalid_value(f"{here}.hostname", hostname, "must be a DNS name, not an IP address"))
    return causes


def _external_name(spec: JSON) -> list[Cause]:
    causes = [
        forbidden_value(f"spec.{field}", "may not be set for ExternalName services")
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(field)
    ]
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        return [*causes, required("spec.externalName")]
    return causes + [invalid_value("spec.externalName", name, why) for why in dns_subdomain(name)]


def _affinity(spec: JSON) -> list[Cause]:
    affinity, config = spec["sessionAffinity"], spec.get("sessionAffinityConfig")
    if affinity not in ("ClientIP", "None"):
        return [not_supported("spec.sessionAffinity", affinity, ["ClientIP", "None"])]
    if affinity == "ClientIP":
        timeout = (config or {}).get("clientIP", {}).get("timeoutSeconds", 0)
        if not 0 < timeout <= 86400:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            return [invalid_value(path, timeout, "must be greater than 0 and less than 86400")]
    return []


def _external_ip(address: str, path: str) -> list[Cause]:
    wrong = ip_problem(address)
    if wrong:
        return [invalid_value(path, address, why) for why in wrong]
    parsed = ipaddress.ip_address(address)
    found = []
    if parsed.is_unspecified:
        found.append(f"may not be unspecified ({address})")
    if parsed.is_loopback:
        found.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if parsed.is_link_local:
        found.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if parsed in ipaddress.ip_network("224.0.0.0/24" if parsed.version == 4 else "ff02::/16"):
        found.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return [invalid_value(path, address, why) for why in found]


def _source_ranges(obj: JSON, old: JSON | None) -> list[Cause]:
    spec = obj["spec"]
    ranges = spec.get("loadBalancerSourceRanges") or []
    causes: list[Cause] = []
    if ranges:
        path = "spec.LoadBalancerSourceRanges"
        known = [one.strip() for one in (old["spec"].get("loadBalancerSourceRanges") or [])] if old is not None else []
        if spec["type"] != "LoadBalancer":
            causes.append(forbidden_value(path, _ONLY_BALANCER))
        for at, one in enumerate(text.strip() for text in ranges):
            if one not in known:
                causes += [invalid_value(f"{path}[{at}]", one, why) for why in cidr_problem(one)]
        return causes
    annotation = (obj["metadata"].get("annotations") or {}).get(_SOURCE_RANGES)
    if annotation is None:
        return causes
    path = f"metadata.annotations[{_SOURCE_RANGES}]"
    if spec["type"] != "LoadBalancer":
        causes.append(forbidden_value(path, _ONLY_BALANCER))
    before = (old["metadata"].get("annotations") or {}).get(_SOURCE_RANGES) if old is not None else None
    if annotation != before and annotation.strip():
        for one in (part.strip() for part in annotation.split(",")):
            causes += [invalid_value(path, one, why) for why in cidr_problem(one)]
    return causes


def _balancer_class(spec: JSON) -> list[Cause]:
    name = spec.get("loadBalancerClass")
    if name is None:
        return []
    if spec["type"] != "LoadBalancer":
        return [forbidden_value("spec.loadBalancerClass", _ONLY_BALANCER)]
    return [invalid_value("spec.loadBalancerClass", name, why) for why in qualified_name(name)]


def _traffic(spec: JSON) -> list[Cause]:
    causes: list[Cause] = []
    policy, port = spec.get("externalTrafficPolicy", ""), spec.get("healthCheckNodePort", 0)
    path = "spec.externalTrafficPolicy"
    if not externally_accessible(spec):
        if policy:
            causes.append(invalid_value(path, policy, "may only be set for externally-accessible services"))
    elif policy not in ("Cluster", "Local"):
        causes.append(not_supported(path, policy, ["Cluster", "Local"]) if policy else required(path))
    if not needs_health_check(spec):
        if port:
            why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            causes.append(invalid_value("spec.healthCheckNodePort", port, why))
    elif not port:
        causes.append(required("spec.healthCheckNodePort"))
    internal = spec.get("internalTrafficPolicy")
    if internal is not None and internal not in ("Cluster", "Local"):
        causes.append(not_supported("spec.internalTrafficPolicy", internal, ["Cluster", "Local"]))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in ("PreferClose", "PreferSameNode", "PreferSameZone"):
        causes.append(
            not_supported("spec.trafficDistribution", distribution, ["PreferClose", "PreferSameZone", "PreferSameNode"])
        )
    return causes
