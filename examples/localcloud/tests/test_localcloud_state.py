"""The state file: whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from localcloud.model import HealthCheck, LoadBalancer, Machine, Port, Route
from localcloud.state import BadState, State, StateFile

STATE = State(
    machines={"m1": Machine(id="m1", name="a", type="small", region="r", zone="z", address="10.90.0.10",
                            labels={"k": "v"}, user_data="#!/bin/sh\n", external_address="203.0.113.1",
                            taints=("example.com/gpu:NoSchedule",), annotations={"example.com/rack": "7"})},
    routes={"r": Route(name="r", destination="10.91.1.0/24", machine="m1", owner="o")},
    balancers={
        "plain": LoadBalancer(name="plain", owner="o", address="198.51.100.1"),
        "full": LoadBalancer(
            name="full", owner="o", address="198.51.100.2", labels={"a": "b"}, mode="proxy",
            ports=(Port(protocol="TCP", port=80, target_port=30080),), targets=("m1", "m2"), weights={"m1": 2},
            draining=("m2",), source_ranges=("192.0.2.0/24",), affinity="clientIP", affinity_seconds=7,
            health=HealthCheck(port=1, path="/x"),
        ),
    },
    ssh_keys={"root": ("ssh-ed25519 AAAA",)},
    last_machine=7,
)  # fmt: skip


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "new" / "state.json")
    assert file.load() == State()
    file.save(STATE)
    assert file.load() == STATE
    path = tmp_path / "new" / "state.json"
    assert path.stat().st_mode & 0o777 == 0o600, "userData may hold secrets"
    assert [one.name for one in path.parent.iterdir()] == ["state.json"]


def test_a_machine_that_an_older_version_saved_has_no_taints(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    file.save(STATE)
    document = json.loads((tmp_path / "state.json").read_text())
    for name in ("taints", "annotations"):
        del document["machines"]["m1"][name]
    (tmp_path / "state.json").write_text(json.dumps(document))
    assert file.load().machines == {"m1": evolve(STATE.machines["m1"], taints=(), annotations={})}


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StateFile(tmp_path / "state.json")
    file.save(STATE)

    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="No space"):
            file.save(State())
    assert file.load() == STATE


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2}', '{"version": 1}', json.dumps({"version": 1, "machines": {"m1": {"id": "m1"}}})],
)
def test_a_file_that_cannot_be_read_is_no_empty_cloud(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(BadState, match=r"state\.json is not a state .* repair it, or move it away"):
        StateFile(path).load()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"\xff")
    with pytest.raises(BadState, match="cannot be read"):
        StateFile(path).load()
