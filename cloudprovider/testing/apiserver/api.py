"""One request to one answer, without HTTP: authentication, authorization, discovery, reads, writes, reviews, watches.

The HTTP handler builds a Request and sends the Response, or runs the WatchStream that it gets instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import attrs

from cloudprovider.testing.apiserver import discovery, errors, negotiation, protobuf, reads, reviews
from cloudprovider.testing.apiserver.access import Access, Attributes, User, explain
from cloudprovider.testing.apiserver.decoding import JSON_PATCH, MERGE, STRATEGIC, Options
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.negotiation import Form, partial_metadata
from cloudprovider.testing.apiserver.operations import Operations
from cloudprovider.testing.apiserver.routing import Router, Target, verb_of
from cloudprovider.testing.apiserver.serviceaccounts import token_request
from cloudprovider.testing.apiserver.store import Store, Stored, encode
from cloudprovider.testing.apiserver.transaction import Outcome
from cloudprovider.testing.apiserver.watchstream import WatchStream, parse_watch

BODY_LIMIT: Final = 3 * 1024 * 1024
"""The largest request body in bytes, as the real server has it."""

_FORMS: Final = {"true": True, "1": True, "false": False, "0": False, "": False}
_PATCHES: Final = (JSON_PATCH, MERGE, STRATEGIC)
_REAL_GROUPS: Final = ("/api/", "/apis/", "/openapi", "/metrics", "/logs", "/debug", "/.well-known")


@attrs.frozen
class Request:
    """A request as it came: `target` with its query, header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@attrs.frozen
class Response:
    """What goes back: the body in pieces, so that large lists are never joined."""

    code: int
    pieces: Sequence[bytes]
    headers: Mapping[str, str] = attrs.field(factory=dict)
    content_type: str = "application/json"


@attrs.frozen
class Wrong:
    """What an injected fault changes in a read: an `expired` list, an `empty` one, or one as of an older version."""

    expired: bool = False
    empty: bool = False
    stale: int | None = None


NOTHING_WRONG: Final = Wrong()


