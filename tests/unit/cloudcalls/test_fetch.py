"""Many nodes asked about at once, through the whole gateway: each answered exactly once, whatever
the provider does."""

import gc
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstanceState,
    NotImplementedByProvider,
    RetryError,
    Throttled,
    current_call,
)
from controllers.cloudcalls import (
    PRIORITY_NEW,
    PRIORITY_SWEEP,
    AnswerMissing,
    CallAborted,
    CallFailed,
    CallOverdue,
    CallsClosed,
    InvalidAnswer,
)
from tests.unit.cloudcalls.support import (
    LIMIT,
    Answers,
    Capability,
    Hang,
    Provider,
    Task,
    World,
    all_good,
    batch_of,
    metadata,
    names_of,
    node,
    nodes,
    world,
)


def batching(answer: Any, max_batch: int = 100) -> tuple[Provider, Capability]:
    batch = batch_of(answer, max_batch)
    return Provider(instances_batch=batch), batch


def one_by_one(answer: Any) -> tuple[Provider, Capability]:
    v2 = Capability(
        instance_metadata=answer,
        instance_exists=lambda n: True,
        instance_shutdown=lambda n: False,
    )
    return Provider(instances_v2=v2), v2


def name_of(n: V1Node) -> str:
    return names_of([n])[0]


def good(n: V1Node) -> InstanceMetadata:
    return metadata(name_of(n))


def fails_for(*poison: str, error: BaseException | None = None) -> Any:
    def answer(seq: Sequence[V1Node]) -> dict[str, InstanceMetadata]:
        if set(names_of(seq)) & set(poison):
            raise error or OSError("poison")
        return all_good(seq)

    return answer


# ---- calls


@pytest.mark.row("N14")
def test_a_refresh_of_five_thousand_nodes_costs_fifty() -> None:
    def state(seq: Sequence[V1Node]) -> dict[str, InstanceState]:
        return dict.fromkeys(names_of(seq), InstanceState.RUNNING)

    provider, batch = batching(state)
    with world(provider) as w:
        assert len(w.fetch_state(nodes(5000)).good()) == 5000
        assert batch.count("instances_state") == 50


def test_without_a_batch_capability_each_node_is_one_call_and_many_run_at_once() -> None:
    hang = Hang(good)
    provider, v2 = one_by_one(hang)
    with world(provider, concurrency=8) as w:
        assert w.calls.max_batch == 1
        task = Task(lambda: w.fetch(nodes(50)))
        hang.wait_entered(8)
        hang.release()
        assert len(task.result().good()) == 50
        assert v2.count("instance_metadata") == 50


def test_batch_is_preferred_then_v2_then_the_older_one() -> None:
    unused = Capability()
    batch = batch_of(all_good)
    with world(Provider(instances_batch=batch, instances_v2=unused, instances=unused)) as w:
        assert w.calls.has_instances
        w.fetch(nodes(2))
    v2 = Capability(instance_metadata=good)
    with world(Provider(instances_v2=v2, instances=unused)) as w:
        w.fetch(nodes(2))
        assert v2.count("instance_metadata") == 2
    legacy = Capability(
        instance_id=lambda name: name,
        node_addresses_by_provider_id=lambda i: [],
        instance_type_by_provider_id=lambda i: "m5",
        node_addresses=lambda name: [],
        instance_type=lambda name: "by name",
    )
    with world(Provider(instances=legacy)) as w:
        answers = w.fetch(nodes(2))
        assert answers["n1"] == InstanceMetadata("test://n1", "m5")


def test_a_provider_without_instances_says_so_for_each_node(w: World) -> None:
    answers = w.fetch(nodes(3))
    assert all(isinstance(answer, NotImplementedByProvider) for answer in answers.values())
    assert len(w.fetch_state(nodes(3))) == 3


def test_a_node_listed_twice_is_answered_once() -> None:
    provider, batch = batching(all_good)
    with world(provider) as w:
        assert set(w.fetch([node("a"), node("a"), node("b")])) == {"a", "b"}
        assert [len(args[0]) for _, args in batch.calls] == [2]


