"""Discovery and health: /version, /api, /apis and their resources, /healthz, /livez, /readyz.

Answers for `api`, made from the kinds; pure. Enough for kubectl and careful clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cloudprovider.testing.apiserver.errors import JSON
from cloudprovider.testing.apiserver.kinds.kind import Kind

VERSION: Final[JSON] = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3-embedded",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "python",
}

REVIEWS: Final[Mapping[str, str]] = {
    "/apis/authentication.k8s.io/v1/tokenreviews": "TokenReview",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": "SubjectAccessReview",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "SelfSubjectAccessReview",
}
"""Paths of the review APIs, and their kinds."""


def documents(kinds: Iterable[Kind]) -> dict[str, JSON]:
    """Every discovery document by its path."""
    grouped: dict[tuple[str, str], list[JSON]] = {}
    for kind in kinds:
        grouped.setdefault((kind.group, kind.version), []).extend(_resources(kind))
    for path, name in REVIEWS.items():
        group, version, plural = path.split("/")[2:]
        entry = _resource(plural, name, namespaced=False, verbs=["create"], singular=name.lower())
        grouped.setdefault((group, version), []).append(entry)
    found: dict[str, JSON] = {"/version": VERSION}
    groups: list[JSON] = []
    for (group, version), resources in grouped.items():
        api_version = f"{group}/{version}" if group else version
        listing: JSON = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version,
            "resources": resources,
        }
        if not group:
            del listing["apiVersion"]
            found[f"/api/{version}"] = listing
            continue
        found[f"/apis/{api_version}"] = listing
        preferred = {"groupVersion": api_version, "version": version}
        described: JSON = {"name": group, "versions": [preferred], "preferredVersion": preferred}
        groups.append(described)
        found[f"/apis/{group}"] = {"kind": "APIGroup", "apiVersion": "v1", **described}
    found["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
    found["/api"] = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
    return found


def _resources(kind: Kind) -> list[JSON]:
    namespaced, verbs = kind.namespaced, list(kind.verbs)
    main = _resource(kind.plural, kind.kind, namespaced=namespaced, verbs=verbs, singular=kind.kind.lower())
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    found = [main]
    for part in ("approval", "status"):
        if part in kind.subresources:
            verbs = ["get", "patch", "update"]
            found.append(_resource(f"{kind.plural}/{part}", kind.kind, namespaced=namespaced, verbs=verbs))
    if "token" in kind.subresources:
        token = _resource(f"{kind.plural}/token", "TokenRequest", namespaced=namespaced, verbs=["create"])
        found.append({**token, "group": "authentication.k8s.io", "version": "v1"})
    return found


def _resource(name: str, kind: str, *, namespaced: bool, verbs: list[str], singular: str = "") -> JSON:
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs}
