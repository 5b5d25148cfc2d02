"""SSH public keys in the one-line form of OpenSSH: "ssh-ed25519 AAAA... comment". Pure.

Data comes from an operator's file, or from the host; what is read goes to a provider's
`add_ssh_key_to_all_instances`. No message of these functions contains any part of what was given:
it may have been a private key.

Follows: the section "AUTHORIZED_KEYS FILE FORMAT" of sshd(8), and RFC 4253, 6.6.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from attrs import field, frozen

from cloudprovider.internal.fields import documented

__all__ = ["SSHPublicKey", "parse_ssh_public_key"]

_LONGEST: Final = 16 * 1024  # bytes of one line, as in OpenSSH
_ARMOUR: Final = re.compile(rb"-{4,5} ?BEGIN ")
_PRIVATE: Final = re.compile(_ARMOUR.pattern + rb"[A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File")
_TYPES: Final = frozenset(
    {
        "ssh-ed25519",
        "sk-ssh-ed25519@openssh.com",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "ssh-rsa",
    }
)


@documented
@frozen
class SSHPublicKey:
    """A public key in its parts. `str()` and `repr()` show the fingerprint, never the key."""

    type: str
    """Its type, such as "ssh-ed25519"."""

    blob: str = field(repr=False)
    """The key itself, in base64."""

    comment: str = field(default="", eq=False, repr=False)
    """What stood behind it; no part of the key."""

    @property
    def line(self) -> bytes:
        """The key as providers get it: type and base64, without the comment."""
        return f"{self.type} {self.blob}".encode("ascii")

    @property
    def fingerprint(self) -> str:
        """What `ssh-keygen -l` shows: "SHA256:" and 43 characters. It may be shown to anyone."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    def __str__(self) -> str:
        return f"{self.type} {self.fingerprint}"


def parse_ssh_public_key(data: bytes | str) -> SSHPublicKey:
    """The public key that one line holds. Everything of it is checked: type, base64, and the key
    itself.

    Raises ValueError, with a sentence for people that shows nothing of the data: for a private key,
    several lines, a certificate, options in front of the key, an unknown or outdated type, and a
    key that is damaged.
    """
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data)
    # First of all: whatever else is wrong with it, its owner is to hear of this.
    if _PRIVATE.search(raw):
        raise ValueError(
            "it is a private key, which must stay with its owner. Give the public key, as in id_ed25519.pub"
        )
    if _ARMOUR.search(raw):
        raise ValueError("it is not in OpenSSH's one-line form. ssh-keygen -i -f FILE converts other public keys")
    raw = raw.strip()
    if not raw:
        raise ValueError("it is empty")
    if len(raw) > _LONGEST:
        raise ValueError(f"it is longer than {_LONGEST} bytes")
    if b"\n" in raw or b"\r" in raw:
        raise ValueError("it has several lines; a public key is one line")
    try:
        kind, _, rest = raw.decode("utf-8").partition(" ")
        blob, _, comment = rest.strip().partition(" ")
    except UnicodeDecodeError:
        raise ValueError("it is no text") from None
    # It would be installed, and let nobody in: sshd trusts authorities in another file.
    if kind.endswith("-cert-v01@openssh.com"):
        raise ValueError("it is a certificate, not a public key")
    if kind == "ssh-dss":
        raise ValueError("it is a DSA key, which OpenSSH no longer takes. Make a new one: ssh-keygen -t ed25519")
    # Options too (`command="..." ssh-rsa ...`): not every cloud passes them on, and without them
    # the key would be allowed more than its owner meant.
    if kind not in _TYPES:
        raise ValueError(f"it does not begin with the type of a public key, one of {', '.join(sorted(_TYPES))}")
    _check(kind, blob)
    return SSHPublicKey(kind, blob, comment.strip())


def _check(kind: str, blob: str) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm  # imported late: few programs ever read a key
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        # Strictly: Python's own reading skips what is no base64, and OpenSSH does not.
        base64.b64decode(blob, validate=True)
        load_ssh_public_key(f"{kind} {blob}".encode("ascii"))
    except UnsupportedAlgorithm:
        raise ValueError(f"this program cannot check keys of the type {kind}") from None
    except ValueError:
        raise ValueError(f"it is damaged: what follows {kind} is no such key") from None
