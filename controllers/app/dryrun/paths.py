"""What a request's path names: collection, object, subresource; and what is a question although it is a POST. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from attrs import frozen

__all__ = ["Place", "is_question", "place_of"]

_QUESTION: Final = re.compile(
    r"/apis/(authentication|authorization)\.k8s\.io/[^/]+/"
    r"(tokenreviews|selfsubjectreviews|subjectaccessreviews|selfsubject(access|rules)reviews)"
)
_OF_NAMESPACES: Final = frozenset({"status", "finalize"})


@frozen
class Place:
    """One path of the API. Empty parts are not in it."""

    prefix: str
    """"/api/v1", "/apis/GROUP/VERSION"."""
    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """The object's key in a cache."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def object(self) -> tuple[str, str, str]:
        """Which object it is, whatever the subresource."""
        return self.prefix, self.plural, self.key


def place_of(path: str) -> Place | None:
    """None for paths that are no resource's, such as /readyz."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        prefix, rest = "/".join(["", *parts[:2]]), parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        prefix, rest = "/".join(["", *parts[:3]]), parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES):
        namespace, rest = rest[1], rest[2:]
    plural, name, *sub = [*rest, "", ""][: max(2, len(rest))]
    return Place(prefix, plural, namespace, name, "/".join(sub))


def is_question(path: str) -> bool:
    """Whether a POST there asks something and changes nothing: reviews of tokens and permissions."""
    return _QUESTION.fullmatch(path) is not None
