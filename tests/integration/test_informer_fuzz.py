"""Informers against an API server that does everything wrong: whatever happens, the cache ends at
the server's state, and each handler saw a history that makes sense for each object.

The steps are drawn by hypothesis from a fixed seed; what a handler sees is checked while it sees
it.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.apiserver.faults import Action, Fault
from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientBuilder, ClientSettings, Response, RestClient
from controllers.runtime.api.linestream import LineStream
from controllers.runtime.cache import NODES, Registration, uid_of, version_of
from controllers.runtime.cache.informer import Informer
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import JSON

EXAMPLES = int(os.environ.get("INFORMER_FUZZ", "40"))
CONVERGE = 20.0
NAMES = "abcdefg"
QUICK = WatchOptions(
    page_size=2,
    watch_timeout=(1, 3),
    silence=0.3,
    list_timeout=2.0,
    first_delay=0.005,
    longest_delay=0.03,
    stable_after=0.2,
)

Step = tuple[Any, ...]

CHANGES = st.tuples(
    st.sampled_from(["create", "touch", "touch", "delete", "recreate", "spoil", "heal"]), st.sampled_from(NAMES)
)
BREAKS = st.tuples(
    st.just("break"),
    st.sampled_from([Action.RESET, Action.TRUNCATE, Action.EXPIRE, Action.HALF_OPEN, Action.CLOSE]),
)
WATCH_RULES = st.tuples(
    st.just("watches"),
    st.sampled_from([Action.RESET, Action.TRUNCATE, Action.EXPIRE, Action.HALF_OPEN, Action.CLOSE]),
    st.integers(1, 3),  # how often
    st.integers(0, 3),  # after so many events
)
LIST_RULES = st.tuples(
    st.just("lists"),
    st.sampled_from([Action.RESET, Action.LOSE_RESPONSE, Action.TRUNCATE, Action.EXPIRE, Action.STALE_LIST]),
    st.integers(1, 3),
    st.integers(0, 20),  # for stale lists: how many versions behind
)
STATUS_RULES = st.tuples(st.just("status"), st.sampled_from([429, 500, 503, 504, 403, 401]), st.integers(1, 3))
OTHERS = st.sampled_from(
    [("compact",), ("restart",), ("restart-and-forget",), ("slow", 0.02), ("pause", 0.01), ("pause", 0.05),
     ("handler",), ("remove",)]
)  # fmt: skip
REWINDS = st.tuples(st.just("rewind"), st.integers(1, 12), st.integers(1, 2))
FAULTS = st.one_of(BREAKS, WATCH_RULES, LIST_RULES, STATUS_RULES, REWINDS, OTHERS)
STEPS = st.lists(st.integers(0, 4).flatmap(lambda dice: FAULTS if dice == 0 else CHANGES), min_size=30, max_size=70)


class RewindingRest:
    """A client whose next watches start from an earlier version than asked for: a replica that
    repeats itself."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self._rewinds: list[int] = []

    def rewind(self, versions: int, times: int) -> None:
        self._rewinds += [versions] * times

    @property
    def protobuf(self) -> bool:
        return self._rest.protobuf

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> Response:
        return self._rest.request(method, path, query=query, accept=accept, timeout=timeout)

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout: float, accept: str = JSON) -> LineStream:
        if self._rewinds:
            version = max(1, int(query["resourceVersion"]) - self._rewinds.pop())
            query = {**query, "resourceVersion": str(version)}
        return self._rest.stream(path, query=query, read_timeout=read_timeout, accept=accept)


