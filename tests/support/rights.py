"""An identity that lacks one right of those that the shipped RBAC manifest gives the manager, on
both API servers.

The real server decides by RBAC: the identity's ClusterRole is the manifest's without the one verb.
The embedded server knows no RBAC: there the one right is denied.
"""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from attrs import frozen

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.lab.envtest.server import RESTRICTED_USER, RealAPIServer
from tests.support.api import API, JSON, NAMESPACES

RBAC = Path(__file__).parents[2] / "examples" / "deploy" / "kustomize" / "base" / "rbac.yaml"
SERVICE_ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
GROUP = "rbac.authorization.k8s.io"
ROLES = f"/apis/{GROUP}/v1/clusterroles"
BINDINGS = f"/apis/{GROUP}/v1/clusterrolebindings"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ServiceAccount": SERVICE_ACCOUNTS,
    "ClusterRole": ROLES,
    "ClusterRoleBinding": BINDINGS,
    "Role": f"/apis/{GROUP}/v1/namespaces/{{namespace}}/roles",
    "RoleBinding": f"/apis/{GROUP}/v1/namespaces/{{namespace}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{POLICIES}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{POLICIES}/validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": f"{POLICIES}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"{POLICIES}/mutatingadmissionpolicybindings",
    "MutatingWebhookConfiguration": f"{POLICIES}/mutatingwebhookconfigurations",
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
        admin.create(place(document), document)


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

    def grant() -> None:
        admin.patch(f"{ROLES}/{RESTRICTED_USER}", {"rules": full})
        _await(own, verb, resource, allowed=True)

    with bound(admin, {"": [rule for rule in rules if rule["verbs"]]}):
        # The server's authorizer follows the objects by a watch of its own.
        _await(own, "list", "nodes", allowed=True)
        yield Restricted(server.write_kubeconfig(kubeconfig, token=server.restricted_token), grant)
    _await(own, "list", "nodes", allowed=False)


@contextmanager
def bound(admin: API, rules: Mapping[str, Sequence[JSON]]) -> Iterator[None]:
    """The restricted identity has these rules, by namespace ("" for all), in the body of a with
    statement."""
    documents: list[JSON] = []
    for namespace, own in rules.items():
        kind = "Role" if namespace else "ClusterRole"
        about: JSON = {"apiVersion": f"{GROUP}/v1", "metadata": {"name": RESTRICTED_USER}}
        if namespace:
            about["metadata"]["namespace"] = namespace
        reference = {"apiGroup": GROUP, "kind": kind, "name": RESTRICTED_USER}
        documents.append({**about, "kind": kind, "rules": own})
        documents.append({**about, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [user(RESTRICTED_USER)]})
    with created(admin, documents):
        yield


@contextmanager
def created(admin: API, documents: Iterable[JSON]) -> Iterator[None]:
    """These objects of the kinds in `PATHS` exist in the body of a with statement."""
    with ExitStack() as ends:
        for one in documents:
            path = place(one)
            admin.create(path, one)
            ends.callback(admin.delete, f"{path}/{one['metadata']['name']}")
        yield


def place(document: JSON) -> str:
    """The collection that an object belongs to."""
    return PATHS[document["kind"]].format(namespace=document["metadata"].get("namespace"))


def user(name: str) -> JSON:
    """The subject of a binding."""
    return {"apiGroup": GROUP, "kind": "User", "name": name}


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
