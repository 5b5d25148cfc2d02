"""Reviews as an API server sends them, and a handler that does as it is told."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from typing import Any

from controllers.httpserver.messages import Request
from controllers.webhooks import AdmissionRequest, Answer, Handler, Match, Webhook, allow, deny

WEBHOOK = Webhook(
    name="volumes",
    path="/volumes",
    matches=(Match(resource="persistentvolumes", operations=("CREATE", "UPDATE")),),
    mutating=True,
)
VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv-1"},
    "spec": {"capacity": {"storage": "1Gi"}},
}


def review(**changes: Any) -> dict[str, Any]:
    """A review of the creation of VOLUME; `changes` replace fields of its request."""
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "PersistentVolume"},
        "resource": {"group": "", "version": "v1", "resource": "persistentvolumes"},
        "name": "pv-1",
        "operation": "CREATE",
        "userInfo": {"username": "jo", "groups": ["system:authenticated"]},
        "object": VOLUME,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request | changes}


def Post(**changes: Any) -> Request:  # noqa: N802 - reads as the request that it makes
    """A review as the server hands it over; `changes` replace its parts."""
    usual = {
        "body": json.dumps(review()).encode(),
        "target": "/volumes?timeout=10s",
        "method": "POST",
        "headers": {"content-type": "application/json"},
        "peer": "10.0.0.1",
    }
    return Request(**{**usual, **changes})


class Told(Handler):
    """Answers with what a function makes of the request."""

    def __init__(
        self,
        handle: Callable[[AdmissionRequest], Any] = lambda _request: allow(),
        late: Callable[[AdmissionRequest], Answer | None] = lambda _request: None,
    ) -> None:
        self._handle = handle
        self._late = late

    def handle(self, request: AdmissionRequest) -> Answer:
        answer: Answer = self._handle(request)
        return answer

    def late(self, request: AdmissionRequest) -> Answer | None:
        return self._late(request)


class Hanging(Told):
    """Answers when it is let go."""

    def __init__(self, late: Callable[[AdmissionRequest], Answer | None] = lambda _request: None) -> None:
        self.go = threading.Event()
        super().__init__(lambda _request: allow() if self.go.wait(20) else deny("it was not let go"), late)


def response(body: bytes) -> dict[str, Any]:
    """The response in an answer's body, its patch decoded."""
    parsed = json.loads(body)
    assert (parsed["apiVersion"], parsed["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    found: dict[str, Any] = parsed["response"]
    if "patch" in found:
        found["patch"] = json.loads(base64.b64decode(found["patch"]))
    return found
