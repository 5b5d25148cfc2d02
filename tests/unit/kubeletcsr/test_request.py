"""What is read from a request, and every way in which it is no kubelet's."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.ips import parse_ip
from controllers.kubeletcsr.request import Refused, is_decided, node_of, read
from controllers.runtime.cache import KUBELET_SERVING_REQUESTS
from tests.support import kubeletcsr as make

NODE = "web-1"


def parsed(raw: dict[str, Any], *conditions: str) -> Any:
    raw["metadata"] |= {"resourceVersion": "1", "uid": "u"}
    raw["status"] = {"conditions": [{"type": one, "status": "True"} for one in conditions]}
    return KUBELET_SERVING_REQUESTS.parse(raw)


def refusal(request: bytes | None = None, **spec: Any) -> str:
    with pytest.raises(Refused) as raised:
        read(parsed(make.csr("csr-1", NODE, request, **spec)))
    return str(raised.value)


def test_a_kubelets_request_is_read() -> None:
    found = read(parsed(make.csr("csr-1", NODE, make.pem(NODE, ["10.0.0.1", "fd00::1"], [NODE, "WEB-1.acme.example"]))))
    assert found.node == NODE
    assert found.ips == {parse_ip("10.0.0.1"), parse_ip("fd00::1")}
    assert found.names == {NODE, "web-1.acme.example"}
    assert read(parsed(make.csr("csr-1", NODE, usages=["key encipherment", *make.USAGES]))).node == NODE


def test_a_decided_one_needs_no_request_any_more() -> None:
    for decision in ("Approved", "Denied", "Failed"):
        csr = parsed(make.csr("csr-1", NODE), decision)
        assert is_decided(csr)
        assert not csr.spec.request
    waiting = parsed(make.csr("csr-1", NODE), "acme.example/Seen")
    assert not is_decided(waiting)
    assert read(waiting).node == NODE


def test_a_huge_request_does_not_fill_the_memory() -> None:
    """A kubelet may send thousands, of more than a megabyte each, and the cache holds them all."""
    raw = make.csr("csr-1", NODE, make.armoured(b"x" * 1_000_000))
    raw["metadata"] |= {"annotations": {"a": "x" * 200_000}, "labels": {f"l{number}": "x" * 60 for number in range(9)}}
    raw["spec"]["extra"] = {"a": ["x" * 9000]}
    kept = parsed(raw)
    assert len(kept.to_str()) < 20_000
    with pytest.raises(Refused, match="of at most 16 KiB"):
        read(kept)


def asking(names: Sequence[str] = (), **more: Any) -> bytes:
    """A request of the node with one address, and more than a kubelet sends."""
    return make.pem(NODE, ["10.0.0.1"], names, **more)


SENT: dict[str, tuple[dict[str, Any], str]] = {
    "sent by a user": ({"username": "ada"}, "ada is no kubelet"),
    "sent without the group": ({"groups": ["system:authenticated"]}, "is no kubelet"),
    "sent by nobody's kubelet": ({"username": "system:node:"}, "is no kubelet"),
    "to be used by a client": ({"usages": ["digital signature", "client auth"]}, "its usages are"),
    "to be used by both": ({"usages": [*make.USAGES, "client auth"]}, "its usages are"),
    "to sign others": ({"usages": [*make.USAGES, "cert sign"]}, "its usages are"),
    "without signatures": ({"usages": ["key encipherment", "server auth"]}, "its usages are"),
    "of another signer": ({"signerName": "kubernetes.io/kube-apiserver-client"}, "its signer is"),
}
ASKED: dict[str, tuple[bytes, str]] = {
    "another node's name": (make.pem("db-1", ["10.0.0.1"], [NODE]), "its subject is"),
    "the name of an admin": (asking(subject=make.subject("kubernetes-admin")), "its subject"),
    "a further group": (
        asking(subject=make.subject(f"system:node:{NODE}", ["system:nodes", "system:masters"])),
        "its subject is",
    ),
    "no group": (asking(subject=make.subject(f"system:node:{NODE}", [])), "its subject is"),
    "a unit in the subject": (
        asking(subject=make.subject(f"system:node:{NODE}", more={"2.5.4.11": "x"})),
        "its subject is",
    ),
    "no names": (make.pem(NODE), "must have one extension"),
    "a mailbox": (asking(names_more=[x509.RFC822Name("a@b")]), "asks for RFC822Name"),
    "a URI": (
        asking(names_more=[x509.UniformResourceIdentifier("spiffe://a/b")]),
        "asks for UniformResourceIdentifier",
    ),
    "a directory name": (asking(names_more=[x509.DirectoryName(make.subject("x"))]), "asks for DirectoryName"),
    "a name of its own kind": (
        asking(names_more=[x509.OtherName(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")]),
        "asks for OtherName",
    ),
    "to be an authority": (
        asking(extensions=[x509.BasicConstraints(ca=True, path_length=None)]),
        "must have one extension, the subject's alternative names, and no other attribute: 2.5.29.19",
    ),
    "usages in the request itself": (
        asking(extensions=[x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])]),
        "must have one extension",
    ),
    "a password": (asking(attributes=[(x509.oid.AttributeOID.CHALLENGE_PASSWORD, b"x")]), "must have one extension"),
    "two lists of extensions": (
        make.two_attributes(NODE, make.alternatives(["10.0.0.1"]), make.alternatives(["fd00::2", "10.0.0.2"])),
        "must have one extension",
    ),
    "not PEM": (b"hello", "is not one PEM block"),
    "not DER": (make.armoured(b"hello"), "cannot be read"),
    "two blocks": (asking() + make.pem(NODE, ["10.0.0.2"]), "is not one PEM block"),
    "text before the block": (b"x\n" + asking(), "is not one PEM block"),
    "text behind the block": (asking() + b"x\n", "is not one PEM block"),
    "the block's old name": (asking().replace(b" CERTIFICATE", b" NEW CERTIFICATE"), "is not one PEM block"),
    "headers in the block": (asking().replace(b"REQUEST-----\n", b"REQUEST-----\nA: b\n\n", 1), "is not one PEM block"),
    "very long": (make.pem(NODE, [], [f"n{number}.acme.example" for number in range(800)]), "at most 16 KiB"),
    **{
        f"the name {name}": (asking([name]), "is no name for a node's certificate")
        for name in (
            "localhost",
            "x.localhost",
            "kubernetes",
            "Kubernetes.Default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "webhook.acme.svc",
            "*.acme.example",
            "10.0.0.2",
            "",
        )
    },
}


def test_what_no_kubelet_sends_is_refused() -> None:
    told = {attack: (refusal(**spec), why) for attack, (spec, why) in SENT.items()}
    told |= {attack: (refusal(request), why) for attack, (request, why) in ASKED.items()}
    assert {attack: said for attack, (said, why) in told.items() if why not in said} == {}


def test_every_problem_is_told_at_once() -> None:
    text = refusal(make.pem("db-1", ["10.0.0.1"]), usages=["client auth"], signerName="acme.example/x")
    assert all(part in text for part in ("its signer is", "its usages are", "its subject is"))


def test_a_range_of_addresses_is_no_address() -> None:
    from ipaddress import ip_network

    request = make.pem(NODE, ["10.0.0.1"], names_more=[x509.IPAddress(ip_network("10.0.0.0/8"))])
    assert "asks for IPAddress 10.0.0.0/8" in refusal(request)


@given(st.integers(0, 400), st.integers(0, 255))
def test_damage_is_refused_or_changes_nothing_that_counts(at: int, value: int) -> None:
    der = bytearray(base64.b64decode(b"".join(make.pem(NODE, ["10.0.0.1"], [NODE]).splitlines()[1:-1])))
    der[at % len(der)] = value
    csr = parsed(make.csr("csr-1", NODE, make.armoured(bytes(der))))
    try:
        found = read(csr)
    except Refused:
        return
    assert found.node == NODE  # other addresses may stand in it: the cloud's word decides about them


def test_whose_request_it_is() -> None:
    assert node_of(parsed(make.csr("csr-1", NODE))) == NODE
    assert node_of(parsed(make.csr("csr-1", NODE, username="system:nodeweb-1"))) == ""
    assert node_of(parsed(make.csr("csr-1", NODE, groups=None))) == ""
