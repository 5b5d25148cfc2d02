"""Stage 6: minimal patches, made by pure functions, and their writing with a retry on conflict.
Typed objects are never sent back whole: the client's models drop fields that they don't know.

Which kind of patch for what, as kube-apiserver treats them: JSON merge patch (RFC 7386) for maps
and scalars; strategic merge patch for lists merged by key (conditions, finalizers) and for
addresses, there with `$patch: replace`; taints are an atomic list, so they are written whole, by
merge patch, and only onto the version that they were computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from attrs import field, frozen

from controllers.runtime.api import (
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_PATCH,
    Conflict,
    Invalid,
    Response,
    RestClient,
    ServerError,
)

JSON = dict[str, Any]
T = TypeVar("T")

DEFAULT_ATTEMPTS: Final = 5

_TIMES: Final = ("lastTransitionTime", "lastHeartbeatTime", "lastProbeTime", "lastUpdateTime")


class ObjectReplaced(Exception):
    """The object of that name is another one now (other UID): what was computed is void."""


@frozen
class Patch:
    """One write. False when it would change nothing."""

    body: JSON = field(factory=dict)
    content_type: str = MERGE_PATCH
    subresource: str = ""
    """"status" or ""."""
    versioned: bool = False
    """Holds only for the version that it was computed from: it replaces an atomic list."""

    def __bool__(self) -> bool:
        return bool(self.body)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> JSON:
    """The smallest JSON merge patch that turns `old` into `new`: null where gone, lists whole.

    {} when they are equal. Raises ValueError when `new` holds a null in a map, beyond a merge
    patch."""
    patch: JSON = {key: None for key in old if key not in new}
    for key, value in new.items():
        if value is None:
            raise ValueError(f"a merge patch cannot set {key!r} to null; leave the key out")
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif not _same(before, value):
            patch[key] = merge_patch({}, value) if isinstance(value, Mapping) else value
    return patch


def changed(old: Mapping[str, Any], new: Mapping[str, Any], *, subresource: str = "") -> Patch:
    """What turns `old` into `new`, as JSON merge patch: labels, annotations, provider ID."""
    return Patch(merge_patch(old, new), MERGE_PATCH, subresource)


def addresses_replaced(old: Sequence[Any] | None, new: Sequence[Any]) -> Patch:
    """Put `new` in the place of a node's addresses, order included; V1NodeAddress or their JSON."""
    wanted = [to_json(address) for address in new]
    if [to_json(address) for address in old or ()] == wanted:
        return Patch()
    return Patch({"status": {"addresses": [{"$patch": "replace"}, *wanted]}}, STRATEGIC_PATCH, "status")


def condition_set(old: Sequence[Any] | None, condition: Mapping[str, Any], *, now: str) -> Patch:
    """Set one condition of a node or service, all others untouched.

    `condition` is its JSON; a `lastTransitionTime` in it is left out of account: it becomes `now`
    (RFC 3339) when the status changes, else it stays. Times alone are not written."""
    wanted = {key: value for key, value in condition.items() if key != "lastTransitionTime"}
    before = next((c for c in map(to_json, old or ()) if c.get("type") == wanted["type"]), None)
    # The kubelet refreshes heartbeats all the time: times alone are no change of ours to write.
    if before is not None:
        if _without_times(before) == _without_times(wanted):
            return Patch()
        # What the new one lacks must go, or the merge would keep a former reason or message.
        wanted |= {key: None for key in before if key not in wanted and key not in _TIMES}
    same_status = before is not None and before.get("status") == wanted.get("status")
    if not same_status or before is None or "lastTransitionTime" not in before:
        wanted["lastTransitionTime"] = now
    return Patch({"status": {"conditions": [wanted]}}, STRATEGIC_PATCH, "status")


def finalizer_added(old: Iterable[str] | None, finalizer: str) -> Patch:
    """Add a finalizer, the others untouched."""
    if finalizer in (old or ()):
        return Patch()
    return Patch({"metadata": {"finalizers": [finalizer]}}, STRATEGIC_PATCH)


