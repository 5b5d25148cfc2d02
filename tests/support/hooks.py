"""A server of admission webhooks, whose paths say how it answers; for the parity table and for tests of the embedded
API server.

What was asked is kept until somebody takes it, so that tests can compare what API servers send.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.support.pki import Authority

READY: Final = "/ready"
"""Denies, and is not kept: shows that a configuration is in force."""
SLOW_SECONDS: Final = 3.0

JSON = dict[str, Any]


def patch(*operations: JSON) -> JSON:
    """The part of an answer that changes the object."""
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


def add(path: str, value: Any) -> JSON:
    """One operation of a JSON Patch."""
    return {"op": "add", "path": path, "value": value}


ANSWERS: Final[dict[str, JSON]] = {
    "/allow": {"allowed": True},
    "/label-a": {"allowed": True, **patch(add("/metadata/labels/a", "1"))},
    "/label-b": {"allowed": True, **patch(add("/metadata/labels/b", "2"))},
    "/zone": {
        "allowed": True,
        **patch(
            add("/metadata/labels/topology.kubernetes.io~1zone", "z"),
            add("/spec/nodeAffinity", {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}]}]}}),
        ),
    },
    "/bad-label": {"allowed": True, **patch(add("/metadata/labels/a", "not a label!"))},
    "/bad-type": {"allowed": True, **patch(add("/metadata/labels", 7))},
    "/bad-patch": {"allowed": True, **patch({"op": "remove", "path": "/spec/nothing/there"})},
    "/no-finalizer": {"allowed": True, **patch({"op": "remove", "path": "/metadata/finalizers"})},
    "/unknown-field": {"allowed": True, **patch(add("/metadata/nonsense", 1))},
    "/warn": {"allowed": True, "warnings": ["from the webhook", 'with "quotes"']},
    READY: {"allowed": False, "status": {"message": "in force"}},
    "/deny": {"allowed": False, "status": {"message": "not today", "code": 409, "reason": "Conflict"}},
    "/deny-reason": {"allowed": False, "status": {"reason": "Invalid"}},
    "/deny-bare": {"allowed": False},
    "/deny-success": {"allowed": False, "status": {"status": "Success", "code": 200, "message": "odd"}},
    "/deny-details": {
        "allowed": False,
        "status": {"message": "look", "code": 422, "details": {"causes": [{"field": "spec.x", "message": "no"}]}},
        "warnings": ["beside the refusal"],
    },
    "/wrong-uid": {"allowed": True, "uid": "another"},
    "/patch-only": {"allowed": True, "patch": "W10="},
    "/type-only": {"allowed": True, "patchType": "JSONPatch"},
}  # fmt: skip
"""Answers by path; /slow, /drip, /status/NUMBER and /text have their own."""


class Hooks:
    """A webhook server on the loopback: `url`, or the Service hook in kube-system, with the CA that a client must
    trust, in base64.

    `answer["/path"] = function` has that path answered by what the function makes of the AdmissionReview.
    """

    def __init__(self, folder: Path) -> None:
        self.answer: dict[str, Callable[[JSON], JSON]] = {}
        authority = Authority("webhook-ca")
        certificate, key = authority.server_files(folder, names=("hook.kube-system.svc",))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.ca = base64.b64encode(authority.pem).decode()
        self.other_ca = base64.b64encode(Authority("another-ca").pem).decode()
        self._asked: list[JSON] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def take(self) -> list[JSON]:
        """What was asked since the last time, by path: those that are asked at once come in no order."""
        with self._lock:
            asked, self._asked = self._asked, []
        return sorted(asked, key=lambda one: str(one["path"]))

    @contextmanager
    def serving(self) -> Iterator[Hooks]:
        """Serve in the body of a with statement."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="parity-hooks", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.partition("?")[0]
                if path != READY:
                    with hooks._lock:
                        hooks._asked.append({"path": self.path, "review": review})
                own = hooks.answer.get(path)
                status, body = _answer(path, review) if own is None else (200, _review(review, own(review)))
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if status == 502 else "application/json")
                self.send_header("Content-Length", str(len(body)))
                with contextlib.suppress(OSError):  # who asked did not wait
                    self.end_headers()
                    if path == "/drip":
                        _drip(self.wfile.write, body)
                    else:
                        self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing is logged."""

        return Handler


def _drip(write: Callable[[bytes], Any], body: bytes) -> None:
    """Always a little more, and never soon enough."""
    for at in range(len(body)):
        write(body[at : at + 1])
        time.sleep(SLOW_SECONDS / 10)


def _answer(path: str, review: JSON) -> tuple[int, bytes]:
    if path == "/slow":
        time.sleep(SLOW_SECONDS)
    if path in ("/slow", "/drip"):
        path = "/allow"
    if path.startswith("/status/"):
        return int(path.rpartition("/")[2]), b"it broke"
    if path == "/text":
        return 200, b"hello"
    if path == "/absent":
        return 200, json.dumps({key: review[key] for key in ("kind", "apiVersion")}).encode()
    return 200, _review(review, ANSWERS[path])


def _review(review: JSON, response: JSON) -> bytes:
    response = {"uid": review["request"]["uid"], **response}
    whole = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}
    return json.dumps(whole).encode()
