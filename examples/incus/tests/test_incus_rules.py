"""What a node and a Service get, and what configurations are refused: without a server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from incus_provider.config import Config
from incus_provider.forwards import PORTS, TARGET, chosen, free_addresses, marks, same, with_target
from incus_provider.machine import instance_type, metadata, state, target_address, uuid_of
from incus_provider.resources import Forward, Instance
from kubernetes.client.models import V1ServicePort

from cloudprovider import CloudConfig, CloudProviderError, InstanceState, InvalidConfig, InvalidService
from cloudprovider.testing.conformance import new_service

UUID = "090ed3e6-6ffe-4810-a63b-acd1ee4c403a"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- settings: written by tests/test_incus_rules.py -->\n", "<!-- end -->"


def instance(status: str = "Running", **fields: object) -> Instance:
    """A virtual machine with a bridge's and another network device, and a pod's bridge inside."""
    nic = {"type": "nic", "network": "br-nodes", "hwaddr": "00:16:3E:00:00:01"}
    inside = {
        "cni0": {"hwaddr": "6a:00:00:00:00:01", "addresses": [_address("inet", "10.244.1.1")]},
        "enp5s0": {
            "hwaddr": "00:16:3e:00:00:01",
            "addresses": [
                _address("inet", "198.19.240.7"), _address("inet", "198.19.240.250"),
                _address("inet6", "fe80::1", "link"), _address("inet6", "2001:db8::7"),
            ],
        },
        "enp6s0": {"hwaddr": "00:16:3e:00:00:02", "addresses": [_address("inet", "192.0.2.7")]},
    }  # fmt: skip
    given: dict[str, object] = {
        "name": "n1",
        "status": status,
        "config": {"volatile.uuid": UUID, "volatile.a-storage.hwaddr": "00:16:3e:00:00:02"},
        "expanded_devices": {"a-storage": {"type": "nic", "nictype": "macvlan", "parent": "eno2"}, "eth0": nic},
        "state": {"status": status, "network": inside},
    }
    return Instance.model_validate(given | fields)


def _address(family: str, address: str, scope: str = "global") -> dict[str, str]:
    return {"family": family, "address": address, "netmask": "24", "scope": scope}


def addresses(found: Instance) -> list[str]:
    return [one.address for one in metadata("n1", "blue", found, "", "br-nodes").node_addresses]


def test_addresses_are_the_first_of_each_device_the_nodes_network_first() -> None:
    assert addresses(instance()) == ["198.19.240.7", "2001:db8::7", "192.0.2.7", "n1"]
    assert target_address(instance(), "br-nodes") == "198.19.240.7"
    assert target_address(instance(), "another") == ""


def test_without_an_address_nothing_is_said_of_addresses() -> None:
    stopped = instance("Stopped", state={"status": "Stopped", "network": None})
    assert addresses(stopped) == []
    fixed = {"eth0": {"type": "nic", "network": "br-nodes", "ipv4.address": "198.19.240.9"}}
    assert addresses(instance("Stopped", state=None, expanded_devices=fixed)) == ["198.19.240.9", "n1"]


@pytest.mark.parametrize(("cpu", "memory", "expected"), [
    ("4", "8GiB", "c4-m8"), ("0-3,7", "512MiB", "c5-m0.5"), ("2", "2GB", "c2-m1.863"),
    ("2", "50%", ""), ("", "1GiB", ""), ("x-3", "1GiB", ""), ("2", "1PiB", ""),
])  # fmt: skip
def test_the_type_is_made_of_the_limits(cpu: str, memory: str, expected: str) -> None:
    assert instance_type(instance(expanded_config={"limits.cpu": cpu, "limits.memory": memory})) == expected


def test_only_what_is_stopped_is_switched_off() -> None:
    off = [
        one for one in ("Running", "Stopped", "Frozen", "Error", "Starting") if state(instance(one)).name == "SHUTDOWN"
    ]
    assert off == ["Stopped"]
    assert state(instance("Frozen")) is InstanceState.RUNNING


def test_provider_ids_are_of_one_project() -> None:
    assert metadata("n1", "blue", instance(location="m2"), "", "").provider_id == f"incus://blue/{UUID}"
    assert metadata("n1", "blue", instance(location="m2"), "", "").zone == "m2"
    assert uuid_of(f"incus://blue/{UUID}", "blue") == UUID
    for foreign in (f"incus://green/{UUID}", f"lxd://blue/{UUID}", "incus://blue/n1", "nothing"):
        with pytest.raises(CloudProviderError) as raised:
            uuid_of(foreign, "blue")
        assert type(raised.value) is CloudProviderError, "unknown, not gone"
    with pytest.raises(CloudProviderError, match=r"no volatile\.uuid"):
        metadata("n1", "blue", instance(config={}), "", "")


def test_everything_that_a_forward_cannot_do_is_told_at_once() -> None:
    service = new_service("web", "u-1", source_ranges=["192.0.2.0/24"])
    assert service.spec is not None
    service.spec.ports = [V1ServicePort(port=80, protocol="SCTP", node_port=30080), V1ServicePort(port=81)]
    service.spec.ip_families = ["IPv6"]
    service.spec.external_traffic_policy = "Local"
    with pytest.raises(InvalidService) as raised:
        marks("blue", "a1", service)
    assert [one.split()[0] for one in raised.value.problems] == [
        "port", "port", "spec.ipFamilies", "externalTrafficPolicy", "loadBalancerSourceRanges:",
    ]  # fmt: skip


def test_ranges_of_ipv6_let_nobody_in_to_an_address_of_ipv4() -> None:
    for ranges in (["::/0"], ["192.0.2.0/24", "::/0"]):
        with pytest.raises(InvalidService, match="lets everybody in"):
            marks("blue", "a1", new_service("web", "u-1", source_ranges=ranges))
    assert marks("blue", "a1", new_service("web", "u-1", source_ranges=["0.0.0.0/0", "::/0"]))[PORTS] == "tcp:80:30080"


def test_a_forward_keeps_its_ports_while_it_has_no_target() -> None:
    service = new_service("web", "u-1", ports=((80, 30080), (443, 30443)), source_ranges=["0.0.0.0/0"])
    forward = Forward(listen_address="198.19.241.9", config=marks("blue", "a1", service))
    assert forward.config[PORTS] == "tcp:443:30443,tcp:80:30080"
    aimed = with_target(forward, "incus://blue/x", "198.19.240.7")
    assert {(one.listen_port, one.target_port, one.target_address) for one in aimed.ports} == {
        ("80", "30080", "198.19.240.7"), ("443", "30443", "198.19.240.7"),
    }  # fmt: skip
    assert aimed.config[TARGET] == "incus://blue/x"
    assert same(aimed, aimed.model_copy(update={"ports": aimed.ports[::-1]}))
    assert same(with_target(aimed, "", ""), forward)


def test_services_are_spread_and_stay_where_they_are() -> None:
    nodes = [f"node-{number}" for number in range(5)]
    before = {uid: chosen(uid, nodes) for uid in map(str, range(200))}
    assert set(before.values()) == set(nodes)
    after = {uid: chosen(uid, nodes[1:]) for uid in before}
    assert {uid for uid in before if before[uid] != after[uid]} == {uid for uid in before if before[uid] == "node-0"}
    assert chosen("1", []) == ""


def test_addresses_that_are_taken_are_not_offered() -> None:
    ranges = ("198.19.241.8/30", "198.19.241.20/32")
    assert free_addresses(ranges, {"198.19.241.9"}, "") == [
        "198.19.241.8", "198.19.241.10", "198.19.241.11", "198.19.241.20",
    ]  # fmt: skip
    assert free_addresses(ranges, (), "198.19.241.20") == ["198.19.241.20"]
    with pytest.raises(InvalidService, match="is not one of"):
        free_addresses(ranges, (), "198.19.241.21")


@pytest.mark.parametrize(("text", "said"), [
    ("url: http://incus.example:8443", "must be https://"),
    ("url: https://incus.example:8443", "client_certificate and client_key"),
    ("url: unix:///run/s\nclient_key: /nonexistent", "cannot read /nonexistent"),
    ("url: unix:///run/s\nload_balancer_addresses: [192.0.2.1/32]", "need network"),
    ("url: unix:///run/s\nnetwork: b\nload_balancer_addresses: ['2001:db8::/120']", "is not IPv4"),
    ("url: unix:///run/s\nnetwork: b\nload_balancer_addresses: [10.0.0.0/8]", "more than 4096"),
    ("url: unix:///run/s\nnetwork: b\nload_balancer_addresses: [nobody]", "nobody"),
])  # fmt: skip
def test_a_mistake_in_the_configuration_is_told(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        Config.load(CloudConfig(path="", data=text.encode()), environ={})


def written() -> str:
    """The README with today's table."""
    head, _, rest = README.read_text().partition(BEGIN)
    return f"{head}{BEGIN}{Config.markdown_table()}{END}{rest.partition(END)[2]}"


