"""Cluster IPs and IP families of services: what fits together, what may change, what this cluster has.

Pure; called by `services` before addresses are chosen, and by `service_rules` after. Follows initIPFamilyFields in
pkg/registry/core/service/storage/alloc.go and ValidateServiceClusterIPsRelatedFields in
pkg/apis/core/validation/validation.go of k8s.io/kubernetes, for a cluster with one IPv4 range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudprovider.testing.apiserver.addresses import ip_problem, is_ipv6
from cloudprovider.testing.apiserver.errors import JSON, Cause, duplicate, invalid_value, not_supported, required

_SET_ONCE: Final = "may not change once set"
_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")


def is_none(spec: JSON) -> bool:
    """Was no cluster IP wished for?"""
    return bool(spec.get("clusterIP") == "None")


def is_headless(spec: JSON) -> bool:
    """Has the service no cluster IP by wish?"""
    return spec.get("clusterIPs") == ["None"]


def cluster_ip_fields(spec: JSON) -> list[Cause]:
    """clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy must fit each other."""
    causes: list[Cause] = []
    single, several = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    path = "spec.clusterIPs"
    if single and not several:
        causes.append(required(path))
    elif single and several[0] != single:
        causes.append(invalid_value(path, several, "first value must match `clusterIP`"))
    elif not single and several:
        causes.append(invalid_value(path, several, "must be empty when `clusterIP` is not specified"))
    families = spec.get("ipFamilies") or []
    for at, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            causes.append(not_supported(f"spec.ipFamilies[{at}]", family, ["IPv4", "IPv6"]))
        if family in families[:at]:
            causes.append(duplicate(f"spec.ipFamilies[{at}]", family))
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in ("PreferDualStack", "RequireDualStack", "SingleStack"):
        causes.append(
            not_supported("spec.ipFamilyPolicy", policy, ["PreferDualStack", "RequireDualStack", "SingleStack"])
        )
    wrong = _cluster_ips(several, path)
    if wrong:
        return causes + wrong
    if len(several) > 2:
        causes.append(invalid_value(path, several, "may only hold up to 2 values"))
    if len(several) > 1 and len({is_ipv6(one) for one in several}) < 2:
        causes.append(invalid_value(path, several, "may specify no more than one IP for each IP family"))
    if not is_headless(spec):
        for at, (address, family) in enumerate(zip(several, families, strict=False)):
            if is_ipv6(address) != (family == "IPv6"):
                why = f"expected an {family} value as indicated by `ipFamilies[{at}]`"
                causes.append(invalid_value(f"{path}[{at}]", address, why))
    return causes


def _cluster_ips(several: Sequence[str], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for at, address in enumerate(several):
        if at == 0 and address == "None":
            if len(several) > 1:
                causes.append(invalid_value(path, list(several), "'None' must be the first and only value"))
            continue
        causes += [invalid_value(f"{path}[{at}]", address, why) for why in ip_problem(address)]
    return causes


def address_step(spec: JSON, before: JSON) -> list[Cause]:
    """What of cluster IPs and families may not change from one spec to the next."""
    causes: list[Cause] = []
    new, old = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if not (is_headless(spec) and is_headless(before)):
        if len(old) > len(new):
            if not new:
                causes.append(invalid_value("spec.clusterIPs[0]", new, "primary clusterIP can not be unset"))
            elif new[0] != old[0]:
                causes.append(invalid_value("spec.clusterIPs[0]", new, _SET_ONCE))
        elif len(old) == len(new):
            causes += [
                invalid_value(f"spec.clusterIPs[{at}]", new, _SET_ONCE)
                for at, address in enumerate(old)
                if address != new[at]
            ]
        elif old and new[0] != old[0]:
            causes.append(invalid_value("spec.clusterIPs[0]", new, _SET_ONCE))
    if not is_headless(spec) and not is_headless(before):
        families, held = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
        if families and held and families[0] != held[0]:
            causes.append(invalid_value("spec.ipFamilies[0]", families, _SET_ONCE))
    return causes


def keeps_families(spec: JSON, before: JSON) -> bool:
    """Is this a PreferDualStack service that changed nothing of its addresses? Its families then stay as they are."""
    policy = "PreferDualStack"
    return (
        spec["type"] == before.get("type") != "ExternalName"
        and spec.get("ipFamilyPolicy") == policy
        and before.get("ipFamilyPolicy", policy) == policy
        and all(spec.get(field) == before.get(field) for field in ("clusterIP", "clusterIPs", "ipFamilies"))
    )


def reduce_families(spec: JSON, before: JSON) -> list[Cause]:
    """SingleStack drops the second address and family of a service; without it nobody may drop them."""
    if spec["ipFamilyPolicy"] == "SingleStack":
        for field in ("clusterIPs", "ipFamilies"):
            if spec.get(field) == before.get(field) and len(spec.get(field) or ()) > 1:
                spec[field] = spec[field][:1]
        return []
    causes: list[Cause] = []
    for field, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        if 0 < len(spec.get(field) or ()) < len(before.get(field) or ()):
            why = f"must be 'SingleStack' to release the secondary {what}"
            causes.append(invalid_value("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why))
    return causes


def family_rules(spec: JSON) -> list[Cause]:
    """The policy must fit the number of addresses and families; addresses must be of a family that is here."""
    causes: list[Cause] = []
    policy = spec["ipFamilyPolicy"]
    if policy == "SingleStack":
        for field, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
            if len(spec.get(field) or ()) == 2:
                why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                causes.append(invalid_value("spec.ipFamilyPolicy", policy, why))
    addresses = spec.get("clusterIPs") or []
    for at, address in enumerate(addresses):
        if address != "None" and is_ipv6(address) and at >= len(spec.get("ipFamilies") or ()):
            causes.append(invalid_value(f"spec.clusterIPs[{at}]", addresses, "IPv6 is not configured on this cluster"))
    return causes


def unavailable_families(spec: JSON, families: Sequence[str]) -> list[Cause]:
    """What is asked for and not configured on this cluster."""
    causes: list[Cause] = []
    if spec["ipFamilyPolicy"] == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        causes.append(invalid_value("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], why))
    return causes + [
        invalid_value(f"spec.ipFamilies[{at}]", family, "not configured on this cluster")
        for at, family in enumerate(families)
        if family != "IPv4"
    ]
