"""Pure: what a key file holds, what has changed in it, and which changes of Nodes mean that a machine has joined.

Bytes and objects come in; keys, problems and answers go out. This controller writes nothing to the API server, so there
are no patches. No problem shows any part of the file: it may be a private key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudprovider.helpers.providerid import Ownership, ownership, provider_id_of
from cloudprovider.helpers.sshkeys import SSHPublicKey, parse_ssh_public_key
from controllers.runtime.cache import uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

__all__ = ["LARGEST", "KeyFileProblems", "has_joined", "parse_keys"]

LARGEST: Final = 64 * 1024
"""Bytes of a file."""
_MOST: Final = 50  # keys of a file
_ARMOUR: Final = re.compile(rb"-{4,5} ?BEGIN |PuTTY-User-Key-File")


class KeyFileProblems(ValueError):
    """A key file cannot be used. `problems` are clauses for people, each about one line of it or about the whole."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def parse_keys(data: bytes) -> tuple[SSHPublicKey, ...]:
    """The keys of a file, each once, in its order. Empty lines and those that begin with # are left out.

    Raises KeyFileProblems with all that is wrong; then none of it may be used.
    """
    if len(data) > LARGEST:
        raise KeyFileProblems([f"it is larger than {LARGEST} bytes"])
    if _ARMOUR.search(data):
        try:
            parse_ssh_public_key(data)
        except ValueError as error:
            raise KeyFileProblems([str(error)]) from None
    keys: dict[SSHPublicKey, None] = {}
    problems = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            keys[parse_ssh_public_key(line)] = None
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    if not keys and not problems:
        problems.append("it holds no key")
    if len(keys) > _MOST:
        problems.append(f"it holds {len(keys)} keys, and {_MOST} are the most")
    if problems:
        raise KeyFileProblems(problems)
    return tuple(keys)


def has_joined(old: V1Node | None, new: V1Node, prefixes: Sequence[str]) -> bool:
    """Whether a machine of this provider has joined with this version of a Node: it is new, or another machine's now.

    A Node without a provider ID counts too: whose machine it is, only the cloud can say.
    """
    provider_id = provider_id_of(new)
    if ownership(provider_id, prefixes) is Ownership.FOREIGN:
        return False
    return old is None or (uid_of(old), provider_id_of(old)) != (uid_of(new), provider_id)
