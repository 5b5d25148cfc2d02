"""The provider's configuration: the file given by --cloud-config, and the environment. All mistakes
at once."""

from __future__ import annotations

import os
from typing import ClassVar, Literal
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import Field, field_validator

from cloudprovider.config import ProviderConfig
from cloudprovider.helpers import label_value_problems

OWN_PARAMETERS = {"authfile": "authfile", "pkipath": "pki_path"}
"""Parameters of libvirt's URIs that have a setting here."""


class Config(ProviderConfig):
    """The settings; README.md has their table."""

    env_prefix: ClassVar[str] = "LIBVIRT_PROVIDER_"

    hosts: dict[str, str] = Field(
        min_length=1,
        description="The machines that run libvirt: a name, which becomes the zone label, and libvirt's URI, such as "
        "`qemu+tls://a.example/system`. All that a node may run on: one that is missing makes its nodes look deleted.",
    )
    authfile: str = Field(
        default="", description="The file with user names and passwords, in libvirt's format (auth.conf)."
    )
    pki_path: str = Field(
        default="", description="For TLS: the folder with cacert.pem, clientcert.pem and clientkey.pem."
    )
    region: str = Field(default="", description="The nodes' region label. Empty: none.")
    address_sources: tuple[Literal["lease", "agent", "arp"], ...] = Field(
        default=("lease", "agent"),
        min_length=1,
        description="Who is asked for addresses, in this order: the DHCP server of libvirt's network, the QEMU guest "
        "agent, the host's ARP table. The first that knows one counts.",
    )

    @field_validator("hosts")
    @classmethod
    def _are_uris(cls, hosts: dict[str, str]) -> dict[str, str]:
        problems = []
        for name, uri in hosts.items():
            problems += [f"{name}: {problem}" for problem in label_value_problems(name)]
            parts = urlsplit(uri)
            if not parts.scheme or ("://" not in uri and ":/" not in uri):
                problems.append(f"{name}: must be a URI of libvirt's, such as qemu+tls://a.example/system")
            problems += [
                f"{name}: give {OWN_PARAMETERS[key]} instead of {key} in the URI"
                for key, _ in parse_qsl(parts.query)
                if key in OWN_PARAMETERS
            ]
        if problems:
            raise ValueError("; ".join(problems))
        return hosts

    @field_validator("authfile", "pki_path")
    @classmethod
    def _can_be_read(cls, path: str) -> str:
        if path and not os.access(path, os.R_OK):
            raise ValueError(f"cannot read {path}")
        return path

    def uri(self, host: str) -> str:
        """The URI of a host with the files of the credentials, where its transport has any."""
        uri = self.hosts[host]
        if "+" not in urlsplit(uri).scheme:
            return uri  # a driver in this process has nobody to prove itself to
        given = {"authfile": self.authfile, "pkipath": self.pki_path if "+tls" in uri else ""}
        added = "&".join(f"{key}={quote(path)}" for key, path in given.items() if path)
        return uri if not added else f"{uri}{'&' if '?' in uri else '?'}{added}"
