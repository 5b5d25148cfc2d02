"""`python -m cloudprovider check --services`: which Services a provider would refuse, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InvalidService
from cloudprovider.commands.cli import main
from cloudprovider.testing.fake.loadbalancers import FakeLoadBalancers


def _service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "nodePort": 30080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"type": "LoadBalancer", "ports": ports, **spec},
    }


def _check(_self: object, service: V1Service) -> None:
    assert service.spec is not None
    if service.spec.session_affinity == "ClientIP":
        raise InvalidService("no session affinity")
    if service.spec.session_affinity == "Broken":
        raise KeyError("affinity")


@pytest.fixture(autouse=True)
def checking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeLoadBalancers, "check_service", _check)


def run(file: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, list[str], list[str]]:
    """The exit code, what is wrong, and what else was said of the Services."""
    code = main(["check", "fake", f"--services={file}", "--output=json", "--offline", *flags])
    steps = [step for step in json.loads(capsys.readouterr().out)["steps"] if step["step"] == "services"]
    wrong = [step["problem"]["what"] for step in steps if step["problem"]]
    return code, wrong, [step["text"] for step in steps if not step["problem"]]


@pytest.mark.row("P1")
def test_of_all_services_those_that_would_be_refused_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [_service("inside", type="ClusterIP"), _service("other", loadBalancerClass="example.com/x")]
    listed = [_service("web"), _service("sticky", sessionAffinity="ClientIP"), *others]
    documents = [{"kind": "List", "items": listed}, {"kind": "ConfigMap"}, None, _service("api")]
    (file := tmp_path / "services.yaml").write_text(yaml.safe_dump_all(documents))
    code, wrong, said = run(file, capsys)
    assert (code, wrong) == (1, ["Service shop/sticky would be refused: no session affinity"])
    assert said == ["2 of 3 Services with a load balancer would be built"]
    file.write_text(json.dumps(_service("web")))
    assert run(file, capsys) == (0, [], ["1 of 1 Services with a load balancer would be built"])
    file.write_text(json.dumps(_service("web", sessionAffinity="Broken")))
    code, [one], said = run(file, capsys)
    assert code == 1
    assert "KeyError" in one
    assert said == ["0 of 1 Services with a load balancer would be built"]


@pytest.mark.parametrize(
    ("given", "expected"), [("", 1), ('""', 1), ("example.com/x", 2), ('example.com/x,""', 3), ("example.com/y", 0)]
)
def test_those_of_the_managers_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, expected: int
) -> None:
    classed = [_service(name, loadBalancerClass="example.com/x") for name in ("a", "b")]
    (file := tmp_path / "services.yaml").write_text(yaml.safe_dump_all([_service("web"), *classed]))
    _, _, said = run(file, capsys, f"--load-balancer-classes={given}")
    assert said == [f"{expected} of {expected} Services with a load balancer would be built"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no YAML"),
        ("- 1", "has a document that is no object"),
        ('{"kind": "Service", "spec": {"ports": 1}}', "malformed"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str) -> None:
    (file := tmp_path / "services.yaml").write_text(text)
    code, [wrong], _ = run(file, capsys)
    assert code == 1
    assert why in wrong
    code, [wrong], _ = run(tmp_path / "none.yaml", capsys)
    assert (code, "cannot be read" in wrong) == (1, True)


def test_a_provider_without_load_balancers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config := tmp_path / "fake.json").write_text(json.dumps({"capabilities": ["instances_v2"]}))
    code, wrong, said = run(tmp_path / "any.yaml", capsys, f"--cloud-config={config}")
    assert (code, wrong, said) == (0, [], ["the provider has no load balancers"])
