"""What a cluster that did not get ready leaves behind: its logs and its objects."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_LEFT_OUT = ("cloud", "root", "var", "log")
"""Folders between the cluster's own and a log that say nothing."""


def save_logs(folder: Path, target: Path, kubectl: Callable[..., str]) -> Path:
    """Copy all logs below `folder` (those of containers too), and what `kubectl` prints of the
    objects, to `target`, which is replaced. Returns it. What cannot be had is left out."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for log in folder.rglob("*.log"):
        parts = log.relative_to(folder).parts
        place = target.joinpath(*(part for part in parts if part not in _LEFT_OUT))
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            shutil.copyfile(log, place)
    for form in ("wide", "yaml"):
        with suppress(Exception):  # the API server may be what is broken
            (target / f"objects.{form}").write_text(kubectl("get", "nodes,pods,services,events", "-A", "-o", form))
    return target