def test_accessors_that_fail_are_every_nodes_answer() -> None:
    class Broken(Provider):
        def instances_batch(self) -> Any:
            raise OSError("no credentials")

    with world(Broken()) as w:
        answers = w.fetch(nodes(3))
        assert all(isinstance(answer, CallFailed) for answer in answers.values())


# ---- junk and partial answers


@pytest.mark.row("N8")
def test_each_node_gets_what_the_batch_said_about_it() -> None:
    def answer(seq: Sequence[V1Node]) -> dict[str, Any]:
        return {
            "n0": metadata("n0"),
            "n1": InstanceNotFound("n1"),
            "n2": RetryError("later", 3),
            "n3": None,
            "n4": metadata("n4", provider_id="other://n4"),
            "n5": metadata("n5", provider_id=""),
            "n7": ValueError("x"),
            "stranger": metadata("stranger"),
        }

    provider, batch = batching(answer)
    with world(provider) as w:
        answers = w.fetch(nodes(8))
        assert answers["n0"] == metadata("n0")
        assert isinstance(answers["n1"], InstanceNotFound)
        assert (type(answers["n2"]), answers["n2"].retry_after) == (RetryError, 3)
        assert all(isinstance(answers[n], InvalidAnswer) for n in ("n3", "n4", "n5"))
        assert isinstance(answers["n6"], AnswerMissing)
        assert type(answers["n7"]) is CallFailed
        assert "stranger" not in answers
        assert batch.count("instances_metadata") == 1, "an answer about a node is no reason to ask again"
        assert w.requests("instances_metadata", "partial") == 1
        item = "cloudprovider_api_batch_items_total"
        assert w.metrics.value(item, provider="test", method="instances_metadata", outcome="invalid") == 3
        assert w.metrics.value(item, provider="test", method="instances_metadata", outcome="missing") == 1


def test_gone_in_a_batch_has_two_names_and_unknown_is_neither() -> None:
    def answer(seq: Sequence[V1Node]) -> dict[str, Any]:
        return {"n0": InstanceState.GONE, "n1": InstanceNotFound(), "n2": InstanceState.SHUTDOWN, "n3": False}

    provider, _ = batching(answer)
    with world(provider) as w:
        answers = w.fetch_state(nodes(5))
        assert answers["n0"] is answers["n1"] is InstanceState.GONE
        assert answers["n2"] is InstanceState.SHUTDOWN
        assert isinstance(answers["n3"], InvalidAnswer)
        assert isinstance(answers["n4"], AnswerMissing)


def test_a_batch_that_raises_not_found_is_not_about_every_node() -> None:
    def answer(seq: Sequence[V1Node]) -> dict[str, Any]:
        if "n2" in names_of(seq):
            raise InstanceNotFound("n2")
        return dict.fromkeys(names_of(seq), InstanceState.RUNNING)

    provider, _ = batching(answer)
    with world(provider) as w:
        answers = w.fetch_state(nodes(20))
        assert answers.bad() == {"n2"}
        assert {name for name, a in answers.items() if a is InstanceState.RUNNING} == {f"n{i}" for i in range(20)} - {
            "n2"
        }


@pytest.mark.row("N8")
@pytest.mark.parametrize("junk", [None, [], "junk", [metadata("n0")]])
def test_answers_that_are_no_mapping(junk: Any) -> None:
    provider, batch = batching(lambda seq: junk)
    with world(provider) as w:
        answers = w.fetch(nodes(10))
        assert answers.bad() == {f"n{i}" for i in range(10)}
        assert all(isinstance(answer, InvalidAnswer) for answer in answers.values())
        assert batch.count("instances_metadata") <= 19


# ---- poison


