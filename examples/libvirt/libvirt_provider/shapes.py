"""The part of libvirt-python that is used, as types: the module itself has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Domain(Protocol):
    """libvirt.virDomain: a virtual machine. Name and UUID are known without asking."""

    def name(self) -> str: ...
    def UUIDString(self) -> str: ...  # noqa: N802 - libvirt's name
    def XMLDesc(self, flags: int = 0) -> str: ...  # noqa: N802
    def interfaceAddresses(self, source: int, flags: int = 0) -> Mapping[str, Mapping[str, Any]]: ...  # noqa: N802


class Connection(Protocol):
    """libvirt.virConnect: may be used by many threads at once."""

    def listAllDomains(self, flags: int = 0) -> Sequence[Domain]: ...  # noqa: N802
    def getAllDomainStats(self, stats: int = 0, flags: int = 0) -> Sequence[tuple[Domain, Mapping[str, Any]]]: ...  # noqa: N802
    def setKeepAlive(self, interval: int, count: int) -> int: ...  # noqa: N802
    def isAlive(self) -> int: ...  # noqa: N802
    def getLibVersion(self) -> int: ...  # noqa: N802
