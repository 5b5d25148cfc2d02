"""A configuration is loaded again when its files change: replaced, turned links, half-written ones,
broken ones."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import SecretStr

from cloudprovider import CloudConfig
from cloudprovider.config import ConfigWatcher, ProviderConfig


class Acme(ProviderConfig):
    env_prefix: ClassVar[str] = "ACME_"

    region: str
    token: SecretStr = SecretStr("")


class Bench:
    def __init__(self, path: Path, **environ: str) -> None:
        self.seen: list[Acme] = []
        source = CloudConfig.read(path)
        self.watcher = Acme.load(source, environ=environ).watcher(source, self.seen.append, environ=environ)

    def look(self, times: int = 3) -> list[str]:
        """The regions that were told so far."""
        for _ in range(times):
            self.watcher.look()
        return [one.region for one in self.seen]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "acme.yaml"
    file.write_text("region: north\n")
    return file


def test_a_file_that_is_replaced_or_written_in_place_is_read_again(path: Path) -> None:
    bench = Bench(path)
    assert bench.look() == []
    new = path.with_suffix(".new")
    new.write_text("region: south\n")
    os.replace(new, path)
    assert bench.look() == ["south"]
    path.write_text("region: east\n")
    assert bench.look() == ["south", "east"]
    path.write_text("# the same\nregion: east\n")
    assert bench.look() == ["south", "east"]


def test_a_change_before_the_watcher_was_made_counts(path: Path) -> None:
    # A standby loads its configuration in the factory, and makes the watcher when it leads.
    source, seen = CloudConfig.read(path), list[str]()
    config = Acme.load(source, environ={})
    path.write_text("region: south\n")
    watcher = config.watcher(source, lambda new: seen.append(new.region), environ={})
    for _ in range(3):
        watcher.look()
    assert seen == ["south"]


def test_a_volume_of_the_kubelet_turns_a_link_to_another_folder(tmp_path: Path) -> None:
    for name, region in (("v1", "north"), ("v2", "south")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "acme.yaml").write_text(f"region: {region}\n")
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "acme.yaml").symlink_to("..data/acme.yaml")
    bench = Bench(tmp_path / "acme.yaml")
    assert bench.look() == []
    (tmp_path / "new").symlink_to("v2")
    os.replace(tmp_path / "new", tmp_path / "..data")
    assert bench.look() == ["south"]


def test_a_file_that_is_still_being_written_waits_until_two_looks_show_the_same(path: Path) -> None:
    bench = Bench(path)
    text = "region: south\n" + "# more\n" * 50
    for size in range(14, len(text), 60):
        path.write_text(text[:size])
        assert bench.look(times=1) == []
    path.write_text(text)
    assert bench.look(times=1) == []
    assert bench.look(times=1) == ["south"]


def test_what_cannot_be_used_keeps_the_old_value_and_is_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(path)
    path.write_text("regoin: south\n")
    assert bench.look(times=5) == []
    path.unlink()
    assert bench.look(times=5) == []
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 2
    assert "the old configuration stays: " in told[0]
    assert "line 1: regoin: unknown field; did you mean region?" in told[0]
    assert "there is no cloud config at" in told[1]
    path.write_text("region: south\n")
    assert bench.look() == ["south"]


def test_files_of_secrets_are_watched_too_and_no_secret_is_logged(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = tmp_path / "token"
    secret.write_text("hunter2")
    bench = Bench(path, ACME_TOKEN_FILE=str(secret))
    secret.write_text("hunter3\n")
    assert bench.look() == ["north"]
    assert bench.seen[0].token.get_secret_value() == "hunter3"
    assert "hunter" not in caplog.text


def test_a_provider_that_fails_to_take_it_is_told_and_asked_again_with_the_next(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[str] = []

    def take(text: str) -> None:
        taken.append(text)
        raise RuntimeError("no connection")

    watcher = ConfigWatcher("north", [str(path)], path.read_text, take)
    for region in ("south", "east"):
        path.write_text(region)
        for _ in range(4):
            watcher.look()
    assert taken == ["south", "east"]
    assert caplog.text.count("failed to take the new configuration") == 2


class Stop:
    """A stop signal with a clock: so many periods pass."""

    def __init__(self, periods: int, between: list[str], path: Path) -> None:
        self.waited: list[float | None] = []
        self._left, self._between, self._path = periods, between, path

    def is_set(self) -> bool:
        return self._left <= 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        self._left -= 1
        if self._between:
            self._path.write_text(self._between.pop(0))
        return self.is_set()


def test_it_looks_once_a_period_and_ends_with_the_stop_signal(path: Path) -> None:
    seen: list[str] = []
    stop = Stop(5, ["a", "b", "b"], path)
    thread = ConfigWatcher("north", [str(path)], path.read_text, seen.append, period=7.0).start(stop)
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert thread.daemon
    assert stop.waited == [7.0] * 5
    assert seen == ["b"]


def test_a_period_is_positive(path: Path) -> None:
    with pytest.raises(ValueError, match="period must be a positive number of seconds, not 0"):
        ConfigWatcher("", [str(path)], path.read_text, print, period=0)


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError()], ids=["exit", "cancelled"])
def test_what_is_no_exception_does_not_end_the_watch(
    path: Path, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    contents, loads, taken = ["north"], list[str](), list[str]()

    def fail_once(done: list[str], value: str) -> str:
        done.append(value)
        if len(done) == 1:
            raise error
        return value

    watcher = ConfigWatcher(
        "", [str(path)], lambda: fail_once(loads, contents[-1]), lambda value: fail_once(taken, value)
    )
    for region in ("north", "south", "east"):
        contents.append(region)
        path.write_text(region)
        for _ in range(2):
            watcher.look()
    assert loads == ["north", "south", "east"]
    assert taken == ["south", "east"]
    assert "the old configuration stays" in caplog.text
    assert "failed to take the new configuration" in caplog.text
