"""Tokens and cached values: loaded by one thread at a time, early, and once more after a 401."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from typing_extensions import override

from cloudprovider import Call, CloudProviderError, call_scope
from cloudprovider.http import (
    Cached,
    Client,
    ClientCredentials,
    CloudError,
    FileToken,
    Resource,
    StaticToken,
    Token,
    TokenSource,
)
from cloudprovider.testing.waiting import eventually
from tests.support.clock import FakeClock
from tests.unit.cloudprovider.http.cloud import Asked, Cloud, Given, reply


class Thing(Resource):
    id: str


class Counting(TokenSource):
    """A login that gives t1, t2, ..., good for ten minutes; or fails."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(monotonic=clock.monotonic)
        self.fetched = 0
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()

    @override
    def fetch(self) -> Token:
        self.fetched += 1
        assert self.gate.wait(10)
        if self.fails:
            raise CloudProviderError("the login does not answer")
        return Token(f"t{self.fetched}", 600.0)


def accepting(*tokens: str) -> Callable[[Asked], Given]:
    good = {f"Bearer {token}" for token in tokens}
    return lambda asked: reply(200, {"id": "1"}) if asked.headers.get("Authorization") in good else reply(401, {})


def test_a_token_is_kept_and_renewed_a_minute_before_its_end(clock: FakeClock) -> None:
    source = Counting(clock)
    assert [source.token().text for _ in range(3)] == ["t1"] * 3
    clock.advance(539)
    assert source.token().text == "t1"
    clock.advance(2)
    assert source.token().text == "t2"


