"""Stage 2: TRIGGER. Turns the start, the clock, a changed file and Nodes that join into keys of the
queue `SSHKeys`.

A key is the fingerprint of a public key. Decides whether there is work, never which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from cloudprovider.helpers.providerid import Ownership, ownership, provider_id_of
from controllers.runtime.cache import uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.queue import WorkQueue


def has_joined(old: V1Node | None, new: V1Node, prefixes: Sequence[str]) -> bool:
    """Whether a machine of this provider has joined with this version of a Node: it is new, or
    another machine's now.

    A Node without a provider ID counts too: whose machine it is, only the cloud can say.
    """
    provider_id = provider_id_of(new)
    if ownership(provider_id, prefixes) is Ownership.FOREIGN:
        return False
    return old is None or (uid_of(old), provider_id_of(old)) != (uid_of(new), provider_id)


class SSHKeyTriggers:
    """The informer's handler, and what else adds keys. Thread-safe.

    `fingerprints` are the present keys', `prefixes` how this provider's IDs begin."""

    def __init__(
        self,
        queue: WorkQueue[str],
        fingerprints: Callable[[], Iterable[str]],
        prefixes: Callable[[], Sequence[str]],
        gather: float,
    ) -> None:
        self._queue = queue
        self._fingerprints = fingerprints
        self._prefixes = prefixes
        self._gather = gather

    def install_all(self) -> None:
        """Every key is due now: at the start, periodically, and when the file has changed."""
        for fingerprint in list(self._fingerprints()):
            self._queue.add(fingerprint)

    def on_add(self, node: V1Node, initial: bool) -> None:
        if not initial:  # every machine that there is gets the keys at the start
            self._changed(None, node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        self._changed(old, new)

    def on_delete(self, node: V1Node) -> None:
        """Nothing to do: its machine's keys went with it."""

    def _changed(self, old: V1Node | None, new: V1Node) -> None:
        if not has_joined(old, new, self._prefixes()):
            return
        for fingerprint in list(self._fingerprints()):
            # A key that waits for its next try needs no other one. One that is tried right now
            # does: the call may have read the list of machines before this one was in it.
            waits = self._queue.num_requeues(fingerprint) and isfinite(self._queue.next_run(fingerprint))
            if not waits:  # nodes that join together cost one call
                self._queue.add_after(fingerprint, self._gather)
