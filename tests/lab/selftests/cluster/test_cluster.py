"""What a cluster refuses before it touches anything. That it works is seen by `make cluster`."""

import fcntl
from pathlib import Path

import pytest
from localcloud.layout import BadLayout

from tests.lab.cluster import cluster as module
from tests.lab.cluster.cluster import Cluster, ClusterError
from tests.lab.cluster.options import Options
from tests.lab.cluster.provider import BadProvider


def test_a_second_cluster_of_one_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "check_host", lambda folders, *, programs_built: None)
    cluster = Cluster(Options(folder=tmp_path))
    with (tmp_path / "lc.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ClusterError, match="a cluster with the name lc runs already; its kubeconfig: ") as refused:
            cluster.start()
    assert str(tmp_path / "lc" / "kubeconfig") in str(refused.value)
    cluster.stop()  # nothing is its own
    assert [path.name for path in tmp_path.iterdir()] == ["lc.lock"]


def test_wrong_options_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadLayout):
        Cluster(Options(base="10.300"))
    with pytest.raises(BadProvider):
        Cluster(Options(provider=tmp_path))


def test_a_cluster_that_does_not_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="does not run"):
        _ = Cluster(Options(folder=tmp_path)).api
