# ruff: noqa: E501 - a table
"""The 43 mistakes of a stranger who wrote a provider from the docs: each is told, with what, where
and what next.

Numbered as in his report. Each is one replacement in the small provider of `careless.py`; `check`
or a scenario says what is wrong. The mistakes 32, 35 and 36 are the program's:
`tests/unit/cloudprovider/test_importnames.py`, `tests/unit/plan`,
`tests/unit/cloudcalls/test_gateway.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudprovider.commands.check import check
from tests.support.plugins import write_distribution
from tests.unit.conformance.careless import GOOD, said_by

ENTRY = "acme = acme_module:new_provider"
Checked = Callable[..., str]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """What `check` says of an installed acme-cloud."""
    monkeypatch.syspath_prepend(tmp_path)

    def checked(text: str, entry: str = ENTRY, name: str = "acme", *, config: str = "", timeout: float = 5.0) -> str:
        monkeypatch.delitem(sys.modules, "acme_module", raising=False)
        write_distribution(tmp_path, "acme-cloud", entry, acme_module=text)
        path = tmp_path / "acme.yaml"
        path.write_text(config)
        report = check(name, str(path) if config else "", node="node-1", timeout=timeout)
        return "\n".join(map(str, report.problems))

    return checked


def mistaken(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, (GOOD.count(old), old)
    return GOOD.replace(old, new)


def test_the_provider_is_right(checked: Checked) -> None:
    assert checked(GOOD) == ""
    for scenario in (
        "I2",
        "I8",
        "I12",
        "B1",
        "B2",
        "B9",
        "L2",
        "L4",
        "L13",
        "L18",
        "R1",
        "R8",
        "R14",
        "G9",
        "G11",
        "G12",
    ):
        assert said_by(GOOD, scenario) == "", scenario


@pytest.mark.parametrize(
    ("number", "entry", "name", "told"),
    [
        (1, "acme = acme_modul:new_provider", "acme", r"'acme_modul', which is not installed. Did you mean acme = "),
        (2, "acme = acme_module:make_provider", "acme", r"which .*acme_module.py does not have. Did you mean 'new_provi"),
        (3, "acmes = acme_module:new_provider", "acme", r"unknown cloud provider 'acme'.*Fix: .*installed: .*acmes"),
    ],
)  # fmt: skip
def test_entry_points(checked: Checked, number: int, entry: str, name: str, told: str) -> None:
    assert re.search(told, checked(GOOD, entry, name)), number


_DICT = "return (lambda *values: dict(enumerate(values)))("
RETURN = "    Config.load(config, environ={})\n    return AcmeCloud(CLOUD)"


@pytest.mark.parametrize(
    ("number", "old", "new", "told"),
    [
        (4, RETURN, "    raise RuntimeError('cannot log in, password=hunter22')",
         r"RuntimeError: cannot log in, password=<redacted> \(.*acme_module.py:\d+, in new_provider\). Fix: "),
        (5, "def new_provider(config):", "def new_provider(config=None, *, other):", r"acme_module.py:\d+\) must take one"),
        (6, RETURN, "    AcmeCloud(CLOUD)", r"at .*acme_module.py:\d+ returned None.*is a return statement missing\?"),
        (7, "def instance_shutdown(", "def instance_is_shutdown(",
         r"class Machines \(.*:\d+\) lacks the method InstancesV2.instance_shutdown\(node: V1Node\)"),
        (8, "def delete_route(", "def remove_route(", r"lacks the method Routes.delete_route"),
        (9, "    def instances_state(", "    async def instances_state(", r"is async. Fix: write it as a plain function"),
        (10, "    def routes(self) -> Routes:", "    @property\n    def routes(self) -> Routes:", r"without @property"),
        (11, "def ensure_load_balancer_deleted(self, cluster_name, service):",
         "def ensure_load_balancer_deleted(self, service, cluster):\n        cluster_name = cluster",
         r"acme_module.py:\d+\) has its parameters in another order, and is called by position: 'service' gets the "
         r"cluster_name. Fix: .*in this order: \(cluster_name, service\)"),
        (11, "def list_routes(self, cluster_name):", "def list_routes(self, cluster):", r"'cluster' is 'cluster_name' in"),
        (12, 'return "acme"', 'return "acmes"', r"returns 'acmes', but .* 'acme'. Fix: give both the same name"),
        (13, "        return self.ways", "        self.ways", r"routes\(\) returns None \(.*:\d+\), although its annotation"),
        (14, "        return self.ways", "        return Ways", r"returns the class Ways itself"),
        (15, "        return self.ways", "        return Ways(self.cloud)", r"returns another object each time. Fix: make"),
        (16, 'f"acme://{self.find(node)}"', "self.find(node)",
         r"of node node-1 gave a wrong answer: provider_id 'node-1' does not begin with 'acme://'"),
        (17, "return InstanceMetadata(", _DICT, r"it is of type dict, not InstanceMetadata"),
        (18, "        return InstanceMetadata(", "        InstanceMetadata(", r"it is None, not InstanceMetadata \(is a ret"),
        (25, 'type="InternalIP"', 'type="InternalIp"', r"unknown address type 'InternalIp' \(known: ExternalDNS"),
        (25, '"zone-1"', '"Zone 1 (Berlin)"', r"zone: the value 'Zone 1 \(Berlin\)' must be letters, digits"),
        (28, 'print("hello")', "raise CloudProviderError('GET /v1: session_token=abc-12345678')",
         r"initialize raised CloudProviderError: GET /v1: session_token=<redacted> \(.*:\d+, in initialize\)"),
        (31, "    def status(self):",
         '    def get_load_balancer_name(self, cluster_name, service):\n        return f"a/{service.metadata.uid}" * 10\n\n'
         "    def status(self):", r"load balancer's name 'a/.*\(380 characters\) must have at most 255 letters"),
        (38, 'print("hello")', "threading.Thread(target=threading.Event().wait, args=(3,), name='poller').start()",
         r"threads of the provider still run 2 s after stop was set: poller. Fix: make them daemons"),
        (39, "    Config.load(config, environ={})",
         "    threading.Thread(target=threading.Event().wait, args=(3,), name='poller').start()", r"after stop was set: pol"),
        (43, "class Config(ProviderConfig):", "class Config(ProviderConfig):\n    endpoint: str = ''",
         r"line 1: endpiont: unknown field; did you mean endpoint\?"),
    ],
)  # fmt: skip
def test_told_by_check(checked: Checked, number: int, old: str, new: str, told: str) -> None:
    said = checked(mistaken(old, new), config="endpiont: x\n" if number == 43 else "")
    assert re.search(told, said, re.DOTALL), f"{number}: {said}"


def test_37_an_initialize_that_does_not_end(checked: Checked) -> None:
    said = checked(mistaken('print("hello")', "threading.Event().wait(2)"), timeout=0.1)
    assert "initialize has not answered after 0.1 s" in said
    assert "time_limit()" in said
    assert "retries" in said


@pytest.mark.parametrize("package", ["controllers", "cloudprovider"])
def test_33_a_wheel_with_a_package_of_our_name(checked: Checked, tmp_path: Path, package: str) -> None:
    write_distribution(tmp_path, "other-thing", "x = y:z")
    (tmp_path / "other_thing-1.0.dist-info" / "RECORD").write_text(f"{package}/__init__.py,,\nother/a.py,,\n")
    said = checked(GOOD)
    assert f"other-thing 1.0 brings files into the top-level package '{package}'" in said
    assert f"{package}/__init__.py" in said
    assert "Fix: uninstall it, install kubernetes-cloud-provider again" in said


def test_34_two_distributions_of_one_name(checked: Checked, tmp_path: Path) -> None:
    write_distribution(tmp_path, "acme-ctl", ENTRY)
    assert re.search("is offered more than once: .*acme-ctl 1.0.*Fix: uninstall all but one", checked(GOOD))


UNKNOWN = 'raise CloudProviderError("connection refused")'


@pytest.mark.parametrize(
    ("number", "old", "new", "scenario", "told"),
    [
        (16, 'f"acme://{self.find(node)}"', "self.find(node)", "I2", r"'conf.*' does not begin with 'acme://'"),
        (17, "return InstanceMetadata(", _DICT, "I2", r"it is of type dict, not InstanceMetadata"),
        (17, "return InstanceMetadata(", _DICT, "L2", r"gave a value that is of type dict.*: see I2"),
        (17, "return InstanceMetadata(", _DICT, "R1", r"gave a value that is of type dict.*: see I2"),
        (18, "        return InstanceMetadata(", "        InstanceMetadata(", "L9", r"a value that is None, not.*: see I2"),
        (19, "answers[node_name(node)] = self.instance_metadata(node)",
         "answers[provider_id_of(node)] = self.instance_metadata(node)", "B1", r"says nothing about .*; it has \['acme://"),
        (20, UNKNOWN, 'raise InstanceNotFound("timed out")', "I8", r"instance_exists raised InstanceNotFound.*delete the n"),
        (20, UNKNOWN, 'raise InstanceNotFound("timed out")', "R8", r"list_routes raised .*not asked for. Raise CloudProv"),
        (20, UNKNOWN, 'raise InstanceNotFound("timed out")', "R9", r"create_route raised .*leave it without its route"),
        (20, UNKNOWN, 'raise InstanceNotFound("timed out")', "L25", r"get_load_balancer raised .*Raise CloudProviderError"),
        (21, "def instances_state(self, nodes):\n        answers = {}", "def instances_state(self, nodes, answers={}):",
         "G12", r"instances_state answers with the same dict each time.*default of a parameter"),
        (22, "        name = self.get_load_balancer_name(cluster_name, service)\n        ports",
         "        name = f'lb-{len(self.cloud.balancers)}'\n        ports", "L3", r"for a finished load balancer built \['lb-"),
        (23, ".balancers.pop(self.get_load_balancer_name(cluster_name, service), None)",
         ".balancers.pop(self.get_load_balancer_name(cluster_name, service))", "L21", r"ensure_load_balancer_deleted raised"),
        (24, '            raise CloudProviderError("there is none")', "            pass", "L13",
         r"update_load_balancer returned .*must create none: raise CloudProviderError"),
        (26, "time_limit(least=0.01, margin=0.0)", "5", "I12", r"Give each request a time limit, .*time_limit\(\)"),
        (27, "self.over.wait(time_limit(least=0.01, margin=0.0))",
         "[self.over.wait(time_limit(least=0.01, margin=0.0) if at < 1 else 0.05) for at in range(99)]", "R14",
         r"your client's own retries multiply it: turn them off \(urllib3, requests: retries=False"),
        (28, UNKNOWN, 'raise CloudProviderError("token hunter2-hunter2")', "G9",
         r"the error of instance_exists in an outage shows secret number 1"),
        (29, "Route(cidr, node, cidr)", "Route(cidr, node, cidr.replace('.0/24', '.7/24'))", "R1",
         r"list_routes:.*'10.251.0.7/24' has host bits: write 10.251.0.0/24"),
        (30, "Route(cidr, node, cidr)", "Route(cidr, node, cidr.partition('/')[0])", "R1",
         r"list_routes:.*'10.251.0.0' has no prefix length, as in 10.244.1.0/24"),
        (31, "    def status(self):", "    def get_load_balancer_name(self, cluster_name, service):\n"
         "        return service.metadata.uid * 10\n\n    def status(self):", "L4", r"\(360 characters\) must have at most 255"),
        (38, 'print("hello")', "threading.Thread(target=threading.Event().wait, args=(10,), name='poller').start()", "G11",
         r"started the threads poller, which outlive the stop signal"),
        (40, "return [Route(cidr, node, cidr) for cidr, node in self.cloud.ask().routes.items()]",
         "return []", "R8", r"list_routes answered \[\] while the cloud could not answer: it must raise"),
        (41, UNKNOWN, 'raise ConnectionResetError("urllib3")', "G9", r"instance_exists raised .*turn your client's errors in"),
        (42, "[str(each) for each in load_balancer_source_ranges(service)]", "['0.0.0.0/0']", "L18",
         r"\['0.0.0.0/0'\] may connect; the Service allows \['192.0.2.0/24'\]"),
    ],
)  # fmt: skip
def test_told_by_conformance(number: int, old: str, new: str, scenario: str, told: str) -> None:
    said = said_by(mistaken(old, new), scenario)
    assert re.search(told, said, re.DOTALL), f"{number}: {said}"
    assert not said.startswith(("AttributeError", "TypeError", "KeyError: 'conf")), f"{number}: {said}"


def test_17_what_metadata_spoils_is_not_run_after_it_was_told() -> None:
    assert said_by(mistaken("return InstanceMetadata(", _DICT), "L9", "R1").startswith(
        "skipped: not run: instance_metad"
    )
