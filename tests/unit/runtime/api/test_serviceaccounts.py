"""Tokens of service accounts: requested, renewed in time, told when they cannot be had; and who
speaks as whom."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import CoreV1Api

from controllers.runtime.api import ClientBuilder, ClientSettings, CredentialsUnavailable, RestClient, Unauthorized
from controllers.runtime.api.credentials import Fixed
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.serviceaccounts import TokenSource
from controllers.runtime.api.tls import TLSSettings
from controllers.runtime.api.wire import Endpoint
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.unit.runtime.loopback import EMPTY_LIST, Authority, Peer, Request, Server

TOKEN = re.compile(r"/api/v1/namespaces/kube-system/serviceaccounts/([a-z-]+)/token(\?.*)?")


class Accounts:
    """An API server that knows accounts and tokens, and refuses what the test says."""

    def __init__(self, *known: str, tls: ssl.SSLContext | None = None) -> None:
        self.known = set(known)
        self.refused: dict[str, int] = {}
        self.issued: list[str] = []
        self.valid: set[str] = {"manager"}
        self.certificates: list[Any] = []
        self.answer: Callable[[str], Any] = lambda token: {
            "spec": {"expirationSeconds": 3600},
            "status": {"token": token},
        }
        self.server = Server(self._serve, tls=tls)

    def _serve(self, peer: Peer) -> None:
        if isinstance(peer.sock, ssl.SSLSocket):
            self.certificates.append(peer.sock.getpeercert())
        while request := peer.request():
            peer.answer(*self._of(request))

    def _of(self, request: Request) -> tuple[int, Any]:
        found = TOKEN.fullmatch(request.target)
        what = "token" if found else "account" if request.method == "POST" else "other"
        if code := self.refused.get(what):
            return code, {"kind": "Status", "code": code, "message": "no"}
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            return 401, {"kind": "Status", "code": 401}
        if found is not None and found[1] not in self.known:
            return 404, {"kind": "Status", "code": 404, "reason": "NotFound"}
        if found is not None:
            self.issued.append(f"{found[1]}-{len(self.issued)}")
            self.valid.add(self.issued[-1])
            return 201, self.answer(self.issued[-1])
        if what == "account":
            name = request.json()["metadata"]["name"]
            taken = name in self.known
            self.known.add(name)
            return (409, {"kind": "Status", "reason": "AlreadyExists"}) if taken else (201, request.json())
        return 200, EMPTY_LIST

    def builder(self, clock: FakeClock | None = None, **options: Any) -> ClientBuilder:
        tls, headers = options.pop("tls", TLSSettings()), options.pop("headers", ())
        access = Access(Endpoint.parse(self.server.url), Fixed("Bearer manager"), tls, headers)
        more: dict[str, Any] = {} if clock is None else {"clock": clock}
        return ClientBuilder(
            access, ClientSettings(service_accounts="kube-system"), metrics=Metrics(), **more, **options
        )


def source(clients: ClientBuilder, clock: FakeClock, chance: float = 0.0) -> TokenSource:
    rest: RestClient = clients.rest("service-account-tokens")
    return TokenSource("kube-system", "node-controller", rest, rest, clock, lambda: chance)


class TestTokens:
    def test_what_is_asked_and_when_it_is_renewed(self, clock: FakeClock) -> None:
        accounts = Accounts("node-controller")
        accounts.answer = lambda token: {"spec": {"expirationSeconds": 1000}, "status": {"token": token}}
        with accounts.server as server, accounts.builder() as clients:
            for chance, share in ((0.0, 0.7), (1.0, 0.8)):
                found = source(clients, clock, chance).fetch()
                assert found.authorization == f"Bearer {accounts.issued[-1]}"
                assert found.expires_at == clock.time() + 1000  # the server's word, counted by our clock
                assert found.renew_at == pytest.approx(clock.time() + 1000 * share)
            assert server.requests[0].json() == {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            }

    def test_a_missing_account_is_created_and_one_made_meanwhile_is_fine(self, clock: FakeClock) -> None:
        accounts = Accounts()
        with accounts.server as server, accounts.builder() as clients:
            assert source(clients, clock).fetch().authorization == "Bearer node-controller-0"
            assert [request.target.partition("?")[0].rpartition("/")[2] for request in server.requests] == [
                "token",
                "serviceaccounts",
                "token",
            ]
            accounts.refused["account"] = 409
            accounts.known.clear()
            with pytest.raises(CredentialsUnavailable, match="no token for the service account kube-system/node-co"):
                source(clients, clock).fetch()

    @pytest.mark.parametrize(
        ("what", "code", "told"),
        [
            ("token", 403, r"resources \[serviceaccounts/token\], resourceNames \[node-controller\], verbs \[create\]"),
            ("account", 403, r"grant: apiGroups \[''\], resources \[serviceaccounts\], verbs \[create\]"),
            ("token", 500, "no token for the service account kube-system/node-controller: "),
        ],
    )
    def test_what_is_missing_is_told(self, what: str, code: int, told: str) -> None:
        accounts = Accounts()
        accounts.refused[what] = code
        with (
            accounts.server,
            accounts.builder() as clients,
            pytest.raises(CredentialsUnavailable, match=told),
        ):
            source(clients, FakeClock()).fetch()

    @pytest.mark.parametrize("answer", [{}, {"status": {}}, {"status": {"token": "a b"}}, {"status": {"token": 7}}])
    def test_an_answer_without_a_token(self, answer: object) -> None:
        accounts = Accounts("node-controller")
        accounts.answer = lambda _token: answer
        with (
            accounts.server,
            accounts.builder() as clients,
            pytest.raises(CredentialsUnavailable, match="holds no token"),
        ):
            source(clients, FakeClock()).fetch()


class TestIdentities:
    def test_each_client_speaks_as_the_account_of_its_name_and_the_caches_as_the_manager(self) -> None:
        accounts = Accounts("node-controller", "service-controller", "acme")
        headers = (("Impersonate-User", "boss"),)
        with accounts.server as server, accounts.builder(headers=headers) as clients:
            for name in ("node-controller", "service-controller", "node-controller", "shared-informers"):
                clients.rest(name).get("/api/v1/nodes")
            CoreV1Api(clients.client("acme")).list_node()
            sent = [
                (request.headers["authorization"], request.headers.get("impersonate-user"))
                for request in server.requests
                if not TOKEN.fullmatch(request.target)
            ]
            assert sent == [
                ("Bearer node-controller-0", None),
                ("Bearer service-controller-1", None),
                ("Bearer node-controller-0", None),
                ("Bearer manager", "boss"),
                ("Bearer acme-2", None),
            ]
            lease = clients.rest("leader-election", guarded=False, apart=True)
            lease.get("/apis/coordination.k8s.io/v1/leases")
            assert server.requests[-1].headers["authorization"] == "Bearer manager"

    def test_a_token_that_is_refused_is_renewed_at_once(self, clock: FakeClock) -> None:
        accounts = Accounts("node-controller")
        with accounts.server, accounts.builder(clock) as clients:
            rest = clients.rest("node-controller")
            rest.get("/api/v1/nodes")
            accounts.valid.discard("node-controller-0")
            clock.advance(2)
            with pytest.raises(Unauthorized):
                rest.get("/api/v1/nodes")
            rest.get("/api/v1/nodes")
            assert accounts.issued == ["node-controller-0", "node-controller-1"]

    def test_the_fence_stops_writes_and_new_accounts_but_no_token(self) -> None:
        class Lost(Exception):
            pass

        def refuse(method: str, path: str) -> None:
            raise Lost

        accounts = Accounts("node-controller")
        with accounts.server as server, accounts.builder(guard=refuse) as clients:
            clients.rest("node-controller").get("/api/v1/nodes")
            with pytest.raises(Lost):
                clients.rest("node-controller").request("PATCH", "/api/v1/nodes/n", body={})
            with pytest.raises(CredentialsUnavailable, match="Lost"):
                clients.rest("stranger").get("/api/v1/nodes")
            assert [request.method for request in server.requests] == ["POST", "GET", "POST"]
            assert accounts.known == {"node-controller"}

    def test_the_managers_certificate_is_not_shown_with_an_accounts_token(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        context = authority.server_context()
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(authority.file)
        cert, key = authority.issue("manager")
        accounts = Accounts("node-controller", tls=context)
        tls = TLSSettings(ca_file=str(authority.file), cert_file=str(cert), key_file=str(key))
        with accounts.server, accounts.builder(tls=tls) as clients:
            clients.rest("node-controller").get("/api/v1/nodes")
            CoreV1Api(clients.client("node-controller")).list_node()
            shown = [bool(certificate) for certificate in accounts.certificates]
            assert shown == [True, False, False]  # the request for the token is the manager's own
            assert clients.config("shared-informers").cert_file == str(cert)
            assert clients.config("node-controller").cert_file is None
