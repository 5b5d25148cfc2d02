"""Get and list: selectors, pages with continue tokens over a consistent snapshot, and what
resourceVersion means. Follows the Kubernetes page "API concepts" and k8s.io/apiserver
pkg/storage."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.errors import JSON, Cause, StatusError
from cloudprovider.testing.apiserver.kinds.kind import NAME_FIELDS, Kind
from cloudprovider.testing.apiserver.rest.selectors import Predicate, field_selector, label_selector
from cloudprovider.testing.apiserver.storage import Compacted, Store, Stored

Query = Mapping[str, str]


@attrs.frozen
class Page:
    """One answer of a list: the objects and the list's `metadata`."""

    items: list[Stored]
    metadata: JSON


@attrs.frozen
class Filter:
    """What a list or watch selects: a namespace ("" for all), field and label predicates."""

    namespace: str = ""
    labels: Predicate | None = None
    fields: Predicate | None = None

    def matches(self, stored: Stored) -> bool:
        """Does this object belong to the answer?"""
        if not self.in_namespace(stored):
            return False
        if self.labels is not None and not self.labels(stored.object):
            return False
        return self.fields is None or self.fields(stored.object)

    def in_namespace(self, stored: Stored) -> bool:
        """Is it in the namespace asked for?"""
        return not self.namespace or stored.key.startswith(f"{self.namespace}/")

    @property
    def selects(self) -> bool:
        """Is there any selector beside the namespace?"""
        return self.labels is not None or self.fields is not None


def make_filter(kind: Kind, namespace: str, query: Query) -> Filter:
    """The filter of a request. Raises StatusError (400)."""
    fields = query.get("fieldSelector", "")
    return Filter(
        namespace if kind.namespaced else "",
        label_selector(query.get("labelSelector", "")),
        field_selector(fields, kind.fields, by_name_only=kind.fields is NAME_FIELDS) if fields else None,
    )


def parse_version(text: str, *, listing: bool = False) -> int:
    """A resourceVersion of a request as a number, 0 for none. Raises StatusError: 400 for a list,
    else 500, as the real server.
    """
    if not text:
        return 0
    if text.isascii() and text.isdigit():
        return int(text)
    why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    if listing:
        raise errors.bad_request(f"invalid resource version: {why}")
    raise StatusError(500, "", why)


def get(store: Store, kind: Kind, namespace: str, name: str, query: Query) -> Stored:
    """One object. Raises StatusError."""
    version = parse_version(query.get("resourceVersion", ""))
    if version > store.version:
        raise errors.too_large_resource_version(version, store.version)
    found = store.get(kind.plural, kind.key(namespace, name))
    if found is None:
        raise errors.not_found(kind.group, kind.plural, name)
    return found


def list_objects(store: Store, kind: Kind, namespace: str, query: Query) -> Page:
    """One page of a list. Raises StatusError: 410 when the snapshot is gone, 504 for the future."""
    selected = make_filter(kind, namespace, query)
    limit = parse_number(query, "limit")
    token = query.get("continue", "")
    version_text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    _check_options(version_text, match, token, query)
    version = parse_version(version_text, listing=True)
    at, start = None, ""
    if token:
        # A negative version is that of a token that a 410 gave.
        found, start = _read_token(token)
        at = found if found >= 0 else None
    elif version:
        if version > store.version:
            raise errors.too_large_resource_version(version, store.version)
        # A page without a word about it is exact, as pages of one list must fit together.
        if match == "Exact" or (limit and not match):
            at = version
    # "Any version will do" comes from the watch cache, which has no pages.
    elif version_text == "0":
        limit = 0
    try:
        objects, shown = store.snapshot(kind.plural, at)
    except Compacted:
        if not token:
            raise errors.expired("The resourceVersion for the provided list is too old.") from None
        # With it the client can go on from there, at the newest state, instead of starting again.
        again = _make_token(-1, start)
        raise errors.expired(_CONTINUE_EXPIRED, metadata={"continue": again}) from None
    return _page(objects, shown, selected, limit, start)


_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def _page(objects: list[Stored], version: int, selected: Filter, limit: int, start: str) -> Page:
    """One page: it ends after `limit` matches, and there is a next one if any object follows,
    whether it matches or not.
    """
    metadata: JSON = {"resourceVersion": str(version)}
    items: list[Stored] = []
    candidates = [one for one in objects if one.key >= start and selected.in_namespace(one)]
    for at, stored in enumerate(candidates):
        if limit > 0 and len(items) == limit:
            metadata["continue"] = _make_token(version, stored.key)
            # With a selector the real server does not know how many of the rest would match.
            if not selected.selects:
                metadata["remainingItemCount"] = len(candidates) - at
            break
        if selected.matches(stored):
            items.append(stored)
    return Page(items, metadata)


def _check_options(version: str, match: str, token: str, query: Query) -> None:
    """The rules of which list options go together. Raises StatusError (422, or 400)."""
    causes: list[Cause] = []
    field, why = "resourceVersionMatch", ""
    if "sendInitialEvents" in query:
        causes.append(errors.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    # Of these rules the first that is broken is told, as by the real server.
    if match and token:
        why = "when continue is provided"
    elif match and match not in ("Exact", "NotOlderThan"):
        causes.append(errors.not_supported(field, match, ["Exact", "NotOlderThan", ""]))
    elif match and not version:
        why = "unless resourceVersion is provided"
    elif match == "Exact" and version == "0":
        causes.append(errors.forbidden_value(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if why:
        causes.append(errors.forbidden_value(field, f"{field} is forbidden {why}"))
    if causes:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", causes)
    if token and version and version != "0":
        raise errors.bad_request("specifying resource version is not allowed when using continue")


def _make_token(version: int, start: str) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        content: Any = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = content["rv"], content["start"]
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if not isinstance(version, int) or not isinstance(start, str) or version == 0:
        raise errors.bad_request(
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        )
    return version, start


def parse_number(query: Query, name: str) -> int:
    """A whole number of the query, 0 when absent. Raises StatusError (400)."""
    text = query.get(name, "0")
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise StatusError(400, "BadRequest", f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if not -(1 << 63) <= int(text) < 1 << 63:
        raise StatusError(400, "BadRequest", f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def parse_flag(query: Query, name: str) -> bool | None:
    """A truth value of the query, None when absent. As in Go's conversion, whatever is neither
    "false", in any case, nor "0" is true."""
    return query[name].lower() not in ("false", "0") if name in query else None


def delete_options(query: Query, body: Any) -> JSON:
    """DeleteOptions from the body, or from the query where there is no body. Raises StatusError."""
    if body is not None:
        if not isinstance(body, dict):
            raise errors.bad_request("the body of the request is not a DeleteOptions object")
        options = dict(body)
    else:
        options = {name: query[name] for name in ("propagationPolicy",) if name in query}
    if options.get("dryRun"):
        raise errors.not_implemented("dryRun")
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in ("Background", "Foreground", "Orphan"):
        cause = errors.not_supported("propagationPolicy", policy, ["Background", "Foreground", "Orphan"])
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    return options
