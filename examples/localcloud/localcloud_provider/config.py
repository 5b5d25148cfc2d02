"""The provider's configuration: the file given by --cloud-config, and the environment. All mistakes
at once."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from cloudprovider.config import ProviderConfig


class Config(ProviderConfig):
    """The settings; README.md has their table."""

    env_prefix: ClassVar[str] = "LOCALCLOUD_"

    url: str = Field(description="Where the cloud's API is, such as `http://10.90.255.1:8090`.")
    token: SecretStr = Field(
        default=SecretStr(""),
        description="The API's bearer token. Needed by the manager; `node-info` needs none.",
    )

    local_targets: bool = Field(
        default=False,
        description="Whether Services with externalTrafficPolicy Local get only nodes with a ready endpoint as "
        "targets. Takes the permission to list and watch EndpointSlices.",
    )

    @field_validator("url")
    @classmethod
    def _is_base_url(cls, url: str) -> str:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError("must be http:// or https:// with a host and no path, such as http://10.90.255.1:8090")
        return f"{parts.scheme}://{parts.netloc}"

    @field_validator("token")
    @classmethod
    def _is_one_word(cls, token: SecretStr) -> SecretStr:
        text = token.get_secret_value().strip()
        if any(not "!" <= letter <= "~" for letter in text):
            raise ValueError("must be one word of printable ASCII characters")
        return SecretStr(text)
