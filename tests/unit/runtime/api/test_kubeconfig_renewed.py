"""A kubeconfig that is renewed on disk is used, by the clients that providers hold, too; what no
client can take over is said."""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.client import CoreV1Api
from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientBuilder, Unauthorized, Unreachable
from controllers.runtime.api.credentials import LOOK_SECONDS
from tests.support.clock import FakeClock
from tests.unit.runtime.kubeconfigs import EXEC, Config
from tests.unit.runtime.loopback import EMPTY_LIST, Authority, Peer, Server

pytestmark = pytest.mark.row("O12")


class Bench:
    """A server that takes one credential: a header, or the name in a client certificate."""

    def __init__(self, config: Config, folder: Path, clock: FakeClock) -> None:
        self.config, self.folder, self.clock = config, folder, clock
        self.authority = Authority(folder)
        self.taken = "Bearer secret-token"
        self.seen: list[str] = []
        context = self.authority.server_context(ask_client=True)
        context.verify_mode = ssl.CERT_OPTIONAL
        self.server = Server(self._serve, tls=context)
        config.cluster.update(server=self.server.url)
        config.cluster["certificate-authority-data"] = base64.b64encode(self.authority.pem).decode()
        self.clients = ClientBuilder.from_options(config.write(), clock=clock)
        self.vendors = CoreV1Api(self.clients.client("acme"))
        self.own = CoreV1Api(ApiClient(self.clients.config("acme")))

    def _serve(self, peer: Peer) -> None:
        assert isinstance(peer.sock, ssl.SSLSocket)
        shown = ssl.DER_cert_to_PEM_cert(peer.sock.getpeercert(True) or b"")
        while request := peer.request():
            said = request.headers.get("authorization", "") or self._named(shown)
            self.seen.append(said)
            peer.answer(200 if said == self.taken else 401, EMPTY_LIST)

    def _named(self, certificate: str) -> str:
        return next((path.stem for path in self.folder.glob("*.crt") if path.read_text() == certificate), "")

    def pair(self, name: str) -> dict[str, str]:
        """A certificate and its key, as a user's fields."""
        files = zip(("certificate", "key"), self.authority.issue(name), strict=True)
        return {f"client-{part}-data": base64.b64encode(file.read_bytes()).decode() for part, file in files}

    def renew(self, **user: object) -> None:
        """Replace the file, as tools do: a new one takes its place."""
        self.config["users"][0]["user"] = user
        path = Path(self.config.write())
        path.rename(path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def ask(self) -> str:
        """With a client of ours: "" or the error."""
        try:
            self.clients.rest("x").get("/api/v1/nodes")
        except Unauthorized as error:
            return str(error)
        return ""


@pytest.fixture
def bench(config: Config, tmp_path: Path, clock: FakeClock) -> Iterator[Bench]:
    made = Bench(config, tmp_path, clock)
    with made.server, made.clients:
        yield made


class TestAnotherCredential:
    def test_a_token_after_ten_seconds(self, bench: Bench) -> None:
        assert bench.ask() == ""
        bench.renew(token="new")
        bench.ask()
        bench.clock.advance(LOOK_SECONDS)
        bench.ask()
        assert bench.seen == ["Bearer secret-token", "Bearer secret-token", "Bearer new"]

    def test_a_token_at_the_first_401(self, bench: Bench) -> None:
        assert bench.ask() == ""
        bench.renew(token="new")
        bench.taken = "Bearer new"
        assert "sent was the token of user 'u1'" in bench.ask()
        assert bench.ask() == ""

    def test_a_token_of_a_provider_s_client(self, bench: Bench) -> None:
        bench.vendors.list_node()
        bench.own.list_node()
        bench.renew(token="new")
        bench.taken = "Bearer new"
        with pytest.raises(ApiException, match="401"):
            bench.vendors.list_node()
        bench.vendors.list_node()
        bench.own.list_node()

    def test_a_certificate_in_the_place_of_a_token(self, bench: Bench) -> None:
        bench.ask()
        bench.vendors.list_node()
        bench.renew(**bench.pair("jane"))
        bench.taken = "jane"
        assert "401" in bench.ask()
        assert bench.ask() == ""
        bench.vendors.list_node()
        assert bench.seen[-2:] == ["jane", "jane"]

    def test_another_certificate(self, bench: Bench) -> None:
        bench.renew(**bench.pair("jane"))
        bench.taken = "jane"
        bench.clock.advance(LOOK_SECONDS)
        assert bench.ask() == ""
        bench.vendors.list_node()
        bench.renew(**bench.pair("john"))
        bench.clock.advance(LOOK_SECONDS)
        bench.taken = "john"
        assert bench.ask() == ""  # not over a connection that the former one has opened
        bench.vendors.list_node()

    def test_a_token_in_the_place_of_a_certificate(self, bench: Bench) -> None:
        bench.renew(**bench.pair("jane"))
        bench.clock.advance(LOOK_SECONDS)
        bench.ask()
        bench.renew(token="new")
        bench.taken = "Bearer new"
        bench.clock.advance(LOOK_SECONDS)
        assert bench.ask() == ""
        bench.vendors.list_node()

    def test_a_plugin(self, bench: Bench, tmp_path: Path) -> None:
        plugin = tmp_path / "plugin"
        document = json.dumps({"apiVersion": EXEC["apiVersion"], "kind": "ExecCredential", "status": {"token": "$1"}})
        plugin.write_text("#!/bin/sh\necho '" + document.replace("$1", "'$1'") + "'\n")
        plugin.chmod(0o755)
        for name in ("one", "two"):
            bench.renew(exec={**EXEC, "command": str(plugin), "args": [name]})
            bench.taken = f"Bearer {name}"
            assert "401" in bench.ask()
            eventually(lambda: bench.ask() == "")  # the plugin runs beside the requests

    def test_a_ca(self, bench: Bench, tmp_path: Path) -> None:
        """At once where the server's certificate was refused."""
        bench.ask()
        right = bench.config.cluster["certificate-authority-data"]
        (tmp_path / "other").mkdir()
        other = base64.b64encode(Authority(tmp_path / "other").pem).decode()
        bench.config.cluster["certificate-authority-data"] = other
        bench.renew(token="secret-token")
        bench.clock.advance(LOOK_SECONDS)
        with pytest.raises(Unreachable, match="self-signed certificate in certificate chain"):
            bench.ask()
        with pytest.raises(ApiException, match="self-signed certificate in certificate chain"):
            bench.vendors.list_node()
        bench.config.cluster["certificate-authority-data"] = right
        bench.renew(token="secret-token")
        bench.vendors.list_node()
        assert bench.ask() == ""


class TestFilesThatItNames:
    def test_they_are_followed_and_nothing_is_said_before(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        cert, key = bench.authority.issue("jane")
        bench.renew(**{"client-certificate": str(cert), "client-key": str(key)})
        bench.taken = "jane"
        bench.clock.advance(LOOK_SECONDS)
        assert bench.ask() == ""
        for file, new in zip((cert, key), bench.authority.issue("john"), strict=True):
            new.rename(file)
        for _ in range(3):
            bench.clock.advance(LOOK_SECONDS)
            assert bench.ask() == ""
        assert len([line for line in caplog.messages if "has changed: from now on it is" in line]) == 2

    def test_the_start_is_no_change(self, config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        cert, key = Authority(tmp_path).issue("jane")
        config["users"][0]["user"] = {"client-certificate": str(cert), "client-key": str(key)}
        source = config.load().source
        source.look()
        assert source.version == 1
        assert "has changed" not in caplog.text


class TestWhatCannotBeTakenOver:
    @pytest.mark.parametrize(
        ("where", "change", "what"),
        [
            ("cluster", {"server": "https://10.0.0.2"}, "another server"),
            ("cluster", {"tls-server-name": "x"}, "another proxy or tls-server-name"),
            ("cluster", {"proxy-url": "http://p"}, "another proxy or tls-server-name"),
            ("user", {"as": "jane"}, "another impersonation"),
        ],
    )
    def test_it_is_said_and_all_stays_as_it_was(
        self, where: str, change: dict[str, str], what: str, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = dict(bench.config.cluster)
        if where == "cluster":
            bench.config.cluster.update(change)
        bench.renew(token="of-the-other", **(change if where == "user" else {}))
        for _ in range(3):
            bench.clock.advance(LOOK_SECONDS)
            assert bench.ask() == ""
        assert what in bench.clients.needs_restart
        assert len([line for line in warnings(caplog) if what in line]) == 1
        bench.config["clusters"][0]["cluster"] = before
        bench.renew(token="secret-token")
        bench.clock.advance(LOOK_SECONDS)
        assert bench.ask() == ""
        assert bench.clients.needs_restart == ""

    @pytest.mark.parametrize(
        "text",
        ["", "users: [", "kind: Secret", "token: 2026-13-45", "token: " + 1000 * "[", "token: !!timestamp now"],
        ids=range(6),
    )
    def test_a_file_that_is_half_written_is_looked_at_again(
        self, text: str, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.config.write(text)
        for _ in range(3):
            bench.clock.advance(LOOK_SECONDS)
            assert bench.ask() == ""
        assert len([line for line in warnings(caplog) if "the former credentials stay in use" in line]) == 1
        bench.renew(token="new")
        bench.taken = "Bearer new"
        bench.clock.advance(LOOK_SECONDS)
        assert bench.ask() == ""

    def test_a_file_that_is_gone(self, bench: Bench) -> None:
        Path(bench.config.write()).unlink()
        bench.clock.advance(LOOK_SECONDS)
        assert bench.ask() == ""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
