"""Requests for serving certificates, as kubelets write them, and as somebody else would."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kubelet-serving"
USAGES = ("digital signature", "server auth")

EXTENSION_REQUEST = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
MICROSOFT_EXTENSION_REQUEST = x509.ObjectIdentifier("1.3.6.1.4.1.311.2.1.14")
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")


@cache
def key() -> ec.EllipticCurvePrivateKey:
    """One key for all requests of a run: making one is what costs."""
    return ec.generate_private_key(ec.SECP256R1())


def subject(name: str, organizations: Sequence[str] = ("system:nodes",), more: Mapping[str, str] | None = None) -> Any:
    """O=..., CN=name, and whatever else, by object identifier."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
    parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    parts += [x509.NameAttribute(x509.ObjectIdentifier(oid), value) for oid, value in (more or {}).items()]
    return x509.Name(parts)


def alternatives(ips: Sequence[str] = (), names: Sequence[str] = (), more: Sequence[Any] = ()) -> Any:
    """The extension that a kubelet asks for."""
    found = [*map(x509.DNSName, names), *(x509.IPAddress(ip_address(ip)) for ip in ips), *more]
    return x509.SubjectAlternativeName(found)


def pem(node: str, ips: Sequence[str] = (), names: Sequence[str] = (), **more: Any) -> bytes:
    """A kubelet's PKCS#10. `subject`: another one; `names_more`: further general names;
    `extensions`: further extensions."""
    named = more.get("subject") or subject(f"system:node:{node}")
    builder = x509.CertificateSigningRequestBuilder().subject_name(named)
    wanted = [*more.get("extensions", ())]
    if ips or names or more.get("names_more"):
        wanted.insert(0, alternatives(ips, names, more.get("names_more", ())))
    for extension in wanted:
        builder = builder.add_extension(extension, critical=False)
    for oid, value in more.get("attributes", ()):
        builder = builder.add_attribute(oid, value)
    return builder.sign(key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def two_attributes(node: str, shown: Any, hidden: Any) -> bytes:
    """A request with two lists of extensions: `shown` in Microsoft's attribute, which Go does not
    know, and `hidden` in the one that Go reads."""
    spki = key().public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    both = ((MICROSOFT_EXTENSION_REQUEST, shown), (EXTENSION_REQUEST, hidden))
    each = (_tlv(0x30, _oid(oid) + _tlv(0x31, _tlv(0x30, _extension(value)))) for oid, value in both)
    attributes = b"".join(sorted(each))  # as DER orders a set: the shorter one first
    info = _tlv(0x30, b"\x02\x01\x00" + subject(f"system:node:{node}").public_bytes() + spki + _tlv(0xA0, attributes))
    signature = key().sign(info, ec.ECDSA(hashes.SHA256()))
    return armoured(_tlv(0x30, info + _ECDSA_SHA256 + _tlv(0x03, b"\x00" + signature)))


def armoured(der: bytes) -> bytes:
    """The bytes as Go's PEM block."""
    text = base64.b64encode(der)
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return b"\n".join([b"-----BEGIN CERTIFICATE REQUEST-----", *lines, b"-----END CERTIFICATE REQUEST-----", b""])


def _extension(value: Any) -> bytes:
    return _tlv(0x30, _oid(value.oid) + _tlv(0x04, value.public_bytes()))


def _oid(oid: x509.ObjectIdentifier) -> bytes:
    first, second, *rest = map(int, oid.dotted_string.split("."))
    body = bytes([first * 40 + second])
    for number in rest:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.insert(0, 0x80 | number & 0x7F)
        body += bytes(digits)
    return _tlv(0x06, body)


def _tlv(tag: int, body: bytes) -> bytes:
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    size = (len(body).bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + len(body).to_bytes(size, "big") + body


def csr(name: str, node: str, request: bytes | None = None, **spec: Any) -> dict[str, Any]:
    """A CertificateSigningRequest, as the API server stores it where `username` is given or
    `node`'s kubelet sends it."""
    wanted = {
        "request": base64.b64encode(pem(node, ["10.0.0.1"], [node]) if request is None else request).decode(),
        "signerName": SIGNER,
        "usages": list(USAGES),
        "username": f"system:node:{node}",
        "groups": ["system:nodes", "system:authenticated"],
    }
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {**wanted, **spec},
    }
