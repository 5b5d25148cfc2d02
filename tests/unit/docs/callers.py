"""docs/reference/callers.md: every method of the contract, who calls it, when, and whether it changes the cloud.

The rows are written by hand here. `test_callers.py` compares them with the contract (no method is forgotten), with the
code (who is named makes that call) and with the gateway (what changes the cloud is fenced). `make generate` writes the
page. Pure.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

import cloudprovider
from cloudprovider import (
    ClientBuilder,
    Clusters,
    InformerUser,
    Instances,
    InstancesBatch,
    InstancesV2,
    Interface,
    Lister,
    Listers,
    LoadBalancer,
    LocalInstance,
    OwnedLoadBalancers,
    PodCIDRs,
    PVLabeler,
    Routes,
    SSHKeys,
    StopSignal,
    Zones,
)
from cloudprovider.testing.fake.methods import METHODS
from controllers.app.catalog import CATALOG

__all__ = ["CALLS", "HOST", "SOURCES", "SWITCHES", "Call", "methods_of", "mutates", "page"]

NODE = "cloud-node-controller"
LIFECYCLE = "cloud-node-lifecycle-controller"
ROUTE = "node-route-controller"
SERVICE = "service-lb-controller"
VOLUMES = "persistent-volume-label-controller"
SSH = "ssh-key-controller"
IPAM = "node-ipam-controller"
WEBHOOK = "webhook persistentvolume-labeler"
MANAGER = "the manager"
GATEWAY = "the gateway"
CHECK = "`check`"
NODE_INFO = "`node-info`"
CLUSTERS = "`clusters`"
PROVIDER = "your provider"

_COMMANDS = "cloudprovider/commands"
SOURCES: Mapping[str, tuple[str, ...]] = {
    **{entry.name: (entry.module.rpartition(".")[0].replace(".", "/"),) for entry in CATALOG},
    WEBHOOK: ("controllers/volumelabels/webhook.py",),
    MANAGER: ("controllers/app",),
    GATEWAY: ("controllers/cloudcalls",),
    CHECK: (f"{_COMMANDS}/check.py", f"{_COMMANDS}/questions.py", "cloudprovider/providerchecks.py"),
    NODE_INFO: (f"{_COMMANDS}/nodeinfo.py", f"{_COMMANDS}/boot.py", f"{_COMMANDS}/asking.py"),
    CLUSTERS: (f"{_COMMANDS}/clusters.py", f"{_COMMANDS}/asking.py"),
}
"""Where the code of each caller is."""

SWITCHES = {
    NODE: "it is on by default",
    LIFECYCLE: "it is on by default",
    ROUTE: "it is on by default; works with `--allocate-node-cidrs`, `--configure-cloud-routes` and `--cluster-cidr`",
    SERVICE: "it is on by default",
    VOLUMES: "`--controllers=*,persistent-volume-label-controller`",
    SSH: "`--controllers=*,ssh-key-controller` with `--ssh-user` and `--ssh-keyfile`",
    IPAM: "`--controllers=*,node-ipam-controller`, `--allocate-node-cidrs`, `--cidr-allocator-type=CloudAllocator`",
    WEBHOOK: "`--webhooks=persistentvolume-labeler`, and a MutatingWebhookConfiguration",
    MANAGER: "`cloud-controller-manager`, or your own program with `controllers.app.hosting`",
    GATEWAY: "works for every controller of the manager: nobody else calls a provider there",
    CHECK: "`python -m cloudprovider check NAME --cloud-config=...`",
    NODE_INFO: "`python -m cloudprovider node-info --cloud-provider=NAME`, on the machine that boots",
    CLUSTERS: "`python -m cloudprovider clusters --cloud-provider=NAME`",
}


@frozen
class Call:
    """One caller of a method: who, the call as it stands in its code ("receiver.method"), and when."""

    who: str
    code: str
    when: str


_START = "once, before everything else"
_INITIALISE = Call(
    NODE, "cloud.fetch_metadata", "when a node is not initialised, and when it is changed in what matters"
)
_REFRESH = Call(NODE, "cloud.fetch_metadata", "for every node each `--node-status-update-frequency` (5m)")
_MONITOR = Call(
    LIFECYCLE,
    "cloud.fetch_state",
    "for nodes that are not Ready, each `--node-monitor-period` (5s); before a deletion for Ready ones too",
)
_NAMELESS = Call(LIFECYCLE, "cloud.fetch_metadata", "when a node that is said to be gone may have another instance now")
_OLDER_TYPE = Call(NODE, "cloud.fetch_metadata", "as `node_addresses`, of known nodes at every tenth refresh")
_BOOT = "as the machine boots, where there is no `local_instance`"


def _accessors(*names: str, boot: bool = False) -> dict[str, tuple[Call, ...]]:
    """Rows of accessors that the gateway calls; `boot`: `node-info` does, too."""
    return {
        name: (
            Call(GATEWAY, f'"{name}"', "once, after `initialize`"),
            Call(CHECK, f'"{name}"', "twice, after `initialize`: it must return the same object"),
            *((Call(NODE_INFO, f"provider.{name}", _BOOT),) if boot else ()),
        )
        for name in names
    }


CALLS: Mapping[type, Mapping[str, tuple[Call, ...]]] = {
    Interface: {
        "provider_name": (
            Call(GATEWAY, "provider.provider_name", _START),
            Call(CHECK, '"provider_name"', _START),
        ),
        "initialize": (
            Call(MANAGER, "provider.initialize", "once, on the replica that leads; with `--webhooks` on every one"),
            Call(CHECK, "provider.initialize", "once"),
            Call(NODE_INFO, "provider.initialize", "once, where there is no `local_instance`"),
            Call(CLUSTERS, "provider.initialize", "once"),
        ),
        **_accessors("instances_v2", "instances_batch", "instances", "zones", boot=True),
        **_accessors("load_balancer", "routes", "pv_labeler", "pod_cidrs"),
        "clusters": (
            Call(CLUSTERS, "provider.clusters", "once, after `initialize`"),
            Call(CHECK, '"clusters"', "twice, after `initialize`: it must return the same object"),
        ),
        "local_instance": (
            Call(NODE_INFO, "provider.local_instance", "at each try, before `initialize`"),
            Call(CHECK, '"local_instance"', "twice: it must return the same object"),
        ),
        "has_cluster_id": (
            Call(
                MANAGER,
                "provider.has_cluster_id",
                "once, before `initialize`; `--allow-untagged-cloud` goes on all the same",
            ),
            Call(CHECK, "provider.has_cluster_id", "once"),
        ),
        "provider_id_prefixes": (
            Call(GATEWAY, "provider.provider_id_prefixes", "once, at the first question about a node"),
            Call(NODE_INFO, "provider.provider_id_prefixes", "to check the answer"),
        ),
        "same_provider_id": (
            Call(
                GATEWAY,
                "provider.same_provider_id",
                "when an answer about a node has another provider ID than the node",
            ),
        ),
        "scrub_dns": (Call(NODE_INFO, "provider.scrub_dns", "with `--resolv-conf`"),),
    },
    InstancesV2: {
        "instance_exists": (
            _MONITOR,
            Call(CHECK, "v2.instance_exists", "once, about a node that nobody has"),
        ),
        "instance_shutdown": (_MONITOR,),
        "instance_metadata": (_INITIALISE, _REFRESH, _NAMELESS, Call(NODE_INFO, "v2.instance_metadata", _BOOT)),
    },
    InstancesBatch: {
        "max_batch": (Call(GATEWAY, "batch.max_batch", "once"),),
        "instances_metadata": (_INITIALISE, _REFRESH, _NAMELESS, Call(NODE_INFO, "batch.instances_metadata", _BOOT)),
        "instances_state": (_MONITOR, Call(CHECK, "batch.instances_state", "once, about a node that nobody has")),
    },
    Instances: {
        "node_addresses": (_INITIALISE, _REFRESH, Call(NODE_INFO, "instances.node_addresses", _BOOT)),
        "node_addresses_by_provider_id": (_INITIALISE, _REFRESH),
        "instance_id": (
            Call(NODE, "cloud.fetch_metadata", "for a node without provider ID"),
            Call(CHECK, "older.instance_id", "once, about a node that nobody has"),
        ),
        "external_id": (),
        "instance_type": (_OLDER_TYPE, Call(NODE_INFO, "instances.instance_type", _BOOT)),
        "instance_type_by_provider_id": (_OLDER_TYPE,),
        "add_ssh_key_to_all_instances": (Call(SSH, "calls.add", "as `SSHKeys.add_ssh_key_to_all_instances`"),),
        "current_node_name": (Call(NODE_INFO, "instances.current_node_name", _BOOT),),
        "instance_exists_by_provider_id": (_MONITOR,),
        "instance_shutdown_by_provider_id": (_MONITOR,),
    },
    Zones: {
        "get_zone": (Call(NODE_INFO, "zones.get_zone", _BOOT),),
        "get_zone_by_provider_id": (_OLDER_TYPE,),
        "get_zone_by_node_name": (
            _OLDER_TYPE,
            Call(NODE_INFO, "zones.get_zone_by_node_name", "if `get_zone` is not implemented"),
        ),
    },
    SSHKeys: {
        "add_ssh_key_to_all_instances": (
            Call(
                SSH,
                "calls.add",
                "for each key: at the start, when the file changes, when nodes have joined, and each "
                "`--ssh-key-sync-period` (1h)",
            ),
        ),
    },
    LoadBalancer: {
        "get_load_balancer": (
            Call(
                SERVICE,
                "balancers.get",
                "at the start for Services that have one, after doubts, and each "
                "`--load-balancer-drift-check-period` (30m)",
            ),
            Call(CHECK, "balancer.get_load_balancer", "once, for a Service that nobody has"),
        ),
        "get_load_balancer_name": (
            Call(SERVICE, "balancers.ensure", "before `ensure_...` and `..._deleted`, for the log"),
        ),
        "load_balancer_revision": (
            Call(
                SERVICE,
                "balancers.revision",
                "whenever a Service is compared with what was built; pure, so it costs nothing",
            ),
        ),
        "ensure_load_balancer": (
            Call(
                SERVICE,
                "balancers.ensure",
                "when a Service is new or changed, and each `--load-balancer-ensure-period` (12h)",
            ),
        ),
        "update_load_balancer": (Call(SERVICE, "balancers.update", "when the nodes of a load balancer have changed"),),
        "ensure_load_balancer_deleted": (
            Call(SERVICE, "balancers.ensure_deleted", "when the Service is deleted, or wants none any more"),
        ),
    },
    OwnedLoadBalancers: {
        "owned_load_balancers": (
            Call(SERVICE, "balancers.owned", "each `--load-balancer-orphan-check-period` (30m), for the orphan report"),
            Call(CHECK, "balancer.owned_load_balancers", "once, for a cluster that nobody has"),
        ),
    },
    Routes: {
        "list_routes": (
            Call(
                ROUTE,
                "routes.list",
                "after changes of nodes, at most every 10 s, and each `--route-reconciliation-period` (5m)",
            ),
            Call(CHECK, "routes.list_routes", "once, for a cluster that nobody has"),
        ),
        "create_route": (Call(ROUTE, "routes.create", "for a node's pod CIDR without a route"),),
        "delete_route": (Call(ROUTE, "routes.delete", "for a route whose node is gone, or has another CIDR"),),
    },
    PVLabeler: {
        "get_labels_for_volume": (
            Call(VOLUMES, "labeler.labels", "once for each version of a volume without zone label or affinity"),
            Call(WEBHOOK, "labeler.labels", "when such a volume is created, before it is stored"),
        ),
    },
    LocalInstance: {
        "local_metadata": (Call(NODE_INFO, "local.local_metadata", "as the machine boots, until it answers"),),
        "local_node_name": (Call(NODE_INFO, "local.local_node_name", "as the machine boots"),),
    },
    Clusters: {
        "list_clusters": (
            Call(CLUSTERS, "clusters.list_clusters", "once"),
            Call(CHECK, "clusters.list_clusters", "once"),
        ),
        "master": (Call(CLUSTERS, "clusters.master", "once for each cluster that is shown"),),
    },
    PodCIDRs: {
        "max_batch": (Call(GATEWAY, "capability.max_batch", "once"),),
        "pod_cidrs": (
            Call(IPAM, "cloud.fetch_pod_cidrs", "when a node has no pod CIDRs; again, with back-off, until it has"),
        ),
    },
    InformerUser: {
        "set_informers": (Call(MANAGER, "provider.set_informers", "once, right after `initialize`"),),
    },
}
"""By interface and method, who calls it; nobody where there is none."""

HOST: tuple[type, ...] = (ClientBuilder, StopSignal, Listers, Lister)
"""Protocols that the host implements and a provider calls; they have no row."""

_INTRODUCTION = """# Who calls what

