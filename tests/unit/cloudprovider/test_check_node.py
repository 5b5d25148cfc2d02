"""`python -m cloudprovider check --node`: one machine, what its Node would get, and what is wrong
with the answers; over the fake cloud, an installed provider, and the embedded API server."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.commands.cli import main
from cloudprovider.testing import objects
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from tests.support.plugins import write_distribution

WEB = {
    "name": "web-1", "type": "small", "zone": "z-1", "region": "r",
    "addresses": {"InternalIP": "10.0.0.1", "ExternalIP": "192.0.2.1"}, "labels": {"team": "a"},
}  # fmt: skip
LABELS = {
    "beta.kubernetes.io/instance-type": "small",
    "failure-domain.beta.kubernetes.io/region": "r",
    "failure-domain.beta.kubernetes.io/zone": "z-1",
    "node.kubernetes.io/instance-type": "small",
    "topology.kubernetes.io/region": "r",
    "topology.kubernetes.io/zone": "z-1",
}
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Asks about a node of the fake cloud; returns the exit code and the JSON."""

    def run(*argv: str, machine: dict[str, Any] | None = None, **settings: Any) -> tuple[int, Any]:
        config = tmp_path / "fake.json"
        config.write_text(json.dumps({"instances": [WEB | (machine or {})], **settings}))
        code = main(["check", "fake", f"--cloud-config={config}", "--output=json", *argv])
        return code, json.loads(capsys.readouterr().out)

    return run


def problems(report: Any) -> list[str]:
    return [step["problem"]["what"] for step in report["steps"] if step["problem"]]


def test_what_a_node_would_get_is_told(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run("--node=web-1")
    assert (code, problems(report)) == (0, [])
    assert report["node"] == {
        "providerID": "fake://i-web-1",
        "labels": {**LABELS, "team": "a"},
        "annotations": {},
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "192.0.2.1"}
        ],
        "taints": [],
    }  # fmt: skip
    assert main(["check", "fake", f"--cloud-config={tmp_path / 'fake.json'}", "--node=web-1"]) == 0
    out = capsys.readouterr().out
    assert "instance_exists of node web-1: answered True" in out
    assert "would have the addresses InternalIP 10.0.0.1, ExternalIP 192.0.2.1" in out
    assert "  topology.kubernetes.io/zone=z-1" in [line[25:] for line in out.splitlines()]


def test_a_machine_that_is_not_there_is_one_problem(run: Run) -> None:
    assert run()[1]["node"] is None, "without a node nothing is foretold"
    for argv, name in ((["--node=web-2"], "web-2"), (["--node=web-1", "--provider-id=fake://other"], "web-1")):
        code, report = run(*argv)
        assert (code, problems(report)) == (1, [f"the cloud has no machine of node {name}"])
        assert report["node"] is None


def test_a_machine_that_is_switched_off(run: Run) -> None:
    code, report = run("--node=web-1", machine={"shutdown": True})
    assert (code, report["node"]["taints"]) == (0, [SHUTDOWN])
    code, report = run("--node=web-1", machine={"shutdown": True}, capabilities=["instances_batch"])
    assert (code, report["node"]["taints"]) == (0, [SHUTDOWN])


def test_a_provider_with_the_older_interfaces(run: Run) -> None:
    code, report = run("--node=web-1", capabilities=["instances", "zones"])
    assert (code, problems(report)) == (0, [])
    assert report["node"]["providerID"] == "fake://i-web-1"
    assert report["node"]["labels"] == LABELS