class Witness:
    """A handler that follows each object and notes whatever cannot follow from what it saw
    before."""

    def __init__(self) -> None:
        self.known: dict[str, V1Node] = {}
        self.wrong: list[str] = []
        self.initial_over = False

    def add(self, new: V1Node, initial: bool) -> None:
        name = _name(new)
        if name in self.known:
            self._complain(f"{name} added, though it was there")
        if initial and self.initial_over:
            self._complain(f"{name} is initial, though changes came before")
        self.initial_over = self.initial_over or not initial
        self.known[name] = new

    def update(self, old: V1Node, new: V1Node) -> None:
        name = _name(new)
        if self.known.get(name) is not old:
            self._complain(f"{name} updated from what was not the last state seen")
        if uid_of(old) != uid_of(new):
            self._complain(f"{name} changed its UID in an update")
        if int(version_of(new)) <= int(version_of(old)):
            self._complain(f"{name} went from version {version_of(old)} to {version_of(new)}")
        self.initial_over = True
        self.known[name] = new

    def delete(self, last: V1Node) -> None:
        name = _name(last)
        known = self.known.pop(name, None)
        if known is None:
            self._complain(f"{name} deleted, though it was not there")
        elif uid_of(known) != uid_of(last) or int(version_of(last)) < int(version_of(known)):
            self._complain(f"{name} deleted with a state that is not its last")
        self.initial_over = True

    def _complain(self, what: str) -> None:
        self.wrong.append(what)


class Run:
    """One example: a server, an informer over real connections, and the witnesses."""

    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedAPIServer(bookmark_interval=0.1).start()
        for name in NAMES[:5]:
            self._create(name)
        self.clients = ClientBuilder.from_options(
            kubeconfig=str(self.server.write_kubeconfig(folder / f"kubeconfig-{self.server.port}")),
            settings=ClientSettings(timeout=2.0),
        )
        self.metrics = Metrics()
        self.rest = RewindingRest(self.clients.rest("shared-informers"))
        self.informer = Informer(cast(RestClient, self.rest), NODES, metrics=self.metrics, options=QUICK)
        self.witnesses: list[tuple[Witness, Registration[V1Node]]] = []
        self.counter = itertools.count()

    def close(self) -> None:
        try:
            assert self.informer.stop(1.0), "the informer did not stop within a second"
        finally:
            self.clients.close()
            self.server.stop()

    def do(self, step: Step) -> None:
        what, *rest = step
        faults = self.server.faults
        if what == "break":
            faults.break_watches(rest[0])
        elif what == "watches":
            faults.add(Fault(rest[0], "GET", "/nodes", rest[1], True, rest[2]))
        elif what == "lists":
            behind = max(1, self.server.version - rest[2])
            faults.add(Fault(rest[0], "GET", "/nodes", rest[1], False, version=behind))
        elif what == "status":
            faults.status(rest[0], path="/nodes", count=rest[1], retry_after=0 if rest[0] == 429 else None)
        elif what == "rewind":
            self.rest.rewind(rest[0], rest[1])
        elif what == "slow":
            faults.latency(rest[0], path="/nodes", count=2)
        elif what == "pause":
            time.sleep(rest[0])
        elif what == "compact":
            self.server.compact()
        elif what in ("restart", "restart-and-forget"):
            self.server.restart(forget_history=what == "restart-and-forget")
        elif what == "handler":
            self.watch_along()
        elif what == "remove":
            if len(self.witnesses) > 1:
                self.witnesses.pop()[1].remove()
        else:
            self._change(what, rest[0])

    def watch_along(self) -> None:
        witness = Witness()
        self.witnesses.append((witness, self.informer.add_handler(witness.add, witness.update, witness.delete)))

    def settle(self) -> None:
        """End all faults and wait until cache and handlers show what the server has."""
        self.server.faults.clear()
        eventually(lambda: self.informer.has_synced() and self._cached() == self._stored(), CONVERGE, self._difference)
        for witness, registration in self.witnesses:
            eventually(lambda r=registration: r.has_synced() and r.pending() == 0, CONVERGE, "a handler lags")  # type: ignore[misc]
            eventually(lambda w=witness: w.known == self._objects(), CONVERGE, "a handler saw another state")  # type: ignore[misc]
            assert witness.wrong == []

    def _change(self, what: str, name: str) -> None:
        there = self.server.store.get("nodes", name) is not None
        if what == "recreate" and there:
            self.server.delete("nodes", name)
            self._create(name)
        elif what in ("create", "recreate") and not there:
            self._create(name)
        elif not there:
            return
        elif what == "delete":
            self.server.delete("nodes", name)
        elif what in ("touch", "spoil", "heal"):
            obj = dict(self.server.get("nodes", name))
            labels = {**obj["metadata"].get("labels", {}), "touched": str(next(self.counter))}
            obj["metadata"] = {**obj["metadata"], "labels": labels}
            if what != "touch":
                obj["spec"] = {"podCIDR": 7, "taints": "spoilt"} if what == "spoil" else {}
            self.server.put_raw("nodes", obj)

    def _create(self, name: str) -> None:
        self.server.create({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})

    def _stored(self) -> dict[str, str]:
        """Names to versions, or to UIDs for what is malformed."""
        return {
            obj["metadata"]["name"]: obj["metadata"]["uid" if _is_spoilt(obj) else "resourceVersion"]
            for obj in self.server.list("nodes")
        }

    def _cached(self) -> dict[str, str]:
        held = self.informer.health().quarantined
        spoilt = {
            obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in self.server.list("nodes") if _is_spoilt(obj)
        }
        shown = {name: version_of(node) for name, node in self._objects().items() if name not in held}
        # A malformed object shows its last good version, unless it never had one.
        older = {name: uid_of(node) for name, node in self._objects().items() if name in held}
        never = {name: uid for name, uid in spoilt.items() if name in held and name not in older}
        return {**shown, **older, **never}

    def _objects(self) -> dict[str, V1Node]:
        return {_name(node): node for node in self.informer.lister.list()}

    def _difference(self) -> str:
        return f"cache {self._cached()}, server {self._stored()}, {self.informer.health()}"


