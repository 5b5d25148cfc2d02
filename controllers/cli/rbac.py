"""The RBAC manifest: exactly what the enabled controllers do, generated from the rules in their
entries. `examples/deploy/kustomize/base/rbac.yaml` is what this prints for all controllers; with
--chart it prints who needs what, from which the Helm chart makes the roles:

    python -m controllers.cli.rbac --controllers='*,-node-route-controller' | kubectl apply -f -
    python -m controllers.cli.rbac --chart > examples/deploy/chart/files/permissions.yaml

Rules for one namespace become a Role there, unless a rule for all namespaces covers them. Objects
known by their name are granted by name; `create` stands apart, as RBAC cannot limit it by name.
Follows https://kubernetes.io/docs/reference/access-authn-authz/rbac/."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Sequence

import attrs

from controllers.catalog import CATALOG
from controllers.manager import migration
from controllers.manager.permissions import (
    NAMESPACE,
    PROVIDER_ACCOUNTS,
    SLICES,
    accounts_of,
    common_rules,
    of_caches,
    token_rule,
)
from controllers.options.declare import flags_of
from controllers.program import PROGRAM
from controllers.registration.entry import ControllerEntry, Rule, enabled, problems_of
from controllers.registration.options import LeaderElectionOptions
from controllers.webhooks.rbac_rules import SECRET, WEBHOOK_RULES, policy_for

ACCOUNT = PROGRAM
ROLE = f"system:{PROGRAM}"
MANAGER = "the manager"
PROVIDER = "the provider"
_GROUP = "rbac.authorization.k8s.io"
_ELECTION_FLAGS = ("leader-elect", "leader-elect-resource-name", "leader-elect-resource-namespace")
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "approve")

COMMON_RULES = common_rules()
"""What the manager itself uses with the default flags, whichever controllers run."""


@attrs.frozen
class Grant:
    """One rule of a Role (in `namespace`) or of the ClusterRole, and which controllers need it."""

    namespace: str
    group: str
    resource: str
    names: tuple[str, ...]
    verbs: tuple[str, ...]
    needed_by: tuple[str, ...]


@attrs.frozen
class Need:
    """One verb of one rule: who needs it, and who has it by a wider rule."""

    namespace: str
    group: str
    resource: str
    names: tuple[str, ...]
    verb: str
    needed_by: tuple[str, ...]
    unless: tuple[str, ...]

    @property
    def where(self) -> tuple[str, str, str, tuple[str, ...]]:
        """What a rule is about, without its verbs."""
        return self.namespace, self.group, self.resource, self.names


def needs(
    entries: Sequence[ControllerEntry], common: tuple[Rule, ...] = COMMON_RULES, provider: tuple[Rule, ...] = ()
) -> list[Need]:
    """Every verb that these controllers and the manager need, and the caches that the provider asks
    for; sorted. Pure."""
    wanted: dict[tuple[str, str, str, tuple[str, ...], str], list[str]] = {}
    own = [(entry.name, entry.rules) for entry in entries]
    for who, rules in [(MANAGER, common), (PROVIDER, provider), *own]:
        for rule in rules:
            for verb in rule.verbs:
                place = (rule.namespace, rule.group, rule.resource, rule.named(verb), verb)
                wanted.setdefault(place, []).append(who)
    found = []
    for place, needed_by in sorted(wanted.items()):
        namespace, group, resource, names, verb = place
        wider = {("", names), (namespace, ()), ("", ())} - {(namespace, names)}
        covering = [who for where, of in wider for who in wanted.get((where, group, resource, of, verb), ())]
        found.append(Need(*place, _ordered(needed_by, entries), _ordered(covering, entries)))
    return found


def grants(
    entries: Sequence[ControllerEntry], common: tuple[Rule, ...] = COMMON_RULES, provider: tuple[Rule, ...] = ()
) -> list[Grant]:
    """The rules of these controllers, of the manager itself and of the provider's caches, merged.
    Pure."""
    every = needs(entries, common, provider)
    merged: dict[tuple[str, str, str, tuple[str, ...]], list[Need]] = {}
    for need in every:
        if not need.unless:
            merged.setdefault(need.where, []).append(need)
    found = []
    for where, own in merged.items():
        namespace, group, resource, names = where
        verbs = tuple(sorted((need.verb for need in own), key=_VERBS.index))
        needed_by = [
            who
            for need in every
            if (need.group, need.resource) == (group, resource)
            and need.verb in verbs
            and namespace in ("", need.namespace)
            and (not names or names == need.names)
            for who in need.needed_by
        ]
        found.append(Grant(*where, verbs, _ordered(needed_by, entries)))
    return found


def _ordered(who: Iterable[str], entries: Sequence[ControllerEntry]) -> tuple[str, ...]:
    """These, each once: the manager, the provider, then the controllers in their order."""
    chosen = set(who)
    return tuple(name for name in (MANAGER, PROVIDER, *(entry.name for entry in entries)) if name in chosen)


def manifest(
    entries: Sequence[ControllerEntry],
    provider_accounts: Sequence[str] | None = None,
    common: tuple[Rule, ...] = COMMON_RULES,
    provider: tuple[Rule, ...] = (),
) -> str:
    """The YAML documents: the service account, its roles, and their bindings. Pure.

    With `provider_accounts`, the names that the provider gives its clients, it is for the manager's
    flag --use-service-account-credentials: each controller has an account with roles of its own,
    and the provider's accounts have none.
    """
    if provider_accounts is None:
        documents = _documents(ACCOUNT, grants(entries, common, provider))
    else:
        accounts = accounts_of(entries)
        tokens = token_rule(list(dict.fromkeys([*accounts, *provider_accounts])))
        documents = _documents(ACCOUNT, grants([of_caches(entry) for entry in entries], (*common, tokens), provider))
        for name in tokens.names:
            documents += _documents(name, grants(accounts.get(name, []), ()))
    names = ", ".join(entry.name for entry in entries)
    return (
        "# What the cloud-controller-manager may do: no more than it does. Generated, so do not edit it here:\n"
        "#   python -m controllers.cli.rbac > examples/deploy/kustomize/base/rbac.yaml\n"
        f"# Controllers: {names}.\n"
        "# What a provider does in the cluster by itself comes on top: see its documentation.\n"
    ) + "---\n".join(documents)


def chart_permissions(entries: Sequence[ControllerEntry]) -> str:
    """The Helm chart's YAML of roles: the controllers, and who needs which verb. Pure."""
    lines = [
        "# Who needs which permission: templates/permissions.yaml makes roles from it. Generated, do not edit it here:",
        "#   python -m controllers.cli.rbac --chart > examples/deploy/chart/files/permissions.yaml",
        "controllers:",
    ]
    for entry in entries:
        on = "true" if entry.on_by_default else "false"
        lines.append(f"  - {{name: {entry.name}, aliases: [{', '.join(entry.aliases)}], onByDefault: {on}}}")
    lines.append("# A verb is granted if one of `neededBy` runs, and none of `unless`, which have it by a wider rule.")
    lines.append("rules:")
    every = needs(entries, provider=(SLICES,))
    for (namespace, group, resource, names), own in itertools.groupby(every, key=lambda need: need.where):
        lines.append(f'  - namespace: "{namespace}"')
        lines.append(f'    group: "{group}"')
        lines.append(f"    resource: {resource}")
        lines += [f"    names: [{', '.join(names)}]"] * bool(names)
        lines.append("    verbs:")
        for need in sorted(own, key=lambda need: _VERBS.index(need.verb)):
            unless = f", unless: [{', '.join(need.unless)}]" if need.unless else ""
            lines.append(f"      - {{verb: {need.verb}, neededBy: [{', '.join(need.needed_by)}]{unless}}}")
    return "\n".join(lines) + "\n"