class API:
    """The API of one server over its store. Safe from many threads."""

    def __init__(
        self,
        store: Store,
        router: Router,
        operations: Operations,
        access: Access,
        *,
        address: str = "",
        bookmark_interval: float = 60.0,
        watch_timeout: float = 3600.0,
    ) -> None:
        self.store = store
        self.router = router
        self.operations = operations
        self.access = access
        self.bookmark_interval = bookmark_interval
        self.watch_timeout = watch_timeout
        self._documents = discovery.documents(router.kinds(), address)

    def handle(self, request: Request, wrong: Wrong = NOTHING_WRONG) -> Response | WatchStream:
        """Answer a request. Never raises StatusError: failures are answers too."""
        try:
            return self._handle(request, wrong)
        except StatusError as error:
            return failure(error)

    def _handle(self, request: Request, wrong: Wrong) -> Response | WatchStream:
        path, _, query_text = request.target.partition("?")
        user = self.access.authenticate(request.headers.get("authorization", ""))
        if user is None:
            raise errors.unauthorized()
        target = self.router.find(path)
        query = dict(parse_qsl(query_text, keep_blank_values=True)) if query_text else {}
        if target is None:
            return self._outside(request, path, user, query)
        watching = not target.name and _flag(query, "watch")
        self._authorize(user, request.method, target, watching)
        if target.kind.is_empty:
            if watching or request.method not in ("GET", "HEAD"):
                raise errors.not_implemented(f"{'watching' if watching else request.method} {path}")
            query.pop("fieldSelector", None)  # whatever it selects, there is nothing
        form = negotiation.answer_form(request.headers.get("accept", ""))
        if target.subresource == "token":
            if query.get("dryRun"):
                raise errors.not_implemented("dry runs of TokenRequests")
            return self._token(request, target)
        if request.method in ("GET", "HEAD"):
            return self._read(target, query, form, watching, wrong)
        return self._write(request, user, target, query, form)

    def _authorize(self, user: User, method: str, target: Target, watching: bool) -> None:
        kind = target.kind
        verb = verb_of(method, target, watching)
        asked = Attributes(verb, kind.group, kind.plural, target.subresource, target.namespace, target.name)
        if not self.access.allows(user, asked):
            raise errors.forbidden(kind.group, kind.plural, target.name, explain(user, asked))

    # -- outside the resources ---------------------------------------------------------------------------------------

    def _outside(self, request: Request, path: str, user: User, query: Mapping[str, str]) -> Response:
        plain = path.rstrip("/") or "/"
        if plain in discovery.REVIEWS:
            group, plural = plain.split("/")[2], plain.rpartition("/")[2]
            if request.method != "POST":
                raise errors.method_not_allowed(group, plural, request.method)
            asked = Attributes("create", group, plural)
            if not self.access.allows(user, asked):
                raise errors.forbidden(group, plural, "", explain(user, asked))
            body, _ = _body_of(request, False)
            return _json(201, reviews.review(self.access, user, discovery.REVIEWS[plain][1], body))
        asked = Attributes(request.method.lower() if request.method != "HEAD" else "get", path=path)
        if not self.access.allows(user, asked):
            raise StatusError(403, "Forbidden", f"forbidden: {explain(user, asked)}", details={})
        if request.method not in ("GET", "HEAD"):
            raise errors.not_implemented(f"{request.method} {path}")
        if plain in self._documents:
            return _json(200, self._documents[plain])
        if plain.split("/")[1] in ("healthz", "livez", "readyz"):
            return Response(200, [b"ok"], content_type="text/plain; charset=utf-8")
        if path.startswith(_REAL_GROUPS):
            raise errors.not_implemented(f"{request.method} {unquote(path)}")
        return Response(404, [b"404 page not found\n"], content_type="text/plain; charset=utf-8")

    def _token(self, request: Request, target: Target) -> Response:
        if request.method != "POST":
            raise errors.method_not_allowed("", "serviceaccounts", request.method)
        body, _ = _body_of(request, False)
        return _json(201, token_request(self.store, self.access, target.namespace, target.name, body))

    # -- reads -------------------------------------------------------------------------------------------------------

    def _read(
        self, target: Target, query: Mapping[str, str], form: Form, watching: bool, wrong: Wrong
    ) -> Response | WatchStream:
        kind = target.kind
        if target.name:
            if target.subresource not in ("", "status"):
                raise errors.method_not_allowed(kind.group, kind.plural, "GET")
            found = reads.get(self.store, kind, target.namespace, target.name, query, at=wrong.stale)
            return _object(200, kind.shown(found), form)
        if watching:
            options = parse_watch(self.store, kind, target.namespace, query, self.watch_timeout)
            partial = form is not Form.FULL
            return WatchStream(
                self.store,
                kind,
                options,
                bookmark_interval=self.bookmark_interval,
                render=(lambda stored: encode(partial_metadata(kind.shown(stored).object))) if partial else None,
                render_object=partial_metadata if partial else None,
            )
        if wrong.expired:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        page = reads.list_objects(self.store, kind, target.namespace, query, at=wrong.stale)
        items = [] if wrong.empty else [kind.shown(one) for one in page.items]
        metadata = {"resourceVersion": page.metadata["resourceVersion"]} if wrong.empty else page.metadata
        if form is Form.FULL:
            return _list(f"{kind.kind}List", kind.api_version, metadata, [one.item for one in items])
        if form is Form.METADATA:
            raise StatusError(
                406,
                "NotAcceptable",
                f"you requested PartialObjectMetadata, but the requested object is a list (*core.{kind.kind}List)",
            )
        partials = [encode(partial_metadata(one.object)) for one in items]
        return _list("PartialObjectMetadataList", negotiation.META_V1, metadata, partials)

    # -- writes ------------------------------------------------------------------------------------------------------

    def _write(self, request: Request, user: User, target: Target, query: Mapping[str, str], form: Form) -> Response:
        kind, method = target.kind, request.method
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if len(request.body) > BODY_LIMIT:
            raise StatusError(
                413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT}", details={}
            )
        if method == "DELETE":
            return self._delete(request, user, target, query, form)
        options_kind = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(method, "PatchOptions")
        validation = query.get("fieldValidation", "Warn")
        if validation not in ("Ignore", "Warn", "Strict"):
            cause = errors.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
            raise errors.invalid("meta.k8s.io", options_kind, "", [cause])
        if (method == "POST") is bool(target.name):
            raise errors.method_not_allowed(kind.group, kind.plural, method)
        if method == "PATCH":
            if content_type not in _PATCHES:
                if content_type.startswith("application/apply-patch"):
                    raise errors.not_implemented("server-side apply")
                raise negotiation.unsupported_media_type(content_type, _PATCHES)
            body, duplicates = parse_body(request.body, validation != "Ignore")
        else:
            body, duplicates = _body_of(request, validation != "Ignore")
        options = Options(validation, target.subresource, duplicates, user, reads.write_options(query, options_kind))
        if method == "POST":
            outcome = self.operations.create(kind, target.namespace, body, options)
        elif method == "PUT":
            outcome = self.operations.update(kind, target.namespace, target.name, body, options)
        elif method == "PATCH":
            outcome = self.operations.patch(kind, target.namespace, target.name, body, content_type, options)
        else:
            raise errors.method_not_allowed(kind.group, kind.plural, method)
        return _outcome(outcome, form)

    def _delete(self, request: Request, user: User, target: Target, query: Mapping[str, str], form: Form) -> Response:
        kind = target.kind
        body: Any = None
        if request.body:
            body, _ = _body_of(request, False)
        options = Options(user=user, given=reads.delete_options(query, body))
        if target.subresource:
            raise errors.method_not_allowed(kind.group, kind.plural, "DELETE")
        if target.name:
            return _outcome(self.operations.delete(kind, target.namespace, target.name, options), form)
        page = reads.list_objects(self.store, kind, target.namespace, query)
        deleted, warnings = self.operations.delete_all(kind, page.items, options)
        answer = _list(f"{kind.kind}List", kind.api_version, page.metadata, [kind.shown(one).item for one in deleted])
        return attrs.evolve(answer, headers=_warnings(warnings))


