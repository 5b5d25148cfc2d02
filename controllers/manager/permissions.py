"""What the API server must allow: the manager's own permissions, and who has which. No I/O.

With --use-service-account-credentials each controller has an account of its own. The caches are
shared and the manager's own, as in Go, so the manager lists and watches; everything else a
controller does as the service account of its client's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve

from controllers.endpoints.reviews import SERVING_RULES
from controllers.registration.entry import ControllerEntry, Rule
from controllers.registration.options import LeaderElectionOptions
from controllers.runtime.cache import ENDPOINT_SLICES, InformerFactory

NAMESPACE: Final = "kube-system"
PROVIDER_ACCOUNTS: Final = ("cloud-provider",)
"""The names that providers give their clients, by custom."""

_CACHED: Final = ("list", "watch")
_CLUSTER_IDENTITY = Rule(
    resource="namespaces",
    verbs=("get",),
    names=("kube-system",),
    consequence="providers cannot tell clusters with the same name apart",
)
SLICES = Rule(
    group="discovery.k8s.io",
    resource="endpointslices",
    verbs=("list", "watch"),
    consequence="no controller starts, as the provider reads EndpointSlices",
)
"""Where the provider asks for `Listers.endpoint_slices`."""
_UNSERVED = Rule(
    resource="services",
    verbs=("list",),
    consequence="while the service controller is off, deleted Services that wait for it are not reported",
)


def common_rules(election: LeaderElectionOptions | None = None, migration_lease: str = "") -> tuple[Rule, ...]:
    """What the manager itself uses. Without most of it it works, a little worse: so it is all
    granted by the manifest, and who asks for it warns when it is missing; the check at the start
    looks for `election_rules` and `migration_rules` alone. `migration_lease` is the second lease of
    a leader migration, if there is one."""
    election = election or LeaderElectionOptions()
    rules = (_CLUSTER_IDENTITY, _UNSERVED, *SERVING_RULES, *election_rules(election))
    if not election.leader_elect:
        return rules
    late = "a released lease is taken over a few seconds later"
    rules = (*rules, _lease(election, ("watch",), late))
    if not migration_lease:
        return rules
    second = evolve(election, resource_name=migration_lease)
    return (*rules, *migration_rules(election, migration_lease), _lease(second, ("watch",), late))


def provider_rules(informers: InformerFactory) -> tuple[Rule, ...]:
    """What the caches need that only a provider asks for, if it did."""
    asked = informers.find(ENDPOINT_SLICES.prefix, ENDPOINT_SLICES.plural) is not None
    return (SLICES,) if asked else ()


def migration_rules(election: LeaderElectionOptions, lease: str) -> tuple[Rule, ...]:
    """What a leader migration cannot do without, beside the election's own."""
    second = evolve(election, resource_name=lease)
    return (_lease(second, ("get", "create", "update"), "the controllers that move never run here"),)


def election_rules(election: LeaderElectionOptions) -> tuple[Rule, ...]:
    """What leader election cannot do without; nothing when there is none."""
    if not election.leader_elect:
        return ()
    return (
        _lease(election, ("get", "create", "update"), "no replica ever leads, so nothing is done"),
        Rule(
            resource="events",
            verbs=("create", "patch"),
            namespace=election.resource_namespace,
            consequence="no Event says which replica leads",
        ),
    )


def _lease(election: LeaderElectionOptions, verbs: tuple[str, ...], consequence: str) -> Rule:
    return Rule(
        group="coordination.k8s.io",
        resource="leases",
        verbs=verbs,
        namespace=election.resource_namespace,
        names=(election.resource_name,),
        consequence=consequence,
    )


def of_caches(entry: ControllerEntry) -> ControllerEntry:
    """The entry with those rules alone that the shared caches need."""
    return evolve(entry, rules=_with_verbs(entry, cached=True))


def accounts_of(entries: Sequence[ControllerEntry]) -> dict[str, list[ControllerEntry]]:
    """Each service account that these controllers use, with their needs. Several can share one."""
    found: dict[str, list[ControllerEntry]] = {}
    for entry in entries:
        if own := _with_verbs(entry, cached=False):
            found.setdefault(entry.account, []).append(evolve(entry, rules=own))
    return found


def token_rule(accounts: Sequence[str]) -> Rule:
    """What the manager needs to get the tokens of these accounts."""
    return Rule(
        resource="serviceaccounts/token",
        verbs=("create",),
        namespace=NAMESPACE,
        names=tuple(accounts),
        consequence="controllers get no tokens for their service accounts, so they cannot change anything",
    )


def required_permissions(entries: Sequence[ControllerEntry]) -> list[Rule]:
    """Every rule, with the account that needs it; for the check at the start."""
    accounts = accounts_of(entries)
    rules = [token_rule([name]) for name in accounts]
    rules += [rule for entry in entries for rule in of_caches(entry).rules]
    for name, own in accounts.items():
        rules += [evolve(rule, account=name) for entry in own for rule in entry.rules]
    return rules


def _with_verbs(entry: ControllerEntry, *, cached: bool) -> tuple[Rule, ...]:
    parts = [
        evolve(rule, verbs=tuple(verb for verb in rule.verbs if (verb in _CACHED) is cached)) for rule in entry.rules
    ]
    return tuple(rule for rule in parts if rule.verbs)
