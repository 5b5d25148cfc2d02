"""Informers with real threads over a server in memory: what handlers see, when, and how everything
ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import Response, Unreachable
from controllers.runtime.cache import NODES, SERVICES, InformerFactory, Registration, handlers, version_of
from controllers.runtime.cache.handlers import Delivery
from controllers.runtime.cache.informer import Informer
from controllers.runtime.cache.resources import Raw
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.cache.store import Cache
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import JSON
from tests.support.clock import FakeClock
from tests.support.threadless import no_thread
from tests.unit.runtime.cache.informers import WAIT, answer, bookmark, event, malformed, page, raw_node, rest_of


class Feed:
    """A watch that shows what the test puts in, and blocks meanwhile."""

    protobuf = False

    def __init__(self, opening: threading.Event | None) -> None:
        self._opening = opening
        self._lines: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        self.closed = threading.Event()

    def open(self) -> None:
        if self._opening is not None:
            while not self._opening.is_set() and not self.closed.wait(0.005):
                pass

    def __iter__(self) -> Iterator[bytes]:
        while not self.closed.is_set():
            line = self._lines.get()
            if line is None:
                return
            if isinstance(line, Exception):
                raise line
            yield line

    def put(self, line: bytes | Exception) -> None:
        self._lines.put(line)

    def close(self) -> None:
        self.closed.set()
        self._lines.put(None)


class Server:
    """A Rest whose list and whose watches are in the test's hand."""

    def __init__(self, version: int = 5, *items: Raw) -> None:
        self.body = page(version, *items)
        self.listing = threading.Event()  # set: lists are answered
        self.listing.set()
        self.opening: threading.Event | None = None
        self.feeds: queue.SimpleQueue[Feed] = queue.SimpleQueue()
        self.asked = threading.Event()

    protobuf = False

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> Response:
        self.asked.set()
        assert self.listing.wait(3 * WAIT)  # longer than a test waits for `stop`
        return answer(self.body if path == "/api/v1/nodes" else page(5, kind="ServiceList"))

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout: float, accept: str = JSON) -> Feed:
        feed = Feed(self.opening)
        if path == "/api/v1/nodes":
            self.feeds.put(feed)
        return feed

    def feed(self) -> Feed:
        """The next watch of nodes."""
        return self.feeds.get(timeout=WAIT)


