"""What is installed wrongly is told by a manager too, but not before its first writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from controllers.manager.provider_host import warn_of_installed
from tests.support.plugins import write_distribution

TOLD = "other-thing 1.0 brings files into the top-level package 'controllers'"


class Stop:
    """A stop signal that is set, or not, when somebody waits for it."""

    def __init__(self, comes: bool) -> None:
        self.comes = comes
        self.waited: list[float | None] = []

    def is_set(self) -> bool:
        return self.comes and bool(self.waited)

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        return self.comes


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_distribution(tmp_path, "other-thing", "x = y:z")
    (tmp_path / "other_thing-1.0.dist-info" / "RECORD").write_text("controllers/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_plan_tells_at_once_and_a_manager_waits_first(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_installed("x", Stop(comes=True))
    assert caplog.text == "", "it ended before"
    stop = Stop(comes=False)
    warn_of_installed("x", stop)
    assert stop.waited == [5.0]
    assert TOLD in caplog.text
    caplog.clear()
    warn_of_installed("x")
    assert TOLD in caplog.text
    assert "Fix: uninstall it" in caplog.text


def test_a_provider_for_another_version_of_the_sdk_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_distribution(tmp_path, "acme", "acme = m:f", requires=["kubernetes-cloud-provider<0.0.1"])
    warn_of_installed("acme")
    assert "acme 1.0 is made for kubernetes-cloud-provider <0.0.1, and " in caplog.text
    assert caplog.records[-1].levelname == "WARNING"
