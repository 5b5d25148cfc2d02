"""Informers on a way to the API server on which everything goes wrong: whatever happens, the cache
ends at the server's state, and each handler saw a history that makes sense for each object.

The steps are drawn by hypothesis from a fixed seed; what a handler sees is checked while it sees
it.
"""

from __future__ import annotations

import enum
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientBuilder, ClientSettings, Response, RestClient
from controllers.runtime.api.linestream import LineStream
from controllers.runtime.cache import NODES, Registration, uid_of, version_of
from controllers.runtime.cache.informer import Informer
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import JSON
from tests.lab.faults.networks import expired
from tests.support.proxy import Answer, Asked, Broken, ChaosProxy, Network

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


class Action(enum.Enum):
    """What goes wrong with a list, or a watch."""

    RESET, TRUNCATE, EXPIRE, HALF_OPEN, CLOSE, LOSE_RESPONSE, STALE_LIST, EMPTY_LIST, STATUS, LATENCY = range(10)


@define(eq=False)
class Rule:
    """Strikes the next `count` lists or watches; both, where `watches` is None."""

    action: Action
    count: int
    watches: bool | None = None
    after: int = 0
    """Events of a watch that come first."""
    value: float = 0
    """A status, seconds, or the version that a stale list shows."""

    def strikes(self, asked: Asked) -> bool:
        later_page = self.action is Action.EMPTY_LIST and "continue=" in asked.path
        return self.count > 0 and self.watches in (None, asked.watching) and not later_page


@define(eq=False)
class Trouble:
    """What one request is in for. A watch may get into it while it stands."""

    action: Action | None = None
    after: int = 0


@frozen
class Troubled(Asked):
    """A request on its way, with its trouble."""

    trouble: Trouble = field(kw_only=True)


