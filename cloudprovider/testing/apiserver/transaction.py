"""The frame of every write: one critical section of the store, the webhooks asked outside of it, and the only place
where something is stored, or is not because it is a dry run.

`operations` makes one Transaction for each write. As the store's lock is released while webhooks are asked, another
write may come in between: then the write starts again on the new state, as the real server's does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import attrs

from cloudprovider.testing.apiserver.decoding import Options
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.kinds import Kind
from cloudprovider.testing.apiserver.store import Store, Stored
from cloudprovider.testing.apiserver.webhookcalls import AdmissionRequest
from cloudprovider.testing.apiserver.webhooks import Review, Webhooks

T = TypeVar("T")


@attrs.frozen
class Outcome:
    """What a write led to: HTTP code, the object as stored (or a Status as `status`), warnings for the client."""

    code: int
    stored: Stored | None = None
    status: JSON | None = None
    warnings: tuple[str, ...] = ()


class Changed(Exception):
    """The object is not what it was before the webhooks were asked."""


class Transaction:
    """One write of one object of a kind. For one thread."""

    def __init__(self, store: Store, webhooks: Webhooks, kind: Kind, options: Options) -> None:
        self._store = store
        self._webhooks = webhooks
        self._review: Review | None = None
        self.kind = attrs.evolve(kind, strategy=kind.strategy.for_dry_run()) if options.dry_run else kind
        self.options = options
        self.warnings: list[str] = []
        """What the client should know, whether the write succeeds or not."""

    def run(self, write: Callable[[], Outcome]) -> Outcome:
        """Carry out a write with the store's lock held, again if another one overtakes it. Raises StatusError."""
        while True:
            self.warnings.clear()
            try:
                with self._store.lock:
                    outcome = write()
            except Changed:
                continue
            except StatusError as error:
                error.warnings = self._told()
                raise
            return attrs.evolve(outcome, warnings=self._told())

    def _told(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.warnings))

    def find(self, key: str) -> Stored | None:
        """The object as it is now."""
        found = self._store.get(self.kind.plural, key)
        return None if found is None else self.kind.shown(found)

    # -- webhooks ----------------------------------------------------------------------------------------------------

    def submit(self, operation: str, namespace: str, name: str) -> None:
        """Look for webhooks that the write must be submitted to; before `mutate` and `validate`."""
        kind, options = self.kind, self.options
        given: Mapping[str, str] = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
        place = namespace if kind.plural != "namespaces" else name
        self._review = self._webhooks.review(
            AdmissionRequest(
                operation,
                kind,
                place,
                name,
                options.subresource,
                options.user,
                {**options.given, **given},
                options.dry_run,
            )
        )

    def mutate(self, obj: JSON, old: Stored | None) -> JSON:
        """The object as the mutating webhooks want it. Raises StatusError, Changed."""
        if self._review is None:
            return obj
        built_in = self.kind.strategy.admit if old is None else _nothing
        mutated = self._asked(lambda review: review.mutate(obj, old.object if old else None, built_in), old)
        return obj if mutated is None else mutated

    def validate(self, obj: JSON, old: Stored | None) -> None:
        """Ask the validating webhooks about the object that is to be stored. Raises StatusError, Changed.

        What it takes (addresses, ports) is held meanwhile.
        """
        if self._review is None:
            return
        strategy, meta = self.kind.strategy, obj["metadata"]
        strategy.created(obj)
        try:
            self._asked(lambda review: review.validate(obj, old.object if old else None), old)
        finally:
            strategy.deleted(obj)
            now = self._store.get(self.kind.plural, self.kind.key(meta.get("namespace", ""), meta["name"]))
            if now is not None:
                strategy.created(now.object)

    def may_delete(self, old: Stored) -> None:
        """Ask both kinds of webhooks about a deletion. Raises StatusError, Changed."""
        if self._review is not None:
            self._asked(lambda review: review.mutate(None, old.object, _nothing), old)
            self._asked(lambda review: review.validate(None, old.object), old)

    def _asked(self, ask: Callable[[Review], T], old: Stored | None) -> T:
        review = self._review
        assert review is not None
        try:
            with self._store.released():
                answer = ask(review)
        finally:
            self.warnings += review.warnings
            review.warnings.clear()
        if old is not None:
            now = self._store.get(self.kind.plural, old.key)
            if now is None or now.version != old.version:
                raise Changed
        return answer

    # -- the end -----------------------------------------------------------------------------------------------------

    def put(self, key: str, obj: JSON, old: Stored | None) -> Stored:
        """Store an object, the next revision of `old` if there is one."""
        strategy = self.kind.strategy
        if self.options.dry_run:
            return Stored(key, obj, old.version if old else 0)
        stored = self._store.put(self.kind.plural, key, self.kind.kept(obj))
        if old is None:
            strategy.created(stored.object)
        else:
            strategy.updated(stored.object, old.object)
        return self.kind.shown(stored)

    def remove(self, old: Stored, last: JSON | None = None) -> Stored:
        """Delete an object; `last` is its final state where that differs from the stored one."""
        if self.options.dry_run:
            return old if last is None else Stored(old.key, last, old.version)
        removed = self._store.remove(self.kind.plural, old.key, None if last is None else self.kind.kept(last))
        self.kind.strategy.deleted(removed.object)
        return self.kind.shown(removed)


def _nothing(obj: JSON) -> None:
    """No admission of the server's own."""
