"""An identity that lacks one right of those that the shipped RBAC manifest gives the manager, on
both API servers.

The real server decides by RBAC: the identity's ClusterRole is the manifest's without the one verb.
The embedded server knows no RBAC: there the one right is denied.
"""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from attrs import frozen

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.envtest.server import RESTRICTED_USER, RealAPIServer
from tests.support.api import API, NAMESPACES

RBAC = Path(__file__).parents[2] / "examples" / "deploy" / "kustomize" / "base" / "rbac.yaml"
SERVICE_ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
PATHS = {
    "ServiceAccount": SERVICE_ACCOUNTS,
    "ClusterRole": ROLES,
    "ClusterRoleBinding": BINDINGS,
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@frozen
class Restricted:
    """The identity: its `kubeconfig`, and `grant`, which gives it the right that it lacks."""

    kubeconfig: Path
    grant: Callable[[], None]


def await_namespaces(admin: API) -> None:
    """Wait until a fresh server has made its system namespaces."""
    wanted = ("kube-system", "default")
    eventually(lambda: all(admin.find(f"{NAMESPACES}/{name}") for name in wanted), 60, "no system namespaces")


def apply_rbac(admin: API) -> None:
    """Create everything that the shipped RBAC manifest holds."""
    for document in yaml.safe_load_all(RBAC.read_text()):
        path = PATHS[document["kind"]].format(namespace=document["metadata"].get("namespace"))
        admin.create(path, document)


@contextmanager
def restricted(
    admin: API, server: EmbeddedAPIServer | RealAPIServer, verb: str, resource: str, kubeconfig: Path
) -> Iterator[Restricted]:
    """The identity for the body of a with statement; it has no rights any more afterwards."""
    if isinstance(server, RealAPIServer):
        yield from _by_rbac(admin, server, verb, resource, kubeconfig)
        return
    token = secrets.token_hex(16)
    server.access.add_user(token, RESTRICTED_USER)
    rule = server.access.deny(user=re.escape(RESTRICTED_USER), verb=verb, resource=resource)
    yield Restricted(server.write_kubeconfig(kubeconfig, token=token), lambda: server.access.allow_again(rule))
    server.access.revoke(token)


def _by_rbac(admin: API, server: RealAPIServer, verb: str, resource: str, kubeconfig: Path) -> Iterator[Restricted]:
    own = API(server.url, server.restricted_token, server.ca_file)
    # The Roles are in this one ClusterRole too: what the manager may in one namespace, this
    # identity may in all.
    full = [rule for one in yaml.safe_load_all(RBAC.read_text()) for rule in one.get("rules", ())]
    rules = copy.deepcopy(full)
    for rule in rules:
        if resource in rule["resources"]:
            rule["verbs"] = [other for other in rule["verbs"] if other != verb]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": RESTRICTED_USER},
        "rules": [rule for rule in rules if rule["verbs"]],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": RESTRICTED_USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": RESTRICTED_USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": RESTRICTED_USER}],
    }

    def grant() -> None:
        admin.patch(f"{ROLES}/{RESTRICTED_USER}", {"rules": full})
        _await(own, verb, resource, allowed=True)

    try:
        admin.create(ROLES, role)
        admin.create(BINDINGS, binding)
        # The server's authorizer follows the objects by a watch of its own.
        _await(own, "list", "nodes", allowed=True)
        yield Restricted(server.write_kubeconfig(kubeconfig, token=server.restricted_token), grant)
    finally:
        admin.delete(f"{BINDINGS}/{RESTRICTED_USER}")
        admin.delete(f"{ROLES}/{RESTRICTED_USER}")
        _await(own, "list", "nodes", allowed=False)


def _await(own: API, verb: str, resource: str, *, allowed: bool) -> None:
    eventually(lambda: _may(own, verb, resource) is allowed, message=f"{verb} {resource}: {allowed}")


def _may(own: API, verb: str, resource: str) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": name, "subresource": subresource}
    review: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(own.create(_REVIEWS, review)["status"]["allowed"])