def _flag(query: Mapping[str, str], name: str) -> bool:
    return _FORMS.get(query.get(name, ""), True)


def _body_of(request: Request, find_duplicates: bool) -> tuple[Any, tuple[str, ...]]:
    """The body of a request that sends an object, with the paths of keys that appear twice. Raises StatusError."""
    content_type = request.headers.get("content-type", "")
    negotiation.check_body_type(content_type)
    if content_type.startswith(protobuf.MEDIA_TYPE):
        return protobuf.decode(request.body), ()
    return parse_body(request.body, find_duplicates)


def parse_body(data: bytes, find_duplicates: bool) -> tuple[Any, tuple[str, ...]]:
    """The JSON of a body, and the paths of keys that appear twice in it. Raises StatusError (400)."""
    repeated = False

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(pairs)
        repeated = repeated or len(found) != len(pairs)
        return found

    try:
        body = json.loads(data, object_pairs_hook=hook) if find_duplicates else json.loads(data)
    except ValueError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    return body, tuple(_duplicate_paths(data)) if repeated else ()


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as written."""


def _duplicate_paths(data: bytes) -> list[str]:
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, item in value:
                here = f"{path}.{key}" if path else key
                if key in seen:
                    found.append(here)
                seen.add(key)
                walk(item, here)
        elif isinstance(value, list):
            for at, item in enumerate(value):
                walk(item, f"{path}[{at}]")

    walk(json.loads(data, object_pairs_hook=_Pairs), "")
    return found


def _json(code: int, body: JSON) -> Response:
    return Response(code, [encode(body)])


def failure(error: StatusError) -> Response:
    """A StatusError as an answer."""
    return Response(error.code, [encode(error.body())], {**error.headers, **_warnings(error.warnings)})


def _object(code: int, stored: Stored, form: Form, headers: Mapping[str, str] | None = None) -> Response:
    if form is Form.METADATA_LIST:
        raise StatusError(
            406, "NotAcceptable", "you requested PartialObjectMetadataList, but the requested object is not a list"
        )
    data = stored.data if form is Form.FULL else encode(partial_metadata(stored.object))
    return Response(code, [data], headers or {})


def _outcome(outcome: Outcome, form: Form) -> Response:
    if outcome.stored is None:
        return _json(outcome.code, outcome.status or {})
    return _object(outcome.code, outcome.stored, form, _warnings(outcome.warnings))


def _warnings(warnings: Sequence[str]) -> Mapping[str, str]:
    if not warnings:
        return {}
    quoted = (warning.replace("\\", "\\\\").replace('"', '\\"') for warning in warnings)
    return {"Warning": ", ".join(f'299 - "{one}"' for one in quoted)}


def _list(kind: str, api_version: str, metadata: JSON, items: Sequence[bytes]) -> Response:
    head = encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})[:-1] + b',"items":['
    pieces: list[bytes] = [head]
    for at, item in enumerate(items):
        if at:
            pieces.append(b",")
        pieces.append(item)
    pieces.append(b"]}")
    return Response(200, pieces)