class Hostile(Network):
    """Breaks what the rules say, in the order in which they were added."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self._lock = threading.Lock()
        self._watches: list[Trouble] = []
        self._over = threading.Event()

    def add(self, rule: Rule) -> Rule:
        with self._lock:
            self.rules.append(rule)
        return rule

    def break_watches(self, action: Action) -> None:
        """At their next event, which is a bookmark at the latest."""
        with self._lock:
            for watch in self._watches:
                watch.action = watch.action or action

    def end(self) -> None:
        self._over.set()

    def on_request(self, asked: Asked) -> Asked | Answer:
        with self._lock:
            met = [rule for rule in self.rules if rule.strikes(asked)]
            slow = [rule for rule in met if rule.action is Action.LATENCY]
            rule = next((rule for rule in met if rule.action is not Action.LATENCY), None)
            for one in [*slow, *([rule] if rule else [])]:
                one.count -= 1
            trouble = Trouble(rule.action, rule.after) if rule else Trouble()
            if asked.watching:
                self._watches.append(trouble)
        for one in slow:
            self._over.wait(one.value)
        if rule is not None and rule.action is Action.STATUS:
            return _refusal(int(rule.value), "injected")
        troubled = Troubled(asked.method, asked.path, asked.token, trouble=trouble)
        return troubled if rule is None or asked.watching else _listing(troubled, int(rule.value))

    def on_answer(self, asked: Asked, status: int, body: bytes) -> bytes:
        assert isinstance(asked, Troubled)
        if not asked.watching and asked.trouble.action is Action.LOSE_RESPONSE:
            raise Broken
        if not asked.watching and asked.trouble.action is Action.TRUNCATE:
            head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            raise Broken(head.encode() + body[: len(body) // 2])
        return body

    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        assert isinstance(asked, Troubled)
        trouble = asked.trouble
        if trouble.action is None or trouble.after > 0:
            trouble.after -= 1
            yield event
            return
        if trouble.action is Action.HALF_OPEN:
            self._over.wait()
        if trouble.action is Action.EXPIRE:
            yield expired(protobuf=asked.protobuf)
        if trouble.action in (Action.EXPIRE, Action.CLOSE):
            yield b""  # as a chunk: the orderly end
        raise Broken(event[: len(event) // 2] if trouble.action is Action.TRUNCATE else b"")


def _listing(asked: Asked, version: int) -> Asked | Answer:
    """A list with its trouble: broken, refused, or asked for something else."""
    assert isinstance(asked, Troubled)
    action = asked.trouble.action
    if action is Action.RESET:
        raise Broken
    if action is Action.EXPIRE:
        return _refusal(410, "The resourceVersion for the provided list is too old.")
    more = {
        Action.EMPTY_LIST: "labelSelector=nothing%3Dhas-this",
        Action.STALE_LIST: f"resourceVersion={version}&resourceVersionMatch=Exact",
    }
    if action not in more or "continue=" in asked.path:  # the next page is of the same version as the first
        return asked
    return evolve(asked, path=f"{asked.path}{'&' if '?' in asked.path else '?'}{more[action]}")


def _refusal(code: int, message: str) -> Answer:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    reason = {410: "Expired", 429: "TooManyRequests", 403: "Forbidden", 401: "Unauthorized"}.get(code, "")
    headers = {"Content-Type": "application/json", **({"Retry-After": "0"} if code == 429 else {})}
    return Answer(code, json.dumps({**status, "reason": reason, "code": code}).encode(), headers)


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
        self.deleted = 0
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
        self.deleted += 1
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
        self.proxy = ChaosProxy(self.server.url, None)
        self.proxy.network = self.network = Hostile()
        self.proxy.__enter__()
        for name in NAMES[:5]:
            self._create(name)
        self.clients = ClientBuilder.from_options(
            kubeconfig=str(self.proxy.write_kubeconfig(folder / f"kubeconfig-{self.server.port}", self.server.token)),
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
            self.network.end()
            self.proxy.__exit__()
            self.server.stop()

    def do(self, step: Step) -> None:
        what, *rest = step
        network = self.network
        if what == "break":
            network.break_watches(rest[0])
        elif what == "watches":
            network.add(Rule(rest[0], rest[1], True, rest[2]))
        elif what == "lists":
            version = max(self.server.version - rest[2], self.server.store.oldest)
            network.add(Rule(rest[0], rest[1], False, value=version))
        elif what == "status":
            network.add(Rule(Action.STATUS, rest[1], value=rest[0]))
        elif what == "rewind":
            self.rest.rewind(rest[0], rest[1])
        elif what == "slow":
            network.add(Rule(Action.LATENCY, 2, value=rest[0]))
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
        self.network.rules.clear()
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
            # Past the rules, which refuse what is malformed: a later server's object would be so.
            self.server.store.put("nodes", name, obj)

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


def _broken_until(run: Run, holds: Callable[[], bool]) -> bool:
    run.do(("break", Action.EXPIRE))  # again and again: a watch that is just ending may take one
    return holds()


def _was_told(lie: Rule) -> bool:
    return lie.count == 0


def test_a_wrongly_empty_list_is_followed_only_if_a_quorum_list_agrees(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def wait(holds: Callable[[], bool]) -> None:
        eventually(partial(_broken_until, run, holds), CONVERGE, run._difference)

    try:
        run.watch_along()
        run.informer.start()
        eventually(run.informer.has_synced, CONVERGE, run._difference)
        for lies in (1, 2):
            lie = run.network.add(Rule(Action.EMPTY_LIST, lies, False))
            if lies == 1:
                wait(partial(_was_told, lie))
                run.settle()
                assert run.witnesses[0][0].deleted == 0, "an empty list that no quorum list confirmed was believed"
            else:  # the first of them may be a quorum list already
                wait(lambda: len(run.informer.lister) == 0)
                run.network.rules.clear()
                wait(lambda: len(run.informer.lister) > 0)
            run.settle()
    finally:
        run.close()
