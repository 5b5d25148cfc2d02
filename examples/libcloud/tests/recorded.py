"""The answers of clouds that libcloud records for its own tests and ships, handed to its drivers in
place of the network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import libcloud
import pytest
import requests
from attrs import frozen
from libcloud_provider import connections

FOLDER = Path(libcloud.__file__).parent / "test" / "compute" / "fixtures"


@frozen
class Recorded:
    """One driver's configuration, and which file answers which request."""

    config: str
    files: Mapping[str, str]
    """Patterns of "METHOD path?query", and the files below the folder of recorded answers."""


ABSENT = "0000absent0000"
"""In the ID of a machine that no recorded answer has."""


@contextmanager
def answering(recorded: Recorded, status: int = 404, said: bytes = b"{}") -> Iterator[list[str]]:
    """Every request gets the file of the first pattern that fits; the requests are noted. One that
    has none fails. A request about `ABSENT` gets this status and
    body."""
    asked: list[str] = []

    def request(connection: Any, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        asked.append(f"{method} {url}")
        if ABSENT in asked[-1]:
            connection.response = _response(said, status)
            connection.note(method, url)
            return
        for pattern, name in recorded.files.items():
            if re.search(pattern, asked[-1]):
                connection.response = _response((FOLDER / name).read_bytes())
                return
        raise AssertionError(f"there is no recorded answer to {asked[-1]}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections.BoundedConnection, "request", request)
        yield asked


def _response(content: bytes, status: int = 200) -> requests.Response:
    answer = requests.Response()
    answer.status_code, answer.reason, answer._content = status, "OK" if status == 200 else "Bad", content
    answer.request = requests.Request("GET", "http://recorded.invalid").prepare()
    return answer


TOKEN = "credentials: {{key: {secret}}}"

DRIVERS = {
    "digitalocean": Recorded(f"driver: digitalocean\n{TOKEN}", {r"/v2/droplets": "digitalocean_v2/list_nodes.json"}),
    "linode": Recorded(f"driver: linode\n{TOKEN}", {r"/v4/linode/instances": "linode_v4/list_nodes.json"}),
    "vultr": Recorded(f"driver: vultr\n{TOKEN}", {r"/v2/instances": "vultr_v2/list_nodes.json"}),
    "scaleway": Recorded(
        "driver: scaleway\narguments: {{key: organisation}}\ncredentials: {{secret: {secret}}}",
        {r"/servers": "scaleway/list_nodes.json"},
    ),
    "equinixmetal": Recorded(
        "driver: equinixmetal\narguments: {{project: p}}\ncredentials: {{key: {secret}}}",
        {r"/metal/v1/projects/p/devices": "equinixmetal/devices_for_project.json"},
    ),
    "upcloud": Recorded(
        "driver: upcloud\narguments: {{username: ccm}}\ncredentials: {{password: {secret}}}",
        {
            r"1.2/server/00f8c525": "upcloud/api_1_2_server_00f8c525-7e62-4108-8115-3958df5b43dc.json",
            r"1.2/server/00893c98": "upcloud/api_1_2_server_00893c98-5d5a-4363-b177-88df518a2b60.json",
            r"1.2/server": "upcloud/api_1_2_server.json",
        },
    ),
    "cloudscale": Recorded(f"driver: cloudscale\n{TOKEN}", {r"/v1/servers": "cloudscale/list_nodes.json"}),
    "gridscale": Recorded(
        "driver: gridscale\narguments: {{user_id: u}}\ncredentials: {{key: {secret}}}",
        {r"/objects/servers": "gridscale/list_nodes.json"},
    ),
    "maxihost": Recorded(f"driver: maxihost\n{TOKEN}", {r"/devices": "maxihost/nodes.json"}),
    "ovh": Recorded(
        "driver: ovh\narguments: {{key: k, ex_project_id: project_id, region: SBG1}}\n"
        "credentials: {{secret: {secret}, ex_consumer_key: {secret}}}",
        {r"/auth/time": "ovh/auth_time_get.json", r"/instance": "ovh/instance_get.json"},
    ),
    "aliyun_ecs": Recorded(
        "driver: aliyun_ecs\nregion: cn-qingdao\narguments: {{key: k}}\ncredentials: {{secret: {secret}}}",
        {r"DescribeInstances": "ecs/describe_instances.xml"},
    ),
    "ec2": Recorded(
        "driver: ec2\nregion: us-east-1\narguments: {{key: k}}\ncredentials: {{secret: {secret}}}",
        {r"DescribeInstances": "ec2/describe_instances.xml", r"DescribeAddresses": "ec2/describe_addresses_multi.xml"},
    ),
    "cloudstack": Recorded(
        "driver: cloudstack\narguments: {{key: k, host: cs.example, path: /client/api}}\n"
        "credentials: {{secret: {secret}}}",
        {
            f"command={name}": f"cloudstack/{name}_default.json"
            for name in (
                "listVirtualMachines",
                "listPublicIpAddresses",
                "listPortForwardingRules",
                "listIpForwardingRules",
            )
        },
    ),
    "azure_arm": Recorded(
        "driver: azure_arm\narguments: {{tenant_id: 77777777-7777-7777-7777-777777777777, "
        "subscription_id: '99999999', key: k}}\ncredentials: {{secret: {secret}}}",
        {
            r"oauth2/token": "azure_arm/_77777777_7777_7777_7777_777777777777_oauth2_token.json",
            r"(?i)test-node-1/InstanceView": "azure_arm/_subscriptions_99999999_resourceGroups_000000_providers_"
            "Microsoft_Compute_virtualMachines_test_node_1_InstanceView.json",
            r"(?i)test-node-2/InstanceView": "azure_arm/_subscriptions_99999999_resourceGroups_000000_providers_"
            "Microsoft_Compute_virtualMachines_test_node_2_InstanceView.json",
            r"(?i)test-node-1-nic": "azure_arm/_subscriptions_99999999_resourceGroups_000000_providers_Microsoft_"
            "Network_networkInterfaces_test_node_1_nic.json",
            r"(?i)test-node-2-nic": "azure_arm/_subscriptions_99999999_resourceGroups_000000_providers_Microsoft_"
            "Network_networkInterfaces_test_node_2_nic.json",
            r"(?i)skiptoken": "azure_arm/_subscriptions_99999999_providers_Microsoft_Compute_virtualMachines_1.json",
            r"virtualMachines\?": "azure_arm/_subscriptions_99999999_providers_Microsoft_Compute_virtualMachines.json",
        },
    ),
    "kamatera": Recorded(
        "driver: kamatera\narguments: {{key: k}}\ncredentials: {{secret: {secret}}}",
        {r"/service/servers": "kamatera/servers.json", r"datacenter": "kamatera/datacenters.json"},
    ),
    "onapp": Recorded(
        "driver: onapp\narguments: {{key: k, host: onapp.example}}\ncredentials: {{secret: {secret}}}",
        {r"/virtual_machines": "onapp/list_nodes.json"},
    ),
}
