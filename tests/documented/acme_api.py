"""The client of the cloud `acme`, which the README's provider imports: servers in a dict."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

import yaml
from attrs import field, frozen


@frozen
class Server:
    id: str
    ip: str
    flavour: str = "small"
    zone: str = "north-1"
    region: str = "north"
    state: str = "running"


def metadata(*, timeout: float) -> Server:
    """What the metadata service of this machine says."""
    return Server("i-1", "10.0.0.1")


@frozen
class Client:
    servers: dict[str, Server] = field(factory=dict)

    @classmethod
    def from_yaml(cls, text: bytes) -> Self:
        """One server for each name of the mapping `servers`."""
        found = (yaml.safe_load(text) or {}).get("servers", {})
        return cls({name: Server(**fields) for name, fields in found.items()})

    def find(self, name: str) -> Server | None:
        return self.servers.get(name)

    def list(self, *, names: Collection[str]) -> dict[str, Server]:
        """Those of these names that exist."""
        return {name: server for name, server in self.servers.items() if name in names}
