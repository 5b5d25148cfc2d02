"""Stage 4: READ. From a CertificateSigningRequest to what a kubelet asks for, or to why it can
never be approved. Pure; whoever wrote the request may be hostile.

The signer, kube-controller-manager, reads the same bytes with Go's crypto/x509. What two readers
could understand in two ways is refused, though one of them might be right: text around the PEM
block, a second attribute beside the extensions (there are two kinds of them, and readers differ in
which they look at), any extension or name that no kubelet asks for.

Follows: ValidateKubeletServingCSR in pkg/apis/certificates/helpers.go of k8s.io/kubernetes, and
https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers
"""

from __future__ import annotations

import base64
import re
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.ips import IPAddress, parse_ip
from controllers.runtime.cache import DECISIONS, KUBELET_SERVING, LONGEST_REQUEST
from controllers.runtime.queue import TerminalError

if TYPE_CHECKING:
    from kubernetes.client.models.v1_certificate_signing_request import V1CertificateSigningRequest

_USER: Final = "system:node:"
_GROUP: Final = "system:nodes"
_USAGES: Final = frozenset({"digital signature", "server auth"})
_RSA_USAGES: Final = _USAGES | {"key encipherment"}

_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE REQUEST-----\n([A-Za-z0-9+/=\n]+)\n-----END CERTIFICATE REQUEST-----\n?"
)
_COMMON_NAME: Final = "2.5.4.3"
_ORGANIZATION: Final = "2.5.4.10"
_EXTENSION_REQUEST: Final = "1.2.840.113549.1.9.14"
_ALTERNATIVE_NAMES: Final = "2.5.29.17"

_RESERVED: Final = re.compile(r"|(.*\.)?localhost|kubernetes(\.default)?|.*\.svc(\..*)?|.*\*.*", re.DOTALL)


class Refused(TerminalError):
    """The request can never be approved: what is wrong is in the part that cannot be changed."""


@frozen
class Request:
    """What a kubelet asks for, once all of it that needs no other object is in order."""

    node: str
    ips: frozenset[IPAddress]
    names: frozenset[str]
    """DNS names, in lower case."""


def node_of(csr: V1CertificateSigningRequest) -> str:
    """The name of the node whose kubelet sent it; "" if no kubelet did. The API server wrote user
    and groups when the request was created, and lets nobody change them."""
    spec = csr.spec
    user = spec.username or ""
    return user.removeprefix(_USER) if user.startswith(_USER) and _GROUP in (spec.groups or ()) else ""


def is_decided(csr: V1CertificateSigningRequest) -> bool:
    """Whether it is approved, denied, or failed."""
    conditions = csr.status.conditions if csr.status is not None else None
    return any(condition.type in DECISIONS for condition in conditions or ())


def read(csr: V1CertificateSigningRequest) -> Request:
    """What the request asks for. Raises Refused with everything that is wrong with it."""
    spec, node = csr.spec, node_of(csr)
    problems = []
    if spec.signer_name != KUBELET_SERVING:
        problems.append(f"its signer is {spec.signer_name}, not {KUBELET_SERVING}")
    if not node:
        problems.append(f"{spec.username or 'its sender'} is no kubelet ({_USER}NAME in the group {_GROUP})")
    # Exactly these: with "client auth" the certificate would let its owner in as a client.
    usages = spec.usages or []
    if frozenset(usages) not in (_USAGES, _RSA_USAGES):
        problems.append(f"its usages are {', '.join(usages)}; a kubelet's are {', '.join(sorted(_RSA_USAGES))}")
    try:
        ips, names = _contents(_der(spec.request), spec.username or "", problems)
    except Refused as error:
        raise Refused("; ".join([*problems, str(error)])) from error
    if problems:
        raise Refused("; ".join(problems))
    return Request(node, ips, names)


def _der(request: str | bytes) -> bytes:
    """The bytes of the one PEM block, written as Go writes it."""
    try:
        match = _PEM.fullmatch(base64.b64decode(request, validate=True)) if len(request) <= LONGEST_REQUEST else None
        if match is not None:
            return base64.b64decode(match[1].replace(b"\n", b""), validate=True)
    except ValueError:
        pass  # not base64: no block either
    raise Refused(
        f"it is not one PEM block CERTIFICATE REQUEST of at most {LONGEST_REQUEST // 1024} KiB, and nothing else"
    )


def _contents(der: bytes, user: str, problems: list[str]) -> tuple[frozenset[IPAddress], frozenset[str]]:
    """The IP addresses and DNS names in it; adds to `problems`. Raises Refused for what cannot be
    read."""
    from cryptography import x509  # late: only where the controller is on, and a request has come

    try:
        csr = x509.load_der_x509_csr(der)
        subject = sorted((part.oid.dotted_string, str(part.value)) for part in csr.subject)
        attributes = [attribute.oid.dotted_string for attribute in csr.attributes]
        extensions = {extension.oid.dotted_string: extension.value for extension in csr.extensions}
    except Exception as error:  # a parser before hostile bytes: whatever it says, they are refused
        raise Refused(f"it cannot be read ({type(error).__name__}: {error})") from error
    if subject != sorted([(_COMMON_NAME, user), (_ORGANIZATION, _GROUP)]):
        shown = csr.subject.rfc4514_string()[:200]
        problems.append(f"its subject is {shown!r}, not O={_GROUP},CN={user} and nothing else")
    # What the signer would copy into the certificate, and nobody here has looked at.
    if attributes != [_EXTENSION_REQUEST] or list(extensions) != [_ALTERNATIVE_NAMES]:
        extra = sorted({*attributes, *extensions} - {_EXTENSION_REQUEST, _ALTERNATIVE_NAMES})
        seen = f": {', '.join(extra)}" if extra else ""
        raise Refused(f"it must have one extension, the subject's alternative names, and no other attribute{seen}")
    return _alternatives(extensions[_ALTERNATIVE_NAMES], problems)


def _alternatives(found: object, problems: list[str]) -> tuple[frozenset[IPAddress], frozenset[str]]:
    from cryptography import x509

    assert isinstance(found, x509.SubjectAlternativeName)
    ips: set[IPAddress] = set()
    names: set[str] = set()
    for one in found:
        if isinstance(one, x509.IPAddress) and isinstance(one.value, IPv4Address | IPv6Address):
            ips.add(one.value)
        elif isinstance(one, x509.DNSName):
            names.add(one.value.lower())
        else:  # Go leaves out what it does not know
            problems.append(f"it asks for {type(one).__name__} {one.value!s:.100}; a kubelet asks for names and IPs")
    # A node's name is its kubelet's choice, and the cluster's other clients may trust the same
    # authority: a kubelet must not become the API server, or a webhook, by its name.
    reserved = [name for name in sorted(names) if parse_ip(name) is not None or _RESERVED.fullmatch(name)]
    problems += [f"{name!r} is no name for a node's certificate" for name in reserved]
    if not ips and not names:
        problems.append("it asks for no address and no name")
    return frozenset(ips), frozenset(names)
