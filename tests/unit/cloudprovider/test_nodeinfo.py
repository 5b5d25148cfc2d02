"""`python -m cloudprovider node-info`: what a kubelet is started with, over the fake cloud and its
faults."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from attrs import evolve
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from cloudprovider.checks import answers
from cloudprovider.commands.asking import Failure
from cloudprovider.commands.cli import main
from cloudprovider.commands.kubelet import is_here, node_ips, node_labels, rendered
from cloudprovider.commands.nodeinfo import NodeInfo, TimeLimit
from cloudprovider.helpers import kubelet_may_set, node_name_problems
from cloudprovider.testing.fake import Action, FakeCloud, FakeConfig, Strike, hangs, raises
from cloudprovider.testing.fake import answers as says
from cloudprovider.testing.fake.methods import Patterns
from tests.support.plugins import write_distribution

NAME = "boot-1"
TYPE = "node.kubernetes.io/instance-type=m-2"
PLACE = "topology.kubernetes.io/region=north,topology.kubernetes.io/zone=north-1"
FLAGS = [
    f"--hostname-override={NAME}",
    "--provider-id=fake://i-boot-1",
    "--node-ip=127.0.0.9",
    f"--node-labels={TYPE},{PLACE},acme.example/rack=r7",
]
MACHINE: dict[str, Any] = {
    "name": NAME,
    "type": "m-2",
    "zone": "north-1",
    "region": "north",
    "addresses": {"InternalIP": "192.0.2.7"},
    "labels": {"acme.example/rack": "r7", "node-role.kubernetes.io/worker": "x"},
}
ONCE = ("--timeout=4", "--retry-period=5")
"""There is time for one try, and none for another."""
Boot = Callable[..., tuple[int, str, str]]


@pytest.fixture
def boot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Boot]:
    """Runs node-info over a fake cloud with these settings; returns exit code, output and
    errors."""

    def boot(
        *argv: str, fault: tuple[Patterns, Action] | None = None, times: int | None = None, **settings: Any
    ) -> tuple[int, str, str]:
        made = FakeConfig.model_validate({"instances": [MACHINE], "machine": NAME, **settings})
        cloud = ends.enter_context(FakeCloud(made))
        config = cloud.share(tmp_path / "cloud.json")
        if fault is not None:
            cloud.faults.on(*fault, times=times)
        hurry = ["--timeout=5", "--retry-period=0.01"]
        code = main(["node-info", "--cloud-provider=fake", f"--cloud-config={config}", *hurry, *argv])
        out, err = capsys.readouterr()
        return code, out, err

    with ExitStack() as ends:
        yield boot


def info(**fields: Any) -> NodeInfo:
    return NodeInfo("acme", "node-1", InstanceMetadata(**fields), "local_instance")


# Where the answer comes from


def without_ip(flags: list[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("--node-ip")]


def test_from_the_machine_itself_without_initialize(boot: Boot) -> None:
    code, out, err = boot(fault=(("initialize", "instance*"), raises()))
    assert code == 0, err
    assert shlex.split(out) == without_ip(FLAGS)
    assert "no --node-ip: no interface of this machine has the internal address" in err
    assert "no kubelet may set the provider's labels node-role.kubernetes.io/worker: left out" in err


def test_the_providers_own_labels_can_be_left_to_the_manager(boot: Boot) -> None:
    code, out, err = boot("--without-additional-labels")
    assert code == 0
    assert shlex.split(out)[-1] == f"--node-labels={TYPE},{PLACE}"
    assert "left out" not in err


def test_the_operators_choice_of_addresses_is_the_managers(boot: Boot) -> None:
    two = [("InternalIP", "127.0.0.7"), ("InternalIP", "127.0.0.9"), ("InternalIP", "::1"), ("Hostname", NAME)]
    machine = {**MACHINE, "addresses": two}
    choice = ("--node-address-families=ipv6,ipv4", "--node-address-exclude=127.0.0.0/29")
    code, out, _ = boot("-o", "json", *choice, instances=[machine])
    assert code == 0
    assert [one["address"] for one in json.loads(out)["addresses"]] == ["::1", "127.0.0.9", NAME]
    code, _, err = boot("--node-address-families=ipv5")
    assert code == 2
    assert "must be ipv4 or ipv6" in err


@pytest.mark.parametrize("capabilities", [["instances_v2"], ["instances_batch"], ["instances", "zones"]])
def test_else_from_the_instances_by_the_hosts_name(boot: Boot, capabilities: list[str]) -> None:
    settings = {"machine": "", "zone": "north-1", "region": "north"}
    code, out, err = boot("--hostname", " Boot-1 ", "-o", "json", **settings, capabilities=capabilities)
    assert code == 0, err
    told = json.loads(out)
    assert told.pop("source") == capabilities[0]
    labels = told.pop("labels")
    older = "instances" in capabilities
    assert ("acme.example/rack" in labels) is not older, "the older form has no additional labels"
    assert (told["nodeName"], told["providerID"]) == (NAME, "fake://i-boot-1")
    assert (told["instanceType"], told["zone"], told["region"]) == ("m-2", "north-1", "north")
    assert told["addresses"][0] == {"type": "InternalIP", "address": "192.0.2.7"}


def test_the_older_zones_need_know_no_name_where_the_program_runs_there_and_are_asked_by_it_elsewhere(
    boot: Boot,
) -> None:
    for fault, settings in (
        (("get_zone_by_*", raises(NotImplementedByProvider)), {"machine": "", "zone": "north-1", "region": "north"}),
        (None, {}),
    ):
        older: dict[str, Any] = {"capabilities": ["instances", "zones"], **settings}
        code, out, err = boot("--hostname", NAME, "-o", "json", **older, fault=fault)
        assert code == 0, err
        assert (json.loads(out)["zone"], json.loads(out)["region"]) == ("north-1", "north")


@pytest.mark.parametrize(
    ("settings", "error", "code", "told"),
    [
        ({"capabilities": ["load_balancer"]}, None, 1, "provider 'fake' has no instances"),
        ({"machine": "elsewhere"}, None, 3, "no instance of it: InstanceNotFound: no instance elsewhere"),
        ({}, CloudProviderError("busy"), 4, "no complete answer after 4 s and 1 try: CloudProviderError: busy"),
        ({}, asyncio.CancelledError("token=hunter2"), 4, "1 try: CancelledError: token=<redacted>"),
    ],
    ids=["no instances", "no instance of the cloud", "time runs out", "what is no exception"],
)
def test_how_a_boot_without_an_answer_ends(
    boot: Boot, settings: dict[str, Any], error: BaseException | None, code: int, told: str
) -> None:
    ended, out, err = boot(*ONCE, fault=("local_metadata", raises(error)) if error else None, **settings)
    assert (ended, out) == (code, "")
    assert told in err
    assert "attempt" not in err, "what no other try can mend is told at once"


# The cloud does not answer, or says no


def test_it_asks_again_until_the_service_answers(boot: Boot) -> None:
    busy = ("local_metadata", raises(TimeoutError(f"{NAME} is busy")))
    machine = {"name": NAME, "addresses": {"Hostname": NAME}}
    code, out, err = boot(instances=[machine], fault=busy, times=2)
    assert code == 0
    assert shlex.split(out)[0] == FLAGS[0]
    tries = [line.partition("; ")[0] for line in err.splitlines()]
    wanted = [f"node-info: attempt {number}: TimeoutError: {NAME} is busy" for number in (1, 2)]
    assert tries == wanted, "a name is no secret"


def test_a_service_that_hangs_costs_the_time_and_no_more(boot: Boot) -> None:
    code, out, err = boot("--timeout=0.4", fault=("local_metadata", hangs(60)))
    assert (code, out) == (4, "")
    assert "no answer in time" in err
    left = [thread for thread in threading.enumerate() if thread.name == "provider-call"]
    assert left, "the call goes on"
    assert all(thread.daemon for thread in left), "and does not keep the process"


@pytest.mark.parametrize("capability", ["instances_v2", "instances_batch", "instances"])
def test_by_name_a_new_machine_may_be_listed_late(boot: Boot, capability: str) -> None:
    def late(strike: Strike) -> object:
        error = InstanceNotFound("not listed yet")
        if strike.method == "instances_metadata":
            return {NAME: error}
        raise error

    fault = (("instance_metadata", "instances_metadata", "instance_id"), late)
    code, out, err = boot("--hostname", NAME, capabilities=[capability], fault=fault, times=1)
    assert code == 0, err
    assert "attempt 1: InstanceNotFound" in err
    code, out, err = boot("--hostname", NAME, *ONCE, capabilities=[capability], fault=fault)
    assert (code, out) == (3, "")
    assert "this machine is no instance of it" in err


def test_the_cloud_says_when_to_ask_again() -> None:
    pauses: list[float] = []
    limit = TimeLimit(60.0, 2.0, now=lambda: 0.0, pause=pauses.append, tell=lambda _: None)
    answers = iter([Throttled("slow down", 5.0), RetryError("soon", 1.0), TimeoutError()])

    def ask() -> str:
        for error in answers:
            raise error
        return "answer"

    assert limit.until_answered(ask, str, str) == "answer"
    assert pauses == [5.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "junk",
    [
        None,
        "junk",
        InstanceMetadata(),
        lambda truth: evolve(truth, node_addresses=[V1NodeAddress(type="InternalIP", address="not-an-address")]),
        lambda truth: evolve(truth, node_addresses=[V1NodeAddress(type="Satellite", address="10.0.0.1")]),
        lambda truth: evolve(truth, provider_id="no provider id"),
        lambda truth: evolve(truth, additional_labels={"-bad key-": "x"}),
        lambda truth: evolve(truth, additional_labels={"acme.example/value": "no blanks allowed!"}),
        lambda truth: evolve(truth, zone="not a label value!"),
    ],
    ids=["none", "type", "empty", "address", "address-type", "provider-id", "label", "label-value", "place"],
)
def test_junk_never_reaches_a_kubelet(boot: Boot, junk: Any) -> None:
    wrong = ("local_metadata", says(junk))
    machine = {"name": NAME, "addresses": {"InternalIP": "192.0.2.7"}}
    code, out, err = boot(*ONCE, instances=[machine], fault=wrong)
    assert (code, out) == (4, "")
    assert "the provider's answer cannot be used" in err
    code, out, err = boot(instances=[machine], fault=wrong, times=1)
    assert code == 0, err
    assert "--provider-id=fake://i-boot-1" in out


@pytest.mark.parametrize(
    ("method", "junk", "told"),
    [
        ("instance_id", None, "instance_id gave an unusable answer: it is None, not text"),
        ("get_zone", None, "get_zone gave a wrong answer: it is None, not Zone (is a return statement missing?)"),
        ("instances_metadata", [], "instances_metadata gave a wrong answer: it is of type list, not a mapping"),
        ("instances_metadata", {}, "instances_metadata says nothing about boot-1"),
    ],
)
def test_junk_by_name_never_reaches_a_kubelet(boot: Boot, method: str, junk: Any, told: str) -> None:
    capabilities = ["instances_batch"] if method.startswith("instances_") else ["instances", "zones"]
    settings = {"capabilities": capabilities, "machine": "", "zone": "north-1"}
    code, out, err = boot(*ONCE, "--hostname", NAME, **settings, fault=(method, lambda _: junk))
    assert (code, out) == (4, ""), err
    assert told in err


STUBBORN = """
from cloudprovider import InstanceMetadata, InstancesV2, Interface, LocalInstance
from cloudprovider import InvalidConfig, NotImplementedByProvider


