"""What a failure held is free as soon as it is handled: an exception's stack that held itself would
keep all objects of all callers until the garbage collector comes, which is seldom."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from controllers.runtime.api import ApiError, NotFound, Response, Unreachable
from controllers.runtime.api.wire.connection import Connection
from controllers.runtime.api.wire.endpoint import Endpoint
from controllers.runtime.cache.lists import PageRequest
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from controllers.runtime.queue.outcomes import FailureHandling, Requeuer
from tests.support.clock import FakeClock
from tests.unit.runtime.api.test_transport_stream import client_of
from tests.unit.runtime.loopback import LIMIT, Peer, Server


class Held:
    """What a caller has in its hands."""


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def freed(act: Callable[[], object], expected: type[Exception]) -> bool:
    """Whether the caller's object is free after this failed so."""

    def caller() -> weakref.ref[Held]:
        held = Held()
        try:
            act()
        except expected:
            return weakref.ref(held)
        raise AssertionError("it did not fail")

    return caller()() is None


@pytest.mark.parametrize("status", [404, 409, 500])
def test_a_refused_request(status: int) -> None:
    def refuse(peer: Peer) -> None:
        while peer.request():
            peer.answer(status)

    with Server(refuse) as server:
        client, transport, _ = client_of(server.url)
        with closing(transport):
            assert freed(lambda: client.request("GET", "/x"), ApiError)


def test_a_request_that_gets_no_answer() -> None:
    with Server(lambda peer: None) as server:
        client, transport, _ = client_of(server.url)
        with closing(transport):
            assert freed(lambda: client.request("GET", "/x"), Unreachable)


def test_a_request_to_a_server_that_is_away() -> None:
    with socket.socket() as bound:  # nobody listens, and nobody else can have it
        bound.bind(("127.0.0.1", 0))
        client, transport, _ = client_of(f"http://127.0.0.1:{bound.getsockname()[1]}")
        with closing(transport):
            assert freed(lambda: client.request("GET", "/x"), Unreachable)


def test_a_page_that_failed() -> None:
    def send() -> Response:
        raise Unreachable("away")

    assert freed(lambda: PageRequest(send).begin().wait(), Unreachable)


def no_answer() -> Exception:
    """Of a server that does not listen, with its cause, which has a stack of its own."""

    def connect() -> None:
        raise ConnectionRefusedError

    try:
        try:
            connect()
        except ConnectionRefusedError as error:
            raise Unreachable("away") from error
    except Unreachable as lost:
        return lost
    raise AssertionError("it was raised")


@pytest.mark.parametrize("caused", [False, True])
@pytest.mark.parametrize("answered", [False, True])
def test_a_reconcile_that_failed(answered: bool, caused: bool, clock: FakeClock) -> None:
    """Also with an error of the cloud, which is an argument of those who raise it."""
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue("Nodes", clock=clock, metrics=metrics)
    settler = Requeuer(queue, FailureHandling(), metrics=metrics, clock=clock)
    queue.add("a")
    key = queue.get(0)
    assert key is not None
    seen: list[weakref.ref[Held]] = []

    def failure() -> Exception:
        return no_answer() if caused else NotFound("gone")

    def reconcile(answer: Exception | None) -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise answer or failure()

    def work(answer: Exception | None) -> None:
        settler.run(key, reconcile, answer)

    work(failure() if answered else None)
    assert seen[0]() is None


def test_a_connection() -> None:
    class Seen(Connection):
        """One that can be referred to weakly."""

    with Server() as server:
        connection = Seen()
        connection.open(Endpoint.parse(server.url), SYSTEM_CLOCK.monotonic() + LIMIT)
        reference = weakref.ref(connection)
        connection.close()
        del connection
        assert reference() is None
