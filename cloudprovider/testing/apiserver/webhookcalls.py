"""One call of an admission webhook: an AdmissionReview there, its answer back, over HTTPS.

Called by `webhooks` with the store's lock released. What goes wrong is a CallFailed, whose words are the real
server's as far as they are its own; those of Go's network library are imitated for the usual failures. See the
Kubernetes page "Dynamic Admission Control" and k8s.io/apiserver pkg/admission/plugin/webhook.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import math
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from cloudprovider.testing.apiserver.access import User
from cloudprovider.testing.apiserver.errors import JSON, quote
from cloudprovider.testing.apiserver.kinds import Kind
from cloudprovider.testing.apiserver.store import encode

_KIND: Final = "AdmissionReview"
_GROUP: Final = "admission.k8s.io"
_NOBODYS: Final = (18, 19, 20, 21)
"""OpenSSL's codes for certificates that lead to nobody who is trusted."""
_MESSAGES: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "unknown",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


AddressOf = Callable[[str, str, int], str | None]
"""(namespace, name, port) of a Service -> the "host:port" that is connected to instead."""


class CallFailed(Exception):
    """A webhook could not be asked, or its answer could not be read; the message says why, without the webhook's
    name.
    """


@attrs.frozen
class AdmissionRequest:
    """What a webhook is asked about: `operation` CREATE, UPDATE or DELETE, with the `options` of the request."""

    operation: str
    kind: Kind
    namespace: str
    name: str
    subresource: str
    user: User
    options: JSON
    dry_run: bool

    def review(self, review_version: str, uid: str, obj: JSON | None, old: JSON | None) -> JSON:
        """The AdmissionReview to send, of one of the two versions."""
        kind = self.kind
        version = {"group": kind.group, "version": kind.version}
        names = {"subResource": self.subresource, "requestSubResource": self.subresource}
        names |= {"name": self.name, "namespace": self.namespace}
        user: JSON = {"username": self.user.name, "uid": self.user.uid, "groups": list(self.user.groups)}
        request: JSON = {
            "uid": uid,
            "kind": {**version, "kind": kind.kind},
            "resource": {**version, "resource": kind.plural},
            "requestKind": {**version, "kind": kind.kind},
            "requestResource": {**version, "resource": kind.plural},
            **{field: value for field, value in names.items() if value},
            "operation": self.operation,
            "userInfo": {field: value for field, value in user.items() if value},
            "object": obj,
            "oldObject": old,
            "dryRun": self.dry_run,
            "options": self.options,
        }
        return {"kind": _KIND, "apiVersion": f"{_GROUP}/{review_version}", "request": request}


@attrs.frozen
class Answer:
    """What a webhook said: `patch` is a list of JSON Patch operations, `status` what it gave with a denial."""

    allowed: bool
    patch: list[Any]
    status: JSON
    warnings: tuple[str, ...] = ()


def call(
    hook: JSON,
    mutating: bool,
    request: AdmissionRequest,
    obj: JSON | None,
    old: JSON | None,
    timeout: float,
    address_of: AddressOf,
) -> Answer:
    """Ask one webhook, for at most `timeout` seconds; `address_of` says where Services are. Raises CallFailed."""
    version = next(one for one in hook["admissionReviewVersions"] if one in ("v1", "v1beta1"))
    uid = str(uuid.uuid4())
    answered = _post(hook["clientConfig"], request.review(version, uid, obj, old), timeout, address_of)
    try:
        return _read(answered, uid, mutating, checked=version == "v1")
    except CallFailed as error:
        raise CallFailed(f"received invalid webhook response: {error}") from error


# -- the way there ---------------------------------------------------------------------------------------------------


def _post(config: JSON, review: JSON, timeout: float, address_of: AddressOf) -> Any:
    """The JSON that the webhook answers. Raises CallFailed."""
    try:
        context = _trusting(config.get("caBundle", ""))
    except (ssl.SSLError, ValueError) as error:
        raise CallFailed(
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
        ) from error
    shown, address, server_name, path = _target(config, address_of)
    path += f"?timeout={math.ceil(timeout - 0.001)}s"
    try:
        status, content_type, body = _exchange(address, server_name, path, encode(review), timeout, context)
    except OSError as error:
        why = _network_problem(error, address)
        raise CallFailed(f'failed to call webhook: Post "https://{shown}{path}": {why}') from error
    except http.client.HTTPException as error:
        raise CallFailed(f'failed to call webhook: Post "https://{shown}{path}": {error!r}') from error
    if not 200 <= status <= 206:
        raise CallFailed(f"failed to call webhook: {_refusal(status, content_type, body)}")
    try:
        return json.loads(body)
    except ValueError as error:
        why = f"couldn't get version/kind; json parse error: {error}"
        raise CallFailed(f"failed to call webhook: {why}") from error


def _trusting(bundle: str) -> ssl.SSLContext:
    """A context that trusts the CA bundle, or what the machine trusts where there is none; as strict as Go's: every
    certificate of the bundle is an end of the chain, and a common name is no name of a server.
    """
    text = base64.b64decode(bundle).decode("ascii") if bundle else None
    context = ssl.create_default_context(cadata=text)
    context.verify_flags = (context.verify_flags & ~ssl.VERIFY_X509_STRICT) | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    return context


