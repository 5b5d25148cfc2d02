"""One request to one answer, without HTTP: authentication, authorization, discovery, reads, writes,
reviews, watches.

The HTTP handler builds a Request and sends the Response, or runs the WatchStream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import attrs

from cloudprovider.internal.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.access import Access, Attributes, User, explain
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.kinds.kind import Kind
from cloudprovider.testing.apiserver.rest import discovery, reads, reviews
from cloudprovider.testing.apiserver.rest.decoding import Options
from cloudprovider.testing.apiserver.rest.operations import Operations, Outcome
from cloudprovider.testing.apiserver.rest.watchstream import WatchStream, parse_watch
from cloudprovider.testing.apiserver.storage import Store, Stored, encode

BODY_LIMIT: Final = 3 * 1024 * 1024
"""The largest request body in bytes, as the real server has it."""

_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
_JSON: Final = ("application/json", "application/*", "*/*")
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
    """What goes back."""

    code: int
    body: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict)
    content_type: str = "application/json"


class API:
    """The API of one server over its store. Safe from many threads."""

    def __init__(
        self,
        store: Store,
        router: Router,
        operations: Operations,
        access: Access,
        *,
        bookmark_interval: float,
    ) -> None:
        self.store = store
        self.router = router
        self.operations = operations
        self.access = access
        self.bookmark_interval = bookmark_interval
        self._documents = discovery.documents(router.kinds())

    def handle(self, request: Request) -> Response | WatchStream:
        """Answer a request. Never raises StatusError: failures are answers too."""
        try:
            return self._handle(request)
        except StatusError as error:
            return failure(error)

    def _handle(self, request: Request) -> Response | WatchStream:
        path = request.target.partition("?")[0]
        user = self.access.authenticate(request.headers.get("authorization", ""))
        if user is None:
            raise errors.unauthorized()
        target = self.router.find(path)
        query = query_of(request.target)
        if target is None:
            return self._outside(request, path, user, query)
        # Of one object nobody can watch by this parameter; the real server ignores it too.
        watching = not target.name and bool(reads.parse_flag(query, "watch"))
        self._authorize(user, request.method, target, watching)
        # Listed for kubectl describe alone: nothing else about pods would be true here.
        if target.kind.is_empty:
            if watching or request.method != "GET":
                raise errors.not_implemented(f"{'watching' if watching else request.method} {path}")
            query.pop("fieldSelector", None)  # whatever it selects, there is nothing
        # A write that is carried out after all would be the worst answer.
        if query.get("dryRun"):
            raise errors.not_implemented("dryRun")
        partial = _wants_metadata_only(request.headers.get("accept", ""))
        # No object of its own, and nothing is stored.
        if target.subresource == "token":
            return self._token(request, target)
        if request.method == "GET":  # not HEAD, which no resource answers
            return self._read(target, query, partial, watching)
        return self._write(request, target, query, partial, user)

    def _authorize(self, user: User, method: str, target: Target, watching: bool) -> None:
        kind = target.kind
        verb = verb_of(method, target, watching)
        asked = Attributes(verb, kind.group, kind.plural, target.subresource, target.namespace, target.name)
        if not self.access.allows(user, asked):
            raise errors.forbidden(kind.group, kind.plural, target.name, explain(user, asked))

    # -- outside the resources

    def _outside(self, request: Request, path: str, user: User, query: Mapping[str, str]) -> Response:
        plain = path.rstrip("/") or "/"
        if plain in discovery.REVIEWS:
            group, plural = plain.split("/")[2], plain.rpartition("/")[2]
            if request.method != "POST":
                raise errors.method_not_allowed()
            asked = Attributes("create", group, plural)
            if not self.access.allows(user, asked):
                raise errors.forbidden(group, plural, "", explain(user, asked))
            body = _body_of(request)
            return _json(201, reviews.review(self.access, user, discovery.REVIEWS[plain], body))
        asked = Attributes(request.method.lower() if request.method != "HEAD" else "get", path=path)
        if not self.access.allows(user, asked):
            raise StatusError(403, "Forbidden", f"forbidden: {explain(user, asked)}", details={})
        if request.method not in ("GET", "HEAD"):
            raise errors.not_implemented(f"{request.method} {path}")
        if plain in self._documents:
            return _json(200, self._documents[plain])
        if plain.split("/")[1] in ("healthz", "livez", "readyz"):
            return Response(200, b"ok", content_type="text/plain; charset=utf-8")
        # The real server has something there, so that 404 would be wrong.
        if plain == "/" or path.startswith(_REAL_GROUPS):
            raise errors.not_implemented(f"{request.method} {unquote(path)}")
        return Response(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")

    def _token(self, request: Request, target: Target) -> Response:
        if request.method != "POST":
            raise errors.method_not_allowed()
        body = _body_of(request)
        return _json(201, reviews.token_request(self.store, self.access, target.namespace, target.name, body))

    # -- reads

    def _read(self, target: Target, query: Mapping[str, str], partial: bool, watching: bool) -> Response | WatchStream:
        kind = target.kind
        if target.name:
            if target.subresource not in ("", "status", "approval"):
                raise errors.method_not_allowed()
            found = reads.get(self.store, kind, target.namespace, target.name, query)
            return _object(200, found, partial)
        if partial:
            raise errors.not_implemented("lists and watches of PartialObjectMetadata")
        if watching:
            options = parse_watch(self.store, kind, target.namespace, query)
            return WatchStream(self.store, kind, options, self.bookmark_interval)
        page = reads.list_objects(self.store, kind, target.namespace, query)
        return _list(kind, page.metadata, page.items)

    # -- writes

    def _write(self, request: Request, target: Target, query: Mapping[str, str], partial: bool, user: User) -> Response:
        kind, method = target.kind, request.method
        # Before anything else, as the real server stops reading there.
        if len(request.body) > BODY_LIMIT:
            raise StatusError(
                413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_LIMIT}", details={}
            )
        if method == "DELETE":
            return self._delete(request, target, query, partial)
        validation = query.get("fieldValidation", "Warn")
        if validation not in ("Ignore", "Warn", "Strict"):
            options_kind = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(method, "PatchOptions")
            cause = errors.not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
            raise errors.invalid("meta.k8s.io", options_kind, "", [cause])
        if method not in ("POST", "PUT", "PATCH") or (method == "POST") is bool(target.name):
            raise errors.method_not_allowed()
        options = Options(validation, target.subresource, user)
        if method == "PATCH":
            content_type = request.headers.get("content-type", "").partition(";")[0].strip()
            # Who owns which field is a book of its own: to guess would be worse than to refuse.
            if content_type.startswith("application/apply-patch"):
                raise errors.not_implemented("server-side apply")
            body = _body_of(request, _PATCHES)
            outcome = self.operations.patch(kind, target.namespace, target.name, body, content_type, options)
        elif method == "POST":
            outcome = self.operations.create(kind, target.namespace, _body_of(request), options)
        else:
            outcome = self.operations.update(kind, target.namespace, target.name, _body_of(request), options)
        return _outcome(outcome, partial)

    def _delete(self, request: Request, target: Target, query: Mapping[str, str], partial: bool) -> Response:
        kind = target.kind
        given = reads.delete_options(query, _body_of(request) if request.body else None)
        if target.subresource:
            raise errors.method_not_allowed()
        # It would delete every node by one slip in a path: no controller here needs it.
        if not target.name:
            raise errors.not_implemented("deletecollection")
        return _outcome(self.operations.delete(kind, target.namespace, target.name, given), partial)


def query_of(target: str) -> dict[str, str]:
    """The query of a request's target."""
    text = target.partition("?")[2]
    # Blank ones too: `?watch` alone asks for a watch, as in Go.
    return dict(parse_qsl(text, keep_blank_values=True)) if text else {}