def _documents(account: str, found: Sequence[Grant]) -> list[str]:
    """One service account with its roles."""
    role = ROLE if account == ACCOUNT else f"{ROLE}:{account}"
    documents = [_object("v1", "ServiceAccount", account, NAMESPACE)]
    for namespace in sorted({grant.namespace for grant in found}):
        own = [grant for grant in found if grant.namespace == namespace]
        documents += [_role(role, namespace, own), _binding(role, account, namespace)]
    return documents


def _object(version: str, kind: str, name: str, namespace: str) -> str:
    place = f"  namespace: {namespace}\n" if namespace else ""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name}\n{place}"


def _role(role: str, namespace: str, own: Iterable[Grant]) -> str:
    lines = [_object(f"{_GROUP}/v1", "Role" if namespace else "ClusterRole", role, namespace) + "rules:"]
    for grant in own:
        lines.append(f"  # For {', '.join(grant.needed_by)}.")
        lines.append(f'  - apiGroups: ["{grant.group}"]')
        lines.append(f"    resources: [{grant.resource}]")
        if grant.names:
            lines.append(f"    resourceNames: [{', '.join(grant.names)}]")
        lines.append(f"    verbs: [{', '.join(grant.verbs)}]")
    return "\n".join(lines) + "\n"


def _binding(role: str, account: str, namespace: str) -> str:
    return (
        _object(f"{_GROUP}/v1", "RoleBinding" if namespace else "ClusterRoleBinding", role, namespace)
        + f"roleRef:\n  apiGroup: {_GROUP}\n  kind: {'Role' if namespace else 'ClusterRole'}\n  name: {role}\n"
        + f"subjects:\n  - kind: ServiceAccount\n    name: {account}\n    namespace: {NAMESPACE}\n"
    )