@pytest.mark.parametrize("error", [OSError("x"), SystemExit(1), CloudProviderError("x"), KeyError("n3")])
def test_poison_is_isolated_and_the_others_are_answered(error: BaseException) -> None:
    provider, batch = batching(fails_for("n17", error=error))
    with world(provider) as w:
        answers = w.fetch(nodes(100))
        assert answers.bad() == {"n17"}
        assert isinstance(answers["n17"], CallAborted if isinstance(error, SystemExit) else Exception)
        assert batch.count("instances_metadata") <= 17


@pytest.mark.parametrize("error", [Throttled("busy", 5), Throttled(), RetryError("later", 5)])
def test_a_throttled_batch_is_not_halved(error: Exception) -> None:
    provider, batch = batching(fails_for("n17", error=error))
    with world(provider) as w:
        answers = w.fetch(nodes(100))
        assert batch.count("instances_metadata") == 1
        assert all(type(answer) is type(error) for answer in answers.values())
        assert len({id(answer) for answer in answers.values()}) == 100, "each reconcile raises its own"
        assert answers["n5"].retry_after == error.retry_after  # type: ignore[attr-defined]  # both kinds have it


def test_a_node_throttled_inside_a_batch_slows_the_calls_down() -> None:
    provider, _ = batching(lambda seq: {"n0": metadata("n0"), "n1": Throttled("busy", 9)})
    with world(provider) as w:
        w.fetch(nodes(2))
        assert w.gauge("cloudprovider_api_throttle_pause_seconds") == 9


def test_a_batch_method_that_the_provider_lacks_is_served_one_by_one() -> None:
    def lacks(seq: Sequence[V1Node]) -> Any:
        raise NotImplementedByProvider("no batch metadata")

    v2 = Capability(instance_metadata=good)
    with world(Provider(instances_batch=batch_of(lacks), instances_v2=v2)) as w:
        assert len(w.fetch(nodes(30)).good()) == 30
        assert v2.count("instance_metadata") == 30
    with world(Provider(instances_batch=batch_of(lacks))) as w:
        answers = w.fetch(nodes(3))
        assert all(isinstance(answer, NotImplementedByProvider) for answer in answers.values())


# ---- hung


def hangs_for(hang: Hang, *poison: str) -> Any:
    def answer(seq: Sequence[V1Node]) -> Any:
        if set(names_of(seq)) & set(poison):
            hang(seq)
            current_call().check()
            raise AssertionError("a hung call is cancelled by now")
        return all_good(seq)

    return answer


@pytest.mark.row("N5")
def test_a_batch_hung_by_one_node_answers_all_the_others() -> None:
    hang = Hang()
    provider, batch = batching(hangs_for(hang, "n17"))
    with world(provider, timeout=30) as w:
        answers = Answers()
        task = Task(lambda: w.calls.fetch_metadata(nodes(100), answers))
        for answered in (0, 75, 94, 99):
            hang.wait_entered()
            answers.wait_for(answered)
            w.wait_for_timer(30)
            w.clock.advance(30)
        task.result()
        assert answers.bad() == {"n17"}
        overdue = answers["n17"]
        assert isinstance(overdue, CallOverdue)
        assert set(w.calls.parked()) == {"node/n17"}
        assert len(w.calls.health().overdue) == 4
        message = w.calls.health().message
        assert message.startswith("overdue: instances_metadata for node/n17 since "), "the one to blame goes first"
        assert "100 nodes (n0, n1, n2, ...)" in message
        assert message.endswith(" and 1 more")
        assert batch.count("instances_metadata") == 13
        hang.release()
        overdue.until.result(LIMIT)
        assert w.calls.parked() == {}


@pytest.mark.row("N5")
def test_one_by_one_a_hung_node_is_parked_and_the_others_are_answered() -> None:
    hang = Hang()
    provider, v2 = one_by_one(lambda n: hang(n) if name_of(n) == "n3" else good(n))
    with world(provider) as w:
        answers = Answers()
        task = Task(lambda: w.calls.fetch_metadata(nodes(50), answers))
        answers.wait_for(49)
        w.wait_for_timer(60)
        w.clock.advance(60)
        task.result()
        overdue = answers["n3"]
        assert isinstance(overdue, CallOverdue)
        before = v2.count("instance_metadata")
        again = w.fetch(nodes(50))
        assert isinstance(again["n3"], CallOverdue)
        assert again["n3"].until is overdue.until
        assert v2.count("instance_metadata") == before + 49, "the parked node is not called again"
        assert isinstance(w.fetch_state(nodes(4))["n3"], CallOverdue), "for no other question either"
        hang.release()
        overdue.until.result(LIMIT)


