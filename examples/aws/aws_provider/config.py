"""The provider's configuration: the file given by --cloud-config, and the environment. All mistakes
at once.

No secret belongs here: credentials come to boto3 in its own ways.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from cloudprovider.config import ProviderConfig


class Config(ProviderConfig):
    """The settings."""

    env_prefix: ClassVar[str] = "AWS_"

    cluster: str = Field(
        min_length=1,
        description="The cluster's name in the tag `kubernetes.io/cluster/<name>`, the same as --cluster-name.",
    )
    region: str = Field(
        default="", description="Else boto3's (AWS_DEFAULT_REGION, the shared file), else that of the machine."
    )
    vpc: str = Field(default="", description="The load balancers' network, where tagged subnets lie in several.")
    manage_security_groups: bool = Field(
        default=True, description="False: the node ports are opened by you, not by rules for each Service."
    )
