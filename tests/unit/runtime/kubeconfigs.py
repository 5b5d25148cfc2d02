"""A kubeconfig to be edited, for tests of what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from controllers.runtime.api import kubeconfig

NO_ENV: dict[str, str] = {}
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
"""What an exec plugin needs beside its command."""


class Config(dict[str, Any]):
    """A kubeconfig with one cluster and one user."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "main",
                "contexts": [
                    {"name": "main", "context": {"cluster": "c1", "user": "u1"}},
                    {"name": "spare", "context": {}},
                ],
                "clusters": [{"name": "c1", "cluster": {"server": "https://10.0.0.1:6443"}}],
                "users": [{"name": "u1", "user": {"token": "secret-token"}}],
            }
        )
        self._path = folder / "config"

    @property
    def cluster(self) -> dict[str, Any]:
        found: dict[str, Any] = self["clusters"][0]["cluster"]
        return found

    @property
    def user(self) -> dict[str, Any]:
        found: dict[str, Any] = self["users"][0]["user"]
        return found

    def write(self, text: str | None = None) -> str:
        self._path.write_text(yaml.safe_dump(dict(self)) if text is None else text)
        return str(self._path)

    def load(self, master: str | None = None, environ: Mapping[str, str] = NO_ENV) -> kubeconfig.Access:
        return kubeconfig.load(self.write(), master, environ)
