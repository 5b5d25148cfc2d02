"""LocalInstance: what the EC2 instance that this program runs on says of itself, by its metadata
service (IMDSv2).

No credentials and no API of AWS: a session token is fetched from the service, then one path after
the other. Where the service is, botocore says: AWS_EC2_METADATA_SERVICE_ENDPOINT, or AWS's fixed
address.

Follows: "Use instance metadata to manage your EC2 instance" in Amazon's EC2 user guide.
"""

from __future__ import annotations

from collections.abc import Mapping

from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session
from kubernetes.client.models.v1_node_address import V1NodeAddress
from typing_extensions import override

from aws_provider.errors import answered
from aws_provider.finder import PROVIDER
from aws_provider.metadata import LABEL_ZONE_ID
from cloudprovider import CloudProviderError, InstanceMetadata, LocalInstance
from cloudprovider.helpers import time_limits
from cloudprovider.wellknown import (
    NODE_ADDRESS_EXTERNAL_IP,
    NODE_ADDRESS_HOSTNAME,
    NODE_ADDRESS_INTERNAL_DNS,
    NODE_ADDRESS_INTERNAL_IP,
)

_TOKEN_SECONDS = "60"
_MOST = 2.0
"""Seconds for one request: the service is on the machine's own host."""


class AWSMachine(LocalInstance):
    """The instance that this program runs on. Of its addresses only those of the primary network
    interface are told; the node controller adds the others."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")

    @override
    @answered()
    def local_metadata(self) -> InstanceMetadata:
        token = self._token()
        zone = self._needed(token, "placement/availability-zone")
        zone_id = self._get(token, "placement/availability-zone-id")
        return InstanceMetadata(
            provider_id=f"{PROVIDER}:///{zone}/{self._needed(token, 'instance-id')}",
            instance_type=self._needed(token, "instance-type"),
            node_addresses=self._addresses(token),
            zone=zone,
            region=self._needed(token, "placement/region"),
            additional_labels={LABEL_ZONE_ID: zone_id} if zone_id else {},
        )

    @override
    @answered()
    def local_node_name(self, hostname: str) -> str:
        """The private DNS name. With several domains in the network's DHCP options, the first
        name."""
        names = self._get(self._token(), "local-hostname").split()
        return names[0].lower() if names else hostname

    def _addresses(self, token: str) -> list[V1NodeAddress]:
        found = [
            (NODE_ADDRESS_INTERNAL_IP, self._get(token, "local-ipv4")),
            (NODE_ADDRESS_EXTERNAL_IP, self._get(token, "public-ipv4")),
            (NODE_ADDRESS_INTERNAL_IP, self._get(token, "ipv6")),
        ]
        name = self._get(token, "local-hostname").partition(" ")[0]
        found += [(NODE_ADDRESS_INTERNAL_DNS, name), (NODE_ADDRESS_HOSTNAME, name)]
        return [V1NodeAddress(type=kind, address=address) for kind, address in found if address]

    def _token(self) -> str:
        headers = {"x-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS}
        return self._ask("PUT", "api/token", headers) or self._absent("api/token")

    def _needed(self, token: str, path: str) -> str:
        return self._get(token, path) or self._absent(path)

    def _get(self, token: str, path: str) -> str:
        """The text of one path; "" where the service has none."""
        return self._ask("GET", f"meta-data/{path}", {"x-aws-ec2-metadata-token": token})

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        limits = time_limits(most=_MOST, margin=0.05, least=0.05)
        session = URLLib3Session(timeout=limits, proxies={})  # type: ignore[arg-type]  # its stubs know one number alone
        try:
            request = AWSRequest(method=method, url=f"{self._endpoint}/latest/{path}", headers=dict(headers))
            response = session.send(request.prepare())
        finally:
            session.close()
        if response.status_code == 404:
            return ""
        if response.status_code != 200:
            raise CloudProviderError(f"the metadata service answered {response.status_code} to {method} {path}")
        return str(response.text).strip()

    def _absent(self, path: str) -> str:
        raise CloudProviderError(f"the metadata service has no {path}")
