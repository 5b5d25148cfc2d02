"""What a webhook is: where and for what it is asked, and the code that answers. What a vendor implements.

Stage: beside the six. `Webhook` says what can be written into a webhook configuration; a subclass of `Handler` gets an
`AdmissionRequest` from `desk.py` and gives back an `Answer`. Registered by an entry of `controllers/app/webhooks`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Final

import attrs

from controllers.admission.review import AdmissionRequest, Answer

__all__ = ["Handler", "Match", "Webhook"]

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


class Handler(ABC):
    """Answers the requests of one webhook, in many threads at once, on every replica, leading or not.

    It must change nothing: the same request may come again, with `dry_run`, or never be carried out.
    """

    @abstractmethod
    def handle(self, request: AdmissionRequest) -> Answer:
        """Say what becomes of a request, by `allow`, `change` or `deny`.

        `cloudprovider.current_call()` tells how much time is left: a little less than the API server waits. What comes
        later is thrown away, and what this raises becomes an HTTP 500; in both cases the API server goes by the
        `failurePolicy` of the webhook's configuration.
        """

    def late(self, request: AdmissionRequest) -> Answer | None:
        """What to say where `handle` has not answered in time, or there is no free thread for it. Must not block.

        None: nothing (an HTTP error), so that the `failurePolicy` decides.
        """
        return None
