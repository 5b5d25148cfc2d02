"""Who asks: certificates, tokens, nobody; what is remembered, and that no token is kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from controllers.endpoints.access import (
    ANONYMOUS,
    Authentication,
    TooManyTokens,
    Unauthenticated,
    User,
    bearer_token,
    user_of_certificate,
)
from controllers.endpoints.reviews import REMEMBERED, NeedsLookup
from tests.support.clock import FakeClock
from tests.unit.endpoints.support import Reviews, request, unreachable

TOKEN = "a-token-of-prometheus"
CERTIFICATE = {
    "subject": ((("organizationName", "readers"),), (("organizationName", "ops"),), (("commonName", "ann"),))
}


def known(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    if spec["token"] != TOKEN:
        return {"user": {}, "error": "no such token"}
    return {
        "authenticated": True,
        "user": {"username": "prometheus", "uid": "7", "groups": ["sa"], "extra": {"pod": ["p-1"]}},
    }


PROMETHEUS = User("prometheus", "7", ("sa", "system:authenticated"), (("pod", ("p-1",)),))


class Bench:
    def __init__(self, ttl: float = 10.0) -> None:
        self.clock = FakeClock()
        self.reviews = Reviews(known)
        self.authentication = Authentication(self.reviews, ttl, self.clock)  # type: ignore[arg-type]  # as much as is used


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        (" Bearer abc def", "abc"),
        ("Bearer ", None),
        ("Bearer", None),
        ("Basic YTpi", None),
        ("abc", None),
        ("", None),
    ],
)
def test_what_is_a_bearer_token(header: str, token: str | None) -> None:
    assert bearer_token(header) == token


def test_a_wrong_token_is_remembered_as_well_and_with_a_time_of_zero_nothing_is() -> None:
    for ttl, asked in ((10.0, 1), (0.0, 3)):
        bench = Bench(ttl=ttl)
        assert bench.authentication.user(request(), ask=False) == ANONYMOUS, "who shows nothing is not asked about"
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                bench.authentication.user(request(token="wrong"), ask=True)
        assert len(bench.reviews.asked) == asked


def test_a_token_is_asked_about_once_in_its_time() -> None:
    bench = Bench()
    with pytest.raises(NeedsLookup):
        bench.authentication.user(request(token=TOKEN), ask=False)
    for _ in range(3):
        assert bench.authentication.user(request(token=TOKEN), ask=True) == PROMETHEUS
    assert bench.authentication.user(request(token=TOKEN), ask=False) == PROMETHEUS
    assert bench.reviews.asked == [{"token": TOKEN}]
    bench.clock.advance(10.0)
    with pytest.raises(NeedsLookup):
        bench.authentication.user(request(token=TOKEN), ask=False)


def test_without_an_answer_the_token_counts_for_nothing_and_is_asked_about_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.reviews.answer = unreachable
    with caplog.at_level(logging.DEBUG), pytest.raises(Unauthenticated):
        bench.authentication.user(request(token=TOKEN), ask=True)
    assert "could not be checked" in caplog.text
    assert TOKEN not in caplog.text
    bench.reviews.answer = known
    assert bench.authentication.user(request(token=TOKEN), ask=True) == PROMETHEUS


def test_what_is_remembered_is_bounded_and_holds_no_token() -> None:
    bench = Bench(ttl=1e6)
    for number in range(3000):
        bench.clock.advance(1.0)
        with pytest.raises(Unauthenticated):
            bench.authentication.user(request(token=f"guess-{number}"), ask=True)
    known = bench.authentication._known
    assert len(known) == REMEMBERED
    assert "guess" not in repr(known._known)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": True},
        {"authenticated": True, "user": {}},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": 7}},
        {"authenticated": True, "user": "admin"},
        {"authenticated": "true", "user": {"username": "admin"}},
        {"authenticated": False, "user": {"username": "admin", "groups": ["system:masters"]}},
    ],
)
def test_an_answer_that_is_no_clear_yes_is_a_no(status: dict[str, Any]) -> None:
    bench = Bench()
    bench.reviews.answer = lambda _spec: status
    with pytest.raises(Unauthenticated):
        bench.authentication.user(request(token="x"), ask=True)


def test_a_certificate_goes_before_a_token_which_is_good_with_a_reviewer_only() -> None:
    user = Bench().authentication.user(request(token="wrong", certificate=CERTIFICATE), ask=False)
    assert user == User("ann", groups=("readers", "ops", "system:authenticated"))
    with pytest.raises(Unauthenticated):
        Authentication(None, 10.0).user(request(token=TOKEN), ask=True)


@pytest.mark.parametrize("subject", [(), ((("organizationName", "system:masters"),),), ((("commonName", ""),),)])
def test_a_certificate_without_a_name_is_none(subject: Any) -> None:
    assert user_of_certificate({"subject": subject}) is None
    assert Bench().authentication.user(request(certificate={"subject": subject}), ask=False) == ANONYMOUS


def tried(bench: Bench, token: str, peer: str = "10.0.0.1") -> bool:
    """Whether the API server was asked about this token."""
    before = len(bench.reviews.asked)
    try:
        bench.authentication.user(request(token=token, peer=peer), ask=True)
    except Unauthenticated:
        pass
    except TooManyTokens:
        return False
    return len(bench.reviews.asked) > before


@pytest.mark.row("X12")
def test_invented_tokens_of_one_client_are_asked_about_only_so_often() -> None:
    bench = Bench()
    assert sum(tried(bench, f"invented-{n}") for n in range(500)) == 20
    bench.clock.advance(0.499)
    assert not tried(bench, "early")
    bench.clock.advance(0.002)
    assert tried(bench, "one")
    assert not tried(bench, "two")
    bench.clock.advance(3600.0)
    assert sum(tried(bench, f"later-{n}") for n in range(500)) == 20, "quiet hours are not saved up"


@pytest.mark.row("X12")
def test_invented_tokens_of_many_clients_too_and_a_known_scraper_is_never_held_up() -> None:
    bench = Bench()
    assert tried(bench, TOKEN, "10.0.0.200")
    asked = sum(tried(bench, f"t{peer}-{n}", f"10.0.1.{peer}") for peer in range(50) for n in range(10))
    assert asked == 99, "100 at once, with that of the scraper"
    assert not tried(bench, "another", "10.0.0.201")
    for _ in range(5):  # its answer is remembered for 10 s, and then asked for again
        bench.clock.advance(10.0)
        for number in range(300):
            tried(bench, f"flood-{bench.clock.monotonic()}-{number}", f"10.0.2.{number % 100}")
        assert tried(bench, TOKEN, "10.0.2.1"), "whatever its peers do"
        assert bench.authentication.user(request(token=TOKEN), ask=False) == PROMETHEUS


@pytest.mark.row("X12")
def test_clients_of_one_ipv6_network_are_one() -> None:
    bench = Bench()
    assert sum(tried(bench, f"x-{n}", f"2001:db8::{n + 1:x}") for n in range(60)) == 20
    assert tried(bench, "y", "2001:db8:0:1::1")
