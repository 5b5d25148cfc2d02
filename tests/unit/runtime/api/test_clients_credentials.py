"""Credentials stay fresh, survive a source that fails for a while, and never show in a message."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientBuilder, ClientClosed, CredentialsUnavailable
from controllers.runtime.api.credentials import Credential, Credentials, Fixed, Source, TokenFile
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.ratelimit import Sleeper, TokenBucket
from controllers.runtime.api.wire import Endpoint
from tests.support.clock import FakeClock
from tests.support.threadless import no_thread
from tests.unit.runtime.loopback import LIMIT, Call


class Scripted(Source):
    """A source that gives what the test says next; slow ones wait for `go`."""

    pace = 10.0

    def __init__(self, *answers: Credential | Exception, slow: bool = False) -> None:
        self.answers = list(answers)
        self.slow = slow
        self.fetches = 0
        self.go = threading.Event()

    def fetch(self) -> Credential:
        if self.slow:
            assert self.go.wait(LIMIT)
            self.go.clear()
        self.fetches += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def credentials(source: Source, clock: FakeClock) -> Credentials:
    return Credentials(source, Sleeper(clock))


class TestRefresh:
    def test_a_credential_without_end_is_fetched_once(self, clock: FakeClock) -> None:
        source = Scripted(Credential("Bearer a"))
        found = credentials(source, clock)
        for _ in range(3):
            assert found.authorization() == "Bearer a"
            clock.advance(10_000)
        assert source.fetches == 1

    def test_it_is_fetched_again_before_it_ends(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a", clock.time() + 3600), Credential("b", clock.time() + 7200))
        found = credentials(source, clock)
        assert found.authorization() == "a"
        clock.advance(3600 - 61)
        assert found.authorization() == "a"
        clock.advance(1)
        assert found.authorization() == "b"

    def test_a_short_lived_one_is_not_fetched_all_the_time(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a", clock.time() + 20))
        found = credentials(source, clock)
        found.authorization()
        clock.advance(15)
        found.authorization()
        assert source.fetches == 1
        clock.advance(1)
        found.authorization()
        assert source.fetches == 2

    def test_one_that_has_ended_by_our_clock_is_the_servers_to_judge(self, clock: FakeClock) -> None:
        ends = clock.time() + 900
        clock.step_wall_clock(3600)
        source = Scripted(Credential("a", ends), Credential("b", ends))
        found = credentials(source, clock)
        for _ in range(5):
            assert found.authorization() == "a"
        assert source.fetches == 1
        clock.advance(10)
        assert found.authorization() == "b"

    def test_a_failing_source_keeps_the_former_one_until_it_ends(
        self, caplog: pytest.LogCaptureFixture, clock: FakeClock
    ) -> None:
        source = Scripted(Credential("a", clock.time() + 100), OSError("disk"), OSError("disk"), Credential("b"))
        found = credentials(source, clock)
        found.authorization()
        clock.advance(85)
        assert found.authorization() == "a"
        clock.advance(16)
        with pytest.raises(CredentialsUnavailable, match="OSError: disk"):
            found.authorization()
        assert source.fetches == 3
        clock.advance(30)
        assert found.authorization() == "b"
        assert [r.levelname for r in caplog.records if "disk" in r.getMessage()] == ["WARNING"]

    def test_a_failure_is_tried_again_with_growing_pauses(self, clock: FakeClock) -> None:
        source = Scripted(RuntimeError("no"))
        found = credentials(source, clock)
        seconds = []
        for _ in range(8):
            with pytest.raises(CredentialsUnavailable):
                found.authorization()
            before, waited = source.fetches, 0
            while source.fetches == before:
                clock.advance(1)
                waited += 1
                with pytest.raises(CredentialsUnavailable):
                    found.authorization()
            seconds.append(waited)
        assert seconds == [1, 2, 4, 8, 16, 30, 30, 30]

    def test_it_is_fetched_again_when_the_source_says_so(self, clock: FakeClock) -> None:
        source = Scripted(
            Credential("Bearer a", expires_at=clock.time() + 1000, renew_at=clock.time() + 700), Credential("Bearer b")
        )
        found = credentials(source, clock)
        assert found.authorization() == "Bearer a"
        clock.advance(699)
        assert found.authorization() == "Bearer a"
        clock.advance(2)
        assert found.authorization() == "Bearer b"


class TestRejection:
    def test_a_rejected_credential_is_fetched_again_but_not_at_every_401(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), Credential("b"), Credential("c"))
        found = credentials(source, clock)
        assert found.authorization() == "a"
        found.rejected("a")
        assert found.authorization() == "a"  # fetched less than ten seconds ago
        clock.advance(10)
        found.rejected("a")
        assert found.authorization() == "b"
        found.rejected("a")  # an answer to an old request
        clock.advance(60)
        assert found.authorization() == "b"

    def test_a_fixed_one_cannot_be_renewed(self) -> None:
        found = credentials(Fixed("a"), FakeClock())
        found.authorization()
        found.rejected("a")
        assert found.authorization() == "a"


class TestSlowSources:
    def test_threads_wait_for_one_fetch(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), slow=True)
        found = credentials(source, clock)
        calls = [Call(found.authorization) for _ in range(5)]
        clock.wait_for_waiters(5)
        source.go.set()
        assert [call.outcome() for call in calls] == ["a"] * 5
        assert source.fetches == 1

    @pytest.mark.row("K7")
    def test_no_thread_to_be_had_is_a_failure_like_any_other(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), slow=True)
        found = credentials(source, clock)
        with no_thread("credentials"), pytest.raises(CredentialsUnavailable, match="can't start new thread"):
            found.authorization()
        clock.advance(1)
        source.go.set()
        assert Call(found.authorization).outcome() == "a"

    def test_nobody_waits_while_the_former_one_is_good(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a", clock.time() + 1000), Credential("b", clock.time() + 9000), slow=True)
        found = credentials(source, clock)
        source.go.set()
        assert found.authorization() == "a"
        clock.advance(950)
        assert [found.authorization() for _ in range(3)] == ["a"] * 3
        source.go.set()
        eventually(lambda: source.fetches == 2)
        eventually(lambda: found.authorization() == "b")

    def test_after_a_rejection_requests_wait_for_the_fresh_one(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), Credential("b"), slow=True)
        found = credentials(source, clock)
        source.go.set()
        assert found.authorization() == "a"
        clock.advance(10)
        found.rejected("a")
        call = Call(found.authorization)
        clock.wait_for_waiters(1)
        source.go.set()
        assert call.outcome() == "b"

    def test_a_hanging_plugin_costs_a_minute_and_no_more(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), slow=True)
        found = credentials(source, clock)
        call = Call(found.authorization)
        clock.wait_for_timeout(60)
        clock.advance(60)
        assert isinstance(call.outcome(), CredentialsUnavailable)
        source.go.set()
        eventually(lambda: source.fetches == 1)

    def test_a_hanging_plugin_costs_a_request_no_more_than_its_own_time(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), slow=True)
        with ClientBuilder(Access(Endpoint.parse("http://127.0.0.1:1"), source), clock=clock) as clients:
            call = Call(lambda: clients.rest("test").get("/readyz", timeout=4))
            clock.wait_for_timeout(4)
            clock.advance(4)
            error = call.outcome()
            assert isinstance(error, CredentialsUnavailable)
            assert str(error) == "GET /readyz: no credentials within 4 s"
            assert clients.reachability.down_since is None  # which nobody asked
        source.go.set()

    def test_closing_ends_the_wait(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), slow=True)
        sleeper = Sleeper(clock)
        found = Credentials(source, sleeper)
        call = Call(found.authorization)
        clock.wait_for_waiters(1)
        sleeper.close()
        assert isinstance(call.outcome(), ClientClosed)
        source.go.set()

    def test_a_closed_stream_ends_its_own_wait(self, clock: FakeClock) -> None:
        source = Scripted(Credential("a"), slow=True)
        sleeper, over = Sleeper(clock), threading.Event()
        found = Credentials(source, sleeper)
        call = Call(lambda: found.authorization(over.is_set))
        clock.wait_for_waiters(1)
        over.set()
        sleeper.wake()
        assert isinstance(call.outcome(), CredentialsUnavailable)
        source.go.set()


class TestTokenFile:
    def test_surrounding_blanks_are_no_part_of_it_and_a_missing_file_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsUnavailable, match="No such file"):
            TokenFile(str(tmp_path / "t")).fetch()
        (tmp_path / "t").write_text(" abc\n\n")
        assert TokenFile(str(tmp_path / "t")).fetch().authorization == "Bearer abc"

    @pytest.mark.parametrize("content", ["", " \n", "secret\nother", "secret other", "s\x00ecret", "sécret"])
    def test_what_is_no_token_is_unavailable_and_untold(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "t").write_text(content)
        with pytest.raises(CredentialsUnavailable, match="token file") as caught:
            TokenFile(str(tmp_path / "t")).fetch()
        assert "ecret" not in str(caught.value)

    def test_it_is_read_every_ten_seconds(self, tmp_path: Path, clock: FakeClock) -> None:
        path = tmp_path / "t"
        path.write_text("one")
        found = credentials(TokenFile(str(path)), clock)
        assert found.authorization() == "Bearer one"
        path.write_text("two")
        clock.advance(9)
        assert found.authorization() == "Bearer one"
        clock.advance(1)
        assert found.authorization() == "Bearer two"


class TestTokenBucket:
    def test_burst_then_rate_then_burst_again(self, clock: FakeClock) -> None:
        bucket = TokenBucket(10, 3, clock=clock)
        assert [bucket.reserve() for _ in range(3)] == [0, 0, 0]
        assert [round(bucket.reserve(), 6) for _ in range(3)] == [0.1, 0.2, 0.3]
        clock.advance(0.3)
        assert round(bucket.reserve(), 6) == 0.1
        clock.advance(100)
        assert [bucket.reserve() for _ in range(3)] == [0, 0, 0]
        assert bucket.reserve() > 0

    def test_a_missing_burst_is_a_seconds_worth(self) -> None:
        assert TokenBucket(2.5, 0, clock=FakeClock()).burst == 3
        assert TokenBucket(0.1, 0, clock=FakeClock()).burst == 1

    @pytest.mark.parametrize("qps", [0, -1, float("inf"), float("nan")])
    def test_what_is_no_rate(self, qps: float) -> None:
        with pytest.raises(ValueError, match="qps"):
            TokenBucket(qps, 1)
