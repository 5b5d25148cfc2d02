"""The RBAC manifest: exactly what the enabled controllers do, generated from the rules in their entries.

Stage: before the first one, no I/O. Data comes from the catalog's rules, which the check at the start asks about too
(`access.py`); it goes to `kubectl apply`. `examples/manifests/rbac.yaml` is what this prints for all controllers:

    python -m controllers.app.rbac --controllers='*,-node-route-controller' | kubectl apply -f -

Rules for one namespace become a Role there, unless a rule for all namespaces covers them. Objects known by their name
are granted by name; `create` stands apart, as RBAC cannot limit it by name. Follows
https://kubernetes.io/docs/reference/access-authn-authz/rbac/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

import attrs

from controllers.app.catalog import CATALOG
from controllers.app.entry import ControllerEntry, Rule, enabled, problems_of

__all__ = ["grants", "main", "manifest"]

ACCOUNT = "cloud-controller-manager"
NAMESPACE = "kube-system"
ROLE = "system:cloud-controller-manager"
_GROUP = "rbac.authorization.k8s.io"
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")

COMMON_RULES: tuple[Rule, ...] = (
    Rule(
        resource="namespaces",
        verbs=("get",),
        names=("kube-system",),
        consequence="providers cannot tell clusters with the same name apart",
    ),
)
"""What the manager itself uses, whichever controllers run. It works without, a little worse: so it is granted by the
manifest, and nobody is warned at the start; who asks for it warns when it is missing."""


@attrs.frozen(kw_only=True)
class Grant:
    """One rule of a Role (in `namespace`) or of the ClusterRole, and which controllers need it."""

    namespace: str
    group: str
    resource: str
    names: tuple[str, ...]
    verbs: tuple[str, ...]
    needed_by: tuple[str, ...]


def grants(entries: Sequence[ControllerEntry]) -> list[Grant]:
    """The rules of these controllers and of the manager itself, merged, without what another one covers. Pure."""
    wanted: dict[tuple[str, str, str, tuple[str, ...], str], list[str]] = {}
    sources = [("the manager", COMMON_RULES), *((entry.name, entry.rules) for entry in entries)]
    for who, rules in sources:
        for rule in rules:
            for verb in rule.verbs:
                names = () if verb == "create" else rule.names
                needed_by = wanted.setdefault((rule.namespace, rule.group, rule.resource, names, verb), [])
                if who not in needed_by:
                    needed_by.append(who)
    for (namespace, group, resource, names, verb), needed_by in list(wanted.items()):
        for wider in {("", names), (namespace, ()), ("", ())} - {(namespace, names)}:
            covering = wanted.get((wider[0], group, resource, wider[1], verb))
            if covering is not None:
                covering += [who for who in needed_by if who not in covering]
                wanted.pop((namespace, group, resource, names, verb), None)
    merged: dict[tuple[str, str, str, tuple[str, ...]], dict[str, list[str]]] = {}
    for (namespace, group, resource, names, verb), needed_by in wanted.items():
        merged.setdefault((namespace, group, resource, names), {})[verb] = needed_by
    order = [who for who, _ in sources]
    return [
        Grant(
            namespace=namespace,
            group=group,
            resource=resource,
            names=names,
            verbs=tuple(sorted(verbs, key=_VERBS.index)),
            needed_by=tuple(who for who in order if any(who in by for by in verbs.values())),
        )
        for (namespace, group, resource, names), verbs in sorted(merged.items())
    ]


def manifest(entries: Sequence[ControllerEntry]) -> str:
    """The YAML documents: the service account, its roles, and their bindings. Pure."""
    found = grants(entries)
    documents = [_object("v1", "ServiceAccount", ACCOUNT, NAMESPACE)]
    for namespace in sorted({grant.namespace for grant in found}):
        own = [grant for grant in found if grant.namespace == namespace]
        documents += [_role(namespace, own), _binding(namespace)]
    names = ", ".join(entry.name for entry in entries)
    return (
        "# What the cloud-controller-manager may do: no more than it does. Generated, so do not edit it here:\n"
        "#   python -m controllers.app.rbac > examples/manifests/rbac.yaml\n"
        f"# Controllers: {names}.\n"
        "# What a provider does in the cluster by itself comes on top: see its documentation.\n"
    ) + "---\n".join(documents)


def _object(version: str, kind: str, name: str, namespace: str) -> str:
    place = f"  namespace: {namespace}\n" if namespace else ""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name}\n{place}"


def _role(namespace: str, own: Iterable[Grant]) -> str:
    lines = [_object(f"{_GROUP}/v1", "Role" if namespace else "ClusterRole", ROLE, namespace) + "rules:"]
    for grant in own:
        lines.append(f"  # For {', '.join(grant.needed_by)}.")
        lines.append(f'  - apiGroups: ["{grant.group}"]')
        lines.append(f"    resources: [{grant.resource}]")
        if grant.names:
            lines.append(f"    resourceNames: [{', '.join(grant.names)}]")
        lines.append(f"    verbs: [{', '.join(grant.verbs)}]")
    return "\n".join(lines) + "\n"


def _binding(namespace: str) -> str:
    return (
        _object(f"{_GROUP}/v1", "RoleBinding" if namespace else "ClusterRoleBinding", ROLE, namespace)
        + f"roleRef:\n  apiGroup: {_GROUP}\n  kind: {'Role' if namespace else 'ClusterRole'}\n  name: {ROLE}\n"
        + f"subjects:\n  - kind: ServiceAccount\n    name: {ACCOUNT}\n    namespace: {NAMESPACE}\n"
    )


def main(argv: Sequence[str] | None = None, catalog: Sequence[ControllerEntry] = CATALOG) -> int:
    """Print the manifest; returns the exit code. A vendor with controllers of its own passes a longer `catalog`."""
    parser = argparse.ArgumentParser(
        prog="python -m controllers.app.rbac", description="Prints the RBAC manifest of the enabled controllers."
    )
    parser.add_argument("--controllers", default="*", help='as for the manager (default "*")')
    words = [word.strip() for word in parser.parse_args(argv).controllers.split(",") if word.strip()]
    problems = problems_of(words, catalog)
    if problems:
        print("\n".join(f"--controllers: {problem}" for problem in problems), file=sys.stderr)
        return 2
    print(manifest(enabled(words, catalog)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
