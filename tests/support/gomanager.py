"""The flags of the Go cloud-controller-manager, and what each does here: the page
docs/reference/go-flags.md.

Stage: before the first one, no I/O. The names and defaults are those of the Go program built on
k8s.io/cloud-provider 0.37.2 (its --help, and the deprecated flags that it hides); what each means
here comes from the table of flags. A test compares what leaves with the page in the repository, and
another one the names and defaults with the Go program:

    python -m tests.support.gomanager > docs/reference/go-flags.md
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.catalog import CATALOG
from controllers.cli.reference import rows_of
from controllers.flags.ignored import GATES, IGNORED
from controllers.flags.parse import table
from controllers.registration.entry import ControllerEntry

_ABOUT = """# The Go manager's flags

This page is generated from the code; do not edit it, run `make generate`.

Every flag of the Go cloud-controller-manager (k8s.io/cloud-provider 0.37.2) in Go's order, with Go's default, and what
it does here. Flags that only this program has are in [Flags and permissions](flags.md), with what each default is for.
A flag "without effect" is taken, and its value is checked. If it asks for something else than what is done anyway,
there is one warning at the start.
"""

_ABOUT_GATES = """## Feature gates

Every gate that the Go manager's `--feature-gates` knows, also those that its --help hides. Nothing is switched by a
gate here: what it would turn on is always done, or not there. If a value asks for something else than what is done, one
warning at the start names the gate. An unknown gate is refused, and so is another value for a fixed one, as in Go.
"""

_DEFAULTS = """
contention-profiling=false
profiling=true
enable-leader-migration=false
leader-migration-config=
allocate-node-cidrs=false
allow-untagged-cloud=false
cidr-allocator-type=RangeAllocator
cloud-config=
cloud-provider=
cluster-cidr=
cluster-name=kubernetes
configure-cloud-routes=true
controller-start-interval=0s
controllers=*
external-cloud-volume-plugin=
feature-gates=
kube-api-burst=30
kube-api-content-type=application/vnd.kubernetes.protobuf
kube-api-qps=20
leader-elect=true
leader-elect-lease-duration=15s
leader-elect-renew-deadline=10s
leader-elect-resource-lock=leases
leader-elect-resource-name=cloud-controller-manager
leader-elect-resource-namespace=kube-system
leader-elect-retry-period=2s
min-resync-period=12h0m0s
node-sync-period=0s
route-reconciliation-period=10s
use-service-account-credentials=false
concurrent-node-status-updates=0
concurrent-node-syncs=1
concurrent-node-lifecycle-syncs=1
node-monitor-period=5s
concurrent-service-syncs=1
webhooks=
webhook-bind-address=0.0.0.0
webhook-cert-dir=
webhook-disable-http2-serving=false
webhook-secure-port=10260
webhook-tls-cert-file=
webhook-tls-cipher-suites=
webhook-tls-curve-preferences=
webhook-tls-min-version=
webhook-tls-private-key-file=
webhook-tls-sni-cert-key=
bind-address=0.0.0.0
cert-dir=
disable-http2-serving=false
http2-max-streams-per-connection=0
permit-address-sharing=false
permit-port-sharing=false
secure-port=10258
tls-cert-file=
tls-cipher-suites=
tls-curve-preferences=
tls-min-version=
tls-private-key-file=
tls-sni-cert-key=
authentication-kubeconfig=
authentication-skip-lookup=false
authentication-token-webhook-cache-ttl=10s
authentication-tolerate-lookup-failure=false
client-ca-file=
requestheader-allowed-names=
requestheader-client-ca-file=
requestheader-extra-headers-prefix=x-remote-extra-
requestheader-group-headers=x-remote-group
requestheader-uid-headers=
requestheader-username-headers=x-remote-user
authorization-always-allow-paths=/healthz,/readyz,/livez
authorization-kubeconfig=
authorization-webhook-cache-authorized-ttl=10s
authorization-webhook-cache-unauthorized-ttl=10s
kubeconfig=
master=
node-status-update-frequency=5m0s
help=false
log-flush-frequency=5s
log-text-info-buffer-size=0
log-text-split-stream=false
logging-format=text
v=0
version=false
vmodule=
"""

GO_FLAGS: dict[str, str] = {name: default for name, _, default in (line.partition("=") for line in _DEFAULTS.split())}
"""Go's flags with their defaults, as Go shows them (without brackets)."""

GO_DEPRECATED = frozenset({"allow-untagged-cloud", "node-sync-period"})
"""Flags that Go takes with a warning, and hides from its --help."""

