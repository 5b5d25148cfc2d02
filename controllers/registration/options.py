"""The manager's own options, and all options of one run. No I/O; never changed.

Names and sections are those of the Go cloud-controller-manager; defaults that differ say so in
their text. Each controller's options are classes of the same make, in its `registration.py`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import attrs

from controllers.options import (
    ADDRESS,
    BOOL,
    DURATION,
    FLOAT,
    INT,
    LIST,
    NAME,
    PATH,
    STRING,
    URL,
    between,
    cluster_name_option,
    group,
    no_limit_at_zero,
    not_empty,
    not_negative,
    one_of,
    option,
)

if TYPE_CHECKING:
    from controllers.runtime.election import LeaseSettings

T = TypeVar("T")

SECTIONS = (
    "generic", "cloud-node-controller", "cloud calls", "webhook", "webhook serving", "secure serving", "authentication",
    "authorization", "debugging", "health", "dry run", "misc", "global", "without effect",
)  # fmt: skip
"""Go's named flag sets in its order, and our own four; a controller's section is named after it."""


def split_address(address: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:0` or `:8080` (any interface) as (host, port); raises ValueError."""
    problem = "must be IP:PORT, such as 127.0.0.1:10259, [::1]:10259 or :10259"
    host, colon, port = address.rpartition(":")
    # Python's `isdigit` takes digits of any script.
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(problem)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    # An IPv6 address without brackets: which of its colons is the port's cannot be told.
    elif ":" in host:
        raise ValueError(problem)
    # A name may have several addresses, and which one is meant it would not say.
    if host and host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(problem) from None
    return host, int(port)


def _address(value: str) -> str | None:
    try:
        if value:
            split_address(value)
    except ValueError as error:
        return str(error)
    return None


def _master(value: str) -> str | None:
    if not value:
        return None
    try:
        url = urlsplit(value)
        # A password in a URL would end up in logs and errors.
        if url.scheme in ("http", "https") and url.hostname and url.port != 0 and url.username is None:
            return None
    except ValueError:
        pass  # a malformed port or IPv6 address
    return "must be a URL such as https://10.0.0.1:6443, without user or password"


@attrs.frozen(kw_only=True)
class LeaderElectionOptions:
    """Which of several replicas works. The durations are checked together, as Go does, and only
    with `leader_elect`."""

    leader_elect: bool = option(
        True,
        BOOL,
        "leader-elect",
        "generic",
        "Elect one leader among several replicas; the others stand by with warm caches.",
        configz="Generic.LeaderElection.leaderElect",
    )
    lease_duration: float = option(
        15.0,
        DURATION,
        "leader-elect-lease-duration",
        "generic",
        "How long the others wait after the last renewal that they saw until one of them takes over. A Lease counts "
        "whole seconds.",
        configz="Generic.LeaderElection.leaseDuration",
    )
    renew_deadline: float = option(
        10.0,
        DURATION,
        "leader-elect-renew-deadline",
        "generic",
        "How long the leader tries to renew its lease until it gives up and ends. Less than the lease duration.",
        configz="Generic.LeaderElection.renewDeadline",
    )
    resource_lock: str = option(
        "leases",
        STRING,
        "leader-elect-resource-lock",
        "generic",
        "Kind of the object that is used as the lock. Only leases are supported, as in Go.",
        configz="Generic.LeaderElection.resourceLock",
    )
    resource_name: str = option(
        "cloud-controller-manager",
        NAME,
        "leader-elect-resource-name",
        "generic",
        "Name of the Lease.",
        check=not_empty,
        configz="Generic.LeaderElection.resourceName",
    )
    resource_namespace: str = option(
        "kube-system",
        NAME,
        "leader-elect-resource-namespace",
        "generic",
        "Namespace of the Lease.",
        check=not_empty,
        configz="Generic.LeaderElection.resourceNamespace",
    )
    retry_period: float = option(
        2.0,
        DURATION,
        "leader-elect-retry-period",
        "generic",
        "Time between two renewals of the leader, and between two looks of a standby that may not watch the Lease.",
        configz="Generic.LeaderElection.retryPeriod",
    )

    def settings(self) -> LeaseSettings:
        """What the elector takes, with an identity of this process; raises ValueError."""
        from controllers.runtime.election import LeaseSettings

        return LeaseSettings(
            name=self.resource_name,
            namespace=self.resource_namespace,
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
        )


@attrs.frozen(kw_only=True)
class LeaderMigrationOptions:
    """Whether controllers move between managers, and which: see `manager/migration.py`."""

    enabled: bool = option(
        False,
        BOOL,
        "enable-leader-migration",
        "generic",
        "Run the controllers that move from kube-controller-manager, or between two managers, under a second lease "
        "that both managers share.",
        configz="Generic.LeaderMigrationEnabled",
    )
    config: str = option(
        "",
        PATH,
        "leader-migration-config",
        "generic",
        "File of kind LeaderMigrationConfiguration: the second lease's name, and who runs which controller. Empty: the "
        "route, service and cloud-node-lifecycle controllers, under the lease cloud-provider-extraction-migration.",
    )


@attrs.frozen(kw_only=True)
class PlanOptions:
    """Plan mode: see `controllers/plan/`."""

    enabled: bool = option(
        False,
        BOOL,
        "dry-run",
        "dry run",
        "Write nothing to the cluster or the cloud. Print on standard output what would be done, when the first pass "
        "of all controllers is over, and end: exit code 0 when nothing is to be done, 3 when something is, 1 when the "
        "plan is incomplete. Takes no lease, and serves no endpoints.",
    )
    output: str = option(
        "table",
        STRING,
        "dry-run-output",
        "dry run",
        "Form of the plan: table, for people, or json.",
        check=one_of("table", "json"),
    )
    timeout: float = option(
        300.0,
        DURATION,
        "dry-run-timeout",
        "dry run",
        "How long the first pass may take. What is not done then is shown as unknown.",
        check=between(1, 86400),
    )


