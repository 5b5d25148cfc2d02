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

REVIEWS: Final[Mapping[str, tuple[str, str, bool]]] = {
    "/apis/authentication.k8s.io/v1/tokenreviews": ("tokenreviews", "TokenReview", False),
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": ("subjectaccessreviews", "SubjectAccessReview", False),
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": (
        "selfsubjectaccessreviews", "SelfSubjectAccessReview", False,
    ),
}  # fmt: skip
"""Paths of the review APIs: (plural, kind, namespaced)."""


def documents(kinds: Iterable[Kind], address: str) -> dict[str, JSON]:
    """Every discovery document by its path."""
    grouped: dict[tuple[str, str], list[JSON]] = {}
    for kind in kinds:
        grouped.setdefault((kind.group, kind.version), []).extend(_resources(kind))
    for path, (plural, name, namespaced) in REVIEWS.items():
        group, version = path.split("/")[2:4]
        entry = {
            "name": plural,
            "singularName": name.lower(),
            "namespaced": namespaced,
            "kind": name,
            "verbs": ["create"],
        }
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
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    found["/api"] = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
    return found


def _resources(kind: Kind) -> list[JSON]:
    main: JSON = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": sorted(kind.verbs if kind.is_empty else [*kind.verbs, "deletecollection"]),
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    subresources = [
        {
            "name": f"{kind.plural}/{one}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": ["get", "patch", "update"] if one == "status" else ["update"],
        }
        if one != "token"
        else {
            "name": f"{kind.plural}/{one}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "group": "authentication.k8s.io",
            "version": "v1",
            "kind": "TokenRequest",
            "verbs": ["create"],
        }
        for one in kind.subresources
    ]
    return [main, *subresources]