def test_taints_and_annotations_of_the_machine_are_told(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = {"taints": [["example.com/gpu", "a100", "NoSchedule"]], "annotations": {"example.com/console": "web"}}
    code, report = run("--node=web-1", machine=machine)
    assert (code, problems(report)) == (0, [])
    assert report["node"]["taints"] == ["example.com/gpu"]
    assert report["node"]["annotations"] == {"example.com/console": "web"}
    main(["check", "fake", f"--cloud-config={tmp_path / 'fake.json'}", "--node=web-1"])
    out = capsys.readouterr().out
    assert "would get the annotations" in out
    assert "example.com/console=web\n" in out


def test_a_label_that_the_manager_refuses_is_a_problem(run: Run) -> None:
    code, report = run("--node=web-1", machine={"labels": {"a.k8s.io/b": "c"}}, capabilities=["instances_v2"])
    assert code == 1
    (problem,) = problems(report)
    assert "'a.k8s.io/b' is reserved for Kubernetes" in problem
    assert [step["text"] for step in report["steps"] if step["step"] == "node"] == [
        "what it would get is not known without right metadata of its machine"
    ]


WRONG = """
from cloudprovider import InstanceMetadata, InstancesV2, Interface

class AcmeCloud(Interface, InstancesV2):
    def provider_name(self):
        return "acme"
    def instances_v2(self):
        return self
    def instance_exists(self, node):
        return True
    def instance_shutdown(self, node):
        return 0
    def instance_metadata(self, node):
        return InstanceMetadata(provider_id="acme://2", zone="not a label")

def new_provider(config):
    return AcmeCloud()
"""


def test_every_fault_of_the_answers_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wrong_module", raising=False)
    write_distribution(tmp_path, "acme-cloud", "acme = wrong_module:new_provider", wrong_module=WRONG)
    asked = ["check", "acme", "--node=a", "--output=json"]
    assert main(asked) == 1
    whole = [step["problem"] for step in json.loads(capsys.readouterr().out)["steps"] if step["problem"]]
    assert [one["what"] for one in whole] == [
        "instance_shutdown of node a gave a wrong answer: it is of type int, not bool",
        "instance_metadata of node a gave a wrong answer",
    ]
    assert len(whole[1]["details"]) == 2  # the zone, and no address at all
    (tmp_path / "wrong_module.py").write_text(
        textwrap.dedent(WRONG).replace('zone="not a label"', 'node_addresses=(A(type="Hostname", address="a"),)')
        + "\nfrom kubernetes.client.models import V1NodeAddress as A\n"
    )
    monkeypatch.delitem(sys.modules, "wrong_module", raising=False)
    assert main([*asked, "--provider-id=acme://1"]) == 1
    assert "it is of acme://2, and the node's provider ID is acme://1" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "wrong_module", raising=False)
    main([*asked, "--provider-id=acme://2"])
    assert json.loads(capsys.readouterr().out)["node"]["providerID"] == "acme://2"


def test_the_node_is_taken_from_its_cluster(run: Run, tmp_path: Path) -> None:
    with EmbeddedAPIServer(tls=True) as server:
        kubeconfig = f"--kubeconfig={server.write_kubeconfig(tmp_path / 'kubeconfig')}"
        server.create(objects.node("web-1", provider_id="fake://i-web-1"))
        code, report = run("--node=web-1", kubeconfig)
        assert (code, problems(report)) == (0, [])
        assert report["node"]["addresses"][-1] == {"type": "Hostname", "address": "web-1"}
        assert report["node"]["taints"] == ["node.kubernetes.io/not-ready"]
        asked = {"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"}}}
        server.patch("nodes", "web-1", asked)
        code, report = run("--node=web-1", kubeconfig)
        assert code == 1
        assert problems(report)[0].startswith("node web-1 would stay tainted: ")
        version = server.version
        code, report = run("--node=web-2", kubeconfig)
        assert (code, server.version) == (1, version)
        assert problems(report)[0].endswith("/kubeconfig: the API server answered 404 Not Found")
    code, report = run("--node=web-1", f"--kubeconfig={tmp_path / 'no-file'}")
    assert code == 1
    assert "node web-1 cannot be read" in problems(report)[0]


@pytest.mark.parametrize("content", ["a: [b\n", "[]", "x", "current-context: a\ncontexts: 5\n", "\0"])
def test_a_file_that_is_no_kubeconfig_is_told(run: Run, tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    code, report = run("--node=web-1", f"--kubeconfig={path}")
    assert code == 1
    (problem,) = problems(report)
    assert problem.startswith(f"node web-1 cannot be read from the cluster of {path}: ")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (["--provider-id=fake://1"], "need --node"),
        (["--kubeconfig=k"], "need --node"),
        (["--node=a", "--kubeconfig=k", "--provider-id=fake://1"], "exclude each other"),
        (["--node=a", "--offline"], "--offline forbids it"),
    ],
)
def test_wrong_usage(given: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "fake", *given]) == 2
    assert what in capsys.readouterr().err