@attrs.frozen(kw_only=True)
class ManagerOptions:
    """What the manager itself takes; durations in seconds. Raises ValueError naming the flag."""

    cloud_provider: str = option(
        "",
        NAME,
        "cloud-provider",
        "generic",
        "Name of an installed cloud provider. Required.",
        configz="KubeCloudShared.CloudProvider.Name",
    )
    cloud_config: str = option(
        "",
        PATH,
        "cloud-config",
        "generic",
        "The provider's configuration file. Empty: no configuration.",
        configz="KubeCloudShared.CloudProvider.CloudConfigFile",
    )
    allow_untagged_cloud: bool = option(
        False,
        BOOL,
        "allow-untagged-cloud",
        "generic",
        "Start even if the provider says that this cluster has no cluster ID in the cloud.",
        deprecated="tag the cloud's resources with a cluster ID instead",
        configz="KubeCloudShared.AllowUntaggedCloud",
    )
    cluster_name: str = cluster_name_option()
    controllers: tuple[str, ...] = option(
        ("*",),
        LIST,
        "controllers",
        "generic",
        "Controllers to run: '*' means all that are on by default, 'name' adds one, '-name' leaves one out.",
        configz="Generic.Controllers",
    )
    kube_api_content_type: str = option(
        "application/vnd.kubernetes.protobuf",
        STRING,
        "kube-api-content-type",
        "generic",
        "How the API server is asked for what is large and comes often: lists and watches of nodes, services and "
        "persistent volumes. application/json: as everything else. Whatever the server answers is read.",
        check=one_of("application/json", "application/vnd.kubernetes.protobuf"),
        configz="Generic.ClientConnection.contentType",
    )
    kube_api_qps: float = option(
        0.0,
        FLOAT,
        "kube-api-qps",
        "generic",
        "Limit of requests to the API server per second. 0 or less: no limit; the server's 429 and Retry-After are "
        "obeyed (Go's default of 20 makes large clusters slow).",
        configz="Generic.ClientConnection.qps",
    )
    kube_api_burst: int = option(
        0,
        INT,
        "kube-api-burst",
        "generic",
        "Burst of requests above --kube-api-qps. 0: as many as one second allows. Without --kube-api-qps there is no "
        "limit, and this has no effect.",
        check=no_limit_at_zero,
        configz="Generic.ClientConnection.burst",
    )
    controller_start_interval: float = option(
        0.0,
        DURATION,
        "controller-start-interval",
        "generic",
        "Time between the starts of two controllers, and up to as much again at random, so that a large cluster does "
        "not meet them all at once.",
        check=not_negative,
        configz="Generic.ControllerStartInterval",
    )
    use_service_account_credentials: bool = option(
        False,
        BOOL,
        "use-service-account-credentials",
        "generic",
        "Every controller, and every client of the provider, uses the token of a service account of its own in "
        "kube-system, with permissions of its own.",
        configz="KubeCloudShared.UseServiceAccountCredentials",
    )
    leader_election: LeaderElectionOptions = group(LeaderElectionOptions)
    leader_migration: LeaderMigrationOptions = group(LeaderMigrationOptions)
    plan: PlanOptions = group(PlanOptions)
    shutdown_drain_timeout: float = option(
        30.0,
        DURATION,
        "shutdown-drain-timeout",
        "generic",
        "How long work under way may take to end after SIGTERM; then the lease is released. Give the pod at least five "
        "seconds more as its terminationGracePeriodSeconds. Go does not wait.",
        check=between(0, 3600),
    )
    health_bind_address: str = option(
        "",
        ADDRESS,
        "health-bind-address",
        "health",
        "IP:PORT on which /healthz, /livez, /readyz and /metrics are served over plain HTTP, to anyone who can reach "
        "it; port 0 picks a free one and logs it. Empty: not served.",
        check=_address,
    )
    kubeconfig: str = option(
        "",
        PATH,
        "kubeconfig",
        "misc",
        "Kubeconfig file with the API server's address and credentials. Empty: the pod's service account is used, if "
        "there is one.",
        configz="Generic.ClientConnection.kubeconfig",
    )
    master: str = option("", URL, "master", "misc", "URL of the API server; overrides the kubeconfig's.", check=_master)
    allow_credentials_over_http: bool = option(
        False,
        BOOL,
        "allow-credentials-over-http",
        "misc",
        "Send the kubeconfig's token or password to an API server at http:// on another machine, too. Anyone on the "
        "way can read and use it. Off: it goes over plain HTTP to this machine alone.",
    )
    logging_format: str = option(
        "text",
        STRING,
        "logging-format",
        "global",
        "Format of log lines on standard error: text, as klog writes it, or json, one object per line.",
        check=one_of("text", "json"),
    )
    verbosity: int = option(
        0,
        INT,
        "v",
        "global",
        "Log level: 0 to 3 for operators, 4 adds each step with single objects and the provider's debug lines, "
        "6 adds HTTP connections.",
        check=between(0, 10),
        shorthand="v",
    )


@attrs.frozen
class Options:
    """All options of one run: the manager's, and an instance of each other class."""

    manager: ManagerOptions = attrs.field(factory=ManagerOptions)
    own: Mapping[type[Any], Any] = attrs.field(factory=dict)

    def of(self, kind: type[T]) -> T:
        """The instance of a class of options; its defaults when none was given."""
        found = self.own.get(kind)
        # A controller that is embedded asks for classes that no flags were read for.
        return kind() if found is None else cast(T, found)
