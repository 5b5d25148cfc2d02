"""The ssh-key controller: the public keys of a file are installed on all machines, for a user to
log in.

Wires the stages: informer and file (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5).
A key of the queue `SSHKeys` is the fingerprint of a public key. Runs in the manager, or alone in a
program of your own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from cloudprovider.helpers.providerid import Ownership, ownership, provider_id_of
from cloudprovider.internal.backoff import Backoff
from cloudprovider.internal.cleaning import conceal
from controllers.cloudcalls import CloudCallError
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory, uid_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling
from controllers.sshkeys.keyfile import KeyFile, KeyFileProblems
from controllers.sshkeys.reconcile import SSHKeyMetrics, SSHKeyReconciler
from controllers.sshkeys.registration import SSHKeyOptions

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.queue import WorkQueue

log = logging.getLogger(__name__)

_BACKOFF = Backoff(base=1.0, cap=300.0)


class SSHKeyController(ControllerBase):
    """Installs SSH keys on every machine: at the start, when the file changes, when nodes have
    joined, and hourly.

    Takes what every controller takes: clients, shared informers, the gateway to one provider,
    `options`. It does not start the informers. `run` may be called once. Raises ValueError at
    construction when the provider installs no keys, user or file are missing, or the file cannot be
    used. A key that leaves the file stays on the machines: the contract has no way to remove it.

    Follows: the SSH tunneler that kube-apiserver had until 1.20, with a key of its own."""

    NAME = "ssh-key-controller"
    CLIENT = "ssh-key-controller"

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: SSHKeyOptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        calls = cloud.ssh_keys
        if calls is None:
            raise ValueError(
                f"cloud provider {cloud.provider_name!r} installs no SSH keys: none of its instances is an SSHKeys"
            )
        options = options or SSHKeyOptions()
        if not (options.ssh_user and options.ssh_keyfile):
            raise ValueError("it needs a user and a file of keys. Fix: give --ssh-user and --ssh-keyfile")
        try:
            self._file = KeyFile(options.ssh_keyfile)
        except KeyFileProblems as problems:
            raise ValueError(
                f"--ssh-keyfile={options.ssh_keyfile} cannot be used: {problems}. Fix: name a file of public keys"
            ) from None
        super().__init__(clients, options, metrics, clock)
        self._own_metrics = SSHKeyMetrics(self._metrics, clock)
        self._taken()
        queue = self._queue("SSHKeys", backoff=_BACKOFF)
        self._triggers = SSHKeyTriggers(queue, self._file, cloud, options.gather)
        self._reconciler = SSHKeyReconciler(options.ssh_user, self._file, calls, self._recorder, self._own_metrics)
        self._watch(informers.informer(NODES), self._triggers)
        self._every(options.ssh_key_sync_period, "repetition", self._triggers.install_all)
        self._every(options.file_period, "file", self.look)
        self._add_worker(
            queue,
            self._reconciler.reconcile,
            threads=1,  # a key at a time: many clouds change a list in one place
            failures=FailureHandling(
                on_error=self._reconciler.failed,
                expected=(CloudCallError,),
                noun="SSH key",
                controller=self.NAME,
            ),
        )

    def look(self) -> None:
        """Read the file again, and install what it holds if it has changed. Also done regularly."""
        before = set(self._file.keys)
        # A file that is broken now costs nothing: the machines keep the keys that they have.
        try:
            if not self._file.look():
                return
        except KeyFileProblems as problems:
            self._reconciler.refused(problems)
            return
        gone = sorted(before - set(self._file.keys))
        log.info("%s has changed: %d keys", self._file.path, len(self._file.keys))
        # Whoever removes a key believes that it lets nobody in any more: they have to hear of this.
        if gone:
            log.warning("no longer in %s, and not removed from any machine: %s", self._file.path, ", ".join(gone))
        self._taken()
        self._triggers.install_all()

    def _taken(self) -> None:
        """The file's keys are those to install now. All at once: each call of `conceal` costs what
        all values cost."""
        conceal(key.blob for key in self._file.keys.values())
        self._own_metrics.file_read(self._file.keys)


def has_joined(old: V1Node | None, new: V1Node, prefixes: Sequence[str]) -> bool:
    """Whether a machine of this provider has joined with this version of a Node: it is new, or
    another machine's now.

    A Node without a provider ID counts too: whose machine it is, only the cloud can say.
    """
    provider_id = provider_id_of(new)
    # Another cloud's machine joined, which no call of ours can reach.
    if ownership(provider_id, prefixes) is Ownership.FOREIGN:
        return False
    return old is None or (uid_of(old), provider_id_of(old)) != (uid_of(new), provider_id)


class SSHKeyTriggers:
    """What adds keys: the start, the clock, a changed file, Nodes that join. Thread-safe. Decides
    whether there is work, never which."""

    def __init__(self, queue: WorkQueue[str], file: KeyFile, cloud: CloudCalls, gather: float) -> None:
        self._queue = queue
        self._file = file
        self._cloud = cloud
        self._gather = gather

    def install_all(self) -> None:
        """Every key is due now: at the start, periodically, and when the file has changed."""
        for fingerprint in list(self._file.keys):
            self._queue.add(fingerprint)

    def on_add(self, node: V1Node, initial: bool) -> None:
        if not initial:  # every machine that there is gets the keys at the start
            self._changed(None, node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        self._changed(old, new)

    def on_delete(self, node: V1Node) -> None:
        """Nothing to do: its machine's keys went with it."""

    def _changed(self, old: V1Node | None, new: V1Node) -> None:
        if not has_joined(old, new, self._cloud.provider_id_prefixes):
            return
        for fingerprint in list(self._file.keys):
            # A key that waits for its next try needs no other one. One that is tried right now
            # does: the call may have read the list of machines before this one was in it.
            waits = self._queue.num_requeues(fingerprint) and isfinite(self._queue.next_run(fingerprint))
            if not waits:  # nodes that join together cost one call
                self._queue.add_after(fingerprint, self._gather)