class Needy(Interface):
    def provider_name(self):
        return "stubborn"

    def initialize(self, client_builder, stop):
        client_builder.client("stubborn")


class Silent(Interface, LocalInstance):
    def provider_name(self):
        return "stubborn"

    def local_instance(self):
        return self

    def local_metadata(self):
        raise NotImplementedByProvider("there is no metadata service here")


class Early(Interface, InstancesV2):
    made = 0

    def __init__(self):
        Early.made += 1
        self.number, self.ready = Early.made, False

    def provider_name(self):
        return "stubborn"

    def initialize(self, client_builder, stop):
        if self.number == 1:
            raise OSError("no route to host")
        self.ready = True

    def instances_v2(self):
        return self

    def instance_metadata(self, node):
        assert self.ready
        return InstanceMetadata(provider_id=f"stubborn://{node.metadata.name}-{self.number}")

    instance_exists = instance_shutdown = instance_metadata


class Loose(Silent):
    def local_instance(self):
        return "the metadata service"


def refuse(config):
    raise InvalidConfig(f"not understood: {config.text()}")
"""


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Boot:
    """Runs node-info with one of these providers, or with a module that cannot be imported."""

    def run(kind: str, *argv: str) -> tuple[int, str, str]:
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "stubborn_module", raising=False)
        module = f"{STUBBORN}\n\ndef new_provider(config):\n    return {kind}()\n" if kind != "Absent" else "1 / 0"
        write_distribution(tmp_path, "stubborn", "stubborn = stubborn_module:new_provider", stubborn_module=module)
        code = main(["node-info", "--cloud-provider=stubborn", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_initialize_is_tried_again_with_a_new_provider(stubborn: Boot) -> None:
    code, out, err = stubborn("Early", "--hostname=node-1", "--retry-period=0.01")
    assert (code, out) == (0, "--hostname-override=node-1 --provider-id=stubborn://node-1-2\n")
    assert err == "node-info: attempt 1: OSError: no route to host; retrying in 0.01 s\n"


def test_a_config_that_is_refused_in_its_own_words_is_wrong_usage(stubborn: Boot, tmp_path: Path) -> None:
    config = tmp_path / "cloud.yaml"
    config.write_text("pin: correct-horse-battery\n")
    code, out, err = stubborn("(lambda: refuse(config))", f"--cloud-config={config}", *ONCE)
    assert (code, out) == (2, "")
    assert "InvalidConfig: not understood: " in err
    assert "horse" not in err


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (
            "Needy",
            "initialize of provider 'stubborn' asks for a client of the cluster, and a machine that boots has none",
        ),
        ("Silent", "the provider cannot tell it: NotImplementedByProvider: there is no metadata service here"),
        ("Loose", "local_instance() of provider 'stubborn' returns a str"),
        ("Absent", "could not be imported"),
    ],
)
def test_what_no_other_try_can_mend_ends_at_once(stubborn: Boot, kind: str, what: str) -> None:
    code, out, err = stubborn(kind)
    assert (code, out) == (1, "")
    assert what in err
    assert "attempt" not in err


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["--cloud-provider=nimbus"], "'nimbus'"),
        (["--cloud-provider=fake", "--cloud-config=absent.yaml"], "there is no cloud config at 'absent.yaml'"),
        (["--cloud-provider=fake", "--cloud-config=cloud.yaml"], "max_batch"),
        (["--cloud-provider=fake", "--resolv-conf=absent.conf"], "absent.conf cannot be read"),
        (["--cloud-provider=fake", "--resolv-conf", "--output=json"], "exclude each other"),
        ([], "--cloud-provider"),
        (["--cloud-provider=fake", "--timeout=0"], "--timeout: must be a number of seconds, more than 0 and"),
        (["--cloud-provider=fake", "--timeout=5m"], "--timeout: must be a number of seconds, more than 0 and"),
    ],
)
def test_wrong_usage(
    argv: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cloud.yaml").write_text("max_batch: many")
    assert main(["node-info", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert what in err


# What is printed

FULL = {
    "provider_id": "acme:///north-1/i-7",
    "instance_type": "m-2",
    "zone": "north-1",
    "region": "north",
    "node_addresses": [V1NodeAddress(type="InternalIP", address="10.0.0.7")],
    "additional_labels": {"acme.example/rack": "r7"},
}


def test_the_configuration_has_the_provider_id_and_names_the_flags() -> None:
    text = rendered("kubelet-config", info(**FULL), ["10.0.0.7"])
    assert yaml.safe_load(text) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "providerID": "acme:///north-1/i-7",
    }
    flags = text.splitlines()[1].removeprefix("#   ")
    assert [flag.partition("=")[0] for flag in shlex.split(flags)] == [
        "--hostname-override",
        "--node-ip",
        "--node-labels",
    ]


def test_the_environment_file_reads_back(tmp_path: Path) -> None:
    odd = {**FULL, "provider_id": "acme://a\"b'c$HOME`d`\\e;f"}
    file = tmp_path / "node.env"
    file.write_text(rendered("env", info(**odd), ["10.0.0.7", "fd00::7"]))
    script = f'. {file}; printf "%s\\n" "$KUBELET_EXTRA_ARGS" "$NODE_PROVIDER_ID" "$NODE_IP" "$NODE_NAME" "$NODE_ZONE"'
    read = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert read[1:] == [odd["provider_id"], "10.0.0.7,fd00::7", "node-1", "north-1"]
    assert shlex.split(read[0])[1:3] == [f"--provider-id={odd['provider_id']}", "--node-ip=10.0.0.7,fd00::7"]


def test_a_provider_id_cannot_add_lines_or_words() -> None:
    for wrong in ("acme://1\nKUBELET_EXTRA_ARGS=--x", "acme://1 --x", "acme://1\x00", "acme://1\x1b[2J"):
        with pytest.raises(answers.WrongAnswer, match=r"has blanks or control characters$"):
            answers.metadata(InstanceMetadata(provider_id=wrong), prefixes=("acme://",))
    answers.metadata(InstanceMetadata(provider_id="acme://1"), prefixes=("acme://",))


def test_what_is_not_known_is_no_flag() -> None:
    assert rendered("flags", info(provider_id="acme://1"), []) == "--hostname-override=node-1 --provider-id=acme://1\n"


def test_the_node_ip_is_the_first_of_each_family_that_a_kubelet_takes() -> None:
    pairs = [
        ("ExternalIP", "203.0.113.7"), ("InternalIP", "169.254.0.7"), ("InternalIP", "fd00::7"),
        ("InternalIP", "10.0.0.9"), ("InternalIP", "10.0.0.7"), ("InternalIP", "fd00::8"), ("Hostname", "a"),
    ]  # fmt: skip
    told = info(node_addresses=[V1NodeAddress(type=kind, address=address) for kind, address in pairs])
    assert node_ips(told, lambda _: True) == ("fd00::7", "10.0.0.9")
    assert node_ips(told, lambda address: address == "10.0.0.7") == ("10.0.0.7",)
    assert node_ips(told, lambda _: False) == ()


def test_an_address_is_here_or_not() -> None:
    assert is_here("127.0.0.1")
    assert not is_here("192.0.2.1")  # nobody's, by RFC 5737
    assert not is_here("2001:db8::1")


@pytest.mark.parametrize(
    ("key", "may"),
    [
        ("acme.example/rack", True),
        ("rack", True),
        ("topology.kubernetes.io/zone", True),
        ("beta.kubernetes.io/instance-type", True),
        ("kubernetes.io/hostname", True),
        ("node.kubernetes.io/anything", True),
        ("a.kubelet.kubernetes.io/x", True),
        ("node-role.kubernetes.io/worker", False),
        ("node-restriction.kubernetes.io/tenant", False),
        ("a.node-restriction.kubernetes.io/tenant", False),
        ("topology.k8s.io/zone", False),
        ("kubernetes.io/role", False),
    ],
)
def test_which_labels_a_kubelet_may_set(key: str, may: bool) -> None:
    assert kubelet_may_set(key) is may
    assert (key in node_labels(info(additional_labels={key: "x"}))) is may


def test_node_names() -> None:
    assert node_name_problems("ip-10-0-0-7.eu-west-1.compute.internal") == ()
    for wrong in ("", "Node", "a_b", "-a", "a.", "a" * 254):
        assert node_name_problems(wrong), wrong


# --write


def test_the_file_is_written_as_a_whole(boot: Boot, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.env"
    file.write_text("old")
    code, out, err = boot("-o", "env", "--write", str(file), machine="elsewhere")
    assert (code, out, file.read_text()) == (3, "", "old")
    code, out, err = boot("-o", "env", "--write", str(file))
    assert (code, out) == (0, ""), err
    assert file.read_text().splitlines()[1] == f'NODE_NAME="{NAME}"'
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cloud.json", "kubelet.env"]


def test_a_file_that_cannot_be_written(boot: Boot, tmp_path: Path) -> None:
    code, out, err = boot("--write", str(tmp_path / "absent" / "kubelet.env"))
    assert (code, out) == (1, "")
    assert "cannot be written: No such file or directory" in err


def test_without_a_config_the_fake_cloud_knows_this_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node-info", "--cloud-provider=fake", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodeName"] == socket.gethostname().lower()


@pytest.mark.parametrize("bug", [UnboundLocalError("machine"), TypeError("no"), NotImplementedError()])
def test_a_mistake_in_the_code_is_told_at_once_with_its_line(bug: Exception) -> None:
    tries: list[object] = []

    def ask() -> str:
        tries.append(1)
        raise bug

    limit = TimeLimit(300.0, 5.0, pause=lambda _: None, tell=tries.append)
    with pytest.raises(Failure) as caught:
        limit.until_answered(ask, str, lambda _: "acme.py:7, in local_metadata")
    assert len(tries) == 1
    assert "the provider's code fails: " in caught.value.problem.what
    assert "(acme.py:7, in local_metadata)" in caught.value.problem.what
    assert "correct that line" in caught.value.problem.fix


@pytest.mark.parametrize("error", [KeyError("zone"), ConnectionError("refused"), CloudProviderError("busy")])
def test_what_may_be_a_bug_has_its_place_at_each_try_and_words_of_network_and_cloud_have_none(error: Exception) -> None:
    tries: list[str] = []
    times = iter(range(100))
    limit = TimeLimit(4.0, 1.0, now=lambda: float(next(times)), pause=lambda _: None, tell=tries.append)

    def ask() -> str:
        raise error

    with pytest.raises(Failure) as caught:
        limit.until_answered(ask, str, lambda _: "acme.py:7, in local_metadata")
    place = " (acme.py:7, in local_metadata)" if isinstance(error, KeyError) else ""
    assert tries[0].startswith(f"attempt 1: {error}{place}; retrying")
    assert f"{error}{place}" in str(caught.value)
    assert place or "acme.py" not in "".join(tries)
