"""List and watch against a scripted server: what is asked next after everything that may go
wrong."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node

from controllers.runtime.api import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    HalfOpen,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from controllers.runtime.cache import NODES
from controllers.runtime.cache.lists import Bookmark, History, Listed, Verdict, Watched
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.cache.store import Cache
from controllers.runtime.cache.watch import ListWatch
from controllers.runtime.metrics import Metrics
from tests.support.there import there
from tests.unit.runtime.cache.informers import (
    End,
    ScriptedLines,
    ScriptedRest,
    SkippingClock,
    bookmark,
    error_event,
    event,
    malformed,
    page,
    raw_node,
    refused,
    rest_of,
    watch,
)

GONE = Gone("too old", status=410, reason="Expired")
RESET = Unreachable("connection reset")
BROKEN = ServerError("it broke", status=500)
A, B, C = (raw_node(name, 5 + i) for i, name in enumerate("abc"))


ENCODING: ContextVar[bool] = ContextVar("ENCODING", default=False)
"""Whether the present test's server talks Protobuf."""


@pytest.fixture(autouse=True, params=[False, True], ids=["json", "protobuf"])
def encoding(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test of this file runs with both encodings."""
    token = ENCODING.set(request.param)
    yield
    ENCODING.reset(token)


class World:
    """A ListWatch, the cache behind it, and the script that it meets."""

    def __init__(self, *steps: bytes | Exception | ScriptedLines, **options: Any) -> None:
        self.clock = SkippingClock()
        self.metrics = Metrics()
        self.rest = ScriptedRest(*steps, protobuf=ENCODING.get())
        self.cache: Cache[V1Node] = Cache(NODES, self.metrics)
        self.updates: list[object] = []
        self.source = ListWatch(
            rest_of(self.rest),
            self.cache,
            WatchOptions(**options),
            metrics=self.metrics,
            clock=self.clock,
            rng=random.Random(7),
        )

    def run(self) -> World:
        """Play the script to its end."""
        with pytest.raises(End):
            self._take_all()
        return self

    def _take_all(self) -> None:
        for update in self.source.updates():
            self.updates.append(update)
            if isinstance(update, Listed):
                self.cache.replace(update.items, update.version, restored=update.cause == "restored")
            elif isinstance(update, Watched):
                self.cache.apply(update.event, update.item)
            else:
                assert isinstance(update, Bookmark)
                self.cache.advance(update.version)

    @property
    def names(self) -> list[str]:
        return sorted(self.cache.keys())

    @property
    def queries(self) -> list[dict[str, str]]:
        """What was asked, without what is the same in every request."""
        constant = ("allowWatchBookmarks", "timeoutSeconds", "limit")
        return [{k: v for k, v in query.items() if k not in constant} for query in self.rest.queries]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.value(name, resource="nodes", **labels) or 0.0


def pass_time(world: World, seconds: float) -> None:
    world.clock.now += seconds


def test_the_first_list_is_a_paged_quorum_read_and_the_watch_goes_on_from_its_version() -> None:
    world = World(page(9, A, B, token="next"), page(9, C), watch(End())).run()
    first, second, third = world.rest.queries
    assert first == {"limit": "500"}
    assert second == {"limit": "500", "continue": "next"}
    assert third.pop("timeoutSeconds").isdecimal()
    assert third == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "9"}
    assert world.rest.paths == ["/api/v1/nodes"] * 3
    assert world.names == ["a", "b", "c"]
    assert world.count("informer_relists_total", cause="start") == 1


def test_watches_end_after_five_to_ten_minutes_and_are_silent_for_ninety_seconds_at_most() -> None:
    world = World(page(9), *[watch(bookmark(10 + i)) for i in range(40)]).run()
    timeouts = [int(query["timeoutSeconds"]) for query in world.rest.queries[1:]]
    assert all(300 <= timeout <= 600 for timeout in timeouts)
    assert max(timeouts) - min(timeouts) > 150
    assert set(world.rest.read_timeouts) == {90.0}


def test_a_watch_resumes_from_the_last_event_or_bookmark_whichever_came_last() -> None:
    world = World(
        page(9, A),
        watch(event("MODIFIED", raw_node("a", 10)), RESET),
        watch(event("ADDED", raw_node("d", 12)), bookmark(20)),
        watch(),
    ).run()
    assert [q.get("resourceVersion") for q in world.queries[1:]] == ["9", "10", "20"]
    assert world.names == ["a", "d"]


class TestExpiry:
    def test_a_410_inside_the_pages_starts_the_list_over_and_keeps_nothing_of_the_old_pages(self) -> None:
        world = World(page(9, A, token="t1"), GONE, page(11, B, token="t2"), page(11, C), watch(End())).run()
        assert world.queries[:4] == [{}, {"continue": "t1"}, {}, {"continue": "t2"}]
        assert world.names == ["b", "c"]
        assert world.queries[4]["resourceVersion"] == "11"
        assert world.clock.waits == []

    def test_pages_of_several_versions_are_watched_from_the_first_so_that_nothing_is_skipped(self) -> None:
        world = World(page(9, A, token="t"), page(12, B), watch(End())).run()
        assert world.queries[2]["resourceVersion"] == "9"

    def test_pages_that_keep_expiring_are_given_up_for_one_full_list(self) -> None:
        world = World(
            page(9, A, token="t1"), GONE, page(11, B, token="t2"), GONE, page(12, A, B, C), watch(End())
        ).run()
        assert [query.get("limit") for query in world.rest.queries[:5]] == ["500", "500", "500", "500", None]
        assert world.names == ["a", "b", "c"]

    @pytest.mark.parametrize("how", [refused(GONE), watch(error_event(410, "Expired")), watch(error_event(410))])
    def test_a_410_on_the_watch_lists_again_not_older_than_what_was_seen(self, how: ScriptedLines) -> None:
        world = World(page(9, A), how, page(30, B), watch(End())).run()
        assert world.queries[2] == {"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}
        assert world.queries[3]["resourceVersion"] == "30"
        assert world.names == ["b"]
        assert world.clock.waits == [], "the first expiry is no trouble"
        assert world.count("informer_relists_total", cause="expired") == 1
        assert world.count("informer_watch_restarts_total", cause="expired") == 1

    def test_a_410_on_that_list_leads_to_a_quorum_list_and_to_one_only(self) -> None:
        again: list[Any] = [refused(GONE), page(40, B), watch(End())]
        world = World(page(9, A), refused(GONE), GONE, page(30, B), *again).run()
        assert world.queries[2:4] == [{"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}, {}]
        assert world.queries[5] == {"resourceVersion": "30", "resourceVersionMatch": "NotOlderThan"}
        assert world.names == ["b"]
        assert world.count("informer_list_failures_total", cause="expired") == 1

    def test_a_list_that_lost_most_of_what_is_cached_is_confirmed_by_a_quorum_list(self) -> None:
        not_older = {"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}
        world = World(page(9, A, B, C), refused(GONE), page(30, A), page(31, A, B, C), watch(End())).run()
        assert world.queries[2:4] == [not_older, {}]
        assert world.queries[4]["resourceVersion"] == "31"
        assert world.names == ["a", "b", "c"]
        world = World(page(9, A), refused(GONE), page(30), page(31), watch(End())).run()
        assert world.names == [], "a quorum list is believed"
        world = World(page(9, A, B), refused(GONE), page(30, A), watch(End())).run()
        assert world.names == ["a"], "half is not suspicious"

    def test_a_quorum_list_that_fails_is_asked_for_again(self) -> None:
        world = World(page(9, A), refused(GONE), page(30), BROKEN, page(31, A), watch(End())).run()
        assert world.queries[2:5] == [{"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}, {}, {}]
        assert world.names == ["a"]

    def test_a_server_that_expires_everything_at_once_is_not_asked_without_pause(self) -> None:
        steps: list[Any] = [step for i in range(6) for step in (page(10 + i), watch(error_event(410)))]
        world = World(*steps, page(30)).run()
        assert len(world.clock.waits) == 5, "all but the first"
        assert world.clock.waits[-1] > 4 * world.clock.waits[0]


class TestNeverBack:
    def too_large(self) -> ApiError:
        causes = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
        return ServerError("Too large resource version: 9", status=504, reason="Timeout", details=causes, retry_after=1)

    def test_a_server_behind_us_is_waited_for_and_the_third_time_asked_for_a_quorum_list(self) -> None:
        world = World(page(9, A), refused(GONE), *[self.too_large() for _ in range(3)], page(30, B), watch(End())).run()
        not_older = {"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}
        assert world.queries[2:6] == [not_older, not_older, not_older, {}]
        assert len(world.clock.waits) == 3
        assert min(world.clock.waits) >= 1, "Retry-After"
        assert world.count("informer_list_failures_total", cause="too_large_version") == 3

    def test_the_sentence_alone_is_understood_too_and_versions_that_are_no_numbers_are_not_compared(self) -> None:
        late = ServerError("Too large resource version: 9, current: 3", status=504)
        world = World(page(9, A), refused(GONE), late, page(30, B), watch(End())).run()
        assert world.count("informer_list_failures_total", cause="too_large_version") == 1
        foreign = page(1, B).replace(b'"resourceVersion": "1"', b'"resourceVersion": "x1"')
        assert World(page(9, A), refused(GONE), foreign, watch(End())).run().names == ["b"]

    def test_a_list_older_than_what_was_seen_changes_nothing(self) -> None:
        stale = page(7)
        world = World(page(9, A), watch(bookmark(20)), refused(GONE), stale, stale, page(21, A, C), watch(End())).run()
        assert [type(update) for update in world.updates] == [Listed, Bookmark, Listed]
        assert [q.get("resourceVersion") for q in world.queries[3:6]] == ["20", None, None]
        assert world.names == ["a", "c"]
        assert world.count("informer_list_failures_total", cause="behind") == 2
        assert world.count("informer_history_resets_total") == 0


@pytest.mark.row("K2")
class TestRestoredFromABackup:
    OTHER_A = raw_node("a", 5, history="other")

    def test_a_lower_version_that_a_second_quorum_list_confirms_replaces_everything(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        steps = [page(6, self.OTHER_A, raw_node("d", 6)), page(7, self.OTHER_A, raw_node("d", 7))]
        world = World(page(9, A, B, C), watch(bookmark(20)), refused(GONE), GONE, *steps, watch(End()))
        world.run()
        assert [q.get("resourceVersion") for q in world.queries[3:]] == ["20", None, None, "7"]
        assert world.names == ["a", "d"]
        a = there(world.cache.get("a"))
        assert a.metadata is not None
        assert a.metadata.labels == {"history": "other"}, "the same version and UID, and all the same another object"
        assert world.cache.version == "7"
        assert world.clock.waits[-1] == pytest.approx(10.0)
        assert world.count("informer_history_resets_total") == 1
        assert world.count("informer_relists_total", cause="restored") == 1
        assert [r.levelname for r in caplog.records if "restored from a backup" in r.getMessage()] == ["ERROR"]

    def test_two_histories_by_turns_are_not_believed(self) -> None:
        steps = [page(7), page(5), page(20, A)]
        world = World(page(9, A), watch(bookmark(20)), refused(GONE), GONE, *steps, watch(End())).run()
        assert world.names == ["a"]
        assert world.count("informer_history_resets_total") == 0

    def test_a_page_read_a_moment_later_proves_nothing(self) -> None:
        history = History(10.0)
        assert history.judge("20", "7", 0.0, quorum=False) is Verdict.BEHIND
        assert not history.in_doubt
        assert history.judge("20", "7", 0.0, quorum=True) is Verdict.BEHIND
        assert history.judge("20", "8", 9.9, quorum=True) is Verdict.BEHIND
        assert history.wait(9.0) == pytest.approx(1.0)
        assert history.judge("20", "8", 10.0, quorum=True) is Verdict.RESTORED
        assert not history.in_doubt

    def test_while_in_doubt_a_server_in_trouble_is_not_asked_in_a_circle(self) -> None:
        doubt = World(
            page(9, A), watch(bookmark(20)), refused(GONE), GONE, page(6, B), *[RESET] * 12, page(6, B), watch(End())
        )
        world = doubt.run()
        assert world.names == ["b"]
        assert sum(world.clock.waits[-12:]) >= 12 * 2.0, world.clock.waits

    @pytest.mark.parametrize("refusals", [0, 2])
    def test_an_outage_leads_to_the_question_also_where_a_new_server_refuses_at_first(self, refusals: int) -> None:
        world = World(page(9, A, B), *[refused(RESET)] * 2, page(6, B), page(6, B), watch(End()))
        world.rest.version = 6
        world.rest.refusals = [Forbidden("not yet", status=403)] * refusals
        world.run()
        assert world.rest.probes == 1 + refusals
        assert world.names == ["b"]

    def test_a_connection_that_was_cut_does_not(self) -> None:
        world = World(page(9, A, B), refused(RESET), watch(End())).run()
        assert world.rest.probes == 0

    def test_an_older_bookmark_leads_to_the_question(self) -> None:
        world = World(page(9, A, B), watch(bookmark(6), End()), page(6, B), page(6, B), watch(End()))
        world.rest.version = 6
        world.run()
        assert world.names == ["b"]

    def test_what_comes_after_it_is_believed_as_ever(self) -> None:
        later = watch(event("MODIFIED", raw_node("a", 8, x="y")), End())
        world = World(page(9, A), watch(bookmark(20)), refused(GONE), GONE, page(6, A), page(7, A), later).run()
        a = there(world.cache.get("a"))
        assert a.metadata is not None
        assert a.metadata.labels == {"x": "y"}


class TestDelays:
    def test_delays_double_up_to_thirty_seconds_and_vary_between_half_and_full(self) -> None:
        world = World(*[BROKEN] * 60).run()
        full = [min(30.0, 0.8 * 2**i) for i in range(60)]
        assert all(top / 2 <= delay <= top for delay, top in zip(world.clock.waits, full, strict=True))
        assert len({round(delay, 6) for delay in world.clock.waits}) == 60, "jitter"

    @pytest.mark.row("K17")
    @pytest.mark.parametrize("lost", [RESET, ServerError("no upstream", status=503)])
    def test_a_server_that_gives_no_answer_is_asked_every_four_seconds(self, lost: ApiError) -> None:
        world = World(*[lost] * 40).run()
        assert all(2 <= delay <= 4 for delay in world.clock.waits[4:])

    @pytest.mark.row("K17")
    def test_they_start_over_when_the_server_is_back_and_still_refuses(self) -> None:
        forbidden = Forbidden("not yet", status=403)
        world = World(page(9), *[refused(RESET)] * 9, refused(forbidden), refused(forbidden)).run()
        assert world.clock.waits[9] <= 0.8
        assert world.clock.waits[10] <= 1.6

    def test_they_start_over_after_a_list_and_a_watch_that_brought_something(self) -> None:
        listing: list[Any] = [*[BROKEN] * 6, page(9), refused(RESET)]
        for steps in (listing, [page(9), *[refused(BROKEN)] * 6, watch(bookmark(10), RESET)]):
            world = World(*steps).run()
            assert world.clock.waits[5] > 12
            assert world.clock.waits[6] <= 0.8

    def test_a_watch_that_breaks_at_once_has_not_succeeded_and_one_that_ends_after_a_moment_costs_a_delay(self) -> None:
        world = World(page(9), *[watch(RESET) for _ in range(4)]).run()
        assert world.clock.waits[3] > 1.6
        for parts in ([], [bookmark(10)]):
            assert len(World(page(9), watch(*parts), watch(*parts)).run().clock.waits) == 2

    def test_they_start_over_after_a_quiet_watch_that_stood(self) -> None:
        world = World(page(9), *[refused(RESET)] * 6)
        world.rest.steps.append(watch(lambda: pass_time(world, 30), RESET))
        world.run()
        assert world.clock.waits[6] <= 0.8

    def test_the_servers_own_end_of_a_watch_costs_no_delay(self) -> None:
        world = World(page(9))
        world.rest.steps += [watch(lambda: pass_time(world, 400)) for _ in range(3)]
        world.run()
        assert world.clock.waits == []
        assert world.count("informer_watch_restarts_total", cause="closed") == 3

    def test_retry_after_is_obeyed_by_lists_and_watches_cut_when_absurd_and_shortens_nothing(self) -> None:
        def busy(seconds: float) -> ApiError:
            return TooManyRequests("later", status=429, retry_after=seconds)

        unavailable = ServerError("later", status=503, retry_after=11)
        world = World(busy(7), busy(86400), page(9), refused(busy(9)), refused(unavailable), watch(End())).run()
        assert world.clock.waits == [7, 300, 9, 11]
        assert world.count("informer_list_failures_total", cause="throttled") == 2
        assert world.count("informer_watch_restarts_total", cause="throttled") == 1
        assert World(*[busy(0.1)] * 8).run().clock.waits[-1] >= 15


class TestSilence:
    def test_a_half_open_watch_is_renewed_at_once_and_the_third_time_listed(self) -> None:
        world = World(page(9, A))
        world.rest.steps += [watch(lambda: pass_time(world, 90), Unreachable("nothing came")) for _ in range(3)]
        world.rest.steps += [page(30, B), watch(End())]
        world.run()
        assert [q.get("watch") for q in world.queries] == [None, "true", "true", "true", None, "true"]
        assert world.queries[4] == {"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}
        assert world.clock.waits == []
        assert world.count("informer_watch_restarts_total", cause="silent") == 3
        assert world.count("informer_relists_total", cause="silent") == 1
        assert world.names == ["b"]

    def test_a_watch_that_another_request_shows_to_be_half_open_is_renewed_at_once(self) -> None:
        world = World(page(9, A), watch(HalfOpen("given up")), watch(bookmark(12), End())).run()
        assert [q.get("resourceVersion") for q in world.queries[1:]] == ["9", "9"]
        assert world.clock.waits == []
        assert world.count("informer_watch_restarts_total", cause="silent") == 1

    def test_bookmarks_keep_a_quiet_watch_alive(self) -> None:
        world = World(page(9, A))

        def quiet() -> ScriptedLines:
            return watch(
                lambda: pass_time(world, 60), bookmark(20), lambda: pass_time(world, 90), Unreachable("nothing")
            )

        world.rest.steps += [quiet() for _ in range(5)]
        world.run()
        assert world.count("informer_relists_total", cause="silent") == 0

    def test_a_server_that_dies_after_a_quiet_time_is_not_asked_without_pause(self) -> None:
        world = World(page(9, A))
        world.rest.steps += [watch(lambda: pass_time(world, 88), RESET), *[refused(RESET) for _ in range(5)]]
        world.run()
        assert len(world.clock.waits) == 5

    def test_what_was_heard_last_is_a_list_or_a_line_not_an_opened_connection(self) -> None:
        world = World(page(9, A))
        world.rest.steps += [watch(lambda: pass_time(world, 90), RESET), watch(lambda: pass_time(world, 50))]
        world.run()
        assert world.clock.now - world.source.last_contact == 140


class TestDamage:
    def test_a_truncated_watch_is_resumed(self) -> None:
        later = [event("ADDED", raw_node(name, 20 + i)) for i, name in enumerate("ab")]
        world = World(page(9), watch(later[0], RESET), watch(later[1])).run()
        assert world.names == ["a", "b"]
        assert world.count("informer_watch_restarts_total", cause="unreachable") == 1

    @pytest.mark.parametrize(
        "line",
        [
            b"\x00\xff garbage", b"{", b"[]", b'"text"', b"{}", b'{"type":"ADDED"}', b'{"type":"ADDED","object":[]}',
            b'{"type":7,"object":{}}', event("SURPRISE", A), event("ADDED", {}), event("MODIFIED", {"metadata": 3}),
            event("ADDED", {"metadata": {"name": ""}}), b"[" * 100_000,
        ],
    )  # fmt: skip
    def test_an_unreadable_line_is_asked_for_again_and_the_second_time_listed(self, line: bytes) -> None:
        good = event("ADDED", raw_node("d", 10))
        world = World(page(9, A), watch(good, line), watch(line), page(30, B), watch(End())).run()
        assert [q.get("resourceVersion") for q in world.queries] == [None, "9", "10", "10", "30"]
        assert world.queries[3]["resourceVersionMatch"] == "NotOlderThan"
        assert world.names == ["b"]
        assert world.count("informer_watch_restarts_total", cause="garbled") == 2
        assert world.count("informer_relists_total", cause="garbled") == 1

    def test_an_unreadable_line_that_was_an_accident_costs_nothing(self) -> None:
        good = event("ADDED", raw_node("d", 10))
        world = World(page(9, A), *[step for _ in range(3) for step in (watch(b"?"), watch(good, bookmark(11)))]).run()
        assert world.count("informer_relists_total", cause="garbled") == 0
        assert world.names == ["a", "d"]

    @pytest.mark.parametrize("trouble", [error_event(500, "InternalError"), error_event(0), RESET])
    def test_a_watch_that_always_fails_at_once_is_stepped_over_by_a_list(self, trouble: bytes | Exception) -> None:
        world = World(page(9, A), *[watch(trouble) for _ in range(5)], page(30, B), watch(End())).run()
        assert world.queries[6] == {"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}
        assert world.count("informer_relists_total", cause="stuck") == 1
        assert world.names == ["b"]

    def test_a_server_that_cannot_be_reached_is_not_listed_for_that(self) -> None:
        world = World(page(9, A), *[refused(RESET) for _ in range(30)]).run()
        assert [q.get("watch") for q in world.queries[1:]] == ["true"] * 30

    def test_an_error_event_is_survived_by_a_new_watch(self) -> None:
        world = World(page(9, A), watch(error_event(500)), watch(event("ADDED", raw_node("d", 10)))).run()
        assert world.names == ["a", "d"]
        assert [q.get("resourceVersion") for q in world.queries[1:]] == ["9", "9"]

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"{}", b"null", b"[]", page(9)[:-1], page(9) + b"x", page(9).replace(b'"items"', b'"elements"'),
            page(9, kind="Status"), page(9, kind="ServiceList"), b'{"items":[]}',
            b'{"metadata":{"resourceVersion":""},"items":[]}', b'{"metadata":{"resourceVersion":"9"},"items":{}}',
        ],
    )  # fmt: skip
    def test_what_is_no_list_never_passes_for_an_empty_one(self, body: bytes) -> None:
        world = World(page(9, A), refused(GONE), body, page(30, A, B), watch(End())).run()
        assert world.names == ["a", "b"]
        assert [len(update.items) for update in world.updates if isinstance(update, Listed)] == [1, 2]
        assert world.count("informer_list_failures_total", cause="garbled") == 1

    def test_pages_that_repeat_themselves_are_a_fault_and_a_list_without_a_single_item_is_believed(self) -> None:
        world = World(page(9, A, token="t"), page(9, B, token="t"), page(10, C), watch(End())).run()
        assert world.names == ["c"]
        null_items = b'{"items":null,"metadata":{"resourceVersion":"31"}}'
        world = World(page(9, A), refused(GONE), page(30), page(30), refused(GONE), null_items, watch(End())).run()
        assert world.names == []
        assert world.queries[-1]["resourceVersion"] == "31"

    def test_a_forbidden_list_changes_nothing_and_is_repeated(self) -> None:
        forbidden = Forbidden('nodes is forbidden: User "x" cannot list resource "nodes"', status=403)
        world = World(page(9, A), refused(GONE), forbidden, forbidden, page(30, A), watch(End())).run()
        assert world.names == ["a"]
        assert len(world.clock.waits) == 2
        assert world.count("informer_list_failures_total", cause="forbidden") == 2

    def test_a_bad_request_leads_to_a_quorum_list(self) -> None:
        bad = BadRequest("what version?", status=400)
        world = World(page(9, A), refused(bad), bad, page(30, B), watch(End())).run()
        assert world.queries[2:4] == [{"resourceVersion": "9", "resourceVersionMatch": "NotOlderThan"}, {}]

    def test_one_malformed_item_costs_itself_alone(self) -> None:
        world = World(page(9, A, malformed(B), C), watch(event("ADDED", malformed(raw_node("d", 10))))).run()
        assert world.names == ["a", "c"]
        assert set(world.cache.quarantine.problems()) == {"b", "d"}
        assert world.count("informer_watch_restarts_total", cause="garbled") == 0


class TestTelling:
    def test_failures_are_told_ever_more_rarely(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "controllers.runtime.cache.watch")
        World(*[RESET] * 100).run()
        assert len(caplog.records) == 7  # the 1st, 2nd, 4th, ... 64th
        assert "connection reset" in caplog.messages[0]

    def test_the_error_shows_until_the_server_is_heard_again(self) -> None:
        seen = []
        world = World(RESET, page(9), refused(GONE), page(10), watch(bookmark(11)))
        world.clock.on_wait = lambda: seen.append(world.source.error)
        world.run()
        assert seen[0] == "list: connection reset"
        assert "" not in seen
        assert world.source.error.startswith("watch: the server ended it")
