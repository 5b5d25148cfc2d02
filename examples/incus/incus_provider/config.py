"""The provider's configuration: the file given by --cloud-config, and the environment. All mistakes
at once."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from cloudprovider.config import ProviderConfig
from cloudprovider.helpers import parse_network

MOST_ADDRESSES = 4096
"""How many addresses the load balancers' pool may have."""


class Config(ProviderConfig):
    """The settings; README.md has their table."""

    env_prefix: ClassVar[str] = "INCUS_PROVIDER_"

    url: str = Field(
        description="Where the API is: `https://incus.example:8443`, or `unix:///var/lib/incus/unix.socket`."
    )
    client_certificate: str = Field(
        default="", description="For https: the file with the client certificate (PEM), which the server trusts."
    )
    client_key: str = Field(default="", description="For https: the file with the certificate's private key (PEM).")
    server_certificate: str = Field(
        default="",
        description="For https: a file with the server's own certificate (PEM); no other is taken. Empty: the "
        "system's certificate authorities decide.",
    )
    project: str = Field(
        default="default", min_length=1, description="The project that the cluster's instances are in."
    )
    network: str = Field(
        default="", description="The bridge that the nodes are connected to. Needed by load balancers and routes."
    )
    load_balancer_addresses: tuple[str, ...] = Field(
        default=(),
        description="IPv4 ranges for load balancers, as `192.0.2.64/28`, outside the bridge's own subnet. Empty: there "
        "are no load balancers.",
    )
    routes: bool = Field(default=False, description="Whether the provider offers routes for pod networks.")
    region: str = Field(default="", description="The nodes' region label. Empty: none.")

    @field_validator("url")
    @classmethod
    def _is_socket_or_server(cls, url: str) -> str:
        parts = urlsplit(url.strip())
        if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
            return url.strip()
        if parts.scheme == "https" and parts.hostname and not parts.path.strip("/") and not parts.query:
            return f"https://{parts.netloc}"
        raise ValueError("must be https://HOST:8443 without a path, or unix:// and the absolute path of a socket")

    @field_validator("client_certificate", "client_key", "server_certificate")
    @classmethod
    def _can_be_read(cls, path: str) -> str:
        if path:
            try:
                text = Path(path).read_text(encoding="ascii")
            except (OSError, ValueError) as exc:
                why = (exc.strerror if isinstance(exc, OSError) else None) or "not a PEM file"
                raise ValueError(f"cannot read {path}: {why}") from None
            if "-----BEGIN " not in text:
                raise ValueError(f"{path} is not a PEM file")
        return path

    @field_validator("load_balancer_addresses")
    @classmethod
    def _are_addresses(cls, ranges: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        problems, count = [], 0
        for text in ranges:
            try:
                network = parse_network(text)
            except ValueError as exc:
                problems.append(str(exc))
                continue
            if network.version != 4:
                problems.append(f"{text} is not IPv4")
            count += network.num_addresses
        if not problems and count > MOST_ADDRESSES:
            problems.append(f"{count} addresses are more than {MOST_ADDRESSES}")
        if problems:
            raise ValueError("; ".join(problems))
        return ranges

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = []
        if self.url.startswith("https:") and not (self.client_certificate and self.client_key):
            problems.append("an https url needs client_certificate and client_key")
        if self.url.startswith("unix:") and (self.client_certificate or self.client_key or self.server_certificate):
            problems.append("certificates are for an https url")
        if (self.routes or self.load_balancer_addresses) and not self.network:
            problems.append("load_balancer_addresses and routes need network")
        if problems:
            raise ValueError("; ".join(problems))
        return self