def _target(config: JSON, address_of: AddressOf) -> tuple[str, tuple[str, int], str, str]:
    """(host and port to show, address to connect to, name in the certificate, path). Raises CallFailed."""
    service = config.get("service")
    if service is None:
        parts = urlsplit(config["url"])
        host = parts.hostname or ""
        return parts.netloc, (host, parts.port or 443), host, parts.path or "/"
    key = f"{service['namespace']}/{service['name']}:{service['port']}"
    local = address_of(service["namespace"], service["name"], service["port"])
    if local is None:
        raise CallFailed(
            f"the embedded API server has no network to the Service {key}: name its address in `webhook_services`, "
            f"as in EmbeddedAPIServer(webhook_services={{{key!r}: '127.0.0.1:8443'}}), give the Service the type "
            "ExternalName, or use clientConfig.url"
        )
    host, _, port = local.rpartition(":")
    name = f"{service['name']}.{service['namespace']}.svc"
    path = "/" + (service.get("path") or "").lstrip("/")
    return f"{name}:{service['port']}", (host.strip("[]"), int(port)), name, path


def _exchange(
    address: tuple[str, int], server_name: str, path: str, body: bytes, timeout: float, context: ssl.SSLContext
) -> tuple[int, str, bytes]:
    """(status, content type, body) of the answer. Raises OSError, HTTPException; TimeoutError when the whole takes
    too long, however the webhook divides it.
    """
    deadline = time.monotonic() + timeout
    headers = {"Accept": "application/json, */*", "Content-Type": "application/json"}
    headers["User-Agent"] = "kube-apiserver-admission"
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    connection.connect()
    wrapped = context.wrap_socket(connection.sock, server_hostname=server_name, do_handshake_on_connect=False)
    connection.sock = wrapped
    watchdog = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, [wrapped])
    watchdog.start()
    try:
        wrapped.do_handshake()
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers.get_content_type(), response.read()
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:
            raise TimeoutError from error
        raise
    finally:
        watchdog.cancel()
        connection.close()


def _cut(connection: ssl.SSLSocket) -> None:
    """End both directions under whoever waits for them."""
    with contextlib.suppress(OSError):  # it has ended by itself
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _network_problem(error: OSError, address: tuple[str, int]) -> str:
    """A failed exchange in Go's words, where they are known."""
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {address[0]}:{address[1]}: connect: connection refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        unknown = error.verify_code in _NOBODYS
        why = "x509: certificate signed by unknown authority" if unknown else error.verify_message
        return f"tls: failed to verify certificate: {why}"
    if isinstance(error, ConnectionError):
        return "EOF"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {address[0]}: no such host"
    return str(error)


def _refusal(status: int, content_type: str, body: bytes) -> str:
    """An HTTP answer that is no success, in the words of Go's client."""
    text = body.decode("utf-8", "replace").strip()
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if isinstance(told, dict) and told.get("kind") == "Status" and told.get("message"):
        return str(told["message"])
    if status in _MESSAGES:
        return _MESSAGES[status]
    if status >= 500:
        shown = text if content_type.startswith("text/") and text else "unknown"
        return f"an error on the server ({quote(shown)}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


# -- the way back ----------------------------------------------------------------------------------------------------


def _read(answered: Any, uid: str, mutating: bool, *, checked: bool) -> Answer:
    """The answer in an AdmissionReview; v1beta1 is not `checked`. Raises CallFailed."""
    response = answered.get("response") if isinstance(answered, dict) else None
    if not isinstance(response, dict):
        raise CallFailed("webhook response was absent")
    patch = response.get("patch")
    if checked:
        _check(answered, response, uid)
        _check_patch(response, mutating)
    elif not mutating:
        patch = None
    status = response.get("status")
    warnings = tuple(str(one) for one in response.get("warnings") or ())
    operations = _patch(patch) if patch else []
    return Answer(bool(response.get("allowed")), operations, status if isinstance(status, dict) else {}, warnings)


def _check(answered: JSON, response: JSON, uid: str) -> None:
    """It must be the answer to this very request. Raises CallFailed."""
    if response.get("uid", "") != uid:
        raise CallFailed(f"expected response.uid={quote(uid)}, got {quote(response.get('uid', ''))}")
    found = f"{answered.get('apiVersion', '')}, Kind={answered.get('kind', '')}"
    wanted = f"{_GROUP}/v1, Kind={_KIND}"
    if found != wanted:
        raise CallFailed(f"expected webhook response of {wanted}, got {found}")


def _check_patch(response: JSON, mutating: bool) -> None:
    """A patch and its type come together, and from mutating webhooks only. Raises CallFailed."""
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not mutating:
        for field, value in (("patch", patch), ("patchType", patch_type)):
            if value is not None and value != "":
                raise CallFailed(f"validating webhook may not return response.{field}")
    elif patch and patch_type is None:
        raise CallFailed("webhook returned response.patch but not response.patchType")
    elif not patch and patch_type is not None:
        raise CallFailed("webhook returned response.patchType but not response.patch")
    elif patch_type is not None and patch_type != "JSONPatch":
        why = "unsupported patch type" if patch_type else "webhook returned invalid response.patchType of"
        raise CallFailed(f"{why} {quote(patch_type)}")


def _patch(text: Any) -> list[Any]:
    try:
        operations = json.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, TypeError, ValueError) as error:
        raise CallFailed(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(operations, list):
        raise CallFailed("received undecodable patch in webhook response: it is not a list of operations")
    return operations
