"""From a request body to an object in stored form: patched, types checked, unknown fields reported.

Called by `operations` before any rule of a kind is asked; pure. Messages are those of the real
server's decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from cloudprovider.internal.jsonpatch import PatchError, json_patch
from cloudprovider.internal.patching import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    go_print,
    merge_patch,
    strategic_merge,
)
from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.access import User
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.kinds.kind import Kind
from cloudprovider.testing.apiserver.kinds.schema import DecodeError
from cloudprovider.testing.apiserver.storage import Stored, encode

Decoded = tuple[JSON, tuple[str, ...]]
"""An object with fresh `metadata` and top level, and warnings for the client."""


@attrs.frozen
class Options:
    """How a write is done: `field_validation` Ignore, Warn or Strict; `subresource` or ""; by whom,
    None for the test itself."""

    field_validation: str = "Warn"
    subresource: str = ""
    user: User | None = None


DEFAULTS: Final = Options()


def decode(kind: Kind, body: Any, old: Stored | None, options: Options) -> Decoded:
    """The body of a POST or PUT as an object of this kind. Raises StatusError (400)."""
    if not isinstance(body, dict):
        shown = type(body).__name__
        raise errors.bad_request(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {shown} into Go value"
        )
    _check_type(kind, body)
    unknown: list[str] = []
    try:
        obj = kind.struct.clean(body, old.object if old else None, "", unknown)
    except DecodeError as error:
        raise errors.bad_request(f"{_cannot_be_handled(kind)}: {error}") from error
    problems = _problems(unknown)
    if problems and options.field_validation == "Strict":
        raise errors.bad_request(f"{_cannot_be_handled(kind)}: strict decoding error: {', '.join(problems)}")
    return _finish(kind, obj), problems if options.field_validation == "Warn" else ()


def decode_patch(kind: Kind, body: Any, content_type: str, old: Stored, options: Options) -> Decoded:
    """The object that a patch makes of `old`. Raises StatusError (400, 422, 500)."""
    patched = _apply(kind, old, body, content_type)
    unknown: list[str] = []
    try:
        obj = kind.struct.clean(patched, old.object, "", unknown)
    except DecodeError as error:
        raise _unfit(patched, body, content_type, str(error)) from error
    # In the order of the patched JSON, which the real server reads, not of the patch.
    problems = _problems(sorted(unknown, key=_place))
    if problems and options.field_validation == "Strict":
        raise _unfit(patched, body, content_type, f"strict decoding error: {', '.join(problems)}")
    named, version = obj.get("kind"), obj.get("apiVersion")
    if content_type != STRATEGIC_PATCH and (named != kind.kind or version != kind.api_version):
        raise _unfit(patched, body, content_type, _conversion_problem(kind, str(named), str(version)))
    return _finish(kind, obj), problems if options.field_validation == "Warn" else ()


def _apply(kind: Kind, old: Stored, body: Any, content_type: str) -> Any:
    try:
        if content_type == JSON_PATCH:
            if not isinstance(body, list):
                raise errors.bad_request(
                    "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
                )
            # It never changes what it is given: the revision is shared with every reader.
            return json_patch(old.object, body)
        if not isinstance(body, dict):
            raise errors.bad_request("error decoding patch: the patch is not a JSON object")
        if content_type == MERGE_PATCH:
            return merge_patch(old.object, body)
        return strategic_merge(old.object, body, kind.struct)
    except PatchError as error:
        if error.code == 422:
            message = f"the server rejected our request due to an error in our request: {error}"
            raise StatusError(422, "Invalid", message) from error
        raise StatusError(error.code, "BadRequest" if error.code == 400 else "", str(error)) from error


def _problems(unknown: list[str]) -> tuple[str, ...]:
    return tuple(f"unknown field {errors.quote(path)}" for path in unknown)


def _place(path: str) -> list[tuple[str, int]]:
    """The order of paths in the JSON that the real server makes of a patched object: keys sorted,
    lists as they are."""
    parts = (part.partition("[") for part in path.split("."))
    return [(name, int(rest[:-1]) if rest[:-1].isdigit() else 0) for name, _, rest in parts]


def _finish(kind: Kind, obj: JSON) -> JSON:
    head = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": dict(obj["metadata"])}
    obj = {**head, **obj, **head}
    # Server-side apply is not served, so that nobody would keep them right.
    obj["metadata"].pop("managedFields", None)
    obj["metadata"].pop("selfLink", None)
    kind.strategy.default(obj)
    return obj


def _check_type(kind: Kind, obj: Mapping[str, Any]) -> None:
    version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if name == kind.kind and version == kind.api_version:
        return
    # The kind fits and the version does not: the real server has other words for each.
    if name == kind.kind:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    raise errors.bad_request(
        f'{name} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {kind.kind}: '
        f"{_conversion_problem(kind, str(name), kind.api_version)}"
    )


def check_namespace(kind: Kind, namespace: str, obj: JSON) -> None:
    """Fill in the request's namespace; cluster-scoped ones lose it. Raises StatusError (400)."""
    meta = obj["metadata"]
    # Nodes that are sent with a namespace are taken, and lose it.
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        meta["namespace"] = namespace
    elif meta["namespace"] != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(obj: JSON, name: str) -> None:
    """The object must have the name of the path. Raises StatusError (400)."""
    found = obj["metadata"].get("name")
    if not found:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if found != name:
        raise errors.bad_request(f"the name of the object ({found}) does not match the name on the URL ({name})")


def _cannot_be_handled(kind: Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _unfit(patched: Any, body: Any, content_type: str, why: str) -> StatusError:
    """422 for a patch whose result is no object of the kind."""
    shown = go_print(body) if content_type == STRATEGIC_PATCH else encode(patched).decode()
    return errors.invalid("", "", "", [errors.invalid_value("patch", shown, why)])


def _conversion_problem(kind: Kind, named: str, version: str) -> str:
    if version != kind.api_version:
        return f'no kind "{named}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    return f"converting (v1.{named}) to (core.{kind.kind}): unknown conversion"
