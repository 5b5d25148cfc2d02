"""What the configuration names and the cloud lacks: all of it at once, before the manager starts.

Only what OpenStack itself denies is a problem. A service that does not answer now may do so later,
and the others go on without it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from keystoneauth1.identity.base import BaseIdentityPlugin

from cloudprovider import CloudProviderError
from openstack_provider.cloud import Cloud
from openstack_provider.rest import BALANCERS, OpenStackError, answered

logger = logging.getLogger(__name__)

_NETWORKS = ("network_id", "floating_network_id")
_SUBNETS = ("subnet_id", "member_subnet_id", "floating_subnet_id")


def problems(cloud: Cloud, *, home: bool) -> list[str]:
    """All that is wrong, each a line for the operator. `home`: the region with load balancers and
    routes. Raises `CloudProviderError` where the login fails."""
    with answered():
        found = list(_catalog(cloud, home))
    if found:
        return found
    checks = [_servers, _balancers, _networks, _named_networks, _router] if home else [_servers]
    for check in checks:
        try:
            with answered():
                found += check(cloud)
        except OpenStackError as error:
            if error.status in (401, 403):
                found.append(str(error))
            else:
                logger.warning("not checked at the start: %s", error)
        except CloudProviderError as error:
            logger.warning("not checked at the start: %s", error)
    return found


def _catalog(cloud: Cloud, home: bool) -> Iterator[str]:
    session = cloud.sdk.config.get_session()
    login = cast("BaseIdentityPlugin", session.auth)  # each kind of login that config.py takes is one
    access = login.get_access(session)
    cloud.project, catalog = access.project_id or "", access.service_catalog
    interface = cloud.config.os_endpoint_type
    regions = {str(one["region_id"]) for service in catalog.catalog for one in service["endpoints"]}
    if cloud.region and cloud.region not in regions:
        yield f"there is no region {cloud.region}; this login's catalog has: {', '.join(sorted(regions)) or 'none'}"
        return
    needed = {"compute": "Nova", "network": "Neutron"}
    if home and cloud.config.loadbalancer.enabled:
        needed["load-balancer"] = "Octavia"
    for kind, name in needed.items():
        if not catalog.get_endpoints_data(kind, interface=interface, region_name=cloud.region or None).get(kind):
            instead = "; set enabled = false in [LoadBalancer] to run without" if kind == "load-balancer" else ""
            yield f"region {cloud.region or '(unnamed)'} has no {interface} endpoint of {kind} ({name}){instead}"


def _servers(cloud: Cloud) -> Iterable[str]:
    cloud.nova.get("/servers?limit=1")
    return ()


def _balancers(cloud: Cloud) -> Iterable[str]:
    if cloud.config.loadbalancer.enabled:
        cloud.octavia.get(f"{BALANCERS}?limit=1")
    return ()


def _networks(cloud: Cloud) -> Iterable[str]:
    for kind, fields in (("network", _NETWORKS), ("subnet", _SUBNETS)):
        by_id = _named(cloud, fields)
        known = {one["id"]: one for one in cloud.neutron.with_any(f"/{kind}s", "id", by_id)}
        for wanted, places in by_id.items():
            if wanted not in known:
                yield f"{places}: there is no {kind} {wanted}"
            elif kind == "network" and "floating" in places and not known[wanted]["router:external"]:
                yield f"{places}: the network {wanted} is not external: it has no floating IPs"


def _named_networks(cloud: Cloud) -> Iterable[str]:
    names = {*cloud.config.networking.public_network_name, *cloud.config.networking.internal_network_name}
    found = cloud.neutron.with_any("/networks", "name", names)
    return [f"[Networking]: there is no network named {one}" for one in sorted(names - {one["name"] for one in found})]


def _router(cloud: Cloud) -> Iterable[str]:
    router = cloud.config.route.router_id
    if router and not cloud.neutron.listed("/routers", ("id", router)):
        yield f"[Route] router-id: there is no router {router}"


def _named(cloud: Cloud, fields: Iterable[str]) -> Mapping[str, str]:
    """Where the configuration names each ID in these fields of [LoadBalancer] and of its
    classes."""
    config = cloud.config
    if not config.loadbalancer.enabled:
        return {}
    sections: dict[str, Any] = {"[LoadBalancer]": config.loadbalancer}
    sections |= {f'[LoadBalancerClass "{name}"]': one for name, one in config.loadbalancerclass.items()}
    places: dict[str, list[str]] = defaultdict(list)
    for section, values in sections.items():
        for field in fields:
            if wanted := str(getattr(values, field)):
                places[wanted].append(f"{section} {field.replace('_', '-')}")
    return {wanted: ", ".join(where) for wanted, where in places.items()}
