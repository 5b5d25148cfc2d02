"""The client that counts lost requests: each kind of loss is seen as one, and no answer is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cloudprovider.testing.waiting import eventually
from tests.lab.cluster.traffic import Report, Traffic

Answer = Callable[[socket.socket], None]
GOOD = b"HTTP/1.1 200 OK\r\n\r\npod-1\nmore"


@contextmanager
def server(answer: Answer) -> Iterator[int]:
    """Answers each connection's request; yields its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def sent_to(port: int, *, timeout: float = 10.0) -> Report:
    with Traffic("127.0.0.1", port, every=0.001, timeout=timeout, at_most=10) as traffic:
        report = traffic.report
        eventually(lambda: report.answered + len(report.lost) == 10, 60)
    return report


def test_every_answer_is_counted_and_by_whom() -> None:
    with server(lambda connection: connection.sendall(GOOD)) as port:
        report = sent_to(port)
    assert (report.sent, report.answered, report.lost, dict(report.by)) == (10, 10, [], {"pod-1": 10})
    assert str(report).startswith("10 requests, 0 lost")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda connection: None, "no answer"),
        (lambda connection: connection.sendall(b"HTTP/1.1 503 Busy\r\n\r\n"), "HTTP/1.1 503 Busy"),
    ],
    ids=["closed", "error"],
)
def test_what_is_no_good_answer_is_lost(answer: Answer, why: str) -> None:
    with server(answer) as port:
        report = sent_to(port)
    assert [one.why for one in report.lost] == [why] * 10
    assert f"10 times: {why}" in str(report)


def test_where_nobody_listens_all_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert {one.why for one in sent_to(port).lost} == {"ConnectionRefusedError"}


def test_silence_is_lost_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        report = sent_to(silent.getsockname()[1], timeout=0.05)
    assert {one.why for one in report.lost} == {"TimeoutError"}
    assert all(one.after >= 0.05 for one in report.lost)
