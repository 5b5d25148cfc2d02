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

    def __init__(self, *answers: ApiError | None) -> None:
        self.clock = FakeClock()
        self.answers = list(answers)
        self.seen: list[str] = []
        reachability = SimpleNamespace(down_since=None, error="")
        rest = SimpleNamespace(request=self._request, reachability=reachability)
        self.check = ServerCheck(cast(Any, rest), self.clock)
        self.check.run(cast(Any, self))

    def _request(self, *_: Any, **__: Any) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    def wait(self, seconds: float) -> bool:
        """As the stop signal: the time passes, and ends with the answers."""
        assert seconds == ASK_SECONDS
        [one] = self.check.checks()
        self.seen.append("" if one.ok else one.detail)
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
