"""The feature gates of the Go cloud-controller-manager: which names --feature-gates takes, and what
each means here. Pure data.

Nothing is switched by a gate: what it would turn on is either always done or not there, and a
warning at the start says which. Names and fixed values are those of Kubernetes 1.37; another name
is an error, as in Go."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from controllers.options.kinds import display


@attrs.frozen
class Gate:
    """One gate. `done` is what this program does, whatever is given; None where neither value means
    anything here."""

    done: bool | None
    meaning: str
    fixed: bool | None = None
    """The only value that Go takes for it."""


_LOGS = "log lines are written in one way"
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
    "ContextualLogging": Gate(None, _LOGS),
    "LoggingAlphaOptions": Gate(None, _LOGS),
    "LoggingBetaOptions": Gate(None, _LOGS),
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


def problem(given: Mapping[str, bool]) -> str | None:
    """What Go refuses about these gates, or None."""
    wrong = [f"there is no feature gate {display(name)!r}" for name in given if name not in GATES]
    for name, on in given.items():
        fixed = GATES[name].fixed if name in GATES else None
        if fixed is not None and on is not fixed:
            wrong.append(f"{name} can only be {'true' if fixed else 'false'}")
    return "; ".join(wrong) or None


def without_effect(given: Mapping[str, bool]) -> str | None:
    """Which gates ask for something else than what is done, and that; None where none does."""
    found = [f"{name} ({GATES[name].meaning})" for name, on in given.items() if on is not GATES[name].done]
    return f"has no effect: {', '.join(found)}" if found else None
