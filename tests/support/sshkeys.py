"""SSH keys for tests: public ones whose private halves nobody has, and what no output may show."""

from typing import Final

PUBLIC: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlISmtQsAHDS11OZIBeazeLq3wQz8gF3N444y2SzEGP"
OTHER: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpOsXj1EHZWLU7V0eW87L/CeS1Cyl/ZDRM7gXZCXbsF"
SHOWN: Final = "SHA256:dJsiM/W+Q2lajjO6V62ToihNHVBCsNxroWbDDw2RYPA"
"""The fingerprint of PUBLIC."""
PRIVATE: Final = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    "c2VudGluZWwtc2VudGluZWwtc2VudGluZWwtc2VudGluZWwtc2VudGluZWw=\n"
    "-----END OPENSSH PRIVATE KEY-----\n"
)
_PIECES: Final = (*(key.split()[1][-24:-4] for key in (PUBLIC, OTHER)), "c2VudGluZWw", "sentinel")


def fingerprint(line: str) -> str:
    """The fingerprint of a public key."""
    from cloudprovider.helpers import parse_ssh_public_key

    return parse_ssh_public_key(line).fingerprint


def leaks(*texts: str) -> list[str]:
    """The pieces of these keys that the texts show."""
    return [piece for piece in _PIECES if any(piece in text for text in texts)]
