"""Faults of objects and of what proves who we are, F25 to F29 and F31 to F36."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cloudprovider.testing.fake import hangs
from tests.lab.faults.field import STANDING, Field
from tests.lab.faults.networks import Refusing
from tests.support import kubeconfigs
from tests.support.api import NODES, STRATEGIC, each
from tests.support.failover.churn import node
from tests.support.failover.stage import Ground
from tests.support.pki import Authority
from tests.support.proxy import ChaosProxy
from tests.support.services import SERVICES

TOKEN_FILE: Final = "token"
CA_FILE: Final = "ca.crt"


@contextmanager
def recreated_nodes(field: Field) -> Iterator[None]:
    """Machine and Node are made anew under the name at once, with another ID, while others come."""
    for number in range(3):
        name = f"node-{number:05d}"
        field.cloud.console.recreate_instance(name)
        field.api.delete(f"{NODES}/{name}")
        field.api.create(NODES, node(name, 2000 + number))
    yield


@contextmanager
def recreated_services(field: Field) -> Iterator[None]:
    with field.cloud_fault("ensure_load_balancer_deleted", hangs(0.5)):
        for name in STANDING[:3]:
            field.api.delete(f"{SERVICES}/{name}")
        for name in STANDING[:3]:
            field.serve(name)
        yield


@contextmanager
def flipped(field: Field) -> Iterator[None]:
    """While each load balancer is being built."""
    with field.cloud_fault("ensure_load_balancer", hangs(1.5)):
        for name in ("flip-0", "flip-1", "flip-2"):
            field.serve(name)
            field.await_call("ensure_load_balancer", f"default/{name}")
            field.give_up(name)
            field.api.patch(f"{SERVICES}/{name}", {"spec": {"type": "ClusterIP"}})
            field.api.patch(f"{SERVICES}/{name}", {"spec": {"type": "LoadBalancer"}})
        yield


@contextmanager
def deleted_while_built(field: Field) -> Iterator[None]:
    with field.cloud_fault("ensure_load_balancer", hangs(2.0)):
        for name in ("brief-0", "brief-1", "brief-2"):
            field.serve(name)
            field.await_call("ensure_load_balancer", f"default/{name}")
            field.api.delete(f"{SERVICES}/{name}")
        yield


@contextmanager
def stripped(field: Field) -> Iterator[None]:
    """Of three Services that live on, and of two that are deleted in the same moment."""
    for name in STANDING[:3]:
        field.api.patch(f"{SERVICES}/{name}", {"metadata": {"finalizers": None}})
    for name in STANDING[3:5]:
        field.api.delete(f"{SERVICES}/{name}")
        # It may be gone already: the manager takes its finalizer off, too.
        field.api.request(
            "PATCH", f"{SERVICES}/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json"
        )
    yield


@contextmanager
def malformed(field: Field) -> Iterator[None]:
    """One node and one Service arrive with a number for their UID, in lists and watches of JSON."""
    field.proxy.spoil("node-00001")
    field.proxy.cut()
    for name in ("node-00001", "node-00002"):
        field.api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [_ready()]}}, STRATEGIC)
    yield
    field.proxy.spoil(None)
    field.proxy.cut()


def _ready() -> dict[str, str]:
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": str(time.time())}


# ---- what proves who we are


def kubeconfig(proxy: ChaosProxy, where: Ground, name: str, folder: Path) -> Path:
    """A kubeconfig that leads through the proxy, with the token and the CA in files. The CA's is
    that of the run, so that who starts later trusts the CA of then."""
    (folder / TOKEN_FILE).write_text(where.tokens(name)[0])
    told = kubeconfigs.kubeconfig(proxy.url, "")
    told["users"][0]["user"] = {"tokenFile": str(folder / TOKEN_FILE)}
    told["clusters"][0]["cluster"]["certificate-authority"] = str(folder.parent / CA_FILE)
    return kubeconfigs.write(folder / "kubeconfig", told)


def front(authority: Authority, folder: Path) -> ssl.SSLContext:
    """What the proxy serves with: a certificate of this authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server_files(folder))
    return context


def _put(file: Path, data: bytes) -> None:
    """As a kubelet puts files of a pod: whole, in the place of the old one."""
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.rename(file)


def _outdated(field: Field) -> Refusing:
    """The first tokens of all candidates are no longer taken."""
    old = {field.stage.ground.tokens(one.name)[0] for one in field.stage.supervisor.candidates()}
    return Refusing(401, matches=lambda asked: asked.token in old)


@contextmanager
def rotated_token(field: Field) -> Iterator[None]:
    """As by a kubelet: the new one is in the file before the old one ends, which stays so."""
    for one in field.stage.supervisor.running():
        _put(one.log_file.parent / TOKEN_FILE, field.stage.ground.tokens(one.name)[1].encode())
    field.proxy.network = bad = _outdated(field)
    field.proxy.cut()
    yield
    field.notes.append(f"{bad.met} requests with the old token")


@contextmanager
def empty_token(field: Field) -> Iterator[None]:
    """The file is empty, and the old token is refused from now on; at last the new one is there."""
    running = field.stage.supervisor.running()
    for one in running:
        (one.log_file.parent / TOKEN_FILE).write_bytes(b"")
    field.proxy.network = bad = _outdated(field)
    field.proxy.cut()
    yield
    for one in running:
        _put(one.log_file.parent / TOKEN_FILE, field.stage.ground.tokens(one.name)[1].encode())
    field.notes.append(f"{bad.met} requests refused")
    field.check(bad.met > 0, "no request met the fault")


@contextmanager
def rotated_ca(field: Field) -> Iterator[None]:
    """The server gets a certificate of a new CA at once, and the file with the CA follows at the
    fault's end."""
    new = Authority("next-ca")
    folder = field.stage.supervisor.candidates()[0].log_file.parent.parent
    field.proxy.serve_with(front(new, folder))
    field.proxy.cut()
    yield
    _put(folder / CA_FILE, new.pem)


# ---- many


@contextmanager
def crowd(field: Field) -> Iterator[None]:
    """All machines are there; their Nodes are made as fast as the server takes them."""
    first = 4096
    for number in range(field.size):
        field.add_machine(f"crowd-{number}", first + number)

    begun = time.monotonic()
    each(lambda number: field.api.create(NODES, node(f"crowd-{number}", first + number)), range(field.size))
    field.notes.append(f"{field.size} nodes in {time.monotonic() - begun:.0f} s")
    yield
