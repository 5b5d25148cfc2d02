"""What a user may: open paths, system:masters, the API server's word and how long it counts."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.endpoints.access import Authorization, Undecided, User
from controllers.endpoints.reviews import NeedsLookup
from tests.support.clock import FakeClock
from tests.unit.endpoints.support import Reviews, unreachable

ANN = User("ann", "7", ("readers",), (("scope", ("a", "b")),))


class Bench:
    def __init__(self, *open_paths: str) -> None:
        self.clock = FakeClock()
        self.reviews = Reviews(lambda spec: {"allowed": spec["nonResourceAttributes"]["path"] == "/metrics"})
        self.authorization = Authorization(self.reviews, open_paths, 10.0, 5.0, self.clock)  # type: ignore[arg-type]  # as much as is used

    def may(self, path: str = "/metrics", *, user: User = ANN, ask: bool = True) -> bool:
        return self.authorization.may(user, "get", path, ask=ask)


@pytest.mark.parametrize(
    ("paths", "path", "is_open"),
    [
        (["/healthz"], "/healthz", True),
        (["healthz"], "/healthz", True),
        (["/healthz"], "/healthz/cloud", False),
        (["/healthz/*"], "/healthz/cloud", True),
        (["/healthz/*"], "/healthz", False),
        (["/*"], "/metrics", True),
        (["/"], "/", True),
        (["/"], "/metrics", False),
        ([], "/healthz", False),
    ],
)
def test_open_paths(paths: list[str], path: str, is_open: bool) -> None:
    assert Bench(*paths).authorization.is_open(path) is is_open


def test_the_api_server_is_asked_about_the_whole_user() -> None:
    bench = Bench()
    assert bench.may()
    assert bench.reviews.asked == [
        {
            "user": "ann",
            "uid": "7",
            "groups": ["readers"],
            "extra": {"scope": ["a", "b"]},
            "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
        }
    ]


def test_a_yes_and_a_no_have_times_of_their_own() -> None:
    bench = Bench()
    with pytest.raises(NeedsLookup):
        bench.may(ask=False)
    assert bench.may()
    assert not bench.may("/configz")
    bench.clock.advance(4.9)
    assert bench.may(ask=False)
    assert not bench.may("/configz", ask=False)
    bench.clock.advance(0.2)
    assert bench.may(ask=False)
    with pytest.raises(NeedsLookup):
        bench.may("/configz", ask=False)
    bench.clock.advance(5.0)
    with pytest.raises(NeedsLookup):
        bench.may(ask=False)


def test_masters_may_without_a_question_and_without_a_reviewer_nobody_else() -> None:
    bench, root = Bench(), User("root", groups=("system:masters",))
    assert bench.may("/configz", user=root, ask=False)
    assert bench.reviews.asked == []
    authorization = Authorization(None, [], 10.0, 10.0)
    assert not authorization.may(ANN, "get", "/metrics", ask=True)
    assert authorization.may(root, "get", "/metrics", ask=True)


def test_another_user_path_or_verb_is_another_question() -> None:
    bench = Bench()
    bench.may()
    bench.may(user=User("ann", "8", ("readers",)))
    bench.may("/metrics/slis")
    bench.authorization.may(ANN, "head", "/metrics", ask=True)
    assert len(bench.reviews.asked) == 4


@pytest.mark.parametrize("status", [{}, {"allowed": "true"}, {"allowed": None}, {"denied": True}, {"allowed": True}])
def test_an_answer_that_is_no_clear_yes_is_a_no_and_no_answer_is_not_remembered(status: dict[str, Any]) -> None:
    bench = Bench()
    bench.reviews.answer = unreachable
    with pytest.raises(Undecided):
        bench.may()
    bench.reviews.answer = lambda _spec: status
    assert bench.may() is (status == {"allowed": True})
