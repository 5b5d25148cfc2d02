"""Every write: create, update, patch, delete, from a decoded body to a stored revision.

Called by the HTTP handler and by the server's helpers for test set-up; uses the kinds' strategies, patching and the store; knows no
sockets. One write is one critical section of the store, in the real server's order: patch, decode, default, conflict check,
admission, preparation, validation, no-op check, storage (k8s.io/apiserver pkg/registry/generic/registry/store.go).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from cloudprovider.testing.apiserver import errors, metadata
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.kinds import Kind
from cloudprovider.testing.apiserver.patching import PatchError, go_print, json_patch, merge_patch, strategic_merge
from cloudprovider.testing.apiserver.schema import Context, DecodeError, format_time
from cloudprovider.testing.apiserver.store import Store, Stored, encode

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


@attrs.frozen
class Options:
    """How a write is to be done: `field_validation` is Ignore, Warn or Strict; `subresource` "" or "status"."""

    field_validation: str = "Warn"
    subresource: str = ""
    duplicates: tuple[str, ...] = ()
    """Paths of JSON keys that appeared twice in the body."""


@attrs.frozen
class Outcome:
    """What a write led to: HTTP code, the object as stored (or a Status as `status`), warnings for the client."""

    code: int
    stored: Stored | None = None
    status: JSON | None = None
    warnings: tuple[str, ...] = ()


class Operations:
    """The writes of one server. Safe from many threads: each call holds the store's lock while it reads, decides and writes."""

    def __init__(self, store: Store, now: Callable[[], datetime] | None = None) -> None:
        self._store = store
        self._now = now or (lambda: datetime.now(UTC))

    # -- create ------------------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, body: Any, options: Options = Options()) -> Outcome:
        """Store a new object. Raises StatusError."""
        obj, warnings = self._decode(kind, body, None, options)
        self._check_namespace(kind, namespace, obj)
        with self._store.lock:
            return _with_warnings(self._create(kind, obj), warnings)

    def _create(self, kind: Kind, obj: JSON) -> Outcome:
        meta = obj["metadata"]
        if meta.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            meta.pop(field, None)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = format_time(self._now())
        kind.strategy.admit(obj)
        if kind.namespaced:
            self._check_namespace_open(kind, meta)
        key = kind.key(meta.get("namespace", ""), meta.get("name", ""))
        kind.strategy.prepare_create(obj)
        causes = metadata.validate(meta, kind) + kind.strategy.validate(obj)
        if causes:
            raise errors.invalid(kind.group, kind.kind, meta.get("name", ""), causes)
        if self._store.get(kind.plural, key) is not None:
            raise errors.already_exists(kind.group, kind.plural, meta["name"])
        stored = self._store.put(kind.plural, key, obj)
        kind.strategy.created(stored.object)
        return Outcome(201, stored, warnings=tuple(kind.strategy.warnings(obj)))

    def _check_namespace_open(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        name = meta.get("namespace", "")
        found = self._store.get("namespaces", name)
        if found is None:
            raise errors.not_found("", "namespaces", name)
        if found.object["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            error = errors.forbidden(kind.group, kind.plural, meta.get("name", ""), why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
            error.details = {**(error.details or {}), "causes": [cause]}
            raise error

    # -- update and patch --------------------------------------------------------------------------------------------

    def update(self, kind: Kind, namespace: str, name: str, body: Any, options: Options = Options()) -> Outcome:
        """Replace an object (PUT), or create it where the kind allows that. Raises StatusError."""
        with self._store.lock:
            old = self._store.get(kind.plural, kind.key(namespace, name))
            obj, warnings = self._decode(kind, body, old, options)
            self._check_namespace(kind, namespace, obj)
            self._check_name(obj, name)
            meta = obj["metadata"]
            uid = meta.get("uid")
            if old is None:
                if options.subresource or not kind.strategy.allow_create_on_update:
                    raise errors.not_found(kind.group, kind.plural, name)
                if uid:
                    raise self._uid_conflict(kind, namespace, name, uid, "")
                meta.pop("resourceVersion", None)
                return _with_warnings(self._create(kind, obj), warnings)
            if uid and uid != old.uid:
                raise self._uid_conflict(kind, namespace, name, uid, old.uid)
            return _with_warnings(self._replace(kind, obj, old, options), warnings)

    @staticmethod
    def _uid_conflict(kind: Kind, namespace: str, name: str, wanted: str, found: str) -> StatusError:
        why = (
            f"StorageError: invalid object, Code: 4, Key: {kind.storage_key(namespace, name)}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        )
        return errors.conflict(kind.group, kind.plural, name, why)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Any,
        content_type: str,
        options: Options = Options(),
    ) -> Outcome:
        """Apply a patch of one of the three kinds. Raises StatusError."""
        with self._store.lock:
            old = self._store.get(kind.plural, kind.key(namespace, name))
            if old is None:
                raise errors.not_found(kind.group, kind.plural, name)
            patched = self._apply(kind, old, body, content_type)
            obj, warnings = self._decode_patched(kind, patched, body, content_type, old, options)
            self._check_namespace(kind, namespace, obj)
            self._check_name(obj, name)
            return _with_warnings(self._replace(kind, obj, old, options), warnings)

    def _apply(self, kind: Kind, old: Stored, body: Any, content_type: str) -> Any:
        shown = ""
        try:
            if content_type == JSON_PATCH:
                if not isinstance(body, list):
                    raise errors.bad_request(
                        "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
                    )
                return json_patch(old.object, body)
            if not isinstance(body, dict):
                raise errors.bad_request("error decoding patch: the patch is not a JSON object")
            shown = go_print(body)
            if content_type == MERGE:
                return merge_patch(old.object, body)
            return strategic_merge(old.object, body, kind.struct)
        except PatchError as error:
            if error.code == 422:
                raise StatusError(
                    422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
                ) from error
            if error.code == 500:
                raise StatusError(500, "", str(error)) from error
            raise errors.bad_request(f"{error} in {shown}" if not str(error) else str(error)) from error

    def _replace(self, kind: Kind, obj: JSON, old: Stored, options: Options) -> Outcome:
        meta, strategy = obj["metadata"], kind.strategy
        name = old.object["metadata"].get("name", "")
        version = meta.get("resourceVersion", "")
        if not version or version == "0":
            if not strategy.allow_unconditional_update:
                cause = errors.Cause(
                    "FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion"
                )
                raise errors.invalid(kind.group, kind.plural, name, [cause])
        elif version != str(old.version):
            self._check_version_syntax(version)
            raise errors.conflict(kind.group, kind.plural, name, errors.MODIFIED)
        meta["resourceVersion"] = str(old.version)
        metadata.carry_over(meta, old.object["metadata"])
        if options.subresource == "status":
            strategy.prepare_status(obj, old.object)
            causes = strategy.validate_status(obj, old.object)
        elif options.subresource == "finalize":
            strategy.prepare_finalize(obj, old.object)
            causes = strategy.validate(obj)
        else:
            strategy.prepare_update(obj, old.object)
            causes = strategy.validate_update(obj, old.object)
        causes = metadata.validate_update(meta, old.object["metadata"], kind) + causes
        if causes:
            raise errors.invalid(kind.group, kind.kind, name, causes)
        told = () if options.subresource else tuple(strategy.warnings(obj))
        if obj == old.object:
            return Outcome(200, old, warnings=told)
        if self._ends_deletion(kind, obj, old.object):
            self._remove(kind, old, obj)
            return Outcome(200, Stored(old.key, obj, old.version))
        stored = self._store.put(kind.plural, old.key, obj)
        strategy.updated(stored.object, old.object)
        return Outcome(200, stored, warnings=told)

    @staticmethod
    def _check_version_syntax(version: str) -> None:
        if not version.isascii() or not version.isdigit():
            raise StatusError(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')

    @staticmethod
    def _ends_deletion(kind: Kind, obj: JSON, old: JSON) -> bool:
        """Did this update take the last finalizer off an object that is being deleted?"""
        if not old["metadata"].get("deletionTimestamp") or obj["metadata"].get("finalizers"):
            return False
        return not (kind.strategy.has_spec_finalizers and obj["spec"].get("finalizers"))

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete(self, kind: Kind, namespace: str, name: str, body: Any = None) -> Outcome:
        """Delete an object, or mark it where finalizers hold it. `body` is DeleteOptions. Raises StatusError."""
        options = body if isinstance(body, dict) else {}
        with self._store.lock:
            old = self._store.get(kind.plural, kind.key(namespace, name))
            if old is None:
                raise errors.not_found(kind.group, kind.plural, name)
            self._check_preconditions(kind, old, options.get("preconditions") or {})
            kind.strategy.admit_delete(old.object)
            held = bool(old.object["metadata"].get("finalizers"))
            if kind.strategy.has_spec_finalizers:
                held = held or bool(old.object["spec"].get("finalizers"))
            policy = options.get("propagationPolicy") or ""
            added = {"Foreground": ["foregroundDeletion"], "Orphan": ["orphan"]}.get(policy, [])
            if held or added:
                return Outcome(200, self._mark_deleted(kind, old, added))
            removed = self._remove(kind, old, None)
            if kind.strategy.returns_deleted_object:
                return Outcome(200, removed)
            details = errors.object_details(name, kind.group, kind.plural, uid=old.uid)
            return Outcome(
                200,
                status={"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details},
            )

    def delete_all(self, kind: Kind, found: Sequence[Stored], options: JSON) -> list[Stored]:
        """Delete what a list found (deletecollection); what is gone already is passed over. Returns the objects deleted."""
        done: list[Stored] = []
        for stored in found:
            meta = stored.object["metadata"]
            try:
                self.delete(kind, meta.get("namespace", ""), meta["name"], options)
            except StatusError as error:
                if error.code != 404:
                    raise
            else:
                done.append(stored)
        return done

    def _mark_deleted(self, kind: Kind, old: Stored, added: list[str]) -> Stored:
        meta = dict(old.object["metadata"])
        missing = [one for one in added if one not in (meta.get("finalizers") or ())]
        if meta.get("deletionTimestamp") and not missing:
            return old
        if missing:
            meta["finalizers"] = [*(meta.get("finalizers") or ()), *missing]
        if not meta.get("deletionTimestamp"):
            if meta.get("generation", 0) > 0:
                meta["generation"] += 1
            meta["deletionTimestamp"] = format_time(self._now())
            meta["deletionGracePeriodSeconds"] = 0
        obj = {**old.object, "metadata": meta}
        kind.strategy.mark_deleted(obj)
        return self._store.put(kind.plural, old.key, obj)

    def _remove(self, kind: Kind, old: Stored, last: JSON | None) -> Stored:
        removed = self._store.remove(kind.plural, old.key, last)
        kind.strategy.deleted(removed.object)
        return removed

    def _check_preconditions(self, kind: Kind, old: Stored, wanted: Mapping[str, Any]) -> None:
        name = old.object["metadata"].get("name", "")
        uid, version = wanted.get("uid"), wanted.get("resourceVersion")
        if uid is not None and uid != old.uid:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({old.uid}). "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(kind.group, kind.kind, name, why)
        if version is not None and version != str(old.version):
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({old.version}). "
                "The object might have been modified"
            )
            raise errors.conflict(kind.group, kind.kind, name, why)

    # -- decoding ----------------------------------------------------------------------------------------------------

    def _decode(self, kind: Kind, body: Any, old: Stored | None, options: Options) -> tuple[JSON, tuple[str, ...]]:
        """A body as an object of this kind in stored form, with warnings about dropped fields."""
        if not isinstance(body, dict):
            raise errors.bad_request(
                f"couldn't get version/kind; json parse error: json: cannot unmarshal {type(body).__name__} into Go value"
            )
        self._check_type(kind, body)
        context = Context()
        try:
            obj = kind.struct.clean(body, old.object if old else None, "", context)
        except DecodeError as error:
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
            ) from error
        problems = [f'unknown field "{path}"' for path in context.unknown]
        problems += [f'duplicate field "{path}"' for path in options.duplicates]
        if problems and options.field_validation == "Strict":
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {', '.join(problems)}"
            )
        return self._finish(kind, obj), tuple(problems) if options.field_validation == "Warn" else ()

    def _decode_patched(
        self, kind: Kind, patched: Any, body: Any, content_type: str, old: Stored, options: Options
    ) -> tuple[JSON, tuple[str, ...]]:
        context = Context()
        try:
            obj = kind.struct.clean(patched, old.object, "", context)
        except DecodeError as error:
            raise _unfit(patched, body, content_type, str(error)) from error
        problems = [f'unknown field "{path}"' for path in context.unknown]
        problems += [f'duplicate field "{path}"' for path in options.duplicates]
        if problems and options.field_validation == "Strict":
            raise _unfit(patched, body, content_type, f"strict decoding error: {', '.join(problems)}")
        named, version = obj.get("kind"), obj.get("apiVersion")
        if content_type != STRATEGIC and (named != kind.kind or version != kind.api_version):
            raise _unfit(patched, body, content_type, _conversion_problem(kind, str(named), str(version)))
        return self._finish(kind, obj), tuple(problems) if options.field_validation == "Warn" else ()

    def _finish(self, kind: Kind, obj: JSON) -> JSON:
        head = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": dict(obj["metadata"])}
        obj = {**head, **obj, **head}
        obj["metadata"].pop("managedFields", None)
        obj["metadata"].pop("selfLink", None)
        kind.strategy.default(obj)
        return obj

    @staticmethod
    def _check_type(kind: Kind, obj: Mapping[str, Any]) -> None:
        version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
        if name != kind.kind or version != kind.api_version:
            if version != kind.api_version and name == kind.kind:
                raise errors.bad_request(
                    f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
                )
            raise errors.bad_request(
                f'{name} in version "{version.rpartition("/")[2]}" cannot be handled as a {kind.kind}: '
                f"converting (v1.{name}) to (core.{kind.kind}): unknown conversion"
            )

    @staticmethod
    def _check_namespace(kind: Kind, namespace: str, obj: JSON) -> None:
        meta = obj["metadata"]
        if not kind.namespaced:
            if meta.get("namespace"):
                del meta["namespace"]
            return
        if not meta.get("namespace"):
            meta["namespace"] = namespace
        elif meta["namespace"] != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )

    @staticmethod
    def _check_name(obj: JSON, name: str) -> None:
        meta = obj["metadata"]
        if not meta.get("name"):
            raise errors.bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )
        if meta["name"] != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )


def _with_warnings(outcome: Outcome, first: tuple[str, ...]) -> Outcome:
    return attrs.evolve(outcome, warnings=first + outcome.warnings) if first else outcome


def _unfit(patched: Any, body: Any, content_type: str, why: str) -> StatusError:
    """422 for a patch whose result is no object of the kind."""
    shown = go_print(body) if content_type == STRATEGIC else encode(patched).decode()
    return errors.invalid("", "", "", [errors.invalid_value("patch", shown, why)])


def _conversion_problem(kind: Kind, named: str, version: str) -> str:
    if version != kind.api_version:
        return f'no kind "{named}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    return f"converting (v1.{named}) to (core.{kind.kind}): unknown conversion"
