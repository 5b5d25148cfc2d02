"""/healthz shows within seconds that the API server does not take our credentials."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.manager.servercheck import ASK_SECONDS, ServerCheck
from controllers.runtime.api import ApiError, CredentialsUnavailable, Forbidden, Unauthorized, Unreachable
from tests.support.clock import FakeClock


class Bench:
    """A check whose server gives `answers` in their order; a wait follows each question."""

    def __init__(self, *answers: ApiError | None, changed: str = "", down: bool = False) -> None:
        self.clock = FakeClock()
        self.answers = list(answers)
        self.seen: list[str] = []
        self.alive: list[bool] = []
        self.ended: list[str] = []
        self.reachability = SimpleNamespace(down_since=self.clock.monotonic() if down else None, error="gone")
        rest = SimpleNamespace(request=self._request, reachability=self.reachability)
        self.check = ServerCheck(cast(Any, rest), self.clock, needs_restart=lambda: changed, end=self.ended.append)
        self.check.run(cast(Any, self))

    def _request(self, *_: Any, **__: Any) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    def wait(self, seconds: float) -> bool:
        """As the stop signal: the time passes, and ends with the answers."""
        assert seconds == (ASK_SECONDS if self.reachability.down_since is None else 1.0)
        [one] = self.check.checks()
        self.seen.append("" if one.ok else one.detail)
        self.alive.append(self.check.liveness()[0].ok)
        self.clock.advance(seconds)
        return not self.answers


@pytest.mark.row("O1")
@pytest.mark.parametrize("error", [Unauthorized("no", status=401), CredentialsUnavailable("an empty token file")])
def test_credentials_that_fail_are_shown_until_they_are_taken(error: ApiError) -> None:
    bench = Bench(None, error, error, error, Unreachable("reset"), None, error)
    told = f"our credentials fail: {error}"
    assert bench.seen == ["", "", "", told, told, "", ""]


def test_what_is_refused_for_another_reason_was_asked_with_good_credentials() -> None:
    assert Bench(Unauthorized("no"), Unauthorized("no"), Forbidden("no"), Unauthorized("no")).seen == [""] * 4


@pytest.mark.row("O12")
class TestWhatARestartMends:
    @pytest.mark.parametrize("error", [Unauthorized("no", status=401), CredentialsUnavailable("no plugin")])
    def test_credentials_that_fail_for_a_minute_fail_livez(self, error: ApiError) -> None:
        assert Bench(*[error] * 14, None).alive == [True] * 12 + [False] * 2 + [True]

    def test_no_answer_does_not(self) -> None:
        assert all(Bench(*[Unreachable("no")] * 70, down=True).alive)

    def test_a_kubeconfig_that_names_another_server_ends_the_process_once_the_credentials_fail(self) -> None:
        bench = Bench(None, *[Unauthorized("no")] * 9, changed="the kubeconfig k has another server now")
        assert bench.ended == [
            "the kubeconfig k has another server now, and our credentials fail: no; only a restart takes that over"
        ]
        assert len(bench.answers) == 9 - 3  # ten seconds after the first refusal

    def test_or_once_the_former_server_is_gone(self) -> None:
        bench = Bench(*[Unreachable("no")] * 70, changed="changed", down=True)
        assert bench.ended == ["changed, and the former server does not answer: gone; only a restart takes that over"]
        assert len(bench.answers) == 70 - 61

        assert Bench(*[None] * 20, changed="changed").ended == [], "not before"