def main(argv: Sequence[str] | None = None, catalog: Sequence[ControllerEntry] = CATALOG) -> int:
    """Print the manifest; returns the exit code. A vendor may pass a longer `catalog`."""
    parser = argparse.ArgumentParser(
        prog="python -m controllers.cli.rbac", description="Prints the RBAC manifest of the enabled controllers."
    )
    parser.add_argument("--controllers", default="*", help='as for the manager (default "*")')
    parser.add_argument("--chart", action="store_true", help="print what the Helm chart needs, for all controllers")
    parser.add_argument(
        "--use-service-account-credentials", action="store_true", help="a service account for each controller"
    )
    parser.add_argument(
        "--provider-accounts",
        default=",".join(PROVIDER_ACCOUNTS),
        help="with it: the names that the provider gives its clients (default %(default)r)",
    )
    for flag in flags_of(LeaderElectionOptions):
        if flag.name in _ELECTION_FLAGS:
            parser.add_argument(
                f"--{flag.name}",
                type=flag.kind.parse,
                default=flag.default,
                metavar=flag.kind.metavar,
                help=f"as for the manager (default {flag.kind.show(flag.default)})",
            )
    parser.add_argument("--endpoint-slices", action="store_true", help="the provider reads EndpointSlices")
    parser.add_argument("--webhooks", action="store_true", help="webhooks are served with a self-signed certificate")
    parser.add_argument("--enable-leader-migration", action="store_true", help="as for the manager")
    parser.add_argument("--leader-migration-config", default="", metavar="PATH", help="as for the manager")
    given = parser.parse_args(argv)
    if given.chart:
        print(chart_permissions(catalog), end="")
        return 0
    words = [word.strip() for word in given.controllers.split(",") if word.strip()]
    problems = [f"--controllers: {problem}" for problem in problems_of(words, catalog)]
    migration_lease = ""
    if given.enable_leader_migration:
        try:
            migration_lease = migration.read(given.leader_migration_config).lease
        except migration.MigrationProblems as error:
            problems += [f"--leader-migration-config: {problem}" for problem in error.problems]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    of_provider = [word.strip() for word in given.provider_accounts.split(",") if word.strip()]
    chosen = enabled(words, catalog)
    election = LeaderElectionOptions(
        leader_elect=given.leader_elect,
        resource_name=given.leader_elect_resource_name,
        resource_namespace=given.leader_elect_resource_namespace,
    )
    accounts = of_provider if given.use_service_account_credentials else None
    common = common_rules(election, migration_lease) + (WEBHOOK_RULES if given.webhooks else ())
    print(manifest(chosen, accounts, common, (SLICES,) if given.endpoint_slices else ()), end="")
    if given.webhooks:
        print("---\n".join(["", SECRET, policy_for(f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
