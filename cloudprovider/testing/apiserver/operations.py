"""Every write: create, update, patch, delete, from a decoded body to a stored revision.

Called by the HTTP handler and by the server's helpers for test set-up; uses the kinds' strategies, patching and
the store; knows no sockets. One write is one critical section of the store, in the real server's order: patch,
decode, default, conflict check, admission, preparation, validation, no-op check, storage (k8s.io/apiserver
pkg/registry/generic/registry/store.go).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from cloudprovider.testing.apiserver import errors, metadata
from cloudprovider.testing.apiserver.decoding import (
    DEFAULTS,
    Options,
    check_name,
    check_namespace,
    decode,
    decode_patch,
)
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.kinds import Kind
from cloudprovider.testing.apiserver.schema import Context, DecodeError, format_time
from cloudprovider.testing.apiserver.store import Store, Stored

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


@attrs.frozen
class Outcome:
    """What a write led to: HTTP code, the object as stored (or a Status as `status`), warnings for the client."""

    code: int
    stored: Stored | None = None
    status: JSON | None = None
    warnings: tuple[str, ...] = ()


class Operations:
    """The writes of one server. Safe from many threads: each call holds the store's lock while it reads,
    decides and writes.
    """

    def __init__(self, store: Store, now: Callable[[], datetime] | None = None) -> None:
        self._store = store
        self._now = now or (lambda: datetime.now(UTC))

    # -- create ------------------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, body: Any, options: Options = DEFAULTS) -> Outcome:
        """Store a new object. Raises StatusError."""
        obj, warnings = decode(kind, body, None, options)
        check_namespace(kind, namespace, obj)
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

    def update(self, kind: Kind, namespace: str, name: str, body: Any, options: Options = DEFAULTS) -> Outcome:
        """Replace an object (PUT), or create it where the kind allows that. Raises StatusError."""
        with self._store.lock:
            old = self._store.get(kind.plural, kind.key(namespace, name))
            obj, warnings = decode(kind, body, old, options)
            check_namespace(kind, namespace, obj)
            check_name(obj, name)
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
        options: Options = DEFAULTS,
    ) -> Outcome:
        """Apply a patch of one of the three kinds. Raises StatusError."""
        with self._store.lock:
            old = self._store.get(kind.plural, kind.key(namespace, name))
            if old is None:
                raise errors.not_found(kind.group, kind.plural, name)
            obj, warnings = decode_patch(kind, body, content_type, old, options)
            check_namespace(kind, namespace, obj)
            check_name(obj, name)
            if old.raw:
                old = _presentable(kind, old, obj)
            return _with_warnings(self._replace(kind, obj, old, options), warnings)

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
        """Delete what a list found (deletecollection); what is gone already is passed over. Returns the objects
        deleted.
        """
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
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({old.version}). The object might have been modified"
            )
            raise errors.conflict(kind.group, kind.kind, name, why)


def _with_warnings(outcome: Outcome, first: tuple[str, ...]) -> Outcome:
    return attrs.evolve(outcome, warnings=first + outcome.warnings) if first else outcome


def _presentable(kind: Kind, old: Stored, obj: JSON) -> Stored:
    """An object that was put in raw as the rules can read it; where it is malformed, as the patch leaves it."""
    try:
        cleaned = kind.struct.clean(old.object, None, "", Context())
    except DecodeError:
        cleaned = {**obj, "metadata": dict(obj["metadata"])}
    head = {"kind": kind.kind, "apiVersion": kind.api_version}
    return Stored(old.key, {**head, **cleaned, **head}, old.version)