def finalizer_removed(old: Iterable[str] | None, finalizer: str) -> Patch:
    """Remove a finalizer, the others untouched."""
    if finalizer not in (old or ()):
        return Patch()
    return Patch({"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}}, STRATEGIC_PATCH)


def taints_changed(
    old: Sequence[Any] | None, *, add: Sequence[Any] = (), remove: Callable[[Mapping[str, Any]], bool] | None = None
) -> Patch:
    """Add and remove taints, keeping every other one as it is; V1Taint or their JSON.

    A taint is identified by key and effect; one that is added replaces its former self. `remove`
    tells which of the present ones go, before `add`. The patch writes the whole list, so it is
    versioned.
    """
    before = [to_json(taint) for taint in old or ()]
    after = [taint for taint in before if remove is None or not remove(taint)]
    for taint in map(to_json, add):
        same = [place for place, other in enumerate(after) if _taint_id(other) == _taint_id(taint)]
        if not same:
            after.append(taint)
        # Its time of adding is left out: it would make every taint a new one.
        elif after[same[0]].get("value", "") != taint.get("value", ""):
            after[same[0]] = taint
    if after == before:
        return Patch()
    return Patch({"spec": {"taints": after or None}}, MERGE_PATCH, versioned=True)


def combined(*patches: Patch) -> Patch:
    """Several patches as one write, in which none contradicts another.

    Raises ValueError when they differ in kind or subresource, or disagree about a field."""
    present = [patch for patch in patches if patch]
    if not present:
        return Patch()
    first = present[0]
    body: JSON = {}
    for patch in present:
        # They are sent in one request, which has one media type and one path.
        if (patch.content_type, patch.subresource) != (first.content_type, first.subresource):
            raise ValueError(f"cannot combine {patch.content_type} {patch.subresource} with {first.content_type}")
        body = _joined(body, patch.body, "")
    return Patch(body, first.content_type, first.subresource, any(patch.versioned for patch in present))


def patch(
    rest: RestClient,
    path: str,
    body: Mapping[str, Any],
    content_type: str,
    *,
    metadata_only: bool = True,
    uid: str | None = None,
    resource_version: str | None = None,
    timeout: float | None = None,
) -> JSON | None:
    """Send one patch and return the resulting object, or its metadata alone; None when it is empty.

    `uid` and `resource_version` are preconditions. Raises ObjectReplaced for another UID, Conflict
    for another version, and every other ApiError. May be repeated: a patch says what shall be, not
    what to do."""
    if not body:
        return None
    accept = METADATA_ONLY if metadata_only else "application/json"
    found: JSON = _send(rest, path, body, content_type, accept, uid, resource_version, timeout).json()
    return found


def _send(
    rest: RestClient,
    path: str,
    body: Mapping[str, Any],
    content_type: str,
    accept: str,
    uid: str | None,
    resource_version: str | None,
    timeout: float | None,
) -> Response:
    preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
    if preconditions:
        body = {**body, "metadata": {**body.get("metadata", {}), **preconditions}}
    try:
        return rest.request("PATCH", path, body=body, content_type=content_type, accept=accept, timeout=timeout)
    except Invalid as error:
        # With a UID in the patch the API server refuses an object created again under its name, as
        # invalid.
        if uid and _is_about_uid(error):
            raise ObjectReplaced(f"{path} is no longer the object with UID {uid}") from error
        raise


def apply(
    rest: RestClient,
    path: str,
    obj: T,
    plan: Callable[[T], Sequence[Patch]],
    parse: Callable[[JSON], T],
    *,
    attempts: int = DEFAULT_ATTEMPTS,
    timeout: float | None = None,
) -> T | None:
    """Write what `plan` makes of `obj`, in that order; on a conflict again, of the fresh object.

    `path` is the object's, without subresource. `plan` is pure and is called once per attempt; what
    it knows from the cloud it keeps, so no cloud call is repeated. `parse` makes a fresh raw object
    what `obj` is.

    Returns the object that the written patches were computed from, None when there was nothing to
    write. Raises ObjectReplaced when the object was recreated, NotFound when it is gone, Conflict
    after `attempts`, and every other ApiError: then some of the patches may have been written, and
    the next plan leaves them out.
    """
    uid = _metadata(obj, "uid")
    while True:
        patches = [planned for planned in plan(obj) if planned]
        # Nothing to do, or another writer has done it since: no request, and no Event.
        if not patches:
            return None
        version = _metadata(obj, "resourceVersion")
        try:
            for place, planned in enumerate(patches):
                # Once one is bound to the version, so are those before it, whose answers tell the
                # next version.
                bound = any(later.versioned for later in patches[place:])
                answer = _send(
                    rest,
                    f"{path}/{planned.subresource}" if planned.subresource else path,
                    planned.body,
                    planned.content_type,
                    METADATA_ONLY,
                    uid,
                    version if bound else None,
                    timeout,
                )
                if place + 1 < len(patches):
                    version = _metadata(answer.json(), "resourceVersion")
                    if version is None:  # without it the next one would hold for whatever is there by then
                        raise ServerError(f"{path}: the answer has no resourceVersion", status=answer.status)
                else:
                    answer.look()
            return obj
        except Conflict:
            attempts -= 1
            if attempts <= 0:
                raise
        # Read from etcd, not from the cache: that may be as old as what has just conflicted.
        raw = rest.get(path, timeout=timeout)
        if uid and _metadata(raw, "uid") not in (uid, None):  # without one it is no object: `parse` says so
            raise ObjectReplaced(f"{path} is no longer the object with UID {uid}")
        obj = parse(raw)


def to_json(item: Any) -> JSON:
    """The API's JSON of a model of the official client; JSON is returned as it is."""
    if isinstance(item, dict):
        return item
    found: JSON = item.model_dump(by_alias=True, exclude_none=True, mode="json")
    return found


def _same(one: object, other: object) -> bool:
    """Equality of JSON values, in which true is not 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    # In Python True == 1; in a label or a patch they differ.
    return type(one) is type(other) and one == other


def _without_times(condition: Mapping[str, Any]) -> JSON:
    return {key: value for key, value in condition.items() if key not in _TIMES}


def _taint_id(taint: Mapping[str, Any]) -> tuple[object, object]:
    return taint.get("key"), taint.get("effect")


def _joined(one: Mapping[str, Any], other: Mapping[str, Any], where: str) -> JSON:
    joined = dict(one)
    for key, value in other.items():
        if key not in joined:
            joined[key] = value
        elif isinstance(joined[key], dict) and isinstance(value, dict):
            joined[key] = _joined(joined[key], value, f"{where}{key}.")
        elif not _same(joined[key], value):
            raise ValueError(f"two patches say different things of {where}{key}")
    return joined


def _is_about_uid(error: Invalid) -> bool:
    causes = error.details.get("causes") or ()
    return any(isinstance(cause, Mapping) and cause.get("field") == "metadata.uid" for cause in causes)


def _metadata(obj: object, name: str) -> str | None:
    """A field of the metadata of a raw or a typed object."""
    if isinstance(obj, Mapping):
        value = (obj.get("metadata") or {}).get(name)
    else:
        attribute = {"uid": "uid", "resourceVersion": "resource_version"}[name]
        value = getattr(getattr(obj, "metadata", None), attribute, None)
    return value if isinstance(value, str) and value else None
