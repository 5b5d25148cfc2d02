"""Health of targets, with a clock and answers of the test's own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest
from localcloud.health import TIMEOUT, HealthMonitor, Probe, TargetHealth, http_check, probes_of
from localcloud.model import HealthCheck, LoadBalancer, Machine

CHECK = HealthCheck(port=10256)


class World:
    """What the targets answer, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.answers: dict[str, bool] = {"10.90.0.10": True, "10.90.0.11": True}
        self.running = {"m1", "m2"}
        self.asked: list[str] = []
        self.changes = 0
        self.failures = 0
        self.monitor = HealthMonitor(
            self.changed, lambda machine: machine in self.running, check=self.check, now=lambda: self.now
        )

    def changed(self) -> None:
        self.changes += 1
        if self.failures:
            self.failures -= 1
            raise OSError("the router is away")

    def check(self, address: str, check: HealthCheck) -> bool:
        assert check == CHECK
        self.asked.append(address)
        return self.answers[address]

    def round(self) -> bool:
        self.now += 1
        return self.monitor.round()


def probe(number: int, *, balancer: str = "web", check: HealthCheck | None = CHECK) -> Probe:
    return Probe(balancer=balancer, machine=f"m{number}", address=f"10.90.0.{number + 9}", check=check)


def test_the_first_answer_counts_at_once() -> None:
    world = World()
    world.answers["10.90.0.11"] = False
    world.monitor.watch([probe(1), probe(2)])
    assert world.monitor.healthy("web") == frozenset()
    assert world.round()
    assert world.monitor.healthy("web") == {"m1"}
    assert world.monitor.status("web") == [
        TargetHealth(machine="m1", healthy=True, since=1001.0),
        TargetHealth(machine="m2", healthy=False, since=1001.0, failures=1),
    ]


def test_two_failures_in_a_row_take_a_target_out_and_one_success_brings_it_back() -> None:
    world = World()
    world.monitor.watch([probe(1)])
    world.round()
    world.answers["10.90.0.10"] = False
    assert not world.round()
    assert world.monitor.healthy("web") == {"m1"}
    assert world.round()
    assert world.monitor.status("web") == [TargetHealth(machine="m1", healthy=False, since=1003.0, failures=2)]
    world.answers["10.90.0.10"] = True
    assert world.round()
    assert world.monitor.status("web") == [TargetHealth(machine="m1", healthy=True, since=1004.0)]
    assert world.changes == 3


def test_a_single_failure_between_successes_changes_nothing() -> None:
    world = World()
    world.monitor.watch([probe(1)])
    world.round()
    for answer in (False, True, False, True):
        world.answers["10.90.0.10"] = answer
        assert not world.round()
    assert world.changes == 1


def test_without_a_check_a_machine_is_healthy_while_it_runs() -> None:
    world = World()
    world.monitor.watch([probe(1, check=None)])
    world.round()
    assert world.monitor.healthy("web") == {"m1"}
    world.running.clear()
    world.round()
    world.round()
    assert world.monitor.healthy("web") == frozenset()
    assert world.asked == []


def test_one_question_serves_all_balancers_that_ask_it() -> None:
    world = World()
    world.monitor.watch([probe(1), probe(1, balancer="dns")])
    world.round()
    assert world.asked == ["10.90.0.10"]
    assert world.monitor.healthy("dns") == {"m1"}


def test_who_stays_keeps_its_state_and_who_leaves_is_forgotten() -> None:
    world = World()
    world.monitor.watch([probe(1), probe(2)])
    world.round()
    world.monitor.watch([probe(1)])
    assert world.monitor.status("web") == [TargetHealth(machine="m1", healthy=True, since=1001.0)]
    world.monitor.watch([probe(1), probe(2)])
    assert world.monitor.healthy("web") == {"m1"}, "a target that is back is asked again"


def test_a_new_address_is_asked_anew() -> None:
    world = World()
    world.answers["10.90.0.99"] = False
    world.monitor.watch([probe(1)])
    world.round()
    world.monitor.watch([Probe(balancer="web", machine="m1", address="10.90.0.99", check=CHECK)])
    world.round()
    assert world.monitor.healthy("web") == frozenset()


def test_stopped_and_unknown_targets_are_not_asked() -> None:
    def machine(number: int, state: str) -> Machine:
        return Machine(
            id=f"m{number}", name=f"n{number}", type="small", region="here", zone="here-1",
            address=f"10.90.0.{number + 9}", state="running" if state == "running" else "stopped",
        )  # fmt: skip

    balancer = LoadBalancer(name="web", owner="me", address="198.51.100.1", targets=("m1", "m2", "m3"), health=CHECK)
    assert probes_of([balancer], {"m1": machine(1, "running"), "m2": machine(2, "stopped")}) == [probe(1)]


def test_a_change_that_could_not_be_told_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.failures = 1
    world.monitor.watch([probe(1)])
    world.round()
    assert "the router was not told of a change" in caplog.text
    assert not world.round()
    assert not world.round()
    assert world.changes == 2


def test_its_thread_asks_at_once_and_ends() -> None:
    told = threading.Event()
    monitor = HealthMonitor(told.set, lambda machine: True)
    monitor.start()
    monitor.watch([probe(1, check=None)])
    assert told.wait(10)
    monitor.close()
    monitor.close()
    assert "health" not in [thread.name for thread in threading.enumerate()]


def test_its_thread_goes_on_after_a_round_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """A process without a free thread, say: nobody's health would ever change again."""
    told = threading.Event()
    answers = iter((RuntimeError("can't start new thread"), True))

    def check(address: str, health: HealthCheck) -> bool:
        answer = next(answers, True)
        if isinstance(answer, RuntimeError):
            monitor.watch([probe(1)])  # the next round begins at once
            raise answer
        return answer

    monitor = HealthMonitor(told.set, lambda machine: True, check=check)
    monitor.watch([probe(1)])
    monitor.start()
    assert told.wait(10)
    monitor.close()
    assert "health: a round failed" in caplog.text


@pytest.mark.parametrize(
    ("answer", "healthy"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\n"], True),
        ([b"HTTP/1.0 200", b"\r\n"], True),
        ([b"HTTP/1.1 503 Service Unavailable\r\n\r\n"], False),
        ([b"HTTP/1.1 2000\r\n"], False),
        ([b"200 OK\r\n"], False),
        ([b""], False),
        ([b"x"] * 20, False),  # drop by drop
    ],
)
def test_what_a_target_answers_and_no_longer_than_it_may(answer: Sequence[bytes], healthy: bool) -> None:
    """One that drips its answer would hold up the checks of all load balancers."""
    done = threading.Event()

    def serve(listening: socket.socket) -> None:
        with listening.accept()[0] as connection, suppress(OSError):
            connection.recv(4096)
            for part in answer:
                connection.sendall(part)
                if len(answer) > 2:
                    done.wait(0.4)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=[listening])
        thread.start()
        began = time.monotonic()
        assert http_check("127.0.0.1", HealthCheck(port=listening.getsockname()[1])) is healthy
        assert time.monotonic() - began < 7 * TIMEOUT  # the drops take 8 s
        done.set()
        thread.join()
    assert not http_check("127.0.0.1", HealthCheck(port=port_of_nobody()))


def port_of_nobody() -> int:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return int(closed.getsockname()[1])
