"""What the configuration names and the cloud lacks: all of it at once, before the manager starts.

Only what OpenStack itself denies is a problem. A service that does not answer now may do so later,
and the others go on without it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from keystoneauth1.identity.base import BaseIdentityPlugin
from openstack.exceptions import NotFoundException

from cloudprovider import CloudProviderError
from openstack_provider.cloud import Cloud
from openstack_provider.errors import OpenStackError, answered

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
    checks: list[Callable[[Cloud], Iterable[str]]] = [_servers]
    if home:
        checks += [_balancers, _networks, _subnets, _router]
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
    next(iter(cloud.sdk.compute.servers(details=False, limit=1, paginated=False)), None)
    return ()


def _balancers(cloud: Cloud) -> Iterable[str]:
    if cloud.config.loadbalancer.enabled:
        next(iter(cloud.sdk.load_balancer.load_balancers(limit=1, paginated=False)), None)
    return ()


def _networks(cloud: Cloud) -> Iterator[str]:
    by_id = _named(cloud, _NETWORKS)
    if by_id:
        known = {str(one.id): one for one in cloud.sdk.network.networks(id=sorted(by_id))}
        for wanted, places in by_id.items():
            if wanted not in known:
                yield f"{places}: there is no network {wanted}"
            elif "floating" in places and not known[wanted].is_router_external:
                yield f"{places}: the network {wanted} is not external: it has no floating IPs"
    networking = cloud.config.networking
    names = {*networking.public_network_name, *networking.internal_network_name}
    if names:
        known_names = {str(one.name) for one in cloud.sdk.network.networks(name=sorted(names))}
        for name in sorted(names - known_names):
            yield f"[Networking]: there is no network named {name}"


def _subnets(cloud: Cloud) -> Iterator[str]:
    by_id = _named(cloud, _SUBNETS)
    if by_id:
        known = {str(one.id) for one in cloud.sdk.network.subnets(id=sorted(by_id))}
        yield from (f"{places}: there is no subnet {wanted}" for wanted, places in by_id.items() if wanted not in known)


def _router(cloud: Cloud) -> Iterator[str]:
    router = cloud.config.route.router_id
    if router:
        try:
            cloud.sdk.network.get_router(router)
        except NotFoundException:
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