def test_a_login_that_fails_early_leaves_the_token_in_use(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    source = Counting(clock)
    source.token()
    source.fails = True
    clock.advance(550)
    assert [source.token().text for _ in range(5)] == ["t1"] * 5
    assert source.fetched == 2  # and not with each request
    assert "the login does not answer; the former value is used for 50 s more" in caplog.text
    clock.advance(50)
    with pytest.raises(CloudProviderError, match="the login does not answer"):
        source.token()


def test_one_thread_logs_in_and_the_others_wait_for_it(clock: FakeClock) -> None:
    source, got = Counting(clock), list[str]()
    source.gate.clear()
    threads = [threading.Thread(target=lambda: got.append(source.token().text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    source.gate.set()
    for thread in threads:
        thread.join(10)
    assert (got, source.fetched) == (["t1"] * 8, 1)


def test_while_one_thread_renews_the_others_use_the_old_token(clock: FakeClock) -> None:
    source = Counting(clock)
    source.token()
    clock.advance(550)
    source.gate.clear()
    thread = threading.Thread(target=source.token)
    thread.start()
    eventually(lambda: source.fetched == 2)
    assert source.token().text == "t1"
    source.gate.set()
    thread.join(10)
    assert source.token().text == "t2"


def test_many_threads_make_of_one_failed_login_not_many(clock: FakeClock) -> None:
    source, failed = Counting(clock), list[str]()
    source.fails = True
    lock = CountedLock()
    setattr(source._cached, "_lock", lock)  # noqa: B010 - not a lock of threading's own
    source.gate.clear()
    waiting = [threading.Thread(target=lambda: failed.append(fails(source.token))) for _ in range(8)]
    waiting[0].start()
    eventually(lambda: source.fetched == 1)
    for thread in waiting[1:]:
        thread.start()
    eventually(lambda: lock.asked == 8)
    source.gate.set()
    for thread in waiting:
        thread.join(10)
    assert failed == ["the login does not answer"] * 8
    assert source.fetched == 1


class CountedLock:
    """Says how many threads have asked for it."""

    def __init__(self) -> None:
        self.asked = 0
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self.asked += 1
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()


def fails(ask: Callable[[], object]) -> str:
    with pytest.raises(CloudProviderError) as caught:
        ask()
    return str(caught.value)


def test_a_login_that_hangs_costs_the_others_their_own_time_alone(clock: FakeClock) -> None:
    source = Counting(clock)
    source.gate.clear()
    thread = threading.Thread(target=source.token)
    thread.start()
    eventually(lambda: source.fetched == 1)
    with call_scope(Call(deadline=2.1, monotonic=lambda: 0.0)):
        assert "another thread still waits" in fails(source.token)
    source.gate.set()
    thread.join(10)


def test_a_401_logs_in_once_more(clock: FakeClock, cloud: Cloud) -> None:
    source = Counting(clock)
    client = Client(cloud.url, source)
    cloud.answer = accepting("t2")
    source.token()
    clock.advance(5)
    assert client.send("POST", "/things", {"a": 1}).read(Thing).id == "1"
    assert [one.headers["Authorization"] for one in cloud.asked] == ["Bearer t1", "Bearer t2"]
    assert {one.body for one in cloud.asked} == {b'{"a":1}'}


@pytest.mark.row("P9")
def test_a_cloud_that_accepts_no_token_is_not_asked_for_ever(clock: FakeClock, cloud: Cloud) -> None:
    source = Counting(clock)
    client = Client(cloud.url, source)
    cloud.answer = accepting()
    for _ in range(3):
        with pytest.raises(CloudError, match="does not accept the credentials"):
            client.get(Thing, "/things/1")
    assert (source.fetched, len(cloud.asked)) == (1, 3)  # a token of this second is as good as the next


def test_a_static_token_is_sent_once_and_no_secret_is_in_a_repr(cloud: Cloud) -> None:
    cloud.answer = accepting()
    client = Client(cloud.url, StaticToken("s3cret"))
    with pytest.raises(CloudError):
        client.get(Thing, "/things/1")
    assert len(cloud.asked) == 1
    shown = [Token("s3cret", math.inf), StaticToken("s3cret"), client, ClientCredentials(cloud.url, "me", "s3cret")]
    assert "s3cret" not in repr(shown)


def test_a_token_in_a_file(tmp_path: Path, clock: FakeClock, cloud: Cloud) -> None:
    file = tmp_path / "token"
    source = FileToken(str(file), monotonic=clock.monotonic)
    assert "cannot be read: No such file" in fails(source.token)
    file.write_text("\n")
    assert "is empty" in fails(source.token)
    file.write_text("one\n")
    client = Client(cloud.url, source)
    cloud.answer = accepting("one")
    client.get(Thing, "/things/1")
    file.write_text("two\n")
    cloud.answer = accepting("two")
    clock.advance(2)
    client.get(Thing, "/things/1")  # after a 401
    file.write_text("three\n")
    clock.advance(11)
    assert source.token().text == "three"


def test_client_credentials(cloud: Cloud) -> None:
    cloud.answers.append(reply(200, {"access_token": "t1", "expires_in": 600, "token_type": "Bearer"}))
    source = ClientCredentials(f"{cloud.url}/oauth/token", "me", "s3cret", fields={"scope": "all of it"})
    assert source.token() == Token("t1", 600.0)
    [asked] = cloud.asked
    assert (asked.method, asked.headers["Content-Type"]) == ("POST", "application/x-www-form-urlencoded")
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"], "client_id": ["me"], "client_secret": ["s3cret"], "scope": ["all of it"]
    }  # fmt: skip
    cloud.answers.append(reply(200, {"access_token": "t2"}))
    source = ClientCredentials(f"{cloud.url}/oauth/token", "me", "s3cret", basic=True)
    assert source.token() == Token("t2", 300.0)
    assert cloud.asked[1].headers["authorization"] == "Basic bWU6czNjcmV0"
    assert b"s3cret" not in cloud.asked[1].body


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (reply(401, {"error": {"message": "no s3cret"}}), "login: 401, the cloud does not accept the client's ID"),
        (reply(400, {"error": "invalid_client"}), "login: 400, the cloud does not accept"),
        (reply(200, {}), "login: the answer cannot be read: access_token: Field required"),
        (reply(200, {"access_token": ""}), "login: the answer cannot be read"),
        (reply(200, b"<html>"), "login: the answer cannot be read"),
        (reply(503, b""), "login: 503 Service Unavailable"),
    ],
)
def test_a_login_that_is_refused(cloud: Cloud, answer: Given, text: str) -> None:
    cloud.answers.append(answer)
    told = fails(ClientCredentials(f"{cloud.url}/token", "me", "s3cret").token)
    assert text in told
    assert "s3cret" not in told


def test_a_small_listing_is_asked_for_once_in_its_time(clock: FakeClock) -> None:
    asked: list[int] = []

    def load() -> list[int]:
        asked.append(len(asked))
        return list(asked)

    zones = Cached(load, 300.0, monotonic=clock.monotonic)
    assert zones.get() is zones.get()
    zones.clear()
    assert zones.get() == [0, 1]
    clock.advance(301)
    assert zones.get() == [0, 1, 2]
