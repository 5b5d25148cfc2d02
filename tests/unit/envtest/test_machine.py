"""What a host lacks to be a node is said all at once, with how to install it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.envtest.build import AssetsMissing, kubelet
from tests.envtest.machine import check_machine


def test_all_that_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/lib/ci/cache")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(AssetsMissing) as caught:
        check_machine()
    message = str(caught.value)
    for said in ("apt-get install containerd", "apt-get install util-linux", "as root (sudo)", "XDG_CACHE_HOME"):
        assert said in message


def test_a_kubelet_among_the_assets_wins_and_without_go_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssetsMissing, match="Go toolchain"):
        kubelet()
    (tmp_path / "kubelet").touch()
    assert kubelet() == tmp_path / "kubelet"