def test_a_node_parked_between_two_questions_is_not_asked_the_second() -> None:
    about, exists = Hang(), Hang(True)
    v2 = Capability(instance_metadata=about, instance_exists=exists, instance_shutdown=lambda n: False)
    with world(Provider(instances_v2=v2)) as w:
        first = Task(lambda: w.fetch(nodes(1)))
        about.wait_entered()
        w.wait_for_timer(60)
        w.clock.advance(30)
        second = Task(lambda: w.fetch_state(nodes(1)))
        exists.wait_entered()
        w.wait_for_timer(30)
        w.clock.advance(30)
        assert isinstance(first.result()["n0"], CallOverdue)
        exists.release()
        assert isinstance(second.result()["n0"], CallOverdue)
        assert v2.count("instance_shutdown") == 0
        about.release()


def test_a_parked_node_is_left_out_of_batches() -> None:
    hang = Hang()
    provider, batch = batching(lambda seq: hang(seq) if names_of(seq) == ["n3"] else all_good(seq))
    with world(provider) as w:
        task = Task(lambda: w.fetch([node("n3")]))
        w.time_out(hang)
        assert isinstance(task.result()["n3"], CallOverdue)
        batch.calls.clear()
        answers = w.fetch(nodes(10))
        assert answers.bad() == {"n3"}
        assert [len(args[0]) for _, args in batch.calls] == [9]
        hang.release()


def test_when_all_hang_the_bound_of_threads_holds() -> None:
    hang = Hang()
    provider, _ = batching(lambda seq: hang(seq), max_batch=10)
    with world(provider, concurrency=4, max_abandoned=6) as w:
        task = Task(lambda: w.fetch(nodes(100)))
        pool = w.calls._pool
        hang.wait_entered(4)
        while not pool.fatal():
            w.wait_for_timer(60)
            w.clock.advance(60)
            assert pool.threads() <= 10
        assert w.calls.health().fatal
        w.calls.close()
        hang.release()
        assert len(task.result()) == 100, "even then every node gets its answer"


@pytest.mark.row("N1", "N14")
def test_nothing_is_answered_from_memory() -> None:
    """A poll asks once about each node, as the work queue gathers what wants it. What was said
    before would hide a change of the cloud from whoever asks for another look."""
    provider, batch = batching(all_good)
    with world(provider) as w:
        for _ in range(2):
            assert len(w.fetch([node("n1", provider_id="test://n1")]).good()) == 1
        assert batch.count("instances_metadata") == 2
    provider, batch = batching(lambda seq: dict.fromkeys(names_of(seq), InstanceState.RUNNING))
    with world(provider) as w:
        for _ in range(2):
            assert len(w.fetch_state(nodes(1)).good()) == 1
        assert batch.count("instances_state") == 2


# ---- order, faults of the host, end


@pytest.mark.parametrize("together", [False, True])
def test_new_nodes_overtake_a_sweep(together: bool) -> None:
    first, order = Hang(), list[str]()

    def answer(asked: Any) -> Any:
        seq = asked if together else [asked]
        order.extend(names_of(seq))
        if order == ["n0"]:
            first()
        return all_good(seq) if together else good(asked)

    provider, _ = batching(answer, max_batch=1) if together else one_by_one(answer)
    with world(provider, concurrency=1) as w:
        sweep = Task(lambda: w.fetch(nodes(20), priority=PRIORITY_SWEEP))
        first.wait_entered()
        w.wait_queued(19)
        new = Task(lambda: w.fetch([node("new")], priority=PRIORITY_NEW))
        w.wait_queued(20)
        first.release()
        assert len(new.result().good()) == 1
        assert len(sweep.result().good()) == 20
        assert order[:2] == ["n0", "new"]


