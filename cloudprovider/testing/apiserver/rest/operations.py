"""Every write: create, update, patch, delete, from a decoded body to a stored revision. No sockets.

The order is the real server's: patch, decode, default, built-in admission, conflict check,
preparation, validation, no-op check, storage (k8s.io/apiserver
pkg/registry/generic/registry/store.go)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import attrs

from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.kinds import metadata
from cloudprovider.testing.apiserver.kinds.kind import Kind
from cloudprovider.testing.apiserver.kinds.schema import format_time
from cloudprovider.testing.apiserver.rest.decoding import (
    DEFAULTS,
    Options,
    check_name,
    check_namespace,
    decode,
    decode_patch,
)
from cloudprovider.testing.apiserver.storage import Store, Stored

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM_FIELDS: Final = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"
)  # fmt: skip


@attrs.frozen
class Outcome:
    """What a write led to: HTTP code, the object as stored (or a `status`), warnings."""

    code: int
    stored: Stored | None = None
    status: JSON | None = None
    warnings: tuple[str, ...] = ()


class Operations:
    """The writes of one server. Safe from many threads: each call holds the store's lock while it
    reads, decides and writes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    # -- create

    def create(self, kind: Kind, namespace: str, body: Any, options: Options = DEFAULTS) -> Outcome:
        """Store a new object. Raises StatusError."""
        with self._store.lock:
            obj, warnings = decode(kind, body, None, options)
            check_namespace(kind, namespace, obj)
            if options.user is not None:
                kind.strategy.sent_by(obj, options.user)
            return Outcome(201, self._create(kind, obj), warnings=warnings)

    def _create(self, kind: Kind, obj: JSON) -> Stored:
        strategy, meta = kind.strategy, obj["metadata"]
        namespace = meta.get("namespace", "")
        for field in _SYSTEM_FIELDS:
            # The server's own, whatever a client has copied from another object.
            meta.pop(field, None)
        # Before validation, as admission may fill in what validation wants.
        strategy.admit(obj)
        if kind.namespaced and self._store.get("namespaces", namespace) is None:
            raise errors.not_found("", "namespaces", namespace)
        if not meta.get("name") and meta.get("generateName"):
            # 63 characters at most, as a name may become a label.
            meta["name"] = meta["generateName"][:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = format_time(datetime.now(UTC))
        strategy.prepare_create(obj)
        causes = metadata.validate(meta, kind) + strategy.validate(obj)
        if causes:
            raise errors.invalid(kind.group, kind.kind, meta.get("name", ""), causes)
        if meta.get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        key = kind.key(namespace, meta["name"])
        found = self._store.get(kind.plural, key)
        # Last of all: a malformed object is told as such even if its name is taken.
        if found is not None:
            going = bool(found.object["metadata"].get("deletionTimestamp"))
            raise errors.already_exists(kind.group, kind.plural, meta["name"], going=going)
        stored = self._store.put(kind.plural, key, obj)
        strategy.created(stored.object)
        return stored

    # -- update and patch

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
                # Leases and Events may be created by a PUT; nodes and Services may not.
                if options.subresource or not kind.strategy.allow_create_on_update:
                    raise errors.not_found(kind.group, kind.plural, name)
                if uid:
                    raise self._uid_conflict(kind, namespace, name, uid, "")
                # That of an object that was there before means nothing for the new one.
                meta.pop("resourceVersion", None)
                return Outcome(201, self._create(kind, obj), warnings=warnings)
            # The client has read another object of this name: nothing of it may go into this one.
            if uid and uid != old.uid:
                raise self._uid_conflict(kind, namespace, name, uid, old.uid)
            return Outcome(200, self._replace(kind, obj, old, options), warnings=warnings)

    @staticmethod
    def _uid_conflict(kind: Kind, namespace: str, name: str, wanted: str, found: str) -> StatusError:
        why = (
            f"StorageError: invalid object, Code: 4, Key: {kind.storage_key(namespace, name)}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        )
        return errors.conflict(kind.group, kind.plural, name, why)

    def patch(
        self, kind: Kind, namespace: str, name: str, body: Any, content_type: str, options: Options = DEFAULTS
    ) -> Outcome:
        """Apply a patch of one of the three kinds. Raises StatusError."""
        with self._store.lock:
            old = self._find(kind, namespace, name)
            obj, warnings = decode_patch(kind, body, content_type, old, options)
            check_namespace(kind, namespace, obj)
            check_name(obj, name)
            return Outcome(200, self._replace(kind, obj, old, options), warnings=warnings)

    def _find(self, kind: Kind, namespace: str, name: str) -> Stored:
        found = self._store.get(kind.plural, kind.key(namespace, name))
        if found is None:
            raise errors.not_found(kind.group, kind.plural, name)
        return found

    def _replace(self, kind: Kind, obj: JSON, old: Stored, options: Options) -> Stored:
        strategy, meta = kind.strategy, obj["metadata"]
        name = old.object["metadata"].get("name", "")
        version = meta.get("resourceVersion", "")
        # "Whatever is there now", which a Lease must never say: two leaders would overwrite each
        # other.
        if not version or version == "0":
            if not strategy.allow_unconditional_update:
                cause = errors.Cause(
                    "FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion"
                )
                raise errors.invalid(kind.group, kind.plural, name, [cause])
        elif version != str(old.version):
            if not version.isascii() or not version.isdigit():
                raise StatusError(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')
            raise errors.conflict(kind.group, kind.plural, name, errors.MODIFIED)
        # For the comparison below: an update that changes nothing must equal what is stored.
        meta["resourceVersion"] = str(old.version)
        metadata.carry_over(meta, old.object["metadata"])
        if options.subresource == "status":
            strategy.prepare_status(obj, old.object)
            causes = strategy.validate_status(obj, old.object)
        elif options.subresource == "approval":
            strategy.prepare_approval(obj, old.object)
            causes = []
        else:
            strategy.prepare_update(obj, old.object)
            causes = strategy.validate_update(obj, old.object)
        causes = metadata.validate_update(meta, old.object["metadata"], kind) + causes
        if causes:
            raise errors.invalid(kind.group, kind.kind, name, causes)
        # No write, no new version, no event: controllers that write what is there already cost
        # nothing.
        if obj == old.object:
            return old
        # What its deletion waited for is done.
        if old.object["metadata"].get("deletionTimestamp") and not meta.get("finalizers"):
            self._remove(kind, old, obj)  # this update took the last finalizer off
            return Stored(old.key, obj, old.version)
        stored = self._store.put(kind.plural, old.key, obj)
        strategy.updated(stored.object, old.object)
        return stored

    # -- delete

    def delete(self, kind: Kind, namespace: str, name: str, given: Mapping[str, Any] = MappingProxyType({})) -> Outcome:
        """Delete an object, or mark it where finalizers hold it; `given`: DeleteOptions."""
        with self._store.lock:
            old = self._find(kind, namespace, name)
            self._check_preconditions(kind, old, given.get("preconditions") or {})
            policy = given.get("propagationPolicy") or ""
            added = {"Foreground": ["foregroundDeletion"], "Orphan": ["orphan"]}.get(policy, [])
            # The object stays until who put the finalizer there takes it off.
            if added or old.object["metadata"].get("finalizers"):
                return Outcome(200, self._mark_deleted(kind, old, added))
            removed = self._remove(kind, old)
            if kind.strategy.returns_deleted_object:
                return Outcome(200, removed)
            details = errors.object_details(old.object["metadata"]["name"], kind.group, kind.plural, uid=old.uid)
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            return Outcome(200, status=status)

    def _remove(self, kind: Kind, old: Stored, last: JSON | None = None) -> Stored:
        removed = self._store.remove(kind.plural, old.key, last)
        kind.strategy.deleted(removed.object)
        return removed

    def _mark_deleted(self, kind: Kind, old: Stored, added: list[str]) -> Stored:
        meta = dict(old.object["metadata"])
        missing = [one for one in added if one not in (meta.get("finalizers") or ())]
        if meta.get("deletionTimestamp") and not missing:
            return old
        if missing:
            meta["finalizers"] = [*(meta.get("finalizers") or ()), *missing]
        if not meta.get("deletionTimestamp"):
            # A deletion counts as a change of what is wanted; kinds without a generation get none.
            if meta.get("generation", 0) > 0:
                meta["generation"] += 1
            meta["deletionTimestamp"] = format_time(datetime.now(UTC))
            meta["deletionGracePeriodSeconds"] = 0
        return self._store.put(kind.plural, old.key, {**old.object, "metadata": meta})

    def _check_preconditions(self, kind: Kind, old: Stored, wanted: Mapping[str, Any]) -> None:
        name = old.object["metadata"].get("name", "")
        uid, version = wanted.get("uid"), wanted.get("resourceVersion")
        # What a controller saw gone is not what stands there now: a machine of the same name, say.
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
