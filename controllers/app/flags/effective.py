"""The effective configuration of a run: the contents of /configz and /flagz, and the line about it at the start.

Stage: beside all of them, no I/O. Data comes from the options that the manager runs with, whether flags or a program
gave them; it goes to the endpoints and the log. No secret leaves here: options that are declared secret, users and
passwords in URLs and values of the cloud config are hidden, and of files only the path is shown.

/configz has the shape of Go's (CloudControllerManagerConfiguration v1alpha1 in k8s.io/cloud-provider), with what is
done here where Go has a setting and this program none. Options that Go lacks stand beside it, under this project's
name. /flagz has the text form of apiserver's flagz package.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from controllers.app.catalog import CATALOG
from controllers.app.entry import ControllerEntry, canonical
from controllers.app.options import Options
from controllers.options import CLASSIFIED, DURATION, FLOAT, LIST, Flag, values_of, without_user
from controllers.runtime.cleaning import one_line

PROGRAM: Final = "cloud-controller-manager"
GROUP: Final = "cloudcontrollermanager.config.k8s.io"
OWN: Final = "kubernetes-cloud-provider"

_FIXED: dict[str, Any] = {
    "kind": "CloudControllerManagerConfiguration",
    "apiVersion": f"{GROUP}/v1alpha1",
    "Generic": {
        "Port": 0,
        "Address": "0.0.0.0",
        "MinResyncPeriod": "0s",
        "ClientConnection": {"acceptContentTypes": "application/json", "contentType": "application/json"},
        "Debugging": {"enableProfiling": False, "enableContentionProfiling": False},
        "LeaderMigration": {"leaderName": "", "resourceLock": "", "controllerLeaders": None},
    },
    "KubeCloudShared": {"ExternalCloudVolumePlugin": "", "CIDRAllocatorType": "", "NodeSyncPeriod": "0s"},
}
"""What no flag of ours sets."""

_PLACES: dict[str, str] = {
    "controller-start-interval": "Generic.ControllerStartInterval",
    "controllers": "Generic.Controllers",
    "enable-leader-migration": "Generic.LeaderMigrationEnabled",
    "kube-api-burst": "Generic.ClientConnection.burst",
    "kube-api-qps": "Generic.ClientConnection.qps",
    "kubeconfig": "Generic.ClientConnection.kubeconfig",
    "leader-elect": "Generic.LeaderElection.leaderElect",
    "leader-elect-lease-duration": "Generic.LeaderElection.leaseDuration",
    "leader-elect-renew-deadline": "Generic.LeaderElection.renewDeadline",
    "leader-elect-resource-lock": "Generic.LeaderElection.resourceLock",
    "leader-elect-resource-name": "Generic.LeaderElection.resourceName",
    "leader-elect-resource-namespace": "Generic.LeaderElection.resourceNamespace",
    "leader-elect-retry-period": "Generic.LeaderElection.retryPeriod",
    "profiling": "Generic.Debugging.enableProfiling",
    "allocate-node-cidrs": "KubeCloudShared.AllocateNodeCIDRs",
    "allow-untagged-cloud": "KubeCloudShared.AllowUntaggedCloud",
    "cloud-config": "KubeCloudShared.CloudProvider.CloudConfigFile",
    "cloud-provider": "KubeCloudShared.CloudProvider.Name",
    "cluster-cidr": "KubeCloudShared.ClusterCIDR",
    "cluster-name": "KubeCloudShared.ClusterName",
    "configure-cloud-routes": "KubeCloudShared.ConfigureCloudRoutes",
    "route-reconciliation-period": "KubeCloudShared.RouteReconciliationPeriod",
    "use-service-account-credentials": "KubeCloudShared.UseServiceAccountCredentials",
    "concurrent-node-status-updates": "NodeController.ConcurrentNodeStatusUpdates",
    "concurrent-node-syncs": "NodeController.ConcurrentNodeSyncs",
    "concurrent-node-lifecycle-syncs": "NodeLifecycleController.ConcurrentNodeLifecycleSyncs",
    "node-monitor-period": "NodeLifecycleController.NodeMonitorPeriod",
    "node-status-update-frequency": "NodeStatusUpdateFrequency",
    "concurrent-service-syncs": "ServiceController.ConcurrentServiceSyncs",
    "webhooks": "Webhook.Webhooks",
}
"""Where Go's own flags stand in Go's configuration."""

_HEADER = """
%s flagz
Warning: This endpoint is for people. Its format can change at any time: no program should read it.
"""


def configz(options: Options, catalog: Sequence[ControllerEntry] = CATALOG) -> dict[str, Any]:
    """The object that /configz serves, ready for JSON. Each call makes a new one."""
    found = copy.deepcopy(_FIXED)
    own: dict[str, dict[str, Any]] = {}
    for flag, value in _values(options):
        if flag.name == "controllers":
            value = canonical(value, catalog)
        place = _PLACES.get(flag.name)
        if place is None:
            own.setdefault(flag.section, {})[flag.name] = _json(flag, value)
            continue
        *path, last = place.split(".")
        at = found
        for step in path:
            at = at.setdefault(step, {})
        at[last] = _json(flag, value)
    return {GROUP: found, OWN: own}


def flagz(options: Options, program: str = PROGRAM) -> str:
    """The text that /flagz serves: each flag with its value, sorted by name."""
    lines = sorted(f"{flag.name}={_shown(flag, value)}\n" for flag, value in _values(options))
    return _HEADER % program + "\n" + "".join(lines)


def changed(options: Options, flags: Iterable[Flag[Any]]) -> list[str]:
    """The flags whose values differ from the defaults in the table `flags`, as they would be typed. For the log."""
    defaults = {flag.name: flag.default for flag in flags}
    return [
        f"--{flag.name}={_shown(flag, value)}"
        for flag, value in _values(options)
        if flag.name in defaults and value != defaults[flag.name]
    ]


def _values(options: Options) -> Iterator[tuple[Flag[Any], Any]]:
    """Each flag once: several classes may hold the same option."""
    seen: set[str] = set()
    for one in (options.manager, *options.own.values()):
        for flag, value in values_of(one):
            if flag.name not in seen:
                seen.add(flag.name)
                yield flag, value


def _shown(flag: Flag[Any], value: Any) -> str:
    if flag.secret:
        return CLASSIFIED
    return one_line(without_user(flag.kind.show(value)))


def _json(flag: Flag[Any], value: Any) -> object:
    if not flag.secret:
        if flag.kind is FLOAT or (isinstance(value, bool | int) and flag.kind is not DURATION):
            return value
        if flag.kind is LIST:
            return [one_line(without_user(word)) for word in value]
    return _shown(flag, value)
