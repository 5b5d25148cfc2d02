"""The caBundle is written where it is ours to write, once; and the pair that all replicas share is
made and renewed."""

from __future__ import annotations

import base64
import copy
import logging
import re
from collections.abc import Callable
from typing import Any, cast

import pytest

from cloudprovider.internal.certificates import LIFETIME, MADE_BY, issue
from controllers.httpserver.pairs import Pair, inspect
from controllers.runtime.api import Conflict, Forbidden, Invalid, NotFound, RestClient
from controllers.webhooks.trust import CABundle, SharedPair, missing_trust
from tests.support.clock import FakeClock
from tests.support.pki import Authority

NAME = "cloud-controller-manager-webhook"
OURS = {"service": {"namespace": "kube-system", "name": NAME, "path": "/x"}}
SECRET = f"/api/v1/namespaces/kube-system/secrets/{NAME}"


PAIR, OTHER = (
    issue("server", ["server"], groups=[MADE_BY]).text,
    issue("other", ["other"], groups=[MADE_BY]).text,
)  # here: a process costs more
CERTIFICATE = PAIR[: PAIR.index(b"-----BEGIN PRIVATE KEY")]
MUTATING, VALIDATING = (
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{NAME}" for kind in ("mutating", "validating")
)


class Answer:
    def __init__(self, body: Any) -> None:
        self.body = body

    def json(self) -> Any:
        return self.body


