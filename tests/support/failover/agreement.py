"""Whether cluster and cloud agree: nodes are the instances, each Service has its load balancer,
each node its route."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from cloudprovider.testing.fake import LoadBalancerRecord, RouteRecord
from tests.support.api import API, NODES
from tests.support.failover.churn import names
from tests.support.nodes import UNINITIALIZED
from tests.support.services import SERVICES

_FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
_EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"

JSON = dict[str, Any]


class Machine(Protocol):
    """A cloud's machine."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...


class Shown(Protocol):
    """What a cloud has, as the fake cloud's console shows it."""

    def instances(self) -> Iterable[Machine]: ...
    def load_balancers(self) -> list[LoadBalancerRecord]: ...
    def routes(self) -> list[RouteRecord]: ...


def disagreement(api: API, provider: str, cloud: Shown, *, limit: int = 10) -> str:
    """What is wrong between them, at most `limit` lines; empty when nothing is. `provider` begins
    the provider IDs."""
    nodes = api.items(NODES)
    wrong = [*_nodes(nodes, provider, cloud), *_balancers(api.items(SERVICES), nodes, cloud), *_routes(nodes, cloud)]
    return "\n".join([*wrong[:limit], *([f"and {len(wrong) - limit} more"] if len(wrong) > limit else [])])


def _nodes(nodes: list[JSON], provider: str, cloud: Shown) -> list[str]:
    instances = {one.name: f"{provider}://{one.id}" for one in cloud.instances()}
    wrong = [f"node {name} has no instance" for name in sorted(names(nodes) - set(instances))]
    wrong += [f"instance {name} has no node" for name in sorted(set(instances) - names(nodes))]
    for node in nodes:
        name, spec = node["metadata"]["name"], node["spec"]
        taints = [taint["key"] for taint in spec.get("taints", ())]
        kinds = [address["type"] for address in node["status"].get("addresses", ())]
        if name in instances and spec.get("providerID") != instances[name]:
            wrong.append(f"node {name} has provider ID {spec.get('providerID')}, not {instances[name]}")
        if UNINITIALIZED["key"] in taints or "InternalIP" not in kinds:
            wrong.append(f"node {name} is not initialised: taints {taints}, addresses {kinds}")
    return wrong


def _balancers(services: list[JSON], nodes: list[JSON], cloud: Shown) -> list[str]:
    wanted = {one["metadata"]["uid"]: one for one in services if one["spec"]["type"] == "LoadBalancer"}
    found = {one.service_uid: one for one in cloud.load_balancers()}
    chosen = [node for node in nodes if _EXCLUDED not in node["metadata"].get("labels", {})]
    targets = sorted(node["spec"].get("providerID", "") for node in chosen)
    wrong = [
        f"load balancer {one.name} of {one.service} has no Service" for uid, one in found.items() if uid not in wanted
    ]
    if len(found) != len(cloud.load_balancers()):
        wrong.append("a Service has two load balancers")
    for uid, service in wanted.items():
        meta, balancer = service["metadata"], found.get(uid)
        shown = [point["ip"] for point in service["status"].get("loadBalancer", {}).get("ingress", ())]
        if "deletionTimestamp" in meta:
            wrong.append(f"Service {meta['name']} is still there")
        elif balancer is None or shown != list(balancer.ingress) or meta.get("finalizers") != [_FINALIZER]:
            wrong.append(
                f"Service {meta['name']} shows {shown}, finalizers {meta.get('finalizers')}; cloud: {balancer}"
            )
        elif [port.port for port in balancer.ports] != [port["port"] for port in service["spec"]["ports"]]:
            wrong.append(f"Service {meta['name']} has ports {balancer.ports} in the cloud")
        elif list(balancer.backends) != targets:
            gone, missing = set(balancer.backends) - set(targets), set(targets) - set(balancer.backends)
            wrong.append(
                f"Service {meta['name']} has targets too many: {sorted(gone)[:3]}, missing: {sorted(missing)[:3]}"
            )
    return wrong


def _routes(nodes: list[JSON], cloud: Shown) -> list[str]:
    wanted = {(node["metadata"]["name"], cidr) for node in nodes for cidr in node["spec"].get("podCIDRs", ())}
    found = {(one.target_node, one.destination_cidr) for one in cloud.routes()}
    return [
        *(f"route {cidr} to {name} is missing" for name, cidr in sorted(wanted - found)),
        *(f"route {cidr} to {name or 'nowhere'} has no node" for name, cidr in sorted(found - wanted)),
    ]