def _name(node: V1Node) -> str:
    assert node.metadata is not None
    return str(node.metadata.name)


def _is_spoilt(obj: Any) -> bool:
    return bool(obj["spec"].get("podCIDR") == 7)


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    before=st.lists(st.one_of(LIST_RULES, STATUS_RULES), max_size=3),
    steps=STEPS,
    pace=st.sampled_from([0.001, 0.003, 0.006]),
    wait=st.booleans(),
)
def test_the_cache_converges_and_handlers_see_a_consistent_history(
    tmp_path: Path, before: list[Step], steps: list[Step], pace: float, wait: bool
) -> None:
    run = Run(tmp_path)
    try:
        run.watch_along()
        for step in before:
            run.do(step)
        run.informer.start()
        if wait:
            eventually(run.informer.has_synced, CONVERGE, run._difference)
        for step in steps:
            run.do(step)
            time.sleep(pace)
        run.settle()
    finally:
        run.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("informer-nodes")]


@pytest.mark.parametrize("action", [Action.RESET, Action.TRUNCATE, Action.EXPIRE, Action.HALF_OPEN, Action.CLOSE])
def test_changes_made_while_watches_keep_breaking_arrive(tmp_path: Path, action: Action) -> None:
    run = Run(tmp_path)
    try:
        run.watch_along()
        run.informer.start()
        for turn in range(40):
            run.do(("break", action))
            run.do(("recreate" if turn % 3 else "touch", NAMES[turn % len(NAMES)]))
            run.do(("pause", 0.01))
        run.settle()
    finally:
        run.close()


def _was_told(lie: Fault, times: int) -> bool:
    return lie.hits == times


def _shows_again(run: Run) -> bool:
    run.do(("break", Action.EXPIRE))  # again and again: a watch that is just ending may take one
    return len(run.informer.lister) > 0


def test_a_wrongly_empty_list_is_followed_only_if_a_quorum_list_agrees(tmp_path: Path) -> None:
    run = Run(tmp_path)
    try:
        run.watch_along()
        run.informer.start()
        eventually(run.informer.has_synced, CONVERGE, run._difference)
        for lies in (1, 2):
            eventually(lambda: run.server.faults.open_watches() == 1, CONVERGE, run._difference)
            lie = run.server.faults.empty_list(count=lies)
            run.do(("break", Action.EXPIRE))
            if lies == 1:
                eventually(partial(_was_told, lie, 1), CONVERGE, run._difference)
            else:  # the first of them may be a quorum list already
                eventually(lambda: len(run.informer.lister) == 0, CONVERGE, run._difference)
                run.server.faults.clear()
                eventually(partial(_shows_again, run), CONVERGE, run._difference)
            run.settle()
    finally:
        run.close()