class Server:
    """A RestClient to a cluster with these objects, by path."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects = objects
        self.writes: list[tuple[str, str, Any]] = []
        self.refuses: Exception | None = None
        self.refuses_writes: Exception | None = None

    def get(self, path: str, *, timeout: float | None = None) -> Any:
        if self.refuses is not None:
            raise self.refuses
        if path not in self.objects:
            raise NotFound("none")
        return copy.deepcopy(self.objects[path])

    def request(self, method: str, path: str, *, body: Any, timeout: float, content_type: str = "") -> Answer:
        self.writes.append((method, path, body))
        if self.refuses_writes is not None:
            raise self.refuses_writes
        assert method == "PATCH", "nothing is ever created"
        held = self.objects[path]
        if body["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]:
            raise Conflict("newer")
        held["metadata"]["resourceVersion"] += "1"
        for name, value in body.get("data", {}).items():
            held.setdefault("data", {})[name] = value
        for change in body.get("webhooks", ()):
            [one] = [one for one in held["webhooks"] if one["name"] == change["name"]]
            one["clientConfig"] |= change["clientConfig"]
        return Answer(copy.deepcopy(held))


def rest(server: Server) -> RestClient:
    return cast(RestClient, server)


def configuration(*webhooks: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": NAME, "resourceVersion": "7", "uid": "u"}, "webhooks": list(webhooks)}


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def certificates(text: bytes) -> list[bytes]:
    return re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)


# -- what is written


def test_only_webhooks_that_lead_to_our_service_get_our_ca_and_no_key_ever_leaves() -> None:
    foreign = {"service": {"namespace": "kube-system", "name": "other"}}
    patch = missing_trust(
        configuration(
            {"name": "bare", "clientConfig": OURS},
            {"name": "foreign", "clientConfig": foreign},
            {"name": "by-url", "clientConfig": {"url": "https://127.0.0.1/x"}},
            {"name": "trusting", "clientConfig": OURS | {"caBundle": encoded(OTHER + CERTIFICATE)}},
            {"name": "garbled", "clientConfig": OURS | {"caBundle": "%"}},
        ),
        PAIR,  # with its key, as the pair in memory is one text
    )
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert [one["name"] for one in patch["webhooks"]] == ["bare", "garbled"]
    for one in patch["webhooks"]:
        written = base64.b64decode(one["clientConfig"]["caBundle"])
        assert certificates(written) == certificates(CERTIFICATE)
        assert b"PRIVATE" not in written


def test_nothing_is_written_where_nothing_is_missing_or_known() -> None:
    trusting = configuration({"name": "a", "clientConfig": OURS | {"caBundle": encoded(CERTIFICATE)}})
    assert missing_trust(trusting, CERTIFICATE) is None
    assert missing_trust(configuration({"name": "a", "clientConfig": OURS}), b"") is None
    assert missing_trust({"metadata": {"resourceVersion": "1"}}, CERTIFICATE) is None


def test_both_kinds_are_written_once_and_looked_at_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    server = Server({path: configuration({"name": "a", "clientConfig": dict(OURS)}) for path in (MUTATING, VALIDATING)})
    trust = CABundle(rest(server), clock)
    for _ in range(4):
        trust.look(CERTIFICATE)
        clock.advance(10.0)
    assert [path for _, path, _ in server.writes] == [MUTATING, VALIDATING]
    trust.look(CERTIFICATE + OTHER)  # another certificate is not kept waiting
    assert len(server.writes) == 4
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_somebody_who_writes_it_too_is_named_and_gets_less_and_less_resistance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    server = Server({MUTATING: configuration({"name": "a", "clientConfig": dict(OURS)})})
    trust = CABundle(rest(server), clock)
    for _ in range(3600):
        trust.look(CERTIFICATE)
        server.objects[MUTATING]["webhooks"][0]["clientConfig"].pop("caBundle", None)
        clock.advance(1.0)
    assert 5 <= len(server.writes) <= 12
    assert sum("somebody else replaces the caBundle" in record.message for record in caplog.records) == 1


def test_after_two_quiet_hours_the_next_one_is_resisted_at_once() -> None:
    clock = FakeClock()
    server = Server({MUTATING: configuration({"name": "a", "clientConfig": dict(OURS)})})
    trust = CABundle(rest(server), clock)
    config = server.objects[MUTATING]["webhooks"][0]["clientConfig"]
    for _ in range(10):  # a deployment a day that writes its manifest anew
        for _ in range(3 * 360):
            trust.look(CERTIFICATE)
            clock.advance(10.0)
        assert "caBundle" in config
        clock.advance(20 * 3600.0)
        trust.look(CERTIFICATE)
        clock.advance(1.0)
        del config["caBundle"]
    for _ in range(3):
        trust.look(CERTIFICATE)
        clock.advance(10.0)
    assert "caBundle" in config


def test_a_new_object_of_that_name_is_no_quarrel(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    server = Server({MUTATING: configuration({"name": "a", "clientConfig": dict(OURS)})})
    trust = CABundle(rest(server), clock)
    trust.look(CERTIFICATE)
    server.objects[MUTATING] = configuration({"name": "a", "clientConfig": dict(OURS)})
    server.objects[MUTATING]["metadata"]["uid"] = "another"
    clock.advance(10.0)
    trust.look(CERTIFICATE)
    assert len(server.writes) == 2
    assert "somebody else" not in caplog.text


def test_without_the_right_it_is_told_once_and_not_certain(caplog: pytest.LogCaptureFixture) -> None:
    server = Server({})
    trust = CABundle(rest(server), FakeClock())
    assert trust.ensure(CERTIFICATE), "there is no configuration, so nothing is missing"
    server.refuses = Forbidden("not allowed")
    assert not trust.ensure(CERTIFICATE)
    assert not trust.ensure(CERTIFICATE)
    assert sum(record.levelno == logging.WARNING for record in caplog.records) == 2  # one for each kind, once


def test_a_second_outage_is_told_like_the_first(caplog: pytest.LogCaptureFixture) -> None:
    server = Server({MUTATING: configuration()})
    trust = CABundle(rest(server), FakeClock())
    for refuses in (Forbidden("not allowed"), None, Forbidden("not allowed")):
        server.refuses = refuses
        assert trust.ensure(CERTIFICATE) is (refuses is None)
    told = [record.getMessage() for record in caplog.records if "mutating" in record.getMessage()]
    assert len(told) == 2, told


# -- the pair that all replicas share


def maker(*texts: bytes) -> Callable[[str, list[str]], bytes]:
    left = list(texts)

    def make(name: str, names: list[str]) -> bytes:
        assert name == names[0] == f"{NAME}.kube-system.svc"
        return left.pop(0)

    return make


def shared(server: Server, clock: FakeClock, *texts: bytes, leads: bool = True, announced: bool = True) -> SharedPair:
    def announce(bundle: bytes) -> bool:
        server.writes.append(("ANNOUNCE", "", bundle))
        return announced

    return SharedPair(rest(server), leads=lambda: leads, announce=announce, maker=maker(*texts), clock=clock)


def now() -> float:
    return inspect(Pair(PAIR, PAIR)).ends - LIFETIME.total_seconds()


def empty() -> dict[str, Any]:
    """The Secret as the manifests make it."""
    return {SECRET: {"metadata": {"resourceVersion": "1"}}}


@pytest.mark.row("X11")
def test_the_leader_fills_the_secret_and_a_standby_serves_the_same() -> None:
    clock = FakeClock(unix=now())
    server = Server(empty())
    standby = shared(server, clock, leads=False)
    with pytest.raises(OSError, match="the leader makes it"):
        standby.read()
    leader = shared(server, clock, PAIR)
    pair = leader.read()
    assert (pair.certificate + pair.key, leader.authorities) == (PAIR, CERTIFICATE)
    clock.advance(1.0)
    assert standby.read() == pair
    assert [(method, path) for method, path, _ in server.writes] == [("PATCH", SECRET)]


@pytest.mark.row("X11")
@pytest.mark.parametrize("leads", [True, False])
def test_without_the_secret_nothing_is_created_and_each_replica_has_its_own(
    leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock, server = FakeClock(unix=now()), Server({})
    pair = shared(server, clock, PAIR, leads=leads)
    for _ in range(3):
        assert pair.read().certificate == CERTIFICATE
        clock.advance(60.0)
    assert server.writes == []
    assert caplog.text.count("kubectl create secret generic -n kube-system cloud-controller-manager-webhook") == 1
    server.objects |= {
        SECRET: secret(OTHER[: OTHER.index(b"-----BEGIN PRIV")], OTHER[OTHER.index(b"-----BEGIN PRIV") :])
    }
    clock.advance(60.0)
    assert pair.read().certificate + pair.read().key == OTHER


def test_two_that_fill_it_at_once_end_with_one() -> None:
    clock = FakeClock(unix=now())
    server = Server(empty())
    first = shared(server, clock, PAIR)
    second = shared(server, clock, OTHER)
    real, seen = server.get, [server.get(SECRET)]

    def get(path: str, *, timeout: float | None = None) -> Any:
        return seen.pop() if seen else real(path, timeout=timeout)

    pair = first.read()
    server.get = get  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no certificate yet"):
        second.read()
    clock.advance(1.0)
    assert second.read() == pair


def test_it_is_renewed_after_two_thirds_of_its_life_and_trusted_before_it_is_used() -> None:
    clock = FakeClock(unix=now())
    server = Server(empty())
    pair = shared(server, clock, PAIR, OTHER)
    pair.read()
    clock.advance(LIFETIME.total_seconds() / 2)
    assert pair.read().certificate == CERTIFICATE
    clock.advance(LIFETIME.total_seconds() / 4)
    renewed = pair.read()
    assert renewed.certificate + renewed.key == OTHER
    assert [method for method, _, _ in server.writes] == ["PATCH", "ANNOUNCE", "PATCH"]
    assert certificates(pair.authorities) == certificates(OTHER + CERTIFICATE)
    assert b"PRIVATE" not in pair.authorities


def test_it_is_not_renewed_while_the_new_one_would_not_be_trusted() -> None:
    clock = FakeClock(unix=now())
    server = Server(empty())
    pair = shared(server, clock, PAIR, OTHER, announced=False)
    pair.read()
    clock.advance(LIFETIME.total_seconds() * 3 / 4)
    assert pair.read().certificate == CERTIFICATE
    assert [method for method, _, _ in server.writes] == ["PATCH", "ANNOUNCE"]


@pytest.mark.parametrize("refusal", [Forbidden("patch is not allowed"), Conflict("newer"), Invalid("it is immutable")])
def test_a_renewal_that_cannot_be_stored_announces_one_certificate_and_is_told_once(
    refusal: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock(unix=now())
    server = Server(empty())
    pair = shared(server, clock, PAIR, OTHER)  # a third one would be an error
    pair.read()
    clock.advance(LIFETIME.total_seconds() * 3 / 4)
    server.refuses_writes = refusal
    for _ in range(5):
        assert pair.read().certificate == CERTIFICATE
        clock.advance(61)
    assert len({body for method, _, body in server.writes if method == "ANNOUNCE"}) == 1
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == (0 if isinstance(refusal, Conflict) else 1)
    assert not any("of its own" in text for text in told), "all replicas go on with the one that they share"
    server.refuses_writes = None
    renewed = pair.read()
    assert renewed.certificate + renewed.key == OTHER


def secret(certificate: bytes, key: bytes, **more: bytes) -> dict[str, Any]:
    data = {"tls.crt": certificate, "tls.key": key, **{name.replace("_", "."): value for name, value in more.items()}}
    return {"metadata": {"resourceVersion": "1"}, "data": {name: encoded(value) for name, value in data.items()}}


@pytest.mark.parametrize("chain", [False, True], ids=["alone", "with the root"])
def test_a_pair_that_somebody_else_put_there_is_served_and_left_alone(chain: bool) -> None:
    authority = Authority()
    certificate, key = authority.server()
    certificate += authority.pem * chain
    server = Server({SECRET: secret(certificate, key, ca_crt=authority.pem)})
    pair = shared(server, FakeClock(unix=now() + 10 * LIFETIME.total_seconds()))
    assert pair.read() == Pair(certificate, key)
    assert pair.authorities == authority.pem
    assert server.writes == []


@pytest.mark.parametrize("content", [{"other": "eA=="}, {"tls.crt": "%", "tls.key": "%"}, {"tls.crt": encoded(OTHER)}])
def test_a_secret_without_a_pair_is_told_and_never_overwritten(
    content: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server({SECRET: {"metadata": {"resourceVersion": "1"}, "data": content}})
    pair = shared(server, FakeClock(unix=now()))
    with pytest.raises(OSError, match="no certificate yet"):
        pair.read()
    assert "remove its data, and the leader makes a new one" in caplog.text
    assert server.writes == []


def test_a_certificate_whose_key_is_another_ones_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    server = Server({SECRET: secret(CERTIFICATE, OTHER[OTHER.index(b"-----BEGIN PRIVATE") :])})
    with pytest.raises(OSError, match="no certificate yet"):
        shared(server, FakeClock(unix=now())).read()
    assert "cannot be used" in caplog.text


def test_without_the_right_to_secrets_each_replica_has_its_own_until_the_right_comes() -> None:
    clock = FakeClock(unix=now())
    server = Server(
        {SECRET: secret(OTHER[: OTHER.index(b"-----BEGIN PRIVATE")], OTHER[OTHER.index(b"-----BEGIN PRIV") :])}
    )
    server.refuses = Forbidden("not allowed")
    pair = shared(server, clock, PAIR)
    assert pair.read().certificate == CERTIFICATE
    server.refuses = None
    clock.advance(60.0)
    assert pair.read().certificate + pair.read().key == OTHER


@pytest.mark.row("O15")
def test_a_self_signed_pair_of_another_maker_is_not_renewed() -> None:
    """cert-manager's self-signing issuer renews its own."""
    theirs = issue("theirs", ["theirs"])
    server = Server({SECRET: secret(theirs.certificate, theirs.key)})
    pair = shared(server, FakeClock(unix=now() + LIFETIME.total_seconds()), PAIR)
    assert pair.read().certificate == theirs.certificate
    assert not server.writes
