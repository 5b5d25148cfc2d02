"""The services' databases: made by their own programs in 40 s, or copied from a template in the
user's cache, which the first start leaves there.

A template holds for the versions of the services and for the code that fills it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.lab.envtest.build import cache
from tests.lab.openstack import settings

PROGRAM = Path(__file__).with_name("service.py")
_KEYS = "fernet"
"""Keystone's keys for tokens. It reads them from that folder."""


def run(command: Sequence[str], folder: Path) -> None:
    """Run to the end; an error is raised with what the program said."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-1000:]} {done.stderr[-2000:]}"


def fill(venv: Path, folder: Path, keystone: str) -> bool:
    """Make every database in the folder, where the configuration files are; whether from a
    template."""
    template = cache().with_name("openstack") / f"databases-{_versions(venv)}"
    if template.is_dir():
        shutil.copytree(template, folder, dirs_exist_ok=True)
        _adjust(folder, keystone)
        return True
    _make(venv, folder, keystone)
    template.parent.mkdir(parents=True, exist_ok=True)
    copy = template.with_name(f"{template.name}-{uuid.uuid4().hex}")
    copy.mkdir(mode=0o700)  # with keys, although of no use to anyone
    for one in (*folder.glob("*.sqlite"), folder / _KEYS):
        (shutil.copytree if one.is_dir() else shutil.copy)(one, copy / one.name)
    try:
        copy.rename(template)
    except OSError:  # another run was faster
        shutil.rmtree(copy)
    return False


def _versions(venv: Path) -> str:
    """What the databases depend on, as a short text."""
    digest = hashlib.sha256(PROGRAM.read_bytes() + Path(__file__).read_bytes() + settings.ADMIN_PASSWORD.encode())
    for name in sorted(one.name for one in venv.glob("lib/python*/site-packages/*.dist-info")):
        digest.update(name.encode())
    return digest.hexdigest()[:16]


def _adjust(folder: Path, keystone: str) -> None:
    """What the databases say about the folder and the ports."""
    with closing(sqlite3.connect(folder / "keystone.sqlite")) as database, database:
        database.execute("update endpoint set url = ?", (keystone,))
    with closing(sqlite3.connect(folder / "nova_api.sqlite")) as database, database:
        for row, connection in database.execute("select id, database_connection from cell_mappings").fetchall():
            moved = f"sqlite:///{folder}/{connection.rsplit('/', 1)[1]}"
            database.execute("update cell_mappings set database_connection = ? where id = ?", (moved, row))


def _make(venv: Path, folder: Path, keystone: str) -> None:
    nova = f"sqlite:///{folder}/nova.sqlite?timeout=60"
    steps: dict[str, Sequence[Sequence[str]]] = {
        "keystone": (
            ("fernet_setup", "--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid())),
            ("db_sync",),
            ("bootstrap", "--bootstrap-password", settings.ADMIN_PASSWORD, "--bootstrap-region-id", settings.REGION,
             "--bootstrap-public-url", keystone, "--bootstrap-internal-url", keystone),
        ),
        "glance": (("db_sync",),),
        "placement": (("db", "sync"),),
        "nova": (
            ("api_db", "sync"),
            ("cell_v2", "map_cell0", "--database_connection", f"sqlite:///{folder}/cell0.sqlite?timeout=60"),
            ("db", "sync"),
            ("cell_v2", "create_cell", "--name", "cell1", "--database_connection", nova, "--transport-url", "fake:/"),
        ),
    }  # fmt: skip
    for name, each in steps.items():
        for step in each:
            manage(venv, folder, name, *step)
    for name in ("neutron", "octavia"):
        run([str(venv / "bin" / "python"), "-P", str(PROGRAM), name, "database", str(folder)], folder)


def manage(venv: Path, folder: Path, name: str, *step: str) -> None:
    """Run a service's own program for its database."""
    run([str(venv / "bin" / f"{name}-manage"), "--config-file", str(settings.path(folder, name)), *step], folder)