def _wants_metadata_only(accept: str) -> bool:
    """Does an Accept header ask for PartialObjectMetadata first? Raises StatusError (406)."""
    for part in (accept or "*/*").split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        form = dict(piece.partition("=")[::2] for piece in parameters).get("as", "")
        if media in _JSON and form in ("", "PartialObjectMetadata"):
            return bool(form)
    raise StatusError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf, application/cbor",
    )


def _body_of(request: Request, accepted: Sequence[str] = ("", "application/json")) -> Any:
    """The JSON of a body of one of these media types. Raises StatusError (400, 415)."""
    media = request.headers.get("content-type", "").partition(";")[0].strip()
    if media not in accepted:
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(one for one in accepted if one),
        )
    try:
        found = json.loads(request.body, parse_constant=_no_number)
        if b"\\ud" in request.body.lower():  # half of a surrogate pair, perhaps, which Go reads as U+FFFD
            text = json.dumps(found, ensure_ascii=False)
            found = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        return found
    except (ValueError, RecursionError) as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def _no_number(text: str) -> None:
    """Python writes and reads NaN and Infinity, which JSON does not have."""
    raise ValueError(f"invalid character {text[0]!r} looking for beginning of value")


def _json(code: int, body: JSON) -> Response:
    return Response(code, encode(body))


