"""What a webhook is for: its name and path, and the requests that it is asked about. Pure, and imports next to nothing.

Stage: before the first one. What it says can be written into a webhook configuration; entries of the catalog hold it
(`controllers/app/webhooks/entry.py`), and `desk.py` goes by it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from controllers.admission.review import AdmissionRequest

__all__ = ["Match", "Webhook"]

OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def _plural(_instance: object, _attribute: attrs.Attribute[str], value: str) -> None:
    if not value or value != value.lower() or "*" in value:
        raise ValueError(f"resource={value!r}: must be a plural in small letters, such as persistentvolumes")


def _known(_instance: object, _attribute: attrs.Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    wrong = [one for one in value if one not in OPERATIONS]
    if wrong or not value:
        raise ValueError(f"operations={value!r}: must be some of {', '.join(OPERATIONS)}")


@attrs.frozen(kw_only=True)
class Match:
    """Requests that a webhook is for. `resource` with its subresource, as in "services/status"."""

    resource: str = attrs.field(validator=_plural)
    operations: tuple[str, ...] = attrs.field(validator=_known)
    group: str = ""
    version: str = "v1"

    def covers(self, request: AdmissionRequest) -> bool:
        """Whether this request is one of them."""
        resource = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        asked = (request.group, request.version, resource)
        return asked == (self.group, self.version, self.resource) and request.operation in self.operations


@attrs.frozen(kw_only=True)
class Webhook:
    """One webhook: its name in --webhooks and metrics, its path, and what it is for. Raises ValueError."""

    name: str
    path: str
    matches: tuple[Match, ...]
    mutating: bool = False
    """Whether its answers may change the object: then it belongs into a MutatingWebhookConfiguration, otherwise into a
    ValidatingWebhookConfiguration."""

    def __attrs_post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name={self.name!r}: must be small letters, digits and dashes, at most 63")
        if not _PATH.fullmatch(self.path):
            raise ValueError(f"path={self.path!r}: must be a path such as /check-services")
        if not self.matches:
            raise ValueError(f"webhook {self.name}: `matches` must say what it is for")
