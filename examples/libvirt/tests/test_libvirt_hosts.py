"""Several hosts, addresses and configurations: with libvirt's test driver in this process, where a
file has the machines."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from libvirtserver import find_libvirt

from cloudprovider import (
    Call,
    CloudConfig,
    CloudProviderError,
    InstanceNotFound,
    InstanceState,
    InvalidConfig,
    call_scope,
)
from cloudprovider.testing.conformance import new_node

if reason := find_libvirt():
    pytest.skip(reason, allow_module_level=True)

from libvirt_provider import hosts
from libvirt_provider.config import Config
from libvirt_provider.instances import LibvirtInstances
from libvirt_provider.machines import instance_type, provider_id

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- settings: written by tests/test_libvirt_hosts.py -->\n", "<!-- end -->"
UNREACHABLE = "test+unix:///default?socket=/nonexistent"
RUNNING, OFF = 1, 5


def uuid(number: int) -> str:
    return f"6695eb01-f6a4-4304-8aaa-{number:012}"


def domain(name: str, number: int, state: int = RUNNING) -> str:
    return f"""
      <domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>
        <test:runstate>{state}</test:runstate>
        <name>{name}</name><uuid>{uuid(number)}</uuid>
        <memory unit='MiB'>2048</memory><vcpu>2</vcpu><os><type arch='i686'>hvm</type></os>
        <devices>
          <interface type='network'><mac address='52:54:00:00:00:0{number}'/><source network='default'/></interface>
        </devices>
      </domain>"""


_NETWORK = """
      <network><name>default</name><bridge name='virbr0'/>
        <ip address='192.168.122.1' netmask='255.255.255.0'>
          <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp>
        </ip>
      </network>"""


def cloud(
    folder: Path, machines: Mapping[str, str], sources: Sequence[str] = ("agent", "lease"), **more: str
) -> LibvirtInstances:
    """Hosts with these machines, and others by their URIs."""
    uris = dict(more)
    for host, domains in machines.items():
        (folder / f"{host}.xml").write_text(f"<node>{_NETWORK}{domains}</node>")
        uris[host] = f"test://{folder / host}.xml"
    config = Config.model_validate({"hosts": uris, "region": "lab", "address_sources": sources})
    return LibvirtInstances(hosts.Hosts(config), config)


@pytest.mark.parametrize("sources", [("agent", "lease"), ("lease",)])  # to change something, to read
def test_each_machine_is_found_on_its_host(tmp_path: Path, sources: Sequence[str]) -> None:
    instances = cloud(tmp_path, {"a": domain("n1", 1), "b": domain("n2", 2, OFF)}, sources)
    nodes = [new_node("n1"), new_node("n2", provider_id(uuid(2))), new_node("n3")]
    found = instances.instances_metadata(nodes)
    one, two = found["n1"], found["n2"]
    assert not isinstance(one, CloudProviderError)
    assert not isinstance(two, CloudProviderError)
    assert (one.provider_id, one.zone, one.region, one.instance_type) == (provider_id(uuid(1)), "a", "lab", "c2-m2")
    assert [address.type for address in one.node_addresses] == ["InternalIP", "Hostname"]
    assert one.node_addresses[0].address.startswith("192.168.122.")
    assert (two.zone, two.node_addresses) == ("b", ())
    assert isinstance(found["n3"], InstanceNotFound)
    states = instances.instances_state(nodes)
    assert (states["n1"], states["n2"]) == (InstanceState.RUNNING, InstanceState.SHUTDOWN)


def test_while_a_host_is_silent_nothing_is_gone_or_off(tmp_path: Path) -> None:
    instances = cloud(tmp_path, {"a": domain("n1", 1) + domain("n2", 2, OFF)}, b=UNREACHABLE)
    states = instances.instances_state([new_node("n1"), new_node("n2"), new_node("n3")])
    assert states["n1"] is InstanceState.RUNNING
    for name in ("n2", "n3"):
        assert isinstance(states[name], CloudProviderError)
        assert not isinstance(states[name], InstanceNotFound)
        assert "host b" in str(states[name])
    assert instances.instance_exists(new_node("n2"))
    with pytest.raises(CloudProviderError, match="host b"):
        instances.instance_exists(new_node("n3"))
    with pytest.raises(CloudProviderError, match="host b"):
        instances.instance_shutdown(new_node("n2"))


def test_of_a_migrated_machine_the_running_one_counts(tmp_path: Path) -> None:
    instances = cloud(tmp_path, {"a": domain("n1", 1, OFF), "b": domain("n1", 1)})
    node = new_node("n1", provider_id(uuid(1)))
    assert not instances.instance_shutdown(node)
    assert instances.instance_metadata(node).zone == "b"


def test_what_a_migration_left_behind_says_nothing_while_another_host_is_silent(tmp_path: Path) -> None:
    """It has the zone of the host that the machine has left."""
    instances = cloud(tmp_path, {"a": domain("n1", 1, OFF) + domain("n2", 2)}, b=UNREACHABLE)
    with pytest.raises(CloudProviderError, match="host b") as raised:
        instances.instance_metadata(new_node("n1", provider_id(uuid(1))))
    assert not isinstance(raised.value, InstanceNotFound)
    assert instances.instance_metadata(new_node("n2", provider_id(uuid(2)))).zone == "a"


def test_two_machines_of_one_name_are_never_guessed(tmp_path: Path) -> None:
    instances = cloud(tmp_path, {"a": domain("n1", 1), "b": domain("n1", 2)})
    with pytest.raises(CloudProviderError, match="several virtual machines are named n1, on the hosts a, b"):
        instances.instance_metadata(new_node("n1"))
    assert instances.instance_metadata(new_node("n1", provider_id(uuid(2)))).zone == "b"


def test_a_provider_id_of_another_form_is_unknown(tmp_path: Path) -> None:
    instances = cloud(tmp_path, {"a": domain("n1", 1)})
    for foreign in ("libvirt://n1", f"qemu:///{uuid(1)}", "nothing"):
        with pytest.raises(CloudProviderError) as raised:
            instances.instance_exists(new_node("n1", foreign))
        assert not isinstance(raised.value, InstanceNotFound)


def test_a_silent_host_costs_a_bounded_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MOST_LOST", 2)
    path = str(tmp_path / "silent")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen(8)
        host = hosts.Hosts(Config(hosts={"a": f"test+unix:///default?socket={path}"}))
        said = []
        for _ in range(3):
            with call_scope(Call(time.monotonic() + 0.4)):
                answer = host.ask(lambda connection: connection.getLibVersion())["a"]
            said.append(str(answer))
    assert ["did not answer within" in text for text in said] == [True, True, False]
    assert "2 questions are unanswered" in said[2]


@pytest.mark.parametrize(("text", "expected"), [
    ("<vcpu>4</vcpu><memory unit='KiB'>4194304</memory>", "c4-m4"),
    ("<vcpu>1</vcpu><memory unit='GiB'>3</memory>", "c1-m3"),
    ("<vcpu>1</vcpu><memory>524288</memory>", "c1-m0.5"),
    ("<vcpu>1</vcpu><memory unit='XiB'>3</memory>", ""),
    ("<memory>524288</memory>", ""),
])  # fmt: skip
def test_the_type_is_made_of_cpus_and_memory(text: str, expected: str) -> None:
    assert instance_type(ElementTree.fromstring(f"<domain>{text}</domain>")) == expected


@pytest.mark.parametrize(("text", "said"), [
    ("hosts: {}", "hosts"),
    ("hosts: {'a b': 'test:///default'}", "a b"),
    ("hosts: {a: nowhere}", "must be a URI of libvirt's"),
    ("hosts: {a: 'qemu+tls://h/system?pkipath=/x'}", "give pki_path instead of pkipath"),
    ("hosts: {a: 'test:///default'}\nauthfile: /nonexistent", "cannot read /nonexistent"),
])  # fmt: skip
def test_a_mistake_in_the_configuration_is_told(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        Config.load(CloudConfig(path="", data=text.encode()), environ={})


def test_the_files_of_the_credentials_are_told_to_remote_drivers_alone(tmp_path: Path) -> None:
    file = tmp_path / "auth.conf"
    file.touch()
    uris = {"a": "qemu+tls://h/system", "b": "qemu+tcp://h/system?no_tty=1", "c": "test:///default"}
    config = Config(hosts=uris, authfile=str(file), pki_path=str(tmp_path))
    assert config.uri("a") == f"qemu+tls://h/system?authfile={file}&pkipath={tmp_path}"
    assert config.uri("b") == f"qemu+tcp://h/system?no_tty=1&authfile={file}"
    assert config.uri("c") == "test:///default"


def written() -> str:
    """The README with today's table."""
    head, _, rest = README.read_text().partition(BEGIN)
    return f"{head}{BEGIN}{Config.markdown_table()}{END}{rest.partition(END)[2]}"


def test_the_readmes_table_of_settings_is_current() -> None:
    assert README.read_text() == written(), f"run: python {Path(__file__).name}"


def test_the_configuration_that_is_shown_can_be_read(tmp_path: Path) -> None:
    shown = README.read_text().partition("```yaml\n")[2].partition("```")[0]
    text = re.sub(r"/etc/libvirt-client\S*", str(tmp_path), shown)
    assert len(Config.load(CloudConfig(path="", data=text.encode()), environ={}).hosts) == 2


if __name__ == "__main__":
    README.write_text(written())
