"""The HTTP API: paths, statuses, headers, and what is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3
from localcloud.api import MOST_BYTES, ApiServer
from localcloud.kernel import KernelError
from localcloud.ratelimit import RateLimit
from locallab import LOCAL, TOKEN, Daemon, daemon

from cloudprovider.testing.waiting import eventually

BALANCER = {"owner": "me", "ports": [{"protocol": "TCP", "port": 80, "targetPort": 30080}]}


class Caller:
    """Requests to a daemon."""

    def __init__(self, made: Daemon) -> None:
        self.made = made
        self.pool = urllib3.PoolManager(retries=False)

    def ask(self, method: str, path: str, body: object = None, token: str = TOKEN) -> urllib3.BaseHTTPResponse:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return self.pool.request(method, self.made.server.url + path, body=data, headers=headers)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.data
        return answer.json()

    def refused(self, status: int, method: str, path: str, body: object = None, token: str = TOKEN) -> list[str]:
        """The problems that the API tells, with this status."""
        answer = self.ask(method, path, body, token)
        assert answer.status == status, answer.data
        problems: list[str] = answer.json()["error"]["problems"]
        return problems


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    with daemon(tmp_path_factory.mktemp("cloud"), local=True) as made:
        yield Caller(made)


@pytest.fixture
def caller(shared: Caller) -> Iterator[Caller]:
    """Cleans up after each test: one daemon is enough for all."""
    yield shared
    cloud, shared.made.kernel.failure = shared.made.cloud, None
    for machine in cloud.machines():
        if machine.machine.id != LOCAL.id:
            cloud.delete_machine(machine.machine.id)
    for route in cloud.routes():
        cloud.delete_route(route.name)
    for balancer in cloud.load_balancers():
        cloud.delete_load_balancer(balancer.name)


def test_machines(caller: Caller) -> None:
    answer = caller.ask("POST", "/v1/machines", {"name": "a", "type": "large", "zone": "local-c", "labels": {"k": "v"}})
    made = answer.json()
    assert answer.status == 201
    assert made == {
        "id": made["id"], "name": "a", "state": "running", "type": "large", "region": "local", "zone": "local-c",
        "addresses": [{"type": "InternalIP", "address": "10.90.0.10"}, {"type": "Hostname", "address": "a"}],
        "labels": {"k": "v"}, "taints": [], "annotations": {}, "createdAt": made["createdAt"],
    }  # fmt: skip
    path = f"/v1/machines/{made['id']}"
    assert caller.get(path) == made
    assert caller.ask("POST", f"{path}/stop").json()["state"] == "stopped"
    assert caller.ask("POST", f"{path}/start", {}).json()["state"] == "running"
    assert caller.ask("POST", f"{path}/reboot").json() == made
    assert caller.ask("POST", f"{path}/reboot", {"newAddress": True}).json()["addresses"][0]["address"] == "10.90.0.11"
    assert caller.get(f"{path}/console") == {"console": ""}
    assert caller.get(f"{path}/enter")["command"]
    listed = [caller.get(f"/v1/machines?{query}")["machines"] for query in ("name=a", f"id=m99,{made['id']}", "id=")]
    assert [[one["id"] for one in found] for found in listed] == [[made["id"]], [made["id"]], []]
    gone = caller.ask("DELETE", path)
    assert (gone.status, gone.data) == (204, b"")
    assert caller.refused(404, "DELETE", path) == [f"there is no machine {made['id']}"]


def test_user_data_is_shown_to_nobody(caller: Caller) -> None:
    answer = caller.ask("POST", "/v1/machines", {"name": "a", "userData": "#!/bin/sh\necho secret"})
    assert b"secret" not in answer.data + caller.ask("GET", "/v1/machines").data


def test_routes(caller: Caller) -> None:
    made = caller.ask("PUT", "/v1/routes/a%3Ab", {"destination": "10.91.1.0/24", "machine": LOCAL.id, "owner": "me"})
    assert made.json() == {
        "name": "a:b", "owner": "me", "destination": "10.91.1.0/24", "machine": "m1", "gateway": "127.0.0.1",
    }  # fmt: skip
    assert caller.get("/v1/routes?owner=me") == {"routes": [made.json()]}
    assert caller.get("/v1/routes?owner=you") == {"routes": []}
    assert "belongs to 'me'" in caller.refused(409, "DELETE", "/v1/routes/a:b?owner=you")[0]
    assert caller.ask("DELETE", "/v1/routes/a:b?owner=me").status == 204
    assert caller.refused(404, "DELETE", "/v1/routes/a:b") == ["there is no route a:b"]


def test_load_balancers(caller: Caller) -> None:
    body = {
        "owner": "me", "labels": {"a": "b"}, "mode": "nat", "targets": [LOCAL.id], "sourceRanges": ["192.0.2.0/24"],
        "ports": [{"protocol": protocol, "port": 53, "targetPort": 30053} for protocol in ("TCP", "UDP")],
        "affinity": "clientIP", "affinitySeconds": 60, "health": {"port": 30999, "path": "/healthz"},
        "weights": {LOCAL.id: 2}, "draining": [],
    }  # fmt: skip
    made = caller.ask("PUT", "/v1/loadbalancers/dns", body).json()
    status = made.pop("status")
    assert made == {**body, "name": "dns", "address": "198.51.100.1"}
    assert [one["machine"] for one in status["targets"]] == [LOCAL.id]
    caller.made.cloud.health.round()
    (target,) = caller.get("/v1/loadbalancers/dns")["status"]["targets"]
    assert target["healthy"]
    assert target["since"].endswith("Z")
    assert [one["name"] for one in caller.get("/v1/loadbalancers")["loadbalancers"]] == ["dns"]
    assert caller.get("/v1/loadbalancers?owner=you") == {"loadbalancers": []}
    assert "belongs to 'me'" in caller.refused(409, "PUT", "/v1/loadbalancers/dns", {**BALANCER, "owner": "you"})[0]
    assert caller.ask("DELETE", "/v1/loadbalancers/dns").status == 204
    assert caller.refused(404, "GET", "/v1/loadbalancers/dns") == ["there is no load balancer dns"]


def test_keys_zones_types_and_health(caller: Caller) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"
    assert caller.get("/v1/sshkeys/root") == {"keys": []}
    assert caller.ask("PUT", "/v1/sshkeys/root", {"keys": [key]}).json() == {"keys": [key]}
    assert caller.get("/v1/sshkeys/root") == {"keys": [key]}
    problems = caller.refused(422, "PUT", "/v1/sshkeys/root", {"keys": ["PRIVATE KEY", key]})
    assert [one.split(":")[0] for one in problems] == ["keys.0"]
    assert caller.get("/v1/zones")["zones"][0] == "local-a"
    assert caller.get("/v1/types")["types"][0] == {"name": "small", "cpus": 1, "memoryGiB": 1}
    assert caller.ask("GET", "/healthz", token="").json() == {"status": "ok"}


def test_a_machine_asks_what_it_is_without_a_token(caller: Caller) -> None:
    assert caller.ask("GET", "/v1/self", token="").json() == caller.get(f"/v1/machines/{LOCAL.id}")


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x"])
def test_without_the_token(caller: Caller, token: str) -> None:
    answer = caller.ask("GET", "/v1/machines", token=token)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert answer.json()["error"]["code"] == "unauthorized"
    assert caller.refused(401, "POST", "/v1/machines", {"name": "a"}, token=token)
    assert [one.machine.id for one in caller.made.cloud.machines()] == [LOCAL.id]


def test_taints_and_annotations_stay_with_the_machine(caller: Caller) -> None:
    marks = {
        "taints": ["example.com/gpu=a100:NoSchedule", "example.com/gpu:NoExecute"],
        "annotations": {"example.com/rack": "7 b"},
    }
    made = caller.ask("POST", "/v1/machines", {"name": "a", **marks}).json()
    assert {name: caller.get(f"/v1/machines/{made['id']}")[name] for name in marks} == marks
    for wrong in (
        "",
        "gpu",
        "gpu=a100",
        ":NoSchedule",
        "gpu:Never",
        "a b:NoSchedule",
        "gpu=a=b:NoSchedule",
        "g:NoSchedule ",
    ):
        (problem,) = caller.refused(422, "POST", "/v1/machines", {"name": "b", "taints": [wrong]})
        assert problem.startswith(f"taints.0: {wrong!r} must be KEY=VALUE:EFFECT"), problem
    twice = {"name": "b", "taints": ["gpu=1:NoSchedule", "gpu:NoSchedule", "cpu:NoSchedule"]}
    assert caller.refused(422, "POST", "/v1/machines", twice) == [
        "taints: the key and effect gpu:NoSchedule are given twice"
    ]


def test_what_is_refused(caller: Caller) -> None:
    caller.ask("POST", "/v1/machines", {"name": "a"})
    assert "the name a belongs to" in caller.refused(409, "POST", "/v1/machines", {"name": "a"})[0]
    problems = caller.refused(422, "POST", "/v1/machines", {"type": "huge", "labels": {"a": 1}, "x": 2})
    assert [one.split(":")[0] for one in problems] == ["name", "type", "labels.a", "x"]
    assert caller.refused(422, "POST", "/v1/machines", b"{")
    assert caller.refused(422, "PUT", "/v1/loadbalancers/a%2Fb", BALANCER)[0].startswith("the load balancer's name")
    assert caller.refused(404, "GET", "/v2/machines") == ["there is nothing at /v2/machines"]
    answer = caller.ask("PUT", "/v1/machines", {})
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST")


def test_a_kernel_that_fails_is_told(caller: Caller) -> None:
    caller.made.kernel.failure = KernelError("nft: no such file")
    (problem,) = caller.refused(503, "PUT", "/v1/loadbalancers/web", BALANCER)
    assert problem == "the cloud could not carry it out, send it again: nft: no such file"


def test_an_error_of_the_cloud_is_logged_and_not_shown(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(caller.made.cloud, "routes", lambda owner: 1 / 0)
    assert caller.refused(500, "GET", "/v1/routes") == ["an error of the cloud; its log says more"]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"Content-Length: {MOST_BYTES + 1}", b"413"),
        ("Content-Length: many", b"400"),
        ("Transfer-Encoding: chunked", b"400"),
    ],
)
def test_bodies_that_are_not_read(caller: Caller, head: str, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", caller.made.server.server_port), 5) as connection:
        connection.sendall(
            f"POST /v1/machines HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n{head}\r\n\r\n".encode()
        )
        answer = connection.makefile("rb").read()  # to the end: the connection is closed
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"Connection: close" in answer


def test_a_refused_request_leaves_its_connection_in_order(caller: Caller) -> None:
    pool = urllib3.HTTPConnectionPool("127.0.0.1", caller.made.server.server_port, maxsize=1, retries=False)
    bodies = [
        pool.request("POST", "/v1/machines", body=b'{"name": "a"}').status,
        pool.request("GET", "/healthz").status,
    ]
    assert bodies == [401, 200]
    assert pool.num_connections == 1
    pool.close()


@pytest.mark.row("P4")
def test_a_large_body_without_the_token_is_not_read(caller: Caller) -> None:
    with socket.create_connection(("127.0.0.1", caller.made.server.server_port), 5) as connection:
        connection.sendall(f"POST /v1/machines HTTP/1.1\r\nHost: x\r\nContent-Length: {MOST_BYTES}\r\n\r\n".encode())
        answer = connection.makefile("rb").read()  # although no byte of the body was sent
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"Connection: close" in answer


@pytest.mark.row("P4")
def test_connections_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localcloud.api.MOST_CONNECTIONS", 2)
    with daemon(tmp_path) as made, ExitStack() as stack:
        where = ("127.0.0.1", made.server.server_port)
        ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        kept = [stack.enter_context(socket.create_connection(where, 5)) for _ in range(2)]
        for connection in kept:
            connection.sendall(ask)
            assert connection.recv(12) == b"HTTP/1.1 200"
        with socket.create_connection(where, 5) as more:
            assert more.recv(1) == b""
        kept[0].shutdown(socket.SHUT_WR)
        while kept[0].recv(4096):  # until the server has closed it, too
            pass
        assert eventually(lambda: _is_served(where, ask), timeout=10)


def _is_served(where: tuple[str, int], ask: bytes) -> bool:
    with socket.create_connection(where, 5) as connection:
        try:
            connection.sendall(ask)
            return connection.recv(12) == b"HTTP/1.1 200"
        except OSError:
            return False


def test_the_rate_limit(tmp_path: Path) -> None:
    now = [100.0]
    with daemon(tmp_path, limit=RateLimit(2, lambda: now[0])) as made:
        caller = Caller(made)
        statuses = [caller.ask("GET", "/v1/zones").status for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert caller.ask("GET", "/v1/zones").headers["Retry-After"] == "1"
        assert caller.ask("GET", "/healthz").status == 200
        assert caller.ask("GET", "/v1/zones", token="").status == 401
        now[0] += 0.5
        assert [caller.ask("GET", "/v1/zones").status for _ in range(2)] == [200, 429]


def test_a_slow_rate_says_how_long_to_wait() -> None:
    limit = RateLimit(0.1, lambda: 5.0)
    assert [limit.take(), limit.take()] == [0, 10]


def test_no_api_without_a_token(caller: Caller) -> None:
    with pytest.raises(ValueError, match="needs a token"):
        ApiServer(("127.0.0.1", 0), caller.made.cloud, "")
