"""The provider's configuration: the file of --cloud-config, which may be the `cloud.conf` of the Go
manager as it is, or the same in YAML.

Sections and keys are those of that file: [Global] is the top. Keys that meant something only to the
Go program are known and do nothing; unknown ones are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, SecretStr
from typing_extensions import override

from cloudprovider.config import ProviderConfig, Seconds
from cloudprovider.helpers import CIDR, IPNetwork, Kind, Text

_UNUSED = "Known, and without effect."

Method = Literal["ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"]
ID: Final = Text("[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}", "an ID of OpenStack: a UUID")
CONTAINER: Final = Text(r"https?://\S+", "the URL of a container or secret")


class _Selector(Kind[Mapping[str, str]]):
    """Labels of nodes, each with its value, or without one where any value will do."""

    @property
    @override
    def allowed(self) -> str:
        return "labels such as role=edge,ssd"

    @override
    def parse(self, text: str) -> Mapping[str, str]:
        pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
        found = {key.strip(): value.strip() for key, _, value in pairs}
        if "" in found or len(found) < len(pairs):
            raise self.refusal()
        return found

    @override
    def show(self, value: Mapping[str, str]) -> str:
        return ",".join(f"{key}={one}" if one else key for key, one in value.items())


class _Pattern(Kind[str]):
    """A pattern for names of subnets; see `addresses.subnet_matches`."""

    @property
    @override
    def allowed(self) -> str:
        return "a name, a pattern such as public-*, or ~ and a regular expression; ! before it means all others"

    @override
    def parse(self, text: str) -> str:
        if text.lstrip("!").startswith("~"):
            try:
                re.compile(text.removeprefix("!")[1:])
            except re.error:
                raise self.refusal() from None
        return text


SELECTOR: Final = _Selector()
PATTERN: Final = _Pattern()


def _or_nothing(kind: Text) -> AfterValidator:
    """A text of that kind, or none."""

    def checked(text: str) -> str:
        if problem := kind.problem(text):
            raise ValueError(problem)
        return text

    return AfterValidator(checked)


class Networking(ProviderConfig):
    """[Networking]: which addresses nodes get."""

    public_network_name: tuple[str, ...] = Field(
        default=(), description="Networks whose addresses are ExternalIP, beside floating IPs."
    )
    internal_network_name: tuple[str, ...] = Field(
        default=(), description="Networks whose addresses are InternalIP; with it, those of all others are left out."
    )
    ipv6_support_disabled: bool = Field(default=False, description="Leave out IPv6 addresses.")
    address_sort_order: tuple[Annotated[IPNetwork, CIDR], ...] = Field(
        default=(), description="IP ranges: addresses in the first come first, those in none last."
    )


class ClassConfig(ProviderConfig):
    """[LoadBalancerClass "name"]: networks for the Services that name this class by annotation."""

    floating_network_id: str = ""
    floating_subnet_id: str = ""
    floating_subnet: Annotated[str, PATTERN] = ""
    floating_subnet_tags: str = ""
    network_id: str = ""
    subnet_id: str = ""
    member_subnet_id: str = ""


class LoadBalancerConfig(ClassConfig):
    """[LoadBalancer]: what Services get that say nothing themselves."""

    enabled: bool = Field(default=True, description="False: Services are left alone.")
    lb_method: Method = "ROUND_ROBIN"
    lb_provider: str = Field(default="", description="The provider driver of Octavia; empty: Octavia's default.")
    create_monitor: bool = Field(default=False, description="A health monitor for each pool.")
    monitor_delay: Seconds = 5.0
    monitor_timeout: Seconds = 3.0
    monitor_max_retries: int = Field(default=1, ge=1, le=10)
    monitor_max_retries_down: int = Field(default=3, ge=1, le=10)
    manage_security_groups: bool = Field(default=False, description="Open the node ports by one security group.")
    internal_lb: bool = Field(default=False, description="True: no load balancer gets a floating IP.")
    node_selector: Annotated[Mapping[str, str], SELECTOR] = Field(
        default={}, description='Which nodes are members: "key=value,key".'
    )
    cascade_delete: bool = True
    flavor_id: Annotated[str, _or_nothing(ID)] = ""
    availability_zone: str = ""
    enable_ingress_hostname: bool = False
    ingress_hostname_suffix: str = "nip.io"
    default_tls_container_ref: Annotated[str, _or_nothing(CONTAINER)] = ""
    max_shared_lb: int = Field(default=2, ge=1)
    lb_version: str = Field(default="", description=_UNUSED)
    use_octavia: bool = Field(default=True, description=_UNUSED)
    container_store: str = Field(default="", description=_UNUSED)
    provider_requires_serial_api_calls: bool = Field(default=False, description=_UNUSED)


class RouteConfig(ProviderConfig):
    """[Route]."""

    router_id: str = Field(default="", description="The router that gets the routes to pods.")


class MetadataConfig(ProviderConfig):
    """[Metadata]."""

    search_order: tuple[Literal["configDrive", "metadataService"], ...] = ("configDrive", "metadataService")
    request_timeout: Seconds = Field(default=30.0, gt=0, description="The most that one request may take.")


class Config(ProviderConfig):
    """The settings. The top is [Global]."""

    env_prefix: ClassVar[str] = ""

    auth_url: str = ""
    region: str = ""
    username: str = ""
    user_id: str = ""
    password: SecretStr = SecretStr("")
    tenant_id: str = ""
    tenant_name: str = ""
    tenant_domain_id: str = ""
    tenant_domain_name: str = ""
    user_domain_id: str = ""
    user_domain_name: str = ""
    domain_id: str = ""
    domain_name: str = ""
    application_credential_id: str = ""
    application_credential_name: str = ""
    application_credential_secret: SecretStr = SecretStr("")
    trust_id: str = ""
    trustee_id: str = ""
    trustee_password: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    tls_insecure: bool = False
    os_endpoint_type: Literal["public", "internal", "admin"] = "public"
    use_clouds: bool = Field(default=False, description="Take the login from clouds.yaml.")
    clouds_file: str = Field(default="", description="Where clouds.yaml is; else where openstacksdk looks.")
    cloud: str = Field(default="", description="The entry of clouds.yaml.")
    regions: tuple[str, ...] = Field(default=(), description="Further regions with nodes of this cluster.")

    networking: Networking = Networking()
    loadbalancer: LoadBalancerConfig = LoadBalancerConfig()
    loadbalancerclass: Mapping[str, ClassConfig] = Field(default_factory=dict)
    route: RouteConfig = RouteConfig()
    metadata: MetadataConfig = MetadataConfig()
    blockstorage: Mapping[str, str] = Field(default_factory=dict, description="Of the CSI driver: without effect.")
