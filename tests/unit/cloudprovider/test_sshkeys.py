"""SSH public keys: the one-line form, what is refused, and that nothing of it is shown."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from cloudprovider.helpers import SSHPublicKey, parse_ssh_public_key

PUBLIC = "AAAAC3NzaC1lZDI1NTE5AAAAIBlISmtQsAHDS11OZIBeazeLq3wQz8gF3N444y2SzEGP"
LINE = f"ssh-ed25519 {PUBLIC}"
FINGERPRINT = "SHA256:dJsiM/W+Q2lajjO6V62ToihNHVBCsNxroWbDDw2RYPA"
"""As `ssh-keygen -l` printed it."""


def openssh(key: object) -> str:
    public = key.public_key()  # type: ignore[attr-defined]  # any private key
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return str(public.public_bytes(*form).decode())


def private(key: ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


@pytest.mark.parametrize("text", [LINE, f"{LINE} ada@desk of hers", f"  {LINE}\n", LINE.encode(), f"{LINE} \udcff"])
def test_a_key_and_its_parts(text: str | bytes) -> None:
    if isinstance(text, str) and "\udcff" in text:
        with pytest.raises(ValueError, match="no text"):
            parse_ssh_public_key(text)
        return
    key = parse_ssh_public_key(text)
    assert (key.type, key.blob, key.line) == ("ssh-ed25519", PUBLIC, LINE.encode())
    assert key.fingerprint == FINGERPRINT
    assert key == SSHPublicKey("ssh-ed25519", PUBLIC, "another comment"), "a comment is no part of the key"
    assert PUBLIC not in repr(key) + str(key)


@pytest.mark.parametrize(
    "key",
    [
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["ed25519", "nistp256", "nistp384", "nistp521", "rsa"],
)
def test_every_type_that_openssh_takes(key: object) -> None:
    assert parse_ssh_public_key(openssh(key)).line.decode() == openssh(key)


def test_a_hardware_key() -> None:
    inner = base64.b64decode(PUBLIC)[-32:]
    parts = (b"sk-ssh-ed25519@openssh.com", inner, b"ssh:")
    blob = base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).decode()
    assert parse_ssh_public_key(f"sk-ssh-ed25519@openssh.com {blob}").blob == blob


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(private(ed25519.Ed25519PrivateKey.generate()), "private key", id="openssh"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAtHeSeCrEt\n-----END RSA PRIVATE KEY-----", "private key"),
        (b"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n", "private key"),
        ("---- BEGIN SSH2 PUBLIC KEY ----\nAAAAC3\n---- END SSH2 PUBLIC KEY ----", "ssh-keygen -i"),
        ("-----BEGIN PUBLIC KEY-----\nMCowBQ\n-----END PUBLIC KEY-----", "ssh-keygen -i"),
        ("", "empty"),
        (" \n", "empty"),
        ("# a comment", "does not begin with the type"),
        ("ssh-ed25519", "damaged"),
        (f"ssh-ed25519 {PUBLIC[:40]}", "damaged"),
        (f"ssh-ed25519 {PUBLIC[:-1]}!", "damaged"),
        (f"ssh-ed25519 {PUBLIC}AAAA", "damaged"),
        (f"ssh-rsa {PUBLIC}", "damaged"),
        (f"ecdsa-sha2-nistp256 {PUBLIC}", "damaged"),
        (f"SSH-ED25519 {PUBLIC}", "does not begin with the type"),
        (f"{PUBLIC}", "does not begin with the type"),
        (f'command="/bin/date" {LINE}', "does not begin with the type"),
        (f"ssh-ed25519-cert-v01@openssh.com {PUBLIC}", "certificate"),
        (f"ssh-dss {PUBLIC}", "DSA"),
        (f"{LINE}\n{LINE}", "several lines"),
        (f"{LINE} {'x' * 20_000}", "longer than"),
        (b"ssh-ed25519 \xff\xfe", "no text"),
        (b"\x00" * 64, "does not begin with the type"),
    ],
)
def test_what_is_refused_is_not_shown(data: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_ssh_public_key(data)
    shown = data.decode("latin-1") if isinstance(data, bytes) else data
    for word in shown.split():
        assert len(word) < 20 or word in ("ssh-ed25519-cert-v01@openssh.com",) or word not in str(caught.value)
    chained = caught.value.__cause__
    assert chained is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, "a traceback would show the other one"
