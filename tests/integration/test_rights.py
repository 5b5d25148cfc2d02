"""The manager as a process under an identity that lacks one right: it says which, once, and does
the rest (row N7).

Over the real API server the identity's ClusterRole is our manifest's less one verb, so the tests
also show that the manager finds nothing else missing there.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.process import Process, Start


def _told(process: Process) -> list[str]:
    """The lines about missing rights."""
    return re.findall(r"^[WE]\d{4} .*missing permission: .*$", process.log, re.MULTILINE)


def _await_told(process: Process, verb: str, resource: str, consequence: str) -> None:
    [line] = eventually(lambda: _told(process), 60, lambda: process.log)
    assert f"resources [{resource}], verbs [{verb}]" in line
    assert consequence in line
    status, text = process.ask("/healthz")
    assert status == 500
    assert text.count(f"[-]rights-{resource} failed") == 1
    assert process.ask("/livez")[0] == 200  # a restart would not help


@pytest.mark.row("N7")
@pytest.mark.parametrize(
    ("verb", "resource", "consequence"),
    [
        ("create", "events", "no Event says"),
        ("delete", "nodes", "nodes whose instance is gone are not deleted"),
    ],
)
def test_a_missing_right_is_named_once_and_costs_only_what_needs_it(
    api: Cluster, start: Start, tmp_path: Path, verb: str, resource: str, consequence: str
) -> None:
    api.create(NODES, small_node("n0"))
    with api.lacking(verb, resource, tmp_path / "restricted") as identity:
        process = start.manager(identity.kubeconfig)
        _await_told(process, verb, resource, consequence)
        eventually(lambda: not is_tainted(api.get(f"{NODES}/n0")), 60, lambda: process.log)
        eventually(lambda: process.ask("/readyz")[0] == 200)
        if resource != "events":
            eventually(lambda: api.reasons("n0") == ["Synced"])
        process.signal(signal.SIGTERM)
        assert process.ended() == 0
    assert len(_told(process)) == 1
    if resource == "events":
        assert api.events_of("n0") == []


@pytest.mark.row("N7", "N9")
def test_a_node_that_waits_for_a_missing_right_says_so_and_gets_well_when_it_is_granted(
    api: Cluster, start: Start, tmp_path: Path
) -> None:
    api.create(NODES, small_node("n0"))
    with api.lacking("patch", "nodes/status", tmp_path / "restricted") as identity:
        process = start.manager(identity.kubeconfig)
        _await_told(process, "patch", "nodes/status", "nodes get no addresses and stay tainted")
        events = eventually(lambda: api.events_of("n0"), 60, lambda: process.log)
        assert events[0]["reason"] == "FailedToInitializeNode"
        assert 'cannot patch resource "nodes/status"' in events[0]["message"]
        assert is_tainted(api.get(f"{NODES}/n0"))
        identity.grant()
        eventually(lambda: not is_tainted(api.get(f"{NODES}/n0")), 60, lambda: process.log)
        assert len(_told(process)) == 1