This page is generated; do not edit it, run `make generate`. The rows are written in `tests/unit/docs/callers.py`, and
tests compare them with the contract and with the code.

Every method of the contract, who calls it, and when. What the methods must do is in [Interfaces](interfaces.md); what
the host gives a provider to call ([clients, listers, the stop signal](host.md)) is not listed.

Methods that change the cloud are called by the leader alone, and refused from the moment that its lease may have been
lost. Every call passes limits, deadlines and metrics: `cloudprovider_api_requests_total{method}` counts them.

## The callers, and what turns them on

| caller | turned on by |
|---|---|
"""

_NOTES: Mapping[type, str] = {
    InstancesV2: "Where `instances_batch()` returns an object too, the controllers ask that one.",
    Instances: "Asked only where `instances_v2()` and `instances_batch()` return None.",
    Zones: "Asked only beside the older `Instances`.",
    SSHKeys: "Found on the object of `instances_v2()` or `instances_batch()`; else the older `Instances` is asked.",
    OwnedLoadBalancers: "Found on the object of `load_balancer()`.",
    InformerUser: "Found on the provider itself.",
}


def methods_of(kind: type) -> set[str]:
    """The public methods of an interface, and `max_batch`, which is an attribute."""
    public = {name for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)}
    return public | ({"max_batch"} if "max_batch" in vars(kind) else set())


def mutates(method: str) -> bool:
    """Whether a method changes the cloud, as the fake cloud has it."""
    return method in METHODS and METHODS[method].mutating


def page() -> str:
    """The whole page."""
    known = [(who, how) for who, how in SWITCHES.items() if who in SOURCES]
    lines = [_INTRODUCTION + "\n".join(f"| {who} | {how} |" for who, how in known), ""]
    for kind, rows in CALLS.items():
        lines += [f"## {kind.__name__}", ""]
        if kind in _NOTES:
            lines += [_NOTES[kind], ""]
        lines += ["| method | called by | when | changes the cloud |", "|---|---|---|---|"]
        for method, calls in rows.items():
            changes = "yes" if mutates(method) else ""
            if not calls:
                lines.append(f"| `{method}` | nobody | kept for programs of your own | {changes} |")
            for number, call in enumerate(calls):
                name = f"`{method}`" if number == 0 else ""
                lines.append(f"| {name} | {call.who} | {call.when} | {changes if number == 0 else ''} |")
        lines.append("")
    return "\n".join(lines)


def root() -> Path:
    """The folder of the repository."""
    return Path(__file__).parents[3]


def contract() -> list[type[Any]]:
    """Every interface and protocol of the flat package `cloudprovider`."""
    found = [getattr(cloudprovider, name) for name in cloudprovider.__all__]
    return [
        one
        for one in found
        if inspect.isclass(one) and (inspect.isabstract(one) or getattr(one, "_is_protocol", False))
    ]