def failure(error: StatusError) -> Response:
    """A StatusError as an answer."""
    return Response(error.code, encode(error.body()), error.headers)


def _object(code: int, stored: Stored, partial: bool, headers: Mapping[str, str] | None = None) -> Response:
    data = stored.data
    if partial:
        metadata = stored.object.get("metadata", {})
        data = encode({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
    return Response(code, data, headers or {})


def _outcome(outcome: Outcome, partial: bool) -> Response:
    if outcome.stored is None:
        return _json(outcome.code, outcome.status or {})
    return _object(outcome.code, outcome.stored, partial, _warnings(outcome.warnings))


def _warnings(warnings: Sequence[str]) -> Mapping[str, str]:
    if not warnings:
        return {}
    quoted = (warning.replace("\\", "\\\\").replace('"', '\\"') for warning in warnings)
    return {"Warning": ", ".join(f'299 - "{one}"' for one in quoted)}


def _list(kind: Kind, metadata: JSON, items: Sequence[Stored]) -> Response:
    about = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
    return Response(200, b'%s,"items":[%s]}' % (encode(about)[:-1], b",".join(one.item for one in items)))


@attrs.frozen
class Target:
    """A resource request. `name` is "" for a collection, `namespace` "" for none or all."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_of(method: str, target: Target, watching: bool) -> str:
    """The verb that RBAC would be asked about: get, list, watch, deletecollection ...."""
    verb = _VERBS.get(method, method.lower())
    if target.name:
        return verb
    if verb == "get":
        return "watch" if watching else "list"
    return "deletecollection" if verb == "delete" else verb


class Router:
    """Finds resources by path. Immutable after construction."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_prefix: dict[tuple[str, str], Kind] = {(kind.prefix, kind.plural): kind for kind in kinds}

    def kinds(self) -> list[Kind]:
        """All resources."""
        return list(self._by_prefix.values())

    def find(self, path: str) -> Target | None:
        """The resource that a path means, None if it means none of ours."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) >= 3:
            prefix, rest = "/api/" + parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 4:
            prefix, rest = f"/apis/{parts[1]}/{parts[2]}", parts[3:]
        else:
            return None
        # /namespaces/x/status is about the Namespace, not about something in it.
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            return self._target(prefix, rest[1], rest[2:])
        return self._target(prefix, "", rest)

    def _target(self, prefix: str, namespace: str, rest: list[str]) -> Target | None:
        kind = self._by_prefix.get((prefix, rest[0]))
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced) or "" in rest:
            return None
        name = rest[1] if len(rest) > 1 else ""
        # A name without its namespace means nothing; a list over all namespaces does.
        if name and kind.namespaced and not namespace:
            return None
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and subresource not in kind.subresources:
            return None
        return Target(kind, namespace, name, subresource)
