"""Every write: create, update, patch, delete, from a decoded body to a stored revision.

Called by the HTTP handler and by the server's helpers for test set-up; uses the kinds' strategies, patching and
the store; knows no sockets. One write is one Transaction, in the real server's order: patch, decode, default, built-in
admission, mutating webhooks, conflict check, preparation, validation, validating webhooks, no-op check, storage
(k8s.io/apiserver pkg/registry/generic/registry/store.go).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

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
from cloudprovider.testing.apiserver.transaction import Outcome, Transaction
from cloudprovider.testing.apiserver.webhooks import Webhooks

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM_FIELDS: Final = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"
)  # fmt: skip


class Operations:
    """The writes of one server. Safe from many threads: each call holds the store's lock while it reads,
    decides and writes, but for the time in which webhooks are asked.
    """

    def __init__(
        self, store: Store, webhooks: Webhooks | None = None, now: Callable[[], datetime] | None = None
    ) -> None:
        self._store = store
        self._webhooks = webhooks or Webhooks(store, {})
        self._now = now or (lambda: datetime.now(UTC))

    # -- create ------------------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, body: Any, options: Options = DEFAULTS) -> Outcome:
        """Store a new object. Raises StatusError."""
        write = Transaction(self._store, self._webhooks, kind, options)

        def attempt() -> Outcome:
            obj, warnings = decode(kind, body, None, options)
            write.warnings += warnings
            check_namespace(kind, namespace, obj)
            return self._create(write, obj)

        return write.run(attempt)

    def _create(self, write: Transaction, obj: JSON) -> Outcome:
        kind, strategy, meta = write.kind, write.kind.strategy, obj["metadata"]
        namespace = meta.get("namespace", "")
        for field in _SYSTEM_FIELDS:
            meta.pop(field, None)
        strategy.admit(obj)
        if kind.namespaced:
            self._check_namespace_open(kind, meta)
        write.submit("CREATE", namespace, meta.get("name", ""))
        obj = write.mutate(obj, None)
        check_namespace(kind, namespace, obj)
        meta = obj["metadata"]
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = format_time(self._now())
        strategy.prepare_create(obj)
        causes = metadata.validate(meta, kind) + strategy.validate(obj)
        if causes:
            raise errors.invalid(kind.storing_group, kind.kind, meta.get("name", ""), causes)
        write.warnings += strategy.warnings(obj)
        write.validate(obj, None)
        if meta.get("resourceVersion") and not write.options.dry_run:
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        key = kind.key(namespace, meta["name"])
        found = write.find(key)
        if found is not None:
            going = bool(found.object["metadata"].get("deletionTimestamp"))
            raise errors.already_exists(kind.group, kind.plural, meta["name"], going=going)
        return Outcome(201, write.put(key, obj, None))

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
        write = Transaction(self._store, self._webhooks, kind, options)

        def attempt() -> Outcome:
            old = write.find(kind.key(namespace, name))
            obj, warnings = decode(kind, body, old, options)
            write.warnings += warnings
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
                return self._create(write, obj)
            if uid and uid != old.uid:
                raise self._uid_conflict(kind, namespace, name, uid, old.uid)
            return self._replace(write, obj, old)

        return write.run(attempt)

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
        write = Transaction(self._store, self._webhooks, kind, options)

        def attempt() -> Outcome:
            old = write.find(kind.key(namespace, name))
            if old is None:
                raise errors.not_found(kind.group, kind.plural, name)
            obj, warnings = decode_patch(kind, body, content_type, old, options)
            write.warnings += warnings
            check_namespace(kind, namespace, obj)
            check_name(obj, name)
            return self._replace(write, obj, _presentable(kind, old, obj) if old.raw else old)

        return write.run(attempt)

    def _replace(self, write: Transaction, obj: JSON, old: Stored) -> Outcome:
        kind, strategy, options = write.kind, write.kind.strategy, write.options
        write.submit("UPDATE", obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        obj = write.mutate(obj, old)
        meta = obj["metadata"]
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
            raise errors.invalid(kind.storing_group, kind.kind, name, causes)
        if not options.subresource:
            write.warnings += strategy.warnings(obj)
        write.validate(obj, old)
        if obj == old.object:
            return Outcome(200, old)
        if self._ends_deletion(kind, obj, old.object):
            write.remove(old, obj)
            return Outcome(200, Stored(old.key, obj, old.version))
        return Outcome(200, write.put(old.key, obj, old))

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

    def delete(
        self, kind: Kind, namespace: str, name: str, options: Options = DEFAULTS, *, in_collection: bool = False
    ) -> Outcome:
        """Delete an object, or mark it where finalizers hold it; `options.given` are DeleteOptions. Raises StatusError.

        Webhooks are not told the name where it is deleted as one of a collection.
        """
        write = Transaction(self._store, self._webhooks, kind, options)

        def attempt() -> Outcome:
            old = write.find(kind.key(namespace, name))
            if old is None:
                raise errors.not_found(kind.group, kind.plural, name)
            self._check_preconditions(kind, old, options.given.get("preconditions") or {})
            kind.strategy.admit_delete(old.object)
            write.submit("DELETE", namespace, "" if in_collection else name)
            write.may_delete(old)
            return self._delete(write, old)

        return write.run(attempt)

    def _delete(self, write: Transaction, old: Stored) -> Outcome:
        kind = write.kind
        held = bool(old.object["metadata"].get("finalizers"))
        if kind.strategy.has_spec_finalizers:
            held = held or bool(old.object["spec"].get("finalizers"))
        policy = write.options.given.get("propagationPolicy") or ""
        added = {"Foreground": ["foregroundDeletion"], "Orphan": ["orphan"]}.get(policy, [])
        if held or added:
            return Outcome(200, self._mark_deleted(write, old, added))
        removed = write.remove(old)
        if kind.strategy.returns_deleted_object:
            return Outcome(200, removed)
        details = errors.object_details(old.object["metadata"]["name"], kind.group, kind.plural, uid=old.uid)
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Outcome(200, status=status)

    def delete_all(self, kind: Kind, found: Sequence[Stored], options: Options) -> tuple[list[Stored], tuple[str, ...]]:
        """Delete what a list found (deletecollection); what is gone already is passed over. Returns the objects
        deleted, and warnings. Raises StatusError for the first one that cannot be deleted.
        """
        done: list[Stored] = []
        warnings: dict[str, None] = {}
        for stored in found:
            meta = stored.object["metadata"]
            try:
                outcome = self.delete(kind, meta.get("namespace", ""), meta["name"], options, in_collection=True)
            except StatusError as error:
                if error.code != 404:
                    raise
            else:
                done.append(stored)
                warnings |= dict.fromkeys(outcome.warnings)
        return done, tuple(warnings)

    def _mark_deleted(self, write: Transaction, old: Stored, added: list[str]) -> Stored:
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
        write.kind.strategy.mark_deleted(obj)
        return write.put(old.key, obj, old)

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


def _presentable(kind: Kind, old: Stored, obj: JSON) -> Stored:
    """An object that was put in raw as the rules can read it; where it is malformed, as the patch leaves it."""
    try:
        cleaned = kind.struct.clean(old.object, None, "", Context())
    except DecodeError:
        cleaned = {**obj, "metadata": dict(obj["metadata"])}
    head = {"kind": kind.kind, "apiVersion": kind.api_version}
    return Stored(old.key, {**head, **cleaned, **head}, old.version)
