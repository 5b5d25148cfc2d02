"""The lab that breaks the way to the cloud: requests by urllib3 and by http.client meet it, others
do not."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Callable, Iterator

import pytest
import urllib3

from cloudprovider.testing.conformance import BadAnswer, HTTPLab

Ask = Callable[[float], int]


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(params=["urllib3", "http.client"])
def ask(request: pytest.FixtureRequest, port: int) -> Iterator[Ask]:
    """Sends a request with a time limit, and returns the answer's status."""
    if request.param == "urllib3":
        with urllib3.PoolManager(retries=False) as pool:
            yield lambda limit: pool.request("GET", f"http://127.0.0.1:{port}/", timeout=limit).status
        return

    def by_hand(limit: float) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status
        finally:
            connection.close()

    yield by_hand


def test_an_outage_after_some_requests(ask: Ask) -> None:
    with HTTPLab().outage(after=2):
        assert [ask(5), ask(5)] == [204, 204]
        for _ in range(2):
            with pytest.raises((urllib3.exceptions.HTTPError, ConnectionRefusedError), match="conformance suite"):
                ask(5)
    assert ask(5) == 204


def test_a_hang_lasts_as_long_as_the_clients_patience(ask: Ask) -> None:
    with HTTPLab().hang(), pytest.raises((urllib3.exceptions.ReadTimeoutError, TimeoutError)):
        ask(0.02)
    assert ask(5) == 204


def test_the_end_of_a_hang_lets_go(ask: Ask) -> None:
    failed: list[BaseException] = []

    def patient() -> None:
        try:
            ask(60)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            failed.append(error)

    thread = threading.Thread(target=patient, daemon=True)
    with HTTPLab().hang():
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
    thread.join(5)
    assert not thread.is_alive()
    assert "the hang is over" in str(failed[0])


def test_other_hosts_are_left_alone(ask: Ask) -> None:
    class Lab(HTTPLab):
        cloud_hosts = ("acme.example",)

    with Lab().outage(), Lab().hang():
        assert ask(5) == 204


@pytest.mark.row("P9")
def test_an_answer_of_the_labs_own_choice(ask: Ask, port: int) -> None:
    page = BadAnswer("404 with a page", 404, b"<html>not here</html>", {"X-From": "proxy"})
    with HTTPLab().bad_answers(page):
        assert [ask(5), ask(5)] == [404, 404]
        with urllib3.PoolManager(retries=False) as pool:
            answer = pool.request("POST", f"http://127.0.0.1:{port}/", json={"name": "web"}, timeout=5)
        assert (answer.data, answer.headers["X-From"]) == (page.body, "proxy")
    assert ask(5) == 204
