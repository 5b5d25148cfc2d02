"""What a webhook is for, and what an entry of the catalog of webhooks is made of. Imports next to
nothing: flags and help follow from the entries.

A vendor passes a longer catalog to `main(webhooks=...)`. The rules of --webhooks are Go's
(k8s.io/cloud-provider options/webhook.go), where no webhook is on unless one is named, or `*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

if TYPE_CHECKING:
    from controllers.registration.entry import Context
    from controllers.webhooks.review import AdmissionRequest, Handler

MAX_BODY: Final = 7 * 2**20
"""Bytes that a review can have: the API server takes objects of 3 MiB, and a review may hold the
old one and the new one."""

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
    """One webhook: its name in --webhooks and metrics, its path, and what it is for. Raises
    ValueError."""

    name: str
    path: str
    matches: tuple[Match, ...]
    mutating: bool = False
    """Whether its answers may change the object: then it belongs into a
    MutatingWebhookConfiguration, otherwise into a ValidatingWebhookConfiguration."""
    max_body: int = 2**20
    """Bytes of a review at most, up to MAX_BODY. As much as its objects need: anybody may send
    one."""
    max_values: int = 20_000
    """Texts, brackets and commas of a review at most. Each may take a kilobyte as part of an object
    of the client."""

    def __attrs_post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name={self.name!r}: must be small letters, digits and dashes, at most 63")
        if not _PATH.fullmatch(self.path):
            raise ValueError(f"path={self.path!r}: must be a path such as /check-services")
        if not self.matches:
            raise ValueError(f"webhook {self.name}: `matches` must say what it is for")
        if not 0 < self.max_body <= MAX_BODY or self.max_values <= 0:
            raise ValueError(f"webhook {self.name}: max_body must be 1 to {MAX_BODY}, and max_values more than 0")


@attrs.frozen(kw_only=True)
class WebhookEntry:
    """One webhook, its classes of options, and how its handler is built.

    `construct` is called once per run, on every replica, when the provider is initialised. None:
    with this provider it has nothing to do, and the log says why. What it raises ends the start.
    """

    webhook: Webhook
    construct: Callable[[Context], Handler | None]
    options: tuple[type[Any], ...] = ()
    on_by_default: bool = True
    """Whether `*` turns it on."""
    aliases: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """As in --webhooks."""
        return self.webhook.name
