"""Whatever happens to Services, nodes, cloud, API server and process, in whatever order: in the end
the cloud has what the Services ask for, and nothing else. Rows S1-S4, S7-S9, S11, S13, S22 and S23,
by random sequences.

The cloud's, the server's and the process's faults strike before and after a call had its effect.
What must hold throughout is checked while calls are under way; what must hold in the end after the
faults are over. One kind of call may fail for ever: what does not need it must hold in the end all
the same.

Each run draws sequences of its own. One that fails is shown with the line that runs it again
(`reproduce_failure`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, ImplementedElsewhere, RetryError, Throttled
from cloudprovider.helpers import annotations_of, load_balancer_status_equal
from controllers.cloudcalls import CallFailed
from controllers.runtime.api import Conflict, ServerError, Unreachable
from controllers.runtime.cache import SERVICES, key_of, uid_of
from controllers.runtime.write import to_json
from controllers.service import changes
from controllers.service.changes import APPLIED, WITHOUT_CLASS, Note, Scope, ingress
from controllers.service.records import State
from controllers.service.targets import targets
from tests.support.controllers import Crash, Fault, Raw, clone
from tests.unit.service.bench import Bench
from tests.unit.service.objects import (
    CLUSTER,
    FINALIZER,
    KIND,
    SIZE,
    content_of,
    excluded,
    id_of,
    raw_node,
    raw_service,
)

NAMES = ("a", "b")
KEYS = tuple(f"default/{name}" for name in NAMES)
NODES = ("n1", "n2", "n3")

Step = tuple[Any, ...]
"""The name of a method of World, and its arguments: one thing that happens."""


class World:
    """A bench with people, faults and accidents, and what must hold at every call to the cloud."""

    def __init__(self, drift_period: float) -> None:
        self.bench = Bench("n1", drift_period=drift_period, ensure_period=drift_period)
        self.bench.cloud.during = self._check
        self.bench.cloud.refused = {"bad"}
        self.born = 0
        self.left: set[str] = set()
        """UIDs of load balancers that nobody can know of any more."""
        self.killed: set[str] = set()
        """UIDs of those whose targets may be others than the note says: a process died over it,
        say. To write the note before every update too would double the writes; the next call that
        ensures everything repairs it."""
        self.spoilt: set[str] = set()
        """UIDs of Services of whose former names no note tells, as somebody overwrote it or there
        was none."""
        self.go: set[str] = set()
        """UIDs of Services whose load balancer the Go manager built."""
        self.wrongs: list[str] = []
        self.broken = ""
        """What fails until it is mended: a method of the cloud, or "status", the write of it."""
        self.create("a", "LoadBalancer")

    def _check(self, method: str, service: V1Service) -> None:
        key, uid = key_of(service), uid_of(service)
        if self.bench.queue.oldest_running().key != key:
            self.wrongs.append(f"{method} of {key}, which is not its turn")
        if method in ("ensure", "update"):
            if not WITHOUT_CLASS.keeps(service):
                self.wrongs.append(f"{method} of {key}, which is being deleted or wants none")
            here = {balancer.uid for balancer in self.bench.cloud.balancers.values() if balancer.key == key}
            if not here <= {uid} | self.left:
                self.wrongs.append(f"{method} of {key} beside the load balancer of a former Service of that name")
        raw = self.bench.server.services.get(key, {"metadata": {"uid": ""}})
        unheld = FINALIZER not in raw["metadata"].get("finalizers", ())
        if method == "ensure" and raw["metadata"]["uid"] == uid and unheld and "stripped" not in raw["spec"]:
            self.wrongs.append(f"ensure of {key} without the finalizer before it")

    # ---- what may happen

    def create(self, name: str, type: str) -> None:
        if f"default/{name}" not in self.bench.server.services:
            self.born += 1
            self.bench.server.put(raw_service(name, uid=f"uid-{name}-{self.born}", type=type))

    def edit(self, key: str, change: Callable[[Raw], object]) -> None:
        if key in self.bench.server.services:
            self.bench.server.edit(key, change)

    def port(self, key: str, port: int) -> None:
        self.edit(key, lambda raw: raw["spec"].update(ports=[{"port": port}]))

    def annotate(self, key: str, name: str, value: str) -> None:
        self.edit(key, lambda raw: raw["metadata"].update(annotations={**raw["metadata"]["annotations"], name: value}))

    def rename(self, key: str, kind: str, type: str = "") -> None:
        """An annotation makes another load balancer of it; the type may change with it."""

        def change(raw: Raw) -> None:
            annotations = {name: value for name, value in raw["metadata"]["annotations"].items() if name != KIND}
            raw["metadata"]["annotations"] = {**annotations, KIND: kind} if kind else annotations
            if type:
                raw["spec"]["type"] = type

        self.spoilt |= self._of_go(key)  # no note has its former name
        self.edit(key, change)

    def spoil_note(self, key: str) -> None:
        """Somebody overwrites our note: a new process knows of no former names."""
        if key in self.bench.server.services:
            self.spoilt.add(self.bench.server.services[key]["metadata"]["uid"])
        self.annotate(key, APPLIED, "nonsense")

    def by_go(self, name: str) -> None:
        """The Go manager built a load balancer; ours takes its place."""
        if f"default/{name}" in self.bench.server.services:
            return
        self.born += 1
        raw = raw_service(name, uid=f"uid-{name}-{self.born}", finalizers=[FINALIZER])
        self.go.add(raw["metadata"]["uid"])
        status = self.bench.cloud.build(parsed(raw), self.bench.nodes.list())
        self.bench.server.put(
            {**raw, "status": {"loadBalancer": {"ingress": [to_json(one) for one in ingress(status)]}}}
        )
        self.restart()

    def _of_go(self, key: str) -> set[str]:
        """The Service's UID, if its load balancer is Go's and our note is not on it yet."""
        raw = self.bench.server.services.get(key)
        if raw is None or changes.own_note(parsed(raw)) is not None:
            return set()
        return {raw["metadata"]["uid"]} & self.go

    def revise(self) -> None:
        """Another version of the provider builds differently."""
        self.bench.cloud.revisions.append(f"r{len(self.bench.cloud.revisions) + 1}")
        self.restart()

    def lose_status(self, key: str) -> None:
        self.edit(key, lambda raw: raw.update(status={"loadBalancer": {}}))

    def set_type(self, key: str, type: str) -> None:
        if key in self.bench.server.services:
            self.bench.server.set_type(key, type)

    def delete(self, key: str) -> None:
        if key in self.bench.server.services:
            self.bench.server.delete(key)

    def strip(self, key: str) -> None:
        """Somebody takes our finalizer off by force."""

        def change(raw: Raw) -> None:
            raw["metadata"]["finalizers"] = []
            raw["spec"]["stripped"] = "once"

        self.left |= self._of_go(key)  # and its finalizer was all that told of it
        self.edit(key, change)

    def put_node(self, name: str, ip: str) -> None:
        self.bench.server.put(raw_node(name, ip))

    def exclude_node(self, name: str) -> None:
        self.bench.server.put(excluded(name))

    def remove_node(self, name: str) -> None:
        if name in self.bench.server.nodes:
            self.bench.server.delete(name)

    def cloud_fault(self, error: BaseException, after: bool) -> None:
        self.bench.cloud.faults.append(Fault(error, after))

    def server_fault(self, error: BaseException, after: bool) -> None:
        self.bench.server.faults.append(Fault(error, after))

    def break_down(self, what: str, error: Exception) -> None:
        self.mend()
        self.broken = what
        if what == "status":
            self.bench.server.refuses_status = True
        else:
            self.bench.cloud.fail[what] = error

    def mend(self) -> None:
        if isinstance(self.bench.cloud.fail.get("update"), ImplementedElsewhere):
            self.killed |= {one.uid for one in self.bench.cloud.balancers.values()}  # another's targets, as it was said
        self.broken = ""
        self.bench.cloud.fail.clear()
        self.bench.server.refuses_status = False

    def is_left(self) -> bool:
        """Whether nothing is due where an update fails: the cloud says "later", or that targets are
        another's."""
        return isinstance(self.bench.cloud.fail.get(self.broken), RetryError | Throttled | ImplementedElsewhere)

    def unwritten(self, key: str, error: Exception) -> None:
        """A load balancer is built while no status can be written, and before that is over updates
        fail."""
        self.set_type(key, "ClusterIP")
        self.live(3)
        self.break_down("update", error)
        self.bench.server.refuses_status = True
        self.set_type(key, "LoadBalancer")
        self.live(1)
        self.put_node("n8", "10.0.0.8")
        self.live(3)
        self.bench.server.refuses_status = False

    def elsewhere(self, key: str) -> None:
        self.bench.cloud.elsewhere.add(key)

    def half_done(self, key: str, there: Step, back: Step, error: BaseException, after: bool, looks: bool) -> None:
        """Something is asked for, fails in the cloud, and is taken back before it is tried
        again."""
        self.live(3)
        self.bench.cloud.faults.clear()
        self._do(there)
        self.cloud_fault(error, after)
        if not looks:  # the look that follows a failure fails too
            self.cloud_fault(CallFailed("bang"), False)
        for _ in range(3):  # nodes are gathered first
            self.see(100)
            self.work(1)
            self.time(0.5)
        self._do(back)

    def _do(self, step: Step) -> None:
        name, *args = step
        getattr(self, name)(*args)

    def drop_balancer(self, key: str) -> None:
        balancers = self.bench.cloud.balancers
        for one in [one for one, balancer in balancers.items() if balancer.key == key]:
            del balancers[one]

    def spoil_balancer(self, key: str) -> None:
        for balancer in self.bench.cloud.balancers.values():
            if balancer.key == key:
                balancer.nodes, balancer.content = ["spoilt"], {}

    def drop_part(self, key: str) -> None:
        for balancer in self.bench.cloud.balancers.values():
            if balancer.key == key:
                balancer.whole = False

    def see(self, number: int) -> None:
        self.bench.see(number)

    def work(self, most: int) -> None:
        """Some keys are served. The process may die of it."""
        try:
            self.bench.work(most)
        except Crash:
            if self.bench.cloud.calls and self.bench.cloud.calls[-1][0] == "update":
                self.killed.add(uid_of(self.bench.cloud.given[-1]))
            self.restart()

    def time(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    def live(self, rounds: int) -> None:
        """Everything at once, as it goes for most of the time."""
        for _ in range(rounds):
            self.see(100)
            self.work(100)
            self.time(1.25)

    def restart(self) -> None:
        servers = self.bench.server.services.values()
        held = {raw["metadata"]["uid"] for raw in servers if FINALIZER in raw["metadata"]["finalizers"]}
        wanted = {raw["metadata"]["uid"] for raw in servers if WITHOUT_CLASS.keeps(parsed(raw))}
        self.left |= {balancer.uid for balancer in self.bench.cloud.balancers.values()} - held - wanted
        self.bench.start()

    def settle(self, seconds: float) -> None:
        """The faults are over, and time passes."""
        self.bench.cloud.faults.clear()
        self.bench.server.faults.clear()
        self.bench.settle(rounds=30, step=seconds / 30)


def parsed(raw: Raw) -> V1Service:
    return SERVICES.parse(clone(raw))


keys = st.sampled_from(KEYS)
names = st.sampled_from(NAMES)
nodes = st.sampled_from(NODES)
kinds = st.sampled_from(["", "big", "small"])
types = st.sampled_from(["LoadBalancer", "LoadBalancer", "ClusterIP"])
errors: st.SearchStrategy[BaseException] = st.sampled_from(
    [
        RetryError("building", 7.0),
        RetryError("soon", 90.0),
        Throttled("slow down"),
        CloudProviderError("quota"),
        CallFailed("bang"),
        Crash(),
    ]
)
refusals: st.SearchStrategy[BaseException] = st.sampled_from(
    [Conflict("busy", status=409), ServerError("down", status=500), Unreachable("reset"), Crash()]
)
when = st.booleans()


def _step(name: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *args)


by_people = (
    _step("create", names, types),
    _step("port", keys, st.integers(1, 3)),
    _step("annotate", keys, st.just(SIZE), st.sampled_from(["x", "y", "bad"])),
    _step("spoil_note", keys),
    _step("rename", keys, kinds),
    _step("rename", keys, kinds, types),
    _step("lose_status", keys),
    _step("set_type", keys, types),
    _step("delete", keys),
    _step("strip", keys),
    _step("put_node", nodes, st.sampled_from(["10.0.0.1", "10.0.0.2"])),
    _step("exclude_node", nodes),
    _step("remove_node", nodes),
)
by_chance = (
    _step("cloud_fault", errors, when),
    _step("server_fault", refusals, when),
    _step("elsewhere", keys),
    _step("restart"),
    _step("revise"),
    _step("by_go", names),
)
by_us = (
    _step("see", st.sampled_from([1, 2, 100])),
    _step("see", st.just(100)),
    _step("work", st.sampled_from([1, 2, 100])),
    _step("work", st.just(100)),
    _step("time", st.sampled_from([0.25, 1.0, 10.0])),
    _step("live", st.sampled_from([1, 3, 10])),
    _step("live", st.just(3)),
    _step("live", st.just(3)),
)
back_and_forth = (
    lambda key: st.tuples(st.just(("port", key, 7)), st.just(("port", key, 1))),
    lambda key: st.tuples(st.just(("set_type", key, "ClusterIP")), st.just(("set_type", key, "LoadBalancer"))),
    lambda key: st.tuples(st.just(("put_node", "n9", "10.0.0.9")), st.just(("remove_node", "n9"))),
    lambda key: st.tuples(st.just(("annotate", key, SIZE, "z")), st.just(("annotate", key, SIZE, "x"))),
    lambda key: st.tuples(st.just(("rename", key, "big")), st.just(("rename", key, "small"))),
    lambda key: st.tuples(st.just(("rename", key, "big")), st.just(("rename", key, "", "ClusterIP"))),
)


def _half_done(key: str, there_and_back: tuple[Step, Step], error: BaseException, after: bool, looks: bool) -> Step:
    return ("half_done", key, *there_and_back, error, after, looks)


# One strategy for each key, made once: `flatmap` would make and check new ones for every draw.
half_done = st.one_of(
    *(
        st.builds(
            _half_done, st.just(key), st.one_of(*(pair(key) for pair in back_and_forth)), errors, when, st.booleans()
        )
        for key in KEYS
    )
)
by_hand = (_step("drop_balancer", keys), _step("spoil_balancer", keys))
failures: st.SearchStrategy[Exception] = st.sampled_from(
    [CloudProviderError("quota"), CallFailed("bang"), RetryError("busy", 7.0), Throttled("slow down")]
)
by_breaking = (
    _step(
        "break_down",
        st.sampled_from(["update", "update", "ensure", "get", "delete", "status"]),
        failures,
    ),
    _step("mend"),
    _step("drop_part", keys),
    _step("unwritten", keys, failures | st.just(ImplementedElsewhere("targets are another's"))),
)


def _run(steps: list[Step], drift_period: float, seconds: float) -> World:
    world = World(drift_period)
    for step in steps:
        world._do(step)
    if drift_period:
        world.bench.cloud.elsewhere.clear()
    world.settle(seconds)
    (_check_end_of_broken if world.broken else _check_end)(world)
    return world


def _is_doubtful(world: World, raw: Raw) -> bool:
    """Somebody spoilt our note, and the process that knew better died: where the cloud has none
    either (which is checked for all), the finalizer may be another controller's, and stays until
    the Service is deleted."""
    metadata = raw["metadata"]
    spoilt = metadata["annotations"].get(APPLIED) == "nonsense" or metadata["uid"] in world.spoilt | world.go
    return spoilt and "deletionTimestamp" not in metadata


def _check_end(world: World) -> None:
    """Cloud and Services agree."""
    assert world.wrongs == []
    bench = world.bench
    cloud, server = bench.cloud, bench.server
    scope = Scope(CLUSTER, "cluster-1", cloud.revision())
    digest = targets(bench.nodes.list(), False).digest
    wanted = set()
    for key, raw in server.services.items():
        service = parsed(raw)
        if not WITHOUT_CLASS.keeps(service):
            if not _is_doubtful(world, raw):
                assert FINALIZER not in raw["metadata"]["finalizers"], key
                assert changes.note_of(service) is None or "stripped" in raw["spec"], key
            continue
        wanted.add(uid_of(service))
        if key in cloud.elsewhere:
            continue
        assert FINALIZER in raw["metadata"]["finalizers"]
        if annotations_of(service).get(SIZE) in cloud.refused:
            _check_refused(world, service)
            continue
        balancer = cloud.balancers[id_of(service)]
        if uid_of(service) not in world.spoilt:
            assert [one for one in cloud.balancers.values() if one.uid == uid_of(service)] == [balancer]
        assert balancer.content == content_of(service)
        if uid_of(service) not in world.killed or bench.settings["ensure_period"]:
            assert balancer.nodes == bench.wanted_nodes()
        assert load_balancer_status_equal(changes.status_of(service), balancer.status)
        noted = (changes.provider_annotations(service),) if KIND in annotations_of(service) else ()
        assert changes.note_of(service) == Note(uid_of(service), changes.fingerprint(service, scope), digest, noted)
    assert {one.uid for one in cloud.balancers.values()} - world.left - world.spoilt <= wanted
    known = {
        record.uid
        for key in KEYS
        if (record := bench.records.get(key)) is not None and record.state is not State.RELEASED
    }
    assert known == wanted


def _check_refused(world: World, service: V1Service) -> None:
    """What has the Service's address has its nodes, whoever built it."""
    for balancer in world.bench.cloud.balancers.values():
        known = balancer.uid == uid_of(service) and balancer.uid not in world.killed
        shown = load_balancer_status_equal(changes.status_of(service), balancer.status)
        if known and shown and balancer.whole and balancer.nodes != ["spoilt"]:
            assert balancer.nodes == world.bench.wanted_nodes()


def _check_end_of_broken(world: World) -> None:
    """What does not need the call that fails for ever is as it should be."""
    assert world.wrongs == []
    bench, broken = world.bench, world.broken
    repaired = broken not in ("ensure", "delete")
    updated = not (broken == "update" and world.is_left()) or bench.settings["ensure_period"]
    for key, raw in bench.server.services.items():
        service, record = parsed(raw), bench.records.get(key)
        balancer = bench.cloud.balancers.get(id_of(service))
        if not WITHOUT_CLASS.keeps(service):
            doubtful = _is_doubtful(world, raw) or (
                broken == "get" and raw["metadata"]["annotations"].get(APPLIED) == "nonsense"
            )
            assert broken in ("delete", "status") or doubtful or FINALIZER not in raw["metadata"]["finalizers"], key
            continue
        if key in bench.cloud.elsewhere:
            continue
        assert record is not None, key
        if broken == "delete" and (record.uid != uid_of(service) or "delete" in record.asked):
            continue  # first the former one, or this one, goes
        if annotations_of(service).get(SIZE) in bench.cloud.refused:
            continue
        if repaired:
            assert balancer is not None, key
            assert balancer.content == content_of(service), key
        elif record.built is None or balancer is None:
            continue
        assert FINALIZER in raw["metadata"]["finalizers"], key
        known = uid_of(service) not in world.killed or (repaired and bench.settings["ensure_period"])
        spoilt = not balancer.whole or balancer.nodes == ["spoilt"]  # which only ensure mends
        if updated and known and (repaired or not spoilt):
            assert balancer.nodes == bench.wanted_nodes(), key
        if broken != "status" and record.status is not None:  # only an ensure of ours gives it one
            assert load_balancer_status_equal(changes.status_of(service), balancer.status), key


def _check_rest(world: World) -> None:
    """Nothing is left to do, for this process nor for the next one."""
    bench = world.bench
    for restarted in (False, True):
        if restarted:
            bench.start()
        bench.forget()
        for key in KEYS:
            bench.queue.add(key)
        bench.settle()
        refused = {
            key for key, raw in bench.server.services.items() if raw["metadata"]["annotations"].get(SIZE) == "bad"
        }
        calls = [(method, key) for method, key in bench.cloud.calls if key not in bench.cloud.elsewhere | refused]
        assert [call for call in calls if call[0] != "get"] == []
        ours = {key.partition("/")[2] for key in set(KEYS) - bench.cloud.elsewhere - refused}
        assert [patch for patch in bench.server.patches if patch[0].partition("/")[0] in ours] == []


MANY = settings(
    max_examples=int(os.environ.get("SERVICE_SEQUENCES", "150")),  # 700 and more are the long form
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.row("S1", "S3", "S4", "S7", "S8", "S9", "S11", "S13")
@MANY
@given(st.lists(st.one_of(*by_people, *by_chance, *by_us, *[half_done] * 4), min_size=5, max_size=60))
def test_in_the_end_all_is_as_asked_without_looking_for_drift(steps: list[Step]) -> None:
    _check_rest(_run(steps, drift_period=0.0, seconds=1200.0))


@pytest.mark.row("S22", "S23")
@MANY
@given(st.lists(st.one_of(*by_people, *by_us, *by_us, *by_breaking, *by_breaking), min_size=5, max_size=40))
def test_what_fails_for_ever_keeps_nothing_else_away(steps: list[Step]) -> None:
    _run(steps, drift_period=0.0, seconds=1200.0)


@pytest.mark.row("S22", "S23")
@MANY
@given(st.lists(st.one_of(*by_people, *by_chance, *by_us, *by_hand, *by_breaking), min_size=5, max_size=40))
def test_nor_does_it_beside_accidents_and_checks(steps: list[Step]) -> None:
    _run(steps, drift_period=600.0, seconds=4000.0)


@pytest.mark.row("S2")
@MANY
@given(st.lists(st.one_of(*by_people, *by_chance, *by_us, *by_hand, *[half_done] * 2), min_size=5, max_size=60))
def test_what_was_changed_by_hand_is_repaired_too(steps: list[Step]) -> None:
    _run(steps, drift_period=600.0, seconds=4000.0)


TAKEN_BACK: Step = (
    "half_done", "default/a", ("rename", "default/a", "big"), ("rename", "default/a", "", "ClusterIP"),
    RetryError("building", 7.0), False, False,
)  # fmt: skip


@pytest.mark.row("S9", "S26", "S27")
@pytest.mark.parametrize(
    "steps",
    [
        [("annotate", "default/a", SIZE, "bad"), ("live", 3), ("strip", "default/a")],
        [("live", 3), ("restart",), ("annotate", "default/a", SIZE, "bad"), ("spoil_note", "default/a"),
         ("strip", "default/a"), ("put_node", "n1", "10.0.0.2")],
        [TAKEN_BACK, ("see", 1), ("work", 100), ("set_type", "default/a", "LoadBalancer")],
    ],
    ids=["stripped while it is refused", "all of ours is removed, and it is refused", "another name, taken back"],
)  # fmt: skip
def test_sequences_that_failed_once(steps: list[Step]) -> None:
    _run(steps, drift_period=0.0, seconds=1200.0)
