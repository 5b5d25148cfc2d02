"""Kubeconfig files for the embedded API server. JSON is YAML too, so that nothing but the stdlib is needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cloudprovider.testing.apiserver.errors import JSON


def kubeconfig(url: str, token: str, ca_file: str | None = None) -> JSON:
    """A kubeconfig with one cluster, one user and one context."""
    cluster: JSON = {"server": url}
    if ca_file is not None:
        cluster["certificate-authority"] = ca_file
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "embedded", "cluster": cluster}],
        "users": [{"name": "embedded", "user": {"token": token}}],
        "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
        "current-context": "embedded",
    }


def write(path: str | os.PathLike[str], content: JSON) -> Path:
    """Write it so that only its owner can read it; replaces what is there."""
    target = Path(path)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)
    return target
