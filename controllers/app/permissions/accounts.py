"""Who needs which permission with --use-service-account-credentials: the manager, or a controller's service account.

Stage: before the first one, no I/O. Data comes from the rules in the controllers' entries; it goes to the RBAC manifest
(`controllers/app/rbac.py`) and to the check at the start (`check.py`). The caches are shared and the manager's own, as
in Go, so it lists and watches; everything else a controller does as the service account of its client's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from controllers.app.entry import ControllerEntry, Rule

NAMESPACE: Final = "kube-system"
PROVIDER_ACCOUNTS: Final = ("cloud-provider",)
"""The names that providers give their clients, by custom."""

_CACHED: Final = ("list", "watch")


def of_caches(entry: ControllerEntry) -> ControllerEntry:
    """The entry with those rules alone that the shared caches need."""
    return attrs.evolve(entry, rules=_with_verbs(entry, cached=True))


def of_itself(entry: ControllerEntry) -> ControllerEntry:
    """The entry with those rules alone that its own service account needs."""
    return attrs.evolve(entry, rules=_with_verbs(entry, cached=False))


def accounts_of(entries: Sequence[ControllerEntry]) -> dict[str, list[ControllerEntry]]:
    """Each service account that these controllers use, with what they need of it. Several can share one."""
    found: dict[str, list[ControllerEntry]] = {}
    for entry in map(of_itself, entries):
        if entry.rules:
            found.setdefault(entry.account, []).append(entry)
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


def asked_rights(entries: Sequence[ControllerEntry]) -> list[Rule]:
    """Every rule, with the account that needs it; for the check at the start."""
    accounts = accounts_of(entries)
    rules = [token_rule([name]) for name in accounts]
    rules += [rule for entry in entries for rule in of_caches(entry).rules]
    for name, own in accounts.items():
        rules += [attrs.evolve(rule, account=name) for entry in own for rule in entry.rules]
    return rules


def _with_verbs(entry: ControllerEntry, *, cached: bool) -> tuple[Rule, ...]:
    parts = [
        attrs.evolve(rule, verbs=tuple(verb for verb in rule.verbs if (verb in _CACHED) is cached))
        for rule in entry.rules
    ]
    return tuple(rule for rule in parts if rule.verbs)
