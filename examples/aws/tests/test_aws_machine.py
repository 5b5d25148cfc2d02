"""The instance that the program runs on: node-info over a metadata service, without credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aws_provider.clients import Clients
from aws_provider.machine import AWSMachine
from conftest import REGION, Account
from imds import MetadataService, metadata_service

from cloudprovider import CloudProviderError, InstanceMetadata


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as made:
        yield made


def test_the_machine_says_what_the_api_says(service: MetadataService, account: Account) -> None:
    instance = account.launch()
    service.speak_for(instance, REGION)
    service.texts |= {"placement/availability-zone-id": "euw1-az3", "ipv6": "2001:db8::7", "public-ipv4": "203.0.113.7"}
    machine = AWSMachine(service.url)
    found = machine.local_metadata()
    name, address = instance["PrivateDnsName"], instance["PrivateIpAddress"]
    assert [(one.type, one.address) for one in found.node_addresses] == [
        ("InternalIP", address), ("ExternalIP", "203.0.113.7"), ("InternalIP", "2001:db8::7"), ("InternalDNS", name),
        ("Hostname", name),
    ]  # fmt: skip
    assert found == InstanceMetadata(
        provider_id=f"aws:///{REGION}a/{instance['InstanceId']}",
        instance_type="m5.large",
        node_addresses=found.node_addresses,
        zone=f"{REGION}a",
        region=REGION,
        additional_labels={"topology.k8s.aws/zone-id": "euw1-az3"},
    )
    service.texts["local-hostname"] = f"{name.upper()} other.example"
    assert machine.local_node_name("whatever") == name
    del service.texts["local-hostname"]
    assert machine.local_node_name("ip-10-0-0-1") == "ip-10-0-0-1"


@pytest.mark.parametrize("missing", ["instance-id", "instance-type", "placement/availability-zone", "placement/region"])
def test_half_an_answer_is_none(service: MetadataService, account: Account, missing: str) -> None:
    service.speak_for(account.launch(), REGION)
    del service.texts[missing]
    with pytest.raises(CloudProviderError, match=f"the metadata service has no {missing}"):
        AWSMachine(service.url).local_metadata()


def test_a_service_that_is_not_there_or_not_ready(service: MetadataService, account: Account) -> None:
    service.speak_for(account.launch(), REGION)
    service.failing = 1
    machine = AWSMachine(service.url)
    with pytest.raises(CloudProviderError, match="answered 503 to PUT api/token"):
        machine.local_metadata()
    assert machine.local_metadata().region == REGION
    with pytest.raises(CloudProviderError, match="did not answer"):
        AWSMachine("http://127.0.0.1:9").local_metadata()


def test_where_the_service_is_botocore_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Clients(REGION).metadata_endpoint.startswith("http://169.254.169.254")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1338")
    assert Clients(REGION).metadata_endpoint == "http://127.0.0.1:1338"
