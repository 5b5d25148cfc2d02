"""The provider keeps the contract over libcloud's EC2 driver, on moto's server: `pytest -k onform
--conformance-report=report`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import boto3
import pytest
from doubles import SECRET, Double, served
from kubernetes.client.models import V1Node
from libcloud_provider import connections
from libcloud_provider.provider import new_provider
from moto.server import ThreadedMotoServer
from typing_extensions import override

from cloudprovider import CloudConfig, CloudProviderError, InstanceMetadata, InstanceNotFound, InstanceState
from cloudprovider.loading import registry
from cloudprovider.testing.conformance import BadAnswer, Feature, HTTPLab, ProviderConformance, new_node

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

REGION = "eu-west-1"
CONFIG = """
driver: ec2
region: {region}
arguments: {{key: AKIAIOSFODNN7EXAMPLE, secure: false, host: 127.0.0.1, port: {port}}}
credentials: {{secret: {secret}}}
"""


THROTTLED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors>
<RequestID>0</RequestID></Response>"""


class EC2Lab(HTTPLab):
    """Every hook of instances. Nodes are called by their private DNS names."""

    deadline = 0.6
    secrets = (SECRET,)
    cloud_hosts = ("127.0.0.1",)
    throttled = (BadAnswer("503 RequestLimitExceeded", 503, THROTTLED),)

    def __init__(self, port: int, secret: str) -> None:
        self._config = CONFIG.format(region=REGION, port=port, secret=secret)
        self.ec2: EC2Client = boto3.client(
            "ec2", region_name=REGION, endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id="AKIAIOSFODNN7EXAMPLE", aws_secret_access_key=SECRET,
        )  # fmt: skip
        self._ids: dict[str, str] = {}

    @override
    def config(self) -> CloudConfig:
        return CloudConfig(path="", data=self._config.encode())

    @override
    def create_machine(self, name: str) -> V1Node:
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": name}]}]
        made = self.ec2.run_instances(
            ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="m5.large",
            TagSpecifications=tags,  # type: ignore[arg-type]
        )["Instances"][0]  # fmt: skip
        self._ids[made["PrivateDnsName"]] = made["InstanceId"]
        return new_node(made["PrivateDnsName"])

    @override
    def stop_machine(self, node: V1Node) -> None:
        self.ec2.stop_instances(InstanceIds=[self.id_of(node)])

    @override
    def delete_machine(self, node: V1Node) -> None:
        self.ec2.terminate_instances(InstanceIds=[self.id_of(node)])

    def id_of(self, node: V1Node) -> str:
        """The instance that was made for the node."""
        assert node.metadata is not None
        return self._ids[str(node.metadata.name)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EC2Lab]:
    secret = tmp_path_factory.mktemp("config") / "secret"
    secret.write_text(SECRET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        patch.setattr(connections, "MARGIN", 0.25)
        patch.setattr(connections, "LEAST", 0.1)
        patch.setattr(registry, "_REGISTRY", registry.Registry())
        registry.register_cloud_provider("libcloud", new_provider)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        port = server.get_host_and_port()[1]
        with urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")):
            pass  # moto's memory is the process's
        try:
            lab = EC2Lab(port, str(secret))
            lab.ec2.describe_instances()  # moto loads its EC2 with the first request, which takes a while
            yield lab
        finally:
            server.stop()


class TestEC2(ProviderConformance):
    provider_name = "libcloud"
    features = Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH


def test_metadata_is_that_of_the_go_provider(lab: EC2Lab) -> None:
    node = lab.create_machine("by-tag")
    instances = new_provider(lab.config()).instances_batch()
    assert instances is not None
    found = instances.instances_metadata([node, new_node("by-tag"), new_node(lab.id_of(node))])
    one, by_tag, by_id = found.values()
    assert isinstance(one, InstanceMetadata)
    assert one == by_tag == by_id
    shown = lab.ec2.describe_instances(InstanceIds=[lab.id_of(node)])["Reservations"][0]["Instances"][0]
    zone = shown["Placement"]["AvailabilityZone"]
    assert (one.provider_id, one.zone) == (f"aws:///{zone}/{lab.id_of(node)}", zone)
    assert (one.instance_type, one.region) == ("m5.large", REGION)
    assert [(each.type, each.address) for each in one.node_addresses][:1] == [("InternalIP", shown["PrivateIpAddress"])]
    assert ("InternalDNS", shown["PrivateDnsName"]) in [(each.type, each.address) for each in one.node_addresses]


def test_an_id_of_another_region_is_unknown_and_a_strange_one_is_gone_by_the_clouds_word(lab: EC2Lab) -> None:
    instances = new_provider(lab.config()).instances_batch()
    assert instances is not None
    nodes = [
        new_node("elsewhere", "aws:///us-east-1a/i-0123456789abcdef0"),
        new_node("never-was", f"aws:///{REGION}a/i-0123456789abcdef0"),
        new_node("zoneless", "aws:////i-0123456789abcdef0"),
    ]
    found = instances.instances_state(nodes)
    assert not isinstance(found["elsewhere"], InstanceNotFound | InstanceState)
    assert "us-east-1a" in str(found["elsewhere"])
    assert isinstance(found["never-was"], InstanceNotFound)
    assert isinstance(found["zoneless"], InstanceNotFound)


LISTING = """<?xml version="1.0"?><!-- a server's own -->
<DescribeInstancesResponse{namespace}><!-- one --><reservationSet><item><instancesSet><item>
<instanceId>i-1</instanceId><instanceState><name>running</name></instanceState><privateIpAddress>10.0.0.7</privateIpAddress>
<privateDnsName>web-1</privateDnsName><instanceType>m5.large</instanceType><imageId>ami-1</imageId>
<launchTime>2026-01-02T03:04:05.000Z</launchTime><placement><availabilityZone>eu-west-1a</availabilityZone></placement>
</item></instancesSet></item></reservationSet></DescribeInstancesResponse>"""
REFUSAL = (
    "<Response{namespace}><Errors><Error><Code>AuthFailure</Code><Message>no</Message></Error></Errors></Response>"
)


@pytest.mark.parametrize(
    "namespace",
    [
        "",
        ' xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"',
        ' xmlns="http://ec2.amazonaws.com/doc/2016-11-15"',
        ' xmlns="http://msgs.eucalyptus.com/2014-10-01"',
    ],
)
def test_an_answer_in_any_namespace_is_read(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with served(Double()) as double:
        config = CONFIG.format(region=REGION, port=urlsplit(double.url).port, secret=tmp_path / "secret")
        instances = new_provider(CloudConfig(path="", data=config.encode())).instances_v2()
        assert instances is not None
        double.answers["GET /"] = (200, LISTING.format(namespace=namespace))
        assert instances.instance_metadata(new_node("web-1")).provider_id == "aws:///eu-west-1a/i-1"
        double.answers["GET /"] = (401, REFUSAL.format(namespace=namespace))
        with pytest.raises(CloudProviderError, match="did not accept the credentials of driver ec2"):
            instances.instance_exists(new_node("web-1"))
        double.answers["GET /"] = (500, "no XML")
        with pytest.raises(CloudProviderError, match="cannot be read by libcloud's driver ec2"):
            instances.instance_exists(new_node("web-1"))