class Recorder:
    """A handler that keeps what it is told, and can be made to hang or to raise."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.objects: list[tuple[Any, ...]] = []
        self.gate = threading.Event()
        if not hangs:
            self.gate.set()
        self.hangs = threading.Event()
        self.raises: Callable[[str], bool] = lambda name: False
        self._changed = threading.Condition()

    def add(self, new: V1Node, initial: bool) -> None:
        self._note(("add", name_of(new), version_of(new), initial), (new,))

    def update(self, old: V1Node, new: V1Node) -> None:
        self._note(("update", name_of(new), version_of(old), version_of(new)), (old, new))

    def delete(self, last: V1Node) -> None:
        self._note(("delete", name_of(last), version_of(last)), (last,))

    def _note(self, call: tuple[Any, ...], objects: tuple[Any, ...]) -> None:
        if not self.gate.is_set():
            self.hangs.set()
            self.gate.wait(3 * WAIT)
        with self._changed:
            self.calls.append(call)
            self.objects.append(objects)
            self._changed.notify_all()
        if self.raises(call[1]):
            raise RuntimeError("the handler's own fault")

    def wait(self, count: int) -> list[tuple[Any, ...]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= count, WAIT), self.calls
            return list(self.calls)


def name_of(node: V1Node) -> str:
    assert node.metadata is not None
    return str(node.metadata.name)


class World:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.informer = Informer(rest_of(server), NODES, metrics=self.metrics, clock=self.clock)

    def handle(self, recorder: Recorder, **more: Any) -> Registration[V1Node]:
        return self.informer.add_handler(recorder.add, recorder.update, recorder.delete, **more)

    def started(self) -> Feed:
        """Start the informer; its first watch."""
        self.informer.start()
        return self.server.feed()


@pytest.fixture
def worlds() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(*items: Raw, version: int = 5) -> World:
        made.append(World(Server(version, *items)))
        return made[-1]

    yield make
    for world in made:
        world.server.listing.set()
        assert world.informer.stop(WAIT)


Make = Callable[..., World]


class TestHandlers:
    def test_a_handler_sees_the_first_state_as_initial_adds_and_then_every_change(self, worlds: Make) -> None:
        world, seen = worlds(raw_node("a", 1), raw_node("b", 2)), Recorder()
        registration = world.handle(seen)
        assert not registration.has_synced()
        feed = world.started()
        feed.put(event("ADDED", raw_node("c", 6)))
        feed.put(event("MODIFIED", raw_node("a", 7)))
        feed.put(event("DELETED", raw_node("b", 8)))
        assert seen.wait(5) == [
            ("add", "a", "1", True), ("add", "b", "2", True), ("add", "c", "6", False), ("update", "a", "1", "7"),
            ("delete", "b", "8"),
        ]  # fmt: skip
        assert registration.has_synced()
        assert sorted(world.informer.lister.keys()) == ["a", "c"]

    def test_old_is_the_very_object_that_was_seen_last(self, worlds: Make) -> None:
        world, seen = worlds(raw_node("a", 1)), Recorder()
        world.handle(seen)
        feed = world.started()
        for version in (6, 7, 8):
            feed.put(event("MODIFIED", raw_node("a", version)))
        seen.wait(4)
        objects = seen.objects
        assert objects[1][0] is objects[0][0]
        assert objects[2][0] is objects[1][1]
        assert objects[3][0] is objects[2][1]

    def test_a_missed_deletion_and_a_recreation_show_after_a_relist(self, worlds: Make) -> None:
        world, seen = worlds(raw_node("a", 1), raw_node("b", 2, "old")), Recorder()
        world.handle(seen)
        feed = world.started()
        seen.wait(2)
        world.server.body = page(20, raw_node("b", 12, "new"))
        feed.put(event("ERROR", {"code": 410, "reason": "Expired"}))
        assert seen.wait(5)[2:] == [("delete", "a", "1"), ("delete", "b", "2"), ("add", "b", "12", False)]
        assert world.metrics.value("informer_relists_total", resource="nodes", cause="expired") == 1

    def test_a_relist_without_changes_calls_nobody(self, worlds: Make) -> None:
        world, seen = worlds(raw_node("a", 1)), Recorder()
        world.handle(seen)
        world.started().put(event("ERROR", {"code": 410}))
        world.server.feed().put(event("ADDED", raw_node("z", 30)))
        assert seen.wait(2) == [("add", "a", "1", True), ("add", "z", "30", False)]

    @pytest.mark.parametrize("missing", ["on_add", "on_update", "on_delete"])
    def test_every_function_may_be_left_out(self, worlds: Make, missing: str) -> None:
        world, seen = worlds(raw_node("a", 1)), Recorder()
        functions = {"on_add": seen.add, "on_update": seen.update, "on_delete": seen.delete}
        functions.pop(missing)
        registration = world.informer.add_handler(**functions)  # type: ignore[arg-type]  # by name
        feed = world.started()
        feed.put(event("MODIFIED", raw_node("a", 6)))
        feed.put(event("DELETED", raw_node("a", 7)))
        seen.wait(2)
        eventually(registration.has_synced)
        assert len(seen.calls) == 2

    def test_a_slow_handler_holds_back_nobody(self, worlds: Make) -> None:
        world, slow, quick = worlds(raw_node("a", 1), raw_node("b", 2)), Recorder(hangs=True), Recorder()
        late = world.handle(slow, name="slow")
        swift = world.handle(quick, name="quick")
        feed = world.started()
        for version in range(6, 106):
            feed.put(event("MODIFIED", raw_node("a", version)))
        assert quick.wait(102)[-1] == ("update", "a", "104", "105")
        assert slow.hangs.wait(WAIT)
        assert (swift.has_synced(), late.has_synced()) == (True, False)
        assert world.informer.has_synced()
        assert late.pending() == 102  # all but the call that hangs; the mark of the first state is among them
        assert world.metrics.value("informer_handler_pending", resource="nodes", handler="slow") == 102
        slow.gate.set()
        assert slow.wait(102) == quick.calls
        assert late.has_synced()

    @pytest.mark.parametrize("fault", [RuntimeError, SystemExit])
    def test_a_raising_handler_loses_that_call_alone(
        self, worlds: Make, fault: type[BaseException], caplog: pytest.LogCaptureFixture
    ) -> None:
        world, other = worlds(raw_node("a", 1), raw_node("b", 2), raw_node("c", 3)), Recorder()
        calls = []

        def add(new: V1Node, initial: bool) -> None:
            calls.append(name_of(new))
            if calls[-1] == "b":
                raise fault("no")

        registration = world.informer.add_handler(add, name="raising")
        world.handle(other)
        world.informer.start()
        other.wait(3)
        eventually(registration.has_synced)
        assert calls == ["a", "b", "c"]
        assert world.metrics.value("informer_handler_errors_total", resource="nodes", handler="raising") == 1
        assert "handler raising failed on add of b" in caplog.text

    def test_handlers_get_a_name_from_their_function(self, worlds: Make) -> None:
        world, seen = worlds(), Recorder()
        seen.raises = lambda name: True
        world.handle(seen)
        world.started().put(event("ADDED", raw_node("a", 6)))
        name = "test_informer.Recorder.add"
        eventually(lambda: world.metrics.value("informer_handler_errors_total", resource="nodes", handler=name) == 1)


class TestLateHandlers:
    def test_they_start_from_the_present_state(self, worlds: Make) -> None:
        world = worlds(raw_node("a", 1), raw_node("b", 2))
        feed = world.started()
        feed.put(event("DELETED", raw_node("b", 6)))
        eventually(lambda: len(world.informer.lister) == 1)
        seen = Recorder()
        registration = world.handle(seen)
        feed.put(event("MODIFIED", raw_node("a", 7)))
        assert seen.wait(2) == [("add", "a", "1", True), ("update", "a", "1", "7")]
        assert registration.has_synced()

    def test_neither_gap_nor_repetition_whenever_they_come(self, worlds: Make) -> None:
        world = worlds(raw_node("a", 1))
        feed = world.started()
        recorders = []

        def change() -> None:
            for version in range(6, 506):
                feed.put(event("MODIFIED", raw_node("a", version)))

        changing = threading.Thread(target=change)
        changing.start()
        for _ in range(30):
            recorders.append(Recorder())
            world.handle(recorders[-1])
        changing.join()
        for recorder in recorders:
            eventually(lambda calls=recorder.calls: bool(calls) and "505" in calls[-1])  # type: ignore[misc]  # its default
            kind, _, last, initial = recorder.calls[0]
            assert (kind, initial) == ("add", True)
            for call in recorder.calls[1:]:
                assert call[:3] == ("update", "a", last)
                last = call[3]

    def test_a_change_in_the_middle_of_joining_comes_after_the_first_state(
        self, worlds: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = worlds(raw_node("a", 1))
        feed = world.started()
        first, late, joining = Recorder(), Recorder(), threading.Event()
        world.handle(first)
        first.wait(1)
        cache = world.informer._cache
        objects, push, pushed = cache.list, Delivery.push, threading.Event()

        def slow_objects() -> Any:
            found = objects()
            if joining.is_set():  # the new handler's first state is taken; now a change arrives
                joining.clear()
                feed.put(event("MODIFIED", raw_node("a", 6)))
                pushed.wait(0.5)  # in vain where the lock keeps it away; without the lock it is pushed first
            return found

        def told_push(delivery: Delivery[Any], changes: Any) -> None:
            push(delivery, changes)
            pushed.set()

        monkeypatch.setattr(cache, "list", slow_objects)
        monkeypatch.setattr(Delivery, "push", told_push)
        joining.set()
        world.handle(late)
        assert late.wait(2) == [("add", "a", "1", True), ("update", "a", "1", "6")]

    def test_before_the_first_list_they_wait_for_it(self, worlds: Make) -> None:
        world, seen = worlds(raw_node("a", 1)), Recorder()
        world.server.listing.clear()
        world.informer.start()
        assert world.server.asked.wait(WAIT)
        registration = world.handle(seen)
        assert not registration.has_synced()
        world.server.listing.set()
        assert seen.wait(1) == [("add", "a", "1", True)]
        eventually(registration.has_synced)

    def test_an_empty_state_is_a_state(self, worlds: Make) -> None:
        world = worlds()
        early = world.handle(Recorder())
        world.informer.start()
        eventually(early.has_synced)
        eventually(world.handle(Recorder()).has_synced)

    def test_a_removed_handler_is_called_no_more(self, worlds: Make) -> None:
        world, gone, stays = worlds(raw_node("a", 1)), Recorder(), Recorder()
        registration = world.handle(gone)
        world.handle(stays)
        feed = world.started()
        gone.wait(1)
        registration.remove()
        registration.remove()
        feed.put(event("MODIFIED", raw_node("a", 6)))
        stays.wait(2)
        assert len(gone.calls) == 1

    def test_a_handler_may_remove_itself_and_what_waited_is_dropped(self, worlds: Make) -> None:
        world, calls = worlds(*[raw_node(f"n{i}", i + 1) for i in range(4)]), []
        registrations: list[Registration[V1Node]] = []

        def add(new: V1Node, initial: bool) -> None:
            calls.append(name_of(new))
            registrations[0].remove()

        registrations.append(world.informer.add_handler(add))
        stays = Recorder()
        world.handle(stays)
        world.informer.start()
        stays.wait(4)
        eventually(lambda: sum(t.name.startswith("informer-nodes-") for t in threading.enumerate()) == 1)
        assert len(calls) == 1
        assert registrations[0].pending() == 0


class TestBacklog:
    def test_a_hanging_handlers_backlog_is_bounded_and_still_makes_sense(
        self, worlds: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(handlers, "MERGE_ABOVE", 3)
        world, slow = worlds(raw_node("a", 1)), Recorder(hangs=True)
        registration = world.handle(slow, name="slow")
        feed = world.started()
        assert slow.hangs.wait(WAIT)
        for version in range(6, 56):
            feed.put(event("MODIFIED", raw_node("a", version)))
        feed.put(event("DELETED", raw_node("a", 60)))
        feed.put(event("ADDED", raw_node("a", 61)))
        for version in range(62, 102):
            feed.put(event("MODIFIED", raw_node("a", version)))
        eventually(lambda: version_of(world.informer.lister.get("a") or V1Node()) == "101")
        assert registration.pending() <= 5
        assert caplog.text.count("handler slow is 3 events behind") == 1
        slow.gate.set()
        eventually(lambda: registration.pending() == 0 and slow.calls[-1][-1] is False)
        assert slow.calls == [
            ("add", "a", "1", True), ("update", "a", "1", "6"), ("delete", "a", "60"), ("add", "a", "101", False),
        ]  # fmt: skip

    @pytest.mark.row("K11")
    def test_what_comes_and_goes_behind_a_hanging_handler_takes_one_entry_per_object(
        self, worlds: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handlers, "MERGE_ABOVE", 3)
        world, slow = worlds(raw_node("a", 1)), Recorder(hangs=True)
        registration = world.handle(slow, name="slow")
        feed = world.started()
        assert slow.hangs.wait(WAIT)
        for version in range(10, 210, 4):
            feed.put(event("DELETED", raw_node("a", version, f"uid-{version}" if version > 10 else "")))
            feed.put(event("ADDED", raw_node("a", version + 1, f"uid-{version + 4}")))
            feed.put(event("ADDED", raw_node(f"passing-{version}", version + 2)))
            feed.put(event("DELETED", raw_node(f"passing-{version}", version + 3)))
        feed.put(event("ADDED", raw_node("last", 300)))
        eventually(lambda: world.informer.lister.get("last") is not None)
        assert registration.pending() <= 6
        slow.gate.set()
        eventually(lambda: registration.pending() == 0 and slow.calls[-1][1] == "last")
        of_a = [call for call in slow.calls if call[1] == "a"]
        assert [call[0] for call in of_a] == ["add", "delete"] * (len(of_a) // 2) + ["add"]
        assert of_a[-1] == ("add", "a", "207", False)

    def test_what_was_delivered_is_not_merged_into(self, worlds: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(handlers, "MERGE_ABOVE", 2)
        world, slow = worlds(*[raw_node(name, i + 1) for i, name in enumerate("abcde")]), Recorder()
        passing = slow.add

        def add(new: V1Node, initial: bool) -> None:
            if name_of(new) == "b":
                slow.gate.clear()
            passing(new, initial)

        world.informer.add_handler(add, slow.update, slow.delete)
        feed = world.started()
        assert slow.hangs.wait(WAIT)
        feed.put(event("MODIFIED", raw_node("a", 10)))
        eventually(lambda: version_of(world.informer.lister.get("a") or V1Node()) == "10")
        slow.gate.set()
        assert slow.wait(6)[-1] == ("update", "a", "1", "10")


class TestNoResync:
    @pytest.mark.row("O10")
    def test_nobody_is_called_again_about_what_has_not_changed_however_long_it_lasts(self, worlds: Make) -> None:
        world, seen = worlds(raw_node("a", 1), raw_node("b", 2)), Recorder()
        registration = world.handle(seen)
        feed = world.started()
        eventually(registration.has_synced)
        for _ in range(4):
            world.clock.advance(12 * 3600)
        feed.put(event("MODIFIED", raw_node("a", 6)))
        assert seen.wait(3)[2:] == [("update", "a", "1", "6")]


class TestStop:
    """Stops at once in every state: what the threads wait for does not come before `stop` gives up.
    Its joins prove that no thread is left."""

    def stopped(self, world: World) -> None:
        assert world.informer.stop(WAIT)
        eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("informer-nodes")])

    def test_before_the_start(self, worlds: Make) -> None:
        world = worlds()
        world.handle(Recorder())
        self.stopped(world)
        with pytest.raises(RuntimeError):
            world.informer.start()
        with pytest.raises(RuntimeError):
            world.handle(Recorder())

    def test_while_listing(self, worlds: Make) -> None:
        world = worlds()
        world.server.listing.clear()
        world.informer.start()
        assert world.server.asked.wait(WAIT)
        self.stopped(world)
        assert not world.informer.has_synced()

    def test_while_parsing_a_list(self, worlds: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        read, parsed, on = Cache.read, [], threading.Event()

        def slowly(cache: Cache[Any], raw: Any, *, reparse: bool = False) -> Any:
            parsed.append(raw)
            if len(parsed) == 3:
                on.set()
                world.informer._source._loop.stopping.wait()
            return read(cache, raw, reparse=reparse)

        monkeypatch.setattr(Cache, "read", slowly)
        world = worlds(*[raw_node(f"n{i}", i + 1) for i in range(100)])
        world.informer.start()
        assert on.wait(WAIT)
        self.stopped(world)
        assert len(parsed) == 3

    def test_while_connecting(self, worlds: Make) -> None:
        world = worlds()
        world.server.opening = threading.Event()
        world.started()
        self.stopped(world)

    def test_while_reading(self, worlds: Make) -> None:
        world = worlds(raw_node("a", 1))
        feed = world.started()
        eventually(world.informer.has_synced)
        self.stopped(world)
        assert feed.closed.is_set()
        assert world.informer.lister.get("a") is not None, "the cache stays readable"

    def test_while_backing_off(self, worlds: Make) -> None:
        world = worlds()
        world.started().put(Unreachable("reset"))
        world.clock.wait_for_waiters(1, timed=True)
        self.stopped(world)

    def test_with_a_handler_that_hangs_it_says_so_and_drops_what_waits(self, worlds: Make) -> None:
        world, slow = worlds(*[raw_node(f"n{i}", i + 1) for i in range(3)]), Recorder(hangs=True)
        world.handle(slow)
        world.informer.start()
        assert slow.hangs.wait(WAIT)
        assert not world.informer.stop(0.05)
        slow.gate.set()
        self.stopped(world)
        assert len(slow.calls) == 1

    def test_from_a_handler(self, worlds: Make) -> None:
        world, ended = worlds(raw_node("a", 1)), threading.Event()

        def add(new: V1Node, initial: bool) -> None:
            assert world.informer.stop(WAIT)
            ended.set()

        world.informer.add_handler(add)
        world.informer.start()
        assert ended.wait(WAIT)
        self.stopped(world)

    def test_starting_twice_is_starting_once(self, worlds: Make) -> None:
        world = worlds()
        world.informer.start()
        world.informer.start()
        world.server.feed()
        assert world.server.feeds.empty()


class TestHealth:
    def test_silence_grows_until_the_server_says_something(self, worlds: Make) -> None:
        world = worlds(raw_node("a", 1), malformed(raw_node("b", 2)))
        assert world.informer.health().silent_for is None
        world.clock.advance(100)
        feed = world.started()
        eventually(world.informer.has_synced)
        assert world.informer.health().silent_for == 0
        world.clock.advance(70)
        health = world.informer.health()
        assert (health.resource, health.synced, health.silent_for, health.error) == ("nodes", True, 70, "")
        assert list(health.quarantined) == ["b"]
        synced_at = world.clock.time() - 70
        assert world.metrics.value("informer_last_sync_timestamp_seconds", resource="nodes") == pytest.approx(synced_at)
        feed.put(bookmark(9))
        eventually(lambda: world.informer.health().silent_for == 0)
        feed.put(Unreachable("reset"))
        eventually(lambda: world.informer.health().error == "watch: reset")

    def test_events_are_counted_by_type(self, worlds: Make) -> None:
        world = worlds(raw_node("a", 1))
        feed = world.started()
        for kind, version in (("ADDED", 6), ("MODIFIED", 7), ("MODIFIED", 8), ("DELETED", 9), ("DELETED", 9)):
            feed.put(event(kind, raw_node("b", version)))
        feed.put(bookmark(10))

        def value(kind: str) -> float | None:
            return world.metrics.value("informer_events_total", resource="nodes", type=kind)

        eventually(lambda: value("BOOKMARK") == 1)
        assert [value(kind) for kind in ("ADDED", "MODIFIED", "DELETED")] == [1, 2, 2]
        assert world.metrics.value("informer_stale_events_total", resource="nodes") == 1

    def test_a_fault_of_our_own_is_told_and_mended_by_a_list(
        self, worlds: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world, seen = worlds(raw_node("a", 1)), Recorder()
        world.handle(seen)
        feed = world.started()
        seen.wait(1)

        def fail(*args: Any) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(world.informer._cache, "apply", fail)
            world.server.body = page(20, raw_node("a", 12))
            feed.put(event("MODIFIED", raw_node("a", 12)))
            world.clock.wait_for_waiters(1, timed=True)
            eventually(lambda: "informer failed" in caplog.text)
        world.clock.wait_for_waiters(1, timed=True)
        world.clock.advance(1)
        assert seen.wait(2)[1] == ("update", "a", "1", "12")
        assert world.metrics.value("informer_relists_total", resource="nodes", cause="internal") == 1
        assert feed.closed.is_set()


class TestFactory:
    def test_informers_are_shared_and_synced_together(self) -> None:
        server, metrics, never = Server(5, raw_node("a", 1)), Metrics(), threading.Event()
        factory = InformerFactory(rest_of(server), metrics=metrics, options=WatchOptions())
        nodes = factory.informer(NODES)
        assert factory.informer(NODES) is nodes
        server.listing.clear()
        factory.start()
        assert not factory.has_synced()
        assert not factory.wait_for_sync(never, timeout=0)
        stop = threading.Event()
        stop.set()
        assert not factory.wait_for_sync(stop)
        server.listing.set()
        assert factory.wait_for_sync(never, timeout=WAIT)
        services = factory.informer(SERVICES)
        assert not factory.has_synced()
        factory.start()
        assert factory.wait_for_sync(never, timeout=WAIT)
        assert (len(nodes.lister), len(services.lister)) == (1, 0)
        assert [health.resource for health in factory.health()] == ["nodes", "services"]
        assert factory.stop(WAIT)
        assert factory.stop(WAIT)


@pytest.mark.row("K7")
def test_where_no_thread_is_to_be_had_a_later_start_succeeds(worlds: Make) -> None:
    world = worlds(raw_node("a", 3))
    with no_thread("informer-nodes"), pytest.raises(RuntimeError, match="can't start new thread"):
        world.informer.start()
    world.informer.start()
    eventually(world.informer.has_synced)


@pytest.mark.row("K7")
def test_a_handler_without_a_thread_is_not_registered(worlds: Make) -> None:
    """Else its events would gather for ever, and its later twin would wait for a delivery that
    never comes."""
    world = worlds(raw_node("a", 3))
    world.informer.start()
    eventually(world.informer.has_synced)
    with no_thread(""), pytest.raises(RuntimeError, match="can't start new thread"):
        world.informer.add_handler(lambda obj, initial: None, name="lost")
    assert world.informer._deliveries == []
