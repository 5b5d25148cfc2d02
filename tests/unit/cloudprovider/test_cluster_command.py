"""`python -m cloudprovider cluster`: its arguments, what it tells, and its kubeconfig."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudprovider.commands.cli import main
from cloudprovider.commands.cluster import News
from cloudprovider.internal.patching import STRATEGIC_PATCH
from cloudprovider.testing import objects
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.kubelets import Kubelets
from cloudprovider.testing.waiting import eventually
from tests.support.api import API, NODES

SERVICES = "/api/v1/services"


def served(path: Path) -> API:
    """A client by the kubeconfig alone."""
    config = json.loads(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca = path.with_name("ca.crt")
    ca.write_bytes(b64decode(cluster["certificate-authority-data"]))
    return API(cluster["server"], user["token"], ca)


def during(path: Path, look: Callable[[], object]) -> threading.Thread:
    """Does that as soon as the kubeconfig is there, then presses Ctrl-C."""

    def run() -> None:
        try:
            eventually(path.is_file, 20, "no kubeconfig was written")
            look()
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_it_serves_until_ctrl_c_and_can_be_started_again_on_the_same_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    seen: list[object] = []

    def look() -> None:
        api = served(path)
        seen.append([(one["metadata"]["name"], one["spec"].get("providerID")) for one in api.get(NODES)["items"]])
        seen.append([one["metadata"]["name"] for one in api.get(SERVICES)["items"]])
        seen.append(stat.S_IMODE(path.stat().st_mode))
        seen.append(json.loads(path.read_text())["users"][0]["user"]["token"])

    for _ in range(2):
        thread = during(path, look)
        given = ["--nodes=1", "--node=web-1=acme://1", "--service=web", "--token=secret"]
        assert main(["cluster", f"--kubeconfig={path}", *given]) == 0
        thread.join()
        assert seen == [[("node-1", None), ("web-1", "acme://1")], ["kubernetes", "web"], 0o600, "secret"]
        assert not path.exists()
        seen.clear()
    out = capsys.readouterr().out
    assert f"--kubeconfig={path} --leader-elect=false" in out
    assert out.endswith("The cluster has ended.\n")
    assert "secret" not in out


def test_a_kubeconfig_that_took_the_place_of_ours_stays(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    thread = during(path, lambda: path.write_text("mine"))
    assert main(["cluster", f"--kubeconfig={path}"]) == 0
    thread.join()
    assert path.read_text() == "mine"


def test_what_an_interrupted_start_left_is_replaced(tmp_path: Path) -> None:
    with EmbeddedAPIServer() as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig")
    before = path.read_bytes()
    seen: list[int] = []

    def look() -> None:
        eventually(lambda: path.read_bytes() != before, 20, "the old kubeconfig is still there")
        seen.append(len(served(path).get(NODES)["items"]))

    thread = during(path, look)
    assert main(["cluster", f"--kubeconfig={path}", "--nodes=3"]) == 0
    thread.join()
    assert seen == [3]


@pytest.mark.parametrize("content", ["apiVersion: v1\nkind: Config\ncurrent-context: mine\n", "{}", "[]"])
def test_nobodys_own_kubeconfig_is_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    assert main(["cluster", f"--kubeconfig={path}"]) == 2
    assert "was not written by this command. Fix: give another file with --kubeconfig" in capsys.readouterr().err
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("given", "code", "what"),
    [
        (["--nodes=251"], 2, "a cluster has 0 to 250 nodes"),
        (["--nodes=-1"], 2, "a cluster has 0 to 250 nodes"),
        (["--nodes=1", "--node=node-1"], 2, "two nodes are named node-1"),
        (["--node=Web_1"], 2, "the node name 'Web_1' must be a DNS name"),
        (["--service=Web_1"], 2, "--service=Web_1: "),
        (["--service=web", "--service=web"], 2, "--service=web: "),
        (["--port=65536"], 2, "must be from 0 (a free one) to 65535"),
        (["--port=http"], 2, "must be from 0 (a free one) to 65535"),
        (["--kubeconfig=no/where"], 1, "there is no folder "),
        (["--silence=web-1"], 1, "there is no kubeconfig kubeconfig. Fix: start the cluster first"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    code: int,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cluster", *given]) == code
    assert what in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_kubelet_falls_silent_in_a_cluster_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kubeconfig"
    with EmbeddedAPIServer(tls=True) as server:
        server.write_kubeconfig(path)
        Kubelets(server).join("web-1")
        assert main(["cluster", f"--kubeconfig={path}", "--silence=web-1"]) == 0
        [ready] = [one for one in server.get("nodes", "web-1")["status"]["conditions"] if one["type"] == "Ready"]
        assert ready["status"] == "Unknown"
        assert main(["cluster", f"--kubeconfig={path}", "--silence=web-2"]) == 1
        assert "the cluster has no node web-2" in capsys.readouterr().err
    assert main(["cluster", f"--kubeconfig={path}", "--silence=web-1"]) == 1
    assert "does not answer (MaxRetryError). Fix: start the cluster first" in capsys.readouterr().err


def test_another_clusters_nodes_are_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\ncurrent-context: production\n")
    assert main(["cluster", f"--kubeconfig={path}", "--silence=web-1"]) == 2
    assert "another cluster's nodes are not touched" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["cluster", f"--kubeconfig={tmp_path / 'k'}", f"--port={port}"]) == 1
    told = capsys.readouterr().err
    assert f"the API server cannot listen on port {port}: Address already in use" in told
    assert "Fix: choose another --port" in told
    assert not list(tmp_path.iterdir())


def test_news_tell_what_a_manager_did() -> None:
    server, news = EmbeddedAPIServer(), News()
    kubelets = Kubelets(server)
    kubelets.join("a")
    server.create(objects.service("web"))
    assert news.lines(server) == [
        "node a: waits for its cloud provider", "Service default/web: waits for its load balancer"
    ]  # fmt: skip
    kubelets.beat()
    assert news.lines(server) == [], "a renewed Lease is no news"
    labels = {"topology.kubernetes.io/zone": "z", "node.kubernetes.io/instance-type": "m"}
    server.patch("nodes", "a", {"metadata": {"labels": labels}, "spec": {"providerID": "acme://1", "taints": None}})
    ingress = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    server.patch("services", "web", {"status": ingress}, subresource="status")
    assert news.lines(server) == ["node a: initialised: acme://1, m, z", "Service default/web: 192.0.2.1"]
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    server.patch("nodes", "a", silent, subresource="status", content_type=STRATEGIC_PATCH)
    assert news.lines(server) == ["node a: initialised: acme://1, m, z, Ready=Unknown"]
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "type": "Warning",
        "reason": "Bad", "message": "it went wrong", "involvedObject": {"kind": "Node", "name": "a"},
    }  # fmt: skip
    server.create(event)
    server.delete("nodes", "a")
    assert news.lines(server) == ["node a: deleted", "Event Bad of Node a: it went wrong"]
    assert news.lines(server) == []


def test_an_event_may_have_no_message() -> None:
    server, news = EmbeddedAPIServer(), News()
    news.lines(server)
    event = {"kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "a"}}
    server.create({**event, "type": "Warning", "reason": "Bad"})
    assert news.lines(server) == ["Event Bad of Node a"]
