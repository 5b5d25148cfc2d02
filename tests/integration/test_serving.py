"""HTTPS over both API servers: who may read what.

On the real server RBAC decides, by nonResourceURLs; the embedded one decides by its own rules.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import frozen
from prometheus_client.parser import text_string_to_metric_families

from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, Cluster
from tests.lab.envtest.server import RESTRICTED_USER, RealAPIServer
from tests.support.api import LEASE, LEASES, NODES
from tests.support.https import ask, context, free_port, status
from tests.support.nodes import small_node
from tests.support.pki import Authority
from tests.support.process import Process, Start
from tests.support.rights import bound

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
AUTHENTICATION = "extension-apiserver-authentication"
PATHS = ["/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/threads"]


@frozen
class Secure:
    """A manager with HTTPS: its process and port, tokens, and who signs clients' certificates."""

    process: Process
    port: int
    reader: str
    """Of a user who may read everything here."""
    stranger: str
    """Of a user who may not."""
    authority: Authority

    def ask(self, path: str, token: str | None = None, **more: object) -> tuple[int, str]:
        return ask(self.port, path, token=token, **more)  # type: ignore[arg-type]


@contextmanager
def _readers(api: Cluster) -> Iterator[tuple[str, str, Authority]]:
    """Tokens of two users, and the authority whose CA the cluster names; RESTRICTED_USER may
    read."""
    if isinstance(api.server, RealAPIServer):
        with bound(api, {"": [{"nonResourceURLs": [*PATHS, "/healthz/*", "/"], "verbs": ["get"]}]}):
            yield api.server.restricted_token, api.server.manager_token, api.server.client_authority
        return
    reader, stranger, authority = secrets.token_hex(16), secrets.token_hex(16), Authority("client-ca")
    api.server.access.add_user(reader, RESTRICTED_USER)
    api.server.access.add_user(stranger, "stranger")
    api.server.access.deny(user="stranger", path=".*")
    api.server.access.deny(user="system:anonymous", path="/metrics")
    data = {"client-ca-file": authority.pem.decode()}
    api.create(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": {"name": AUTHENTICATION}, "data": data})
    yield reader, stranger, authority


@contextmanager
def serving(api: Cluster, start: Start, *flags: str) -> Iterator[Secure]:
    with _readers(api) as (reader, stranger, authority):
        port = free_port()
        process = start(
            "--cloud-provider=fake",
            f"--kubeconfig={api.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            *(flags or ["--leader-elect=false"]),
        )
        made = Secure(process, port, reader, stranger, authority)
        eventually(lambda: status(port, "/readyz") == 200, 60, lambda: process.log)
        eventually(lambda: made.ask("/metrics", reader)[0] == 200, 60, lambda: process.log)
        yield made
        for secret in (reader, stranger):
            assert secret not in process.log


def test_who_may_read_what(api: Cluster, start: Start, tmp_path: Path) -> None:
    with serving(api, start) as secure:
        for path in ("/healthz", "/livez", "/readyz"):
            assert secure.ask(path) == (200, "ok")
        for path in PATHS:
            assert secure.ask(path)[0] == 403, path
            assert secure.ask(path, "wrong")[0] == 401, path
            assert secure.ask(path, secure.stranger)[0] == 403, path
            assert secure.ask(path, secure.reader)[0] == 200, path
        assert secure.ask("/metrics")[1].count('User \\"system:anonymous\\" cannot get path \\"/metrics\\"') == 1
        assert secure.ask("/healthz", "wrong")[0] == 401, "wrong credentials count on open paths too, as in Go"
        assert secure.ask("/livez", secure.stranger) == (200, "ok")
        assert secure.ask("/nothing")[0] == 403
        code, text = secure.ask("/nothing", secure.reader)
        assert code == 404
        assert text.splitlines()[2:] == sorted([*PATHS, "/healthz", "/livez", "/readyz", "/debug/flags/v"])
        assert secure.ask("/metrics", secure.reader, method="POST")[0] == 405
        _certificates(secure, tmp_path)
        _pages(secure)
        _verbose(secure)
        counted = _samples(secure.ask("/metrics", secure.reader)[1])
        for part in ("authn", "authz"):
            assert counted[f"apiserver_delegated_{part}_request_total", "201"] >= 1
            assert counted[f"apiserver_delegated_{part}_request_duration_seconds_count", "201"] >= 1
        # The answers are remembered: 6 paths of the same user are far fewer token reviews.
        assert counted["apiserver_delegated_authn_request_total", "201"] < 20


def _certificates(secure: Secure, folder: Path) -> None:
    """The cluster's CA is known soon after the start, and new connections are asked for
    certificates then."""
    trusted = context(certificate=secure.authority.client_files(folder, RESTRICTED_USER, ("readers",)))
    eventually(lambda: secure.ask("/metrics", tls=trusted)[0] == 200, 60, lambda: secure.process.log)
    masters = context(certificate=secure.authority.client_files(folder, "root", ("system:masters",)))
    assert secure.ask("/metrics", tls=masters)[0] == 200
    nobody = context(certificate=secure.authority.client_files(folder, "nobody-known"))
    assert secure.ask("/metrics", tls=nobody)[0] == 403
    other = context(certificate=Authority().client_files(folder, "root", ("system:masters",)))
    with pytest.raises(OSError, match=r"(?i)unknown.ca|reset|closed|eof"):
        secure.ask("/metrics", tls=other)
    assert secure.ask("/metrics")[0] == 403, "a certificate is asked for and not required"


def _pages(secure: Secure) -> None:
    config = json.loads(secure.ask("/configz", secure.reader)[1])
    assert config["cloudcontrollermanager.config.k8s.io"]["KubeCloudShared"]["CloudProvider"]["Name"] == "fake"
    assert f"\nsecure-port={secure.port}\n" in secure.ask("/flagz", secure.reader)[1]
    page = secure.ask("/statusz", secure.reader)[1]
    assert page.startswith("\ncloud-controller-manager statusz\n")
    assert re.search(r"^Up: 0 hr 0\d min \d\d sec$", page, re.MULTILINE)
    threads = secure.ask("/debug/threads", secure.reader)[1]
    assert "\nhealth-watch (daemon)\n" in threads
    assert " in _current_frames" not in threads
    first = 'kubernetes_healthcheck{name="ping",type="healthz"} 1.0'  # from the first look on
    indicators = eventually(lambda: _with(first, secure.ask("/metrics/slis", secure.reader)[1]))
    assert "rest_client" not in indicators


def _with(part: str, text: str) -> str:
    return text if part in text else ""


def _verbose(secure: Secure) -> None:
    assert "[+]informer-nodes ok" in secure.ask("/healthz?verbose")[1]
    named = "cloud-node-controller-Nodes"
    assert f"[+]{named} ok\n" in secure.ask("/healthz?verbose")[1]
    assert f"[+]{named} ok: 0 keys wait" in secure.ask("/healthz?verbose", secure.reader)[1]
    assert f"[+]{named} ok\n" in secure.ask("/healthz?verbose", secure.stranger)[1]
    assert f"[+]{named} excluded: ok\n" in secure.ask(f"/healthz?verbose&exclude={named}", secure.reader)[1]
    assert secure.ask(f"/healthz/{named}")[0] == 403
    assert secure.ask(f"/healthz/{named}", secure.reader) == (200, "ok")


def _samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (one.name, one.labels.get("code", "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if not one.name.endswith("_bucket")
    }


@EMBEDDED
def test_a_standby_tells_as_much_as_a_leader(api: Cluster, start: Start) -> None:
    """It writes nothing, and the questions about users are no writes."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    lease = {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": "cloud-controller-manager"},
        "spec": spec,
    }
    api.create(LEASES, lease)
    try:
        with serving(api, start, "--leader-elect=true") as secure:
            assert secure.ask("/healthz") == (200, "ok")
            assert "[+]leaderElection ok" in secure.ask("/healthz?verbose")[1]
            assert secure.ask("/metrics")[0] == 403
            text = secure.ask("/metrics", secure.reader)[1]
            assert 'leader_election_master_status{name="cloud-controller-manager"} 0.0' in text
            assert secure.ask("/metrics", "wrong")[0] == 401
    finally:
        api.delete(LEASE)


def test_without_its_rights_it_runs_and_names_the_missing_ones(api: Cluster, start: Start, tmp_path: Path) -> None:
    """DESIGN rule 10: a manifest of an older version lacks them."""
    port = free_port()
    api.create(NODES, small_node("n0"))
    with api.lacking("create", "tokenreviews", tmp_path / "lacking") as identity:
        process = start(
            "--cloud-provider=fake",
            f"--kubeconfig={identity.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
        )
        eventually(lambda: status(port, "/livez") == 200, 60, lambda: process.log)
        assert ask(port, "/readyz")[0] in (200, 500)
        for _ in range(3):
            assert ask(port, "/metrics", token="some-token")[0] == 401
        line = "missing permission: create on tokenreviews. Without it nobody can read metrics"
        assert process.log.count(line) == 1
        assert "apiGroups ['authentication.k8s.io'], resources [tokenreviews], verbs [create]" in process.log
        eventually(lambda: ask(port, "/healthz") == (200, "ok"), 60, lambda: process.log)