_GATES = """
AggregatedDiscoveryRemoveBetaType deprecated true
AllAlpha alpha false
AllBeta beta false
AllowParsingUserUIDFromCertAuth beta true
AllowUnsafeMalformedObjectDeletion beta true
APIResponseCompression beta true
APIServerIdentity beta true
APIServerWebhookAuthenticationToken alpha false
APIServingWithRoutine alpha false
CBORServingAndStorage alpha false
CloudControllerManagerWatchBasedRoutesReconciliation alpha false
CloudControllerManagerWebhook alpha false
ComponentFlagz beta true
ComponentStatusz beta true
ConcurrentWatchObjectDecode beta true
ConsistentListFromCacheSkipTimeoutFallback alpha false
ConstrainedImpersonation beta true
ContextualLogging beta true
ControllerManagerReleaseLeaderElectionLockOnExit alpha false
CoordinatedLeaderElection beta false
DeclarativeValidation GA true
DeclarativeValidationBeta beta true
DeclarativeValidationTakeover deprecated false
DetectCacheInconsistency beta true
EtcdRangeStream beta true
ExcludeAdmissionWebhookVirtualResources beta true
KMSv1 deprecated false
ListFromCacheSnapshot beta true
LoggingAlphaOptions alpha false
LoggingBetaOptions beta true
ManifestBasedAdmissionControlConfig beta true
MutatingAdmissionPolicy GA true
NativeHistograms beta true
OpenAPIEnums beta true
RemoteRequestHeaderUID beta true
SeparateCacheWatchRPC deprecated false
ShardedListAndWatch alpha false
SizeBasedListCostEstimate beta true
StorageVersionAPI alpha false
StorageVersionHash beta true
StructuredAuthenticationConfigurationEgressSelector beta true
StructuredAuthenticationConfigurationJWKSMetrics beta true
TokenRequestServiceAccountUIDValidation beta true
UnauthenticatedHTTP2DOSMitigation beta true
UnknownVersionInteroperabilityProxy beta true
WatchCacheInitializationPostStartHook GA true
WatchList beta true
WatchListCompression beta true
WebhookRoundTripLoadBalancing beta true
"""

GO_GATES: dict[str, tuple[str, str]] = {
    name: (stage, default) for name, stage, default in map(str.split, _GATES.strip().splitlines())
}
"""Go's feature gates with their stage and default; a gate that is fixed has it in
`controllers/flags/ignored.py`."""


_BESIDES = {
    "allocate-node-cidrs": "; routes need it, which Go makes without it too",
    "cluster-cidr": "; several ranges of a family too; with node ranges that are not /24 (IPv6: /64) it needs "
    "--node-cidr-mask-size, which Go has not",
    "kube-api-qps": ", which is no limit, as is -1; in Go 0 is 5 a second",
    "master": "; it must be a URL with its scheme, and in a pod the service account is used with it, unless it is http",
}
"""What else differs where a flag works."""

_TAKEN = """
## Taken as in Go, and told

These command lines start the Go manager, and this one, which warns about all but the first:

| command line | what counts |
| --- | --- |
| `--kube-api-qps=-1` | no limit, as in client-go |
| `--bind-address=`, `--webhook-bind-address=`, `--kube-api-content-type=` and other texts that are empty | the default. Not an empty list, which is a value, nor an empty name, which is refused |
| `--leader-elect=false` with `--leader-elect-resource-lock=endpoints`, or with `--enable-leader-migration` | there is no election |
| `--leader-migration-config=FILE` without `--enable-leader-migration` | the file is not read |
| `--controllers=service,-service` | the first word |
| `--concurrent-service-syncs=010` | 8: a leading zero makes a whole number octal |

Values that Go takes and then fails with, or spins (zero and negative periods and workers, names that no Lease can
have, files that are not there), are refused at the start. So are flags that Go had and removed, such as `--port`,
`--address` and `--logtostderr`: the message says what to do instead.
"""  # noqa: E501 - a row of Markdown is one line


def page(catalog: Sequence[ControllerEntry]) -> str:
    """The page, in Markdown. Pure."""
    ours = {row.name: row for row in table(catalog)}
    ignored = {row.flag.name: row.reason for row in IGNORED}
    rows = []
    for name, default in GO_FLAGS.items():
        if name in ignored:
            here = f"without effect: {ignored[name]}"
        else:
            shown = ours[name].kind.show(ours[name].default)
            here = "works" if shown == default else f"works; the default is `{shown}`"
            here += _BESIDES.get(name, "")
        old = " (deprecated in Go)" if name in GO_DEPRECATED else ""
        rows.append((f"`--{name}`", f"`{default}`" if default else "", f"{here}{old}"))
    flags = rows_of(("flag", "Go's default", "here"), rows)
    gates = rows_of(("gate", "stage", "Go's default", "here", "meaning"), [_gate_row(name) for name in GO_GATES])
    return "\n".join([_ABOUT, flags, _TAKEN, _ABOUT_GATES, gates])


def _gate_row(name: str) -> tuple[str, ...]:
    (stage, default), gate = GO_GATES[name], GATES[name]
    here = {True: "always done", False: "not there", None: "no meaning"}[gate.done]
    fixed = "" if gate.fixed is None else ", fixed"
    return f"`{name}`", stage, f"{default}{fixed}", here, gate.meaning


if __name__ == "__main__":
    print(page(CATALOG), end="")
