"""What libcloud's drivers make of clouds' recorded answers becomes a node's facts: provider ID,
type, zone, region, first address and state."""

from __future__ import annotations

from pathlib import Path

import pytest
from libcloud_provider.config import Config
from libcloud_provider.machines import metadata
from libcloud_provider.profiles import Parts, profile_of
from libcloud_provider.provider import Libcloud
from recorded import ABSENT, DRIVERS, answering

from cloudprovider import CloudConfig, CloudProviderError, InstanceNotFound, InstanceState
from cloudprovider.testing.conformance import new_node

OFF, RUNS = InstanceState.SHUTDOWN, InstanceState.RUNNING
AZURE = "/subscriptions/99999999-9999-9999-9999-999999999999/resourceGroups/000000/providers/Microsoft.Compute"

EXPECTED = {
    "aliyun_ecs": (
        1, "libcloud://aliyun_ecs/cn-qingdao/i-28n7dkvov", "ecs.t1.small", "cn-qingdao-b", "cn-qingdao",
        "InternalIP 10.163.197.74", RUNS,
    ),
    "azure_arm": (
        2, f"azure://{AZURE}/virtualMachines/test-node-1", "Standard_A1", "", "eastus", "InternalIP 10.0.0.1", RUNS,
    ),
    "cloudscale": (
        1, "cloudscale://47cec963-fcd2-482f-bdb6-24461b2d47b1", "flex-4", "", "", "ExternalIP 185.98.122.176", RUNS,
    ),
    "cloudstack": (
        2, "external-cloudstack://2600", "Compute-Micro-PRD", "Sydney", "", "ExternalIP 1.1.1.116", RUNS,
    ),
    "digitalocean": (1, "digitalocean://3164444", "s-1vcpu-1gb", "", "", "InternalIP 10.124.0.2", RUNS),
    "ec2": (2, "aws:///us-east-1d/i-4382922a", "m1.small", "us-east-1d", "us-east-1", "InternalIP 10.211.11.211", OFF),
    "equinixmetal": (
        1, "equinixmetal://905037a4-967c-4e81-b364-3a0603aa071b", "baremetal_1", "ams1", "",
        "InternalIP 10.80.144.131", RUNS,
    ),
    "gridscale": (
        1, "libcloud://gridscale/1479405e-d46c-47a2-91e8-eb43951c899f", "", "", "", "ExternalIP 185.102.95.236", OFF,
    ),
    "kamatera": (1, "libcloud://kamatera/XXXX-YYYY-ZZZZ", "", "IL", "", "Hostname node-1", RUNS),
    "linode": (2, "linode://22344420", "g6-nanode-1", "", "eu-west", "InternalIP 192.168.1.230", RUNS),
    "maxihost": (1, "libcloud://maxihost/1319", "", "", "", "InternalIP 10.223.186.11", OFF),
    "onapp": (1, "libcloud://onapp/123456", "", "", "", "InternalIP 192.168.15.72", RUNS),
    "ovh": (
        2, "openstack:///foo", "551dc104-4174-495a-af34-4aafe75f22ca", "", "SBG1", "ExternalIP 92.0.0.1", RUNS,
    ),
    "scaleway": (2, "scaleway://instance/par1/741db378", "", "par1", "", "Hostname node-1", RUNS),
    "upcloud": (1, "upcloud:////00f8c525-7e62-4108-8115-3958df5b43dc", "", "", "", "InternalIP 10.1.7.68", RUNS),
    "vultr": (3, "vultr://123", "vc2-1c-2gb", "", "fra", "ExternalIP 45.76.83.44", RUNS),
}  # fmt: skip


def provider_of(config: str, folder: Path) -> Libcloud:
    """The provider with this configuration."""
    secret = folder / "secret"
    secret.write_text("s3cret-of-the-tests")
    return Libcloud(Config.load(CloudConfig(path="", data=config.format(secret=secret).encode()), environ={}))


def test_every_recorded_driver_is_expected() -> None:
    assert DRIVERS.keys() == EXPECTED.keys()


@pytest.mark.parametrize("driver", sorted(DRIVERS))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # libcloud's drivers raise some, on new Pythons
def test_the_facts_of_a_recorded_machine(driver: str, tmp_path: Path) -> None:
    provider = provider_of(DRIVERS[driver].config, tmp_path)
    with answering(DRIVERS[driver]):
        machines = provider.machines.listed()
    first = metadata("node-1", machines[0], provider.ids)
    address = "".join(f"{one.type} {one.address}" for one in first.node_addresses[:1])
    found = (
        len(machines), first.provider_id, first.instance_type, first.zone, first.region, address, machines[0].state,
    )  # fmt: skip
    assert found == EXPECTED[driver]
    for machine in machines:
        parts = provider.ids.read(provider.ids.write(machine.parts))
        assert provider.ids.key(parts) == provider.ids.key(machine.parts)
        assert provider.ids.write(machine.parts).startswith(tuple(provider.provider_id_prefixes()))


ABOUT_ONE = sorted(driver for driver in DRIVERS if profile_of(driver).question is not None)
ERRORS = {
    "cloudstack": (431, b'{"listvirtualmachinesresponse": {"errorcode": 431, "errortext": "Invalid parameter id '
    b'value=x due to incorrect long value format, or entity does not exist"}}'),
    "ec2": (400, b"<Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code><Message>The instance ID does not "
    b"exist</Message></Error></Errors></Response>"),
    "ovh": (404, b'{"message": "Instance not found", "errorCode": "NOT_FOUND"}'),
    "vultr": (404, b'{"error": "Invalid instance-id.", "status": 404}'),
    "upcloud": (404, b'{"error": {"error_code": "SERVER_NOT_FOUND", "error_message": "The server does not exist."}}'),
    "gridscale": (404, b'{"title": "not found", "description": "Object not found.", "status": 404}'),
}  # fmt: skip
"""What these clouds answer where there is no such machine."""


def asked_for_absent(driver: str, folder: Path, status: int, body: bytes) -> InstanceState | CloudProviderError:
    provider = provider_of(DRIVERS[driver].config, folder)
    zone = provider.ids.write(Parts(id=ABSENT, name=ABSENT, zone="us-east-1a"))
    with answering(DRIVERS[driver], status, body):
        [answer] = provider.instances_batch().instances_state([new_node("n", zone)]).values()
    return answer


@pytest.mark.parametrize("driver", ABOUT_ONE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_clouds_not_found_is_gone(driver: str, tmp_path: Path) -> None:
    answer = asked_for_absent(driver, tmp_path, *ERRORS.get(driver, (404, b"{}")))
    assert isinstance(answer, InstanceNotFound), answer


@pytest.mark.parametrize("driver", ABOUT_ONE)
@pytest.mark.parametrize(("status", "body"), [(500, b"{}"), (403, b"{}"), (502, b"<html>"), (200, b"<html></html>")])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_other_answer_is(driver: str, tmp_path: Path, status: int, body: bytes) -> None:
    answer = asked_for_absent(driver, tmp_path, status, body)
    assert isinstance(answer, CloudProviderError)
    assert not isinstance(answer, InstanceNotFound), answer
