"""Kubeconfigs that hold all they need, so that they work wherever they are copied to."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def kubeconfig(server: str, token: str, authority: bytes = b"") -> dict[str, Any]:
    """For this server and token; `authority` is the CA to trust, as PEM."""
    trusted = {"certificate-authority-data": base64.b64encode(authority).decode()} if authority else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": server, **trusted}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "cluster",
    }


def write(path: Path, content: Mapping[str, Any]) -> Path:
    """Write it where only its owner can read it; returns the path."""
    path.touch(0o600)
    path.write_text(json.dumps(content))
    return path
