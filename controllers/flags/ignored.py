"""Flags of the Go cloud-controller-manager that have no meaning here: taken, checked, and without
effect. Pure data.

So a manifest written for the Go program starts this one. A flag that asks for something else than
what is done anyway gets one warning, with the reason that docs/reference/flags.md lists. A setting
that could matter for what is deleted, written or allowed never belongs here.

No feature gate switches anything: what it would turn on is either always done or not there, and a
warning at the start says which. Names and fixed values are those of Kubernetes 1.37; another name
is an error, as in Go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from controllers.options import BOOL, DURATION, INT, INTEGERS, LIST, PATH, STRING, SWITCHES, Kind, not_negative
from controllers.options.declare import Check, Flag
from controllers.options.kinds import display

T = TypeVar("T")

_HTTP2 = "HTTP/1.1 is served, and no HTTP/2"
_CURVES = "the TLS library chooses the curves, from those without known weaknesses"
_ONE_CERTIFICATE = "one certificate is served to all clients"
_ADDRESS = "SO_REUSEADDR is always set"
_HEADERS = "no user is believed from request headers; give clients certificates or tokens of their own"
_RESYNC = (
    "caches are never replayed: what a watch missed is listed again, and the cloud is compared every "
    "--node-monitor-period, --node-status-update-frequency and --route-reconciliation-period"
)
_NODE_SYNC = "Go ignores it too; see --node-monitor-period and --node-status-update-frequency"
_VOLUMES = "volumes are attached and provisioned by CSI drivers"
_LOGS = "log lines are written at once, to standard error, at one level for all modules (-v)"
_PROFILING = "Go's profiles do not exist here"
_GATES = "what a gate would turn on is always done or not there: docs/reference/go-flags.md lists each"

SECTION = "without effect"
_PATTERNS = re.compile(r"[^=,]+=\d+(,[^=,]+=\d+)*")
_QUANTITY = re.compile(r"\d+(\.\d+)?([kKMGTPE]i?|m)?")
_PAIR = re.compile(r"[^,:]+,[^,:]+(:[^:]*)?")


@attrs.frozen
class Gate:
    """One gate. `done` is what this program does, whatever is given; None where neither value means
    anything here."""

    done: bool | None
    meaning: str
    fixed: bool | None = None
    """The only value that Go takes for it."""


_ONE_WAY = "log lines are written in one way"
_SERVER = "about kube-apiserver"
_OF_THE_SERVER = """
APIResponseCompression APIServerIdentity APIServerWebhookAuthenticationToken APIServingWithRoutine
AllowParsingUserUIDFromCertAuth AllowUnsafeMalformedObjectDeletion CBORServingAndStorage ConcurrentWatchObjectDecode
ConsistentListFromCacheSkipTimeoutFallback ConstrainedImpersonation DeclarativeValidationBeta DetectCacheInconsistency
EtcdRangeStream ExcludeAdmissionWebhookVirtualResources KMSv1 ListFromCacheSnapshot ManifestBasedAdmissionControlConfig
MutatingAdmissionPolicy OpenAPIEnums ShardedListAndWatch SizeBasedListCostEstimate StorageVersionAPI
StorageVersionHash StructuredAuthenticationConfigurationEgressSelector
StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
UnknownVersionInteroperabilityProxy WatchListCompression WebhookRoundTripLoadBalancing
"""

GATES: Mapping[str, Gate] = {
    "CloudControllerManagerWatchBasedRoutesReconciliation": Gate(
        True, "changes of nodes are handled at once, and all routes compared every --route-reconciliation-period"
    ),
    "CloudControllerManagerWebhook": Gate(True, "webhooks are served if --webhooks names them, and not otherwise"),
    "ControllerManagerReleaseLeaderElectionLockOnExit": Gate(True, "a clean stop always releases the lease"),
    "CoordinatedLeaderElection": Gate(False, "the leader is elected on the Lease alone"),
    "ComponentFlagz": Gate(True, "/flagz is always served"),
    "ComponentStatusz": Gate(True, "/statusz is always served"),
    "ContextualLogging": Gate(None, _ONE_WAY),
    "LoggingAlphaOptions": Gate(None, _ONE_WAY),
    "LoggingBetaOptions": Gate(None, _ONE_WAY),
    "NativeHistograms": Gate(False, "histograms have fixed buckets"),
    "RemoteRequestHeaderUID": Gate(False, "no user is believed from request headers"),
    "UnauthenticatedHTTP2DOSMitigation": Gate(None, "HTTP/2 is not served"),
    "WatchList": Gate(False, "caches are filled by lists"),
    "AllAlpha": Gate(None, "each gate has its own row here"),
    "AllBeta": Gate(None, "each gate has its own row here"),
    **{name: Gate(None, _SERVER) for name in _OF_THE_SERVER.split()},
    "AggregatedDiscoveryRemoveBetaType": Gate(None, _SERVER, fixed=True),
    "DeclarativeValidation": Gate(None, _SERVER, fixed=True),
    "DeclarativeValidationTakeover": Gate(None, _SERVER, fixed=False),
    "SeparateCacheWatchRPC": Gate(None, _SERVER, fixed=False),
    "WatchCacheInitializationPostStartHook": Gate(None, _SERVER, fixed=True),
}


def gates_problem(given: Mapping[str, bool]) -> str | None:
    """What Go refuses about these gates, or None."""
    wrong = [f"there is no feature gate {display(name)!r}" for name in given if name not in GATES]
    for name, on in given.items():
        fixed = GATES[name].fixed if name in GATES else None
        if fixed is not None and on is not fixed:
            wrong.append(f"{name} can only be {'true' if fixed else 'false'}")
    return "; ".join(wrong) or None


def gates_note(given: Mapping[str, bool]) -> str | None:
    """Which gates ask for something else than what is done, and that; None where none does."""
    found = [f"{name} ({GATES[name].meaning})" for name, on in given.items() if on is not GATES[name].done]
    return f"has no effect: {', '.join(found)}" if found else None


@attrs.frozen
class Ignored:
    """A flag, whose default is what is done anyway, and why it has no effect."""

    flag: Flag[Any]
    reason: str


def _ignored(
    name: str, kind: Kind[T], anyway: T, reason: str, check: Check[T] | None = None, *, configz: str = ""
) -> Ignored:
    def note(value: T) -> str | None:
        return None if value == anyway else f"has no effect: {reason}"

    return Ignored(Flag(name, kind, anyway, SECTION, f"{reason}.", check, note=note, configz=configz), reason)


def _matching(pattern: re.Pattern[str], example: str) -> Check[str]:
    return lambda value: None if not value or pattern.fullmatch(value) else f"must look like {example}"


_NAMED_PAIR = _matching(_PAIR, "CERTIFICATE,KEY or CERTIFICATE,KEY:NAME")

IGNORED: tuple[Ignored, ...] = (
    _ignored("disable-http2-serving", BOOL, True, _HTTP2),
    _ignored("http2-max-streams-per-connection", INT, 0, _HTTP2, not_negative),
    _ignored("tls-curve-preferences", INTEGERS, (), _CURVES),
    _ignored("tls-sni-cert-key", STRING, "", _ONE_CERTIFICATE, _NAMED_PAIR),
    _ignored("permit-address-sharing", BOOL, True, _ADDRESS),
    _ignored("requestheader-allowed-names", LIST, (), _HEADERS),
    _ignored("requestheader-client-ca-file", PATH, "", _HEADERS),
    _ignored("requestheader-extra-headers-prefix", LIST, (), _HEADERS),
    _ignored("requestheader-group-headers", LIST, (), _HEADERS),
    _ignored("requestheader-uid-headers", LIST, (), _HEADERS),
    _ignored("requestheader-username-headers", LIST, (), _HEADERS),
    _ignored("webhook-disable-http2-serving", BOOL, True, _HTTP2),
    _ignored("webhook-tls-curve-preferences", INTEGERS, (), _CURVES),
    _ignored("webhook-tls-sni-cert-key", STRING, "", _ONE_CERTIFICATE, _NAMED_PAIR),
    _ignored("min-resync-period", DURATION, 0.0, _RESYNC, not_negative, configz="Generic.MinResyncPeriod"),
    _ignored("node-sync-period", DURATION, 0.0, _NODE_SYNC, not_negative, configz="KubeCloudShared.NodeSyncPeriod"),
    _ignored("external-cloud-volume-plugin", STRING, "", _VOLUMES, configz="KubeCloudShared.ExternalCloudVolumePlugin"),
    _ignored("log-flush-frequency", DURATION, 0.0, _LOGS, not_negative),
    _ignored("log-text-info-buffer-size", STRING, "0", _LOGS, _matching(_QUANTITY, "512, 4Ki or 1M")),
    _ignored("log-text-split-stream", BOOL, False, _LOGS),
    _ignored("vmodule", STRING, "", _LOGS, _matching(_PATTERNS, "PATTERN=N,...")),
    _ignored("contention-profiling", BOOL, False, _PROFILING, configz="Generic.Debugging.enableContentionProfiling"),
    Ignored(
        Flag("feature-gates", SWITCHES, {}, SECTION, f"{_GATES}.", gates_problem, note=gates_note),
        _GATES,
    ),
)
"""In Go's order of sections; the table of all of Go's flags is `tests/support/gomanager.py`."""

_PLAIN = "leave it out; HTTPS: --{}, plain HTTP for probes and metrics: --health-bind-address=ADDRESS:PORT"
_ONE_STREAM = "leave it out: log lines go to standard error alone, which can be redirected"
_LINES = "leave it out: lines have klog's header, or one JSON object each (--logging-format=json)"

_TWO_ANSWERS = "leave it out: a node is deleted after two answers, a --node-monitor-period apart"
_HELD_BACK = "leave it out: above --node-deletion-limit one node is deleted a minute, or all by SIGUSR1"

REMOVED: dict[str, str] = {
    **dict.fromkeys(("node-deletion-confirmations", "node-deletion-confirmation-period"), _TWO_ANSWERS),
    **dict.fromkeys(("node-deletion-trickle", "node-deletion-release-after"), _HELD_BACK),
    "node-deletion-limit-share": "leave it out: it is half of the nodes; see --node-deletion-limit",
    "node-deletion-witnesses": "leave it out: up to thirty Ready nodes of a zone are asked about",
    "node-deletion-ready-grace": "leave it out: a node waits until those said to be gone too are NotReady",
    "node-state-unknown-event-after": "leave it out: the Event comes after five minutes",
    "address": _PLAIN.format("bind-address"),
    "port": _PLAIN.format("secure-port"),
    "register-retry-count": "leave it out: this program waits for the API server",
    "experimental-logging-sanitization": "leave it out: what looks like a secret is never logged",
    **dict.fromkeys(
        ("logtostderr", "alsologtostderr", "log-dir", "log-file", "log-file-max-size", "stderrthreshold", "one-output"),
        _ONE_STREAM,
    ),
    **dict.fromkeys(("add-dir-header", "skip-headers", "skip-log-headers", "log-backtrace-at"), _LINES),
}
"""Flags that older Go managers, or earlier versions of this one, had, and what to do instead."""