def test_a_controller_that_cannot_take_an_answer_loses_that_one() -> None:
    provider, _ = batching(all_good)
    with world(provider) as w:
        taken: list[str] = []

        def deliver(name: str, answer: Any) -> None:
            if name == "n3":
                raise RuntimeError("full")
            taken.append(name)

        with pytest.raises(RuntimeError, match="full"):
            w.calls.fetch_metadata(nodes(10), deliver)
        assert len(taken) == 9


def test_answers_come_in_the_thread_that_asked() -> None:
    provider, _ = batching(all_good)
    with world(provider) as w:
        threads: set[int] = set()
        w.calls.fetch_metadata(nodes(10), lambda name, answer: threads.add(threading.get_ident()))
        assert threads == {threading.get_ident()}


def test_closing_answers_everyone() -> None:
    hang = Hang(good)
    provider, _ = one_by_one(hang)
    with world(provider, concurrency=2) as w:
        task = Task(lambda: w.fetch(nodes(20)))
        hang.wait_entered(2)
        w.wait_queued(18)
        w.calls.close()
        hang.release()
        answers = task.result()
        assert len(answers) == 20
        assert len(answers.good()) == 2
        assert sum(isinstance(answer, CallsClosed) for answer in answers.values()) == 18
        assert all(isinstance(answer, CallsClosed) for answer in w.fetch(nodes(3)).values())


def test_a_fetch_leaves_nothing_behind_for_the_collector_of_cycles() -> None:
    def fails(arg: Any) -> Any:
        raise ValueError("x")

    for provider in (*(one_by_one(fn)[0] for fn in (good, fails)), *(batching(fn)[0] for fn in (all_good, fails))):
        with world(provider) as w:
            w.fetch(nodes(3))
            ends = [threading.Event() for _ in range(3)]
            gc.disable()
            try:
                seq = nodes(3)
                for n, end in zip(seq, ends, strict=True):
                    weakref.finalize(n, end.set)
                w.fetch(seq)
                del seq, n
                assert all(end.wait(LIMIT) for end in ends)
            finally:
                gc.enable()


# ---- a provider that does everything wrong at once


@pytest.mark.row("N5", "N8", "M6")
@pytest.mark.parametrize("batched", [True, False])
def test_hanging_raising_and_junk_cost_their_own_nodes_and_all_recover(batched: bool) -> None:
    hang = Hang()
    ill = threading.Event()
    ill.set()

    def about(n: V1Node) -> Any:
        name = name_of(n)
        if ill.is_set():
            if name == "n1":
                return hang(n)
            if name == "n2":
                raise OSError("raised")
            if name == "n3":
                return "junk"
        return metadata(name)

    def batch(seq: Sequence[V1Node]) -> Any:
        return {name_of(n): about(n) for n in seq}

    provider = batching(batch)[0] if batched else one_by_one(about)[0]
    with world(provider) as w:
        answers = Answers()
        task = Task(lambda: w.calls.fetch_metadata(nodes(200), answers))
        for answered in (100, 175, 193, 198, 199) if batched else (199,):
            hang.wait_entered()
            answers.wait_for(answered)
            w.wait_for_timer(60)
            w.clock.advance(60)
        task.result()
        assert answers.bad() == {"n1", "n2", "n3"}
        assert isinstance(answers["n1"], CallOverdue)
        assert isinstance(answers["n2"], CallFailed)
        assert isinstance(answers["n3"], InvalidAnswer)
        assert not w.calls.health().ok
        ill.clear()
        hang.release()
        answers["n1"].until.result(LIMIT)
        assert w.calls.parked() == {}
        assert w.fetch(nodes(200)).bad() == set()
        for job in w.calls._pool.overdue():
            assert job.until is not None
            job.until.result(LIMIT)
        assert w.calls.health().ok