def test_the_readmes_table_of_settings_is_current() -> None:
    assert README.read_text() == written(), f"run: python {Path(__file__).name}"


def test_the_configuration_that_is_shown_can_be_read(tmp_path: Path) -> None:
    shown = README.read_text().partition("```yaml\n")[2].partition("```")[0]
    pem = tmp_path / "pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n")
    text = re.sub(r"/etc/incus/\S+", str(pem), shown)
    assert Config.load(CloudConfig(path="", data=text.encode()), environ={}).network == "incusbr0"


def test_the_helm_values_are_the_charts_and_can_be_used(tmp_path: Path) -> None:
    schema = json.loads((README.parents[1] / "deploy" / "chart" / "values.schema.json").read_text())
    values = yaml.safe_load((README.parent / "helm-values.yaml").read_text())
    assert values.keys() <= schema["properties"].keys()
    [mount] = values["extraVolumeMounts"]
    assert mount["name"] == values["extraVolumes"][0]["name"]
    for name in ("client.crt", "client.key", "server.crt"):
        (tmp_path / name).write_text("-----BEGIN CERTIFICATE-----\n")
    content = values["cloudConfig"]["content"].replace(mount["mountPath"], str(tmp_path))
    assert Config.load(CloudConfig(path="", data=content.encode()), environ={}).project == "kubernetes"


if __name__ == "__main__":
    README.write_text(written())
