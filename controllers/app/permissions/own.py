"""The permissions of the manager itself, whichever controllers run: for the manifest and for the check at the start.

Stage: before the first one, no I/O. Data comes from the options; it goes to `controllers/app/rbac.py` and
`controllers/app/pages/reference.py`, which write down what should be granted, and to `check.py`, which looks for what
must be. The controllers' rules are in their entries; who needs which of them with service accounts says `accounts.py`.
"""

from __future__ import annotations

from attrs import evolve

from controllers.app.entry import Rule
from controllers.app.options import LeaderElectionOptions
from controllers.app.serving.rights import SERVING_RULES

__all__ = ["common_rules", "election_rules", "migration_rules"]

_CLUSTER_IDENTITY = Rule(
    resource="namespaces",
    verbs=("get",),
    names=("kube-system",),
    consequence="providers cannot tell clusters with the same name apart",
)


def common_rules(election: LeaderElectionOptions | None = None, migration_lease: str = "") -> tuple[Rule, ...]:
    """What the manager itself uses. Without most of it it works, a little worse: so it is all granted by the manifest,
    and who asks for it warns when it is missing; the check at the start looks for `election_rules` and
    `migration_rules` alone. `migration_lease` is the second lease of a leader migration, if there is one."""
    election = election or LeaderElectionOptions()
    rules = (_CLUSTER_IDENTITY, *SERVING_RULES, *election_rules(election))
    if not election.leader_elect:
        return rules
    late = "a released lease is taken over a few seconds later"
    rules = (*rules, _lease(election, ("watch",), late))
    if not migration_lease:
        return rules
    second = evolve(election, resource_name=migration_lease)
    return (*rules, *migration_rules(election, migration_lease), _lease(second, ("watch",), late))


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
