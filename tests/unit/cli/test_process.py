"""Signals to exit codes, with real signals sent to this very process."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cloudprovider import CloudProviderError
from controllers.cli.process import Ended, run_until_signal
from controllers.manager.provider_host import ManagerError
from controllers.runtime.api import ClientConfigError


class Exits:
    def __init__(self) -> None:
        self.codes: list[int] = []

    def __call__(self, code: int) -> None:
        self.codes.append(code)


def kill(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.row("M1")
def test_a_signal_stops_drains_and_ends_with_0(number: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    drained = []

    def run(stop: threading.Event) -> None:
        kill(number)
        assert stop.wait(10)
        drained.append(True)

    exits = Exits()
    assert run_until_signal(run, drain=5, leave=exits) == 0
    assert drained == [True]
    assert exits.codes == []
    assert f"{signal.Signals(number).name}: draining for at most 5 s" in caplog.text


@pytest.mark.row("M1")
def test_a_signal_that_another_thread_takes_is_not_lost() -> None:
    """As the kernel does now and then: the main thread, in which handlers run, is not woken by
    it."""
    stopped_in_time = []

    def run(stop: threading.Event) -> None:
        stop.wait(0.3)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        stopped_in_time.append(stop.wait(5))
        if not stop.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    assert run_until_signal(run, drain=5, leave=Exits()) == 0
    assert stopped_in_time == [True]


@pytest.mark.row("N21")
def test_sigusr1_releases_what_is_held_back_each_time_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Semaphore(0)
    calls = []

    def release() -> None:
        calls.append(threading.current_thread())
        released.release()
        if len(calls) == 1:
            raise RuntimeError("a fault")

    def run(stop: threading.Event) -> None:
        for _ in range(2):
            kill(signal.SIGUSR1)
            assert released.acquire(timeout=10)
        assert not stop.is_set()
        kill(signal.SIGTERM)
        assert stop.wait(10)
        kill(signal.SIGUSR1)  # while draining: too late, and harmless

    assert run_until_signal(run, drain=5, release=release, leave=Exits()) == 0
    assert calls == [threading.main_thread()] * 2
    assert "releasing them failed" in caplog.text


def test_a_second_signal_ends_the_process_at_once_with_1(capfd: pytest.CaptureFixture[str]) -> None:
    again = threading.Event()
    exits = Exits()

    def leave(code: int) -> None:
        exits(code)
        again.set()

    def run(stop: threading.Event) -> None:
        kill(signal.SIGTERM)
        stop.wait(10)
        kill(signal.SIGINT)
        again.wait(10)

    run_until_signal(run, drain=60, leave=leave)
    assert exits.codes[0] == 1
    assert "SIGINT again: ending at once" in capfd.readouterr().err


def test_a_drain_that_never_ends_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    forever = threading.Event()
    exits = Exits()

    def run(stop: threading.Event) -> None:
        kill(signal.SIGTERM)
        forever.wait(30)

    assert run_until_signal(run, drain=0.05, grace=0.05, leave=exits) == 1
    assert exits.codes == [1]
    assert "did not end within" in caplog.text
    forever.set()


@pytest.mark.parametrize(
    ("error", "text", "trace"),
    [
        (ManagerError("cloud provider x has no cluster ID"), "cloud provider x has no cluster ID", False),
        (ManagerError("node died: KeyError", unexpected=True), "node died: KeyError", True),
        (CloudProviderError("VPC_ID is not set"), "VPC_ID is not set", False),
        (ClientConfigError("no API server to talk to"), "no API server to talk to", False),
        (KeyError("oops"), "this is a bug", True),
        (SystemExit(0), "this is a bug", True),
    ],
)
def test_a_manager_that_raises_ends_with_1_and_says_why(
    error: BaseException, text: str, trace: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def run(_stop: threading.Event) -> None:
        raise error

    assert run_until_signal(run, drain=1, leave=Exits()) == 1
    assert text in caplog.text
    assert ("Traceback" in caplog.text) == trace


def test_a_manager_that_ends_by_itself_is_a_failure_or_says_its_code_and_the_old_handlers_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert run_until_signal(lambda stop: None, drain=1, leave=Exits()) == 1
    assert run_until_signal(lambda _stop: Ended(3), drain=5, leave=Exits()) == 3
    assert "ended with exit code 3" in caplog.text
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_an_error_while_draining_is_not_hidden_by_the_signal() -> None:
    def run(stop: threading.Event) -> None:
        kill(signal.SIGTERM)
        stop.wait(10)
        raise ManagerError("the drain failed")

    assert run_until_signal(run, drain=5, leave=Exits()) == 1


def test_a_thread_that_would_keep_the_process_alive_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    forever = threading.Event()
    hung = threading.Thread(target=forever.wait, args=(30,), name="hung-provider-call", daemon=False)

    def run(stop: threading.Event) -> None:
        hung.start()
        kill(signal.SIGTERM)
        stop.wait(10)

    exits = Exits()
    assert run_until_signal(run, drain=5, leave=exits) == 0
    assert exits.codes == [0]
    assert "hung-provider-call" in caplog.text
    forever.set()
    hung.join()


def test_outside_the_main_thread_it_runs_without_signals() -> None:
    codes = []
    thread = threading.Thread(target=lambda: codes.append(run_until_signal(lambda stop: None, drain=1, leave=Exits())))
    thread.start()
    thread.join()
    assert codes == [1]
