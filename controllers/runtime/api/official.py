"""What the official client makes of a kubeconfig, and what it is told of ours (before stage 1).

Vendors get a client's Configuration made from `ServerSettings`. Only kubeconfigs with an auth
provider are read by the official client, as it alone knows how to renew such tokens. Its modules
are imported here when they are needed: each start would take 0.1 s longer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration


class RefusedByLoader(Exception):
    """The official client's loader does not accept the kubeconfig; the message is its own."""


@define
class ServerSettings:
    """How the server is reached. Names are those of the official client's Configuration."""

    host: str
    ssl_ca_cert: str | None = None
    ca_cert_data: str | bytes | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    assert_hostname: bool | None = None
    tls_server_name: str | None = None
    proxy: str | None = None


def settings_of(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ServerSettings:
    """How to reach the cluster's server, from entries that are checked and name files."""
    made = ServerSettings(
        host=cluster["server"].rstrip("/"),
        verify_ssl=not cluster.get("insecure-skip-tls-verify"),
        tls_server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
    )
    if made.host.startswith("https"):
        made.ssl_ca_cert = cluster.get("certificate-authority") or None
        made.cert_file, made.key_file = user.get("client-certificate") or None, user.get("client-key") or None
    return made


def document_for_loader(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    """The context as a kubeconfig for the official loader, without what it cannot do."""
    hidden = ("exec", "tokenFile", "as", "as-uid", "as-groups", "as-user-extra")
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "current",
        "contexts": [{"name": "current", "context": {"cluster": "current", "user": "current"}}],
        "clusters": [{"name": "current", "cluster": cluster}],
        "users": [{"name": "current", "user": {k: v for k, v in user.items() if k not in hidden}}],
    }


def configuration_of(settings: ServerSettings) -> Configuration:
    """A new Configuration of the official client, without credentials. The environment's proxies
    are not asked for again."""
    from kubernetes.client.configuration import Configuration

    made = Configuration(
        host=settings.host,
        ssl_ca_cert=settings.ssl_ca_cert,
        ca_cert_data=settings.ca_cert_data,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        verify_ssl=settings.verify_ssl,
        assert_hostname=settings.assert_hostname,
        tls_server_name=settings.tls_server_name,
        proxy=settings.proxy,
        no_proxy="",
    )
    made.proxy = settings.proxy  # None above means: that of the environment
    return made


def provider_token(document: dict[str, Any]) -> str:
    """The value of the header Authorization that the auth provider of this kubeconfig gives, "" for
    none; it may be renewed first. Raises RefusedByLoader."""
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import load_kube_config_from_dict

    read = Configuration()
    try:
        load_kube_config_from_dict(  # type: ignore[no-untyped-call]  # the client ships no annotations for it
            document, client_configuration=read, persist_config=False
        )
    except ConfigException as error:
        raise RefusedByLoader(str(error)) from None
    return str(read.api_key.get("BearerToken") or "")
