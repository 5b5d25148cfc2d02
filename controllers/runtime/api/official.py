"""How the official client is set up for our server, for vendors, and what it makes of a kubeconfig
(before stage 1).

Only kubeconfigs with an auth provider are read by the official client, as it alone knows how to
renew such tokens. Its modules are imported here when they are needed: each start would take 0.1 s
longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controllers.runtime.api.tls import TLSSettings
from controllers.runtime.api.wire import Endpoint

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration


class RefusedByLoader(Exception):
    """The official client's loader does not accept the kubeconfig; the message is its own."""


def configuration_of(endpoint: Endpoint, tls: TLSSettings) -> Configuration:
    """A new Configuration of the official client, without credentials. The environment's proxies
    are not asked for again."""
    from kubernetes.client.configuration import Configuration

    made = Configuration(
        host=endpoint.url,
        ssl_ca_cert=tls.ca_file or None,
        cert_file=tls.cert_file or None,
        key_file=tls.key_file or None,
        verify_ssl=tls.verify,
        tls_server_name=endpoint.server_name if endpoint.server_name != endpoint.host else None,
        no_proxy="",
    )
    made.proxy = endpoint.proxy.url if endpoint.proxy else None  # not left to it: that would be the environment's
    return made


def provider_token(provider: dict[str, Any]) -> str:
    """The value of the header Authorization that this `auth-provider` of a kubeconfig gives, "" for
    none; it may be renewed first, and is changed then. Raises RefusedByLoader."""
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import load_kube_config_from_dict

    read = Configuration()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "current",
        "contexts": [{"name": "current", "context": {"cluster": "current", "user": "current"}}],
        "clusters": [{"name": "current", "cluster": {}}],
        "users": [{"name": "current", "user": {"auth-provider": provider}}],
    }
    try:
        load_kube_config_from_dict(  # type: ignore[no-untyped-call]  # the client ships no annotations for it
            document, client_configuration=read, persist_config=False
        )
    except ConfigException as error:
        raise RefusedByLoader(str(error)) from None
    except Exception as error:  # noqa: BLE001 - auth libraries raise what they like, also where only their server is away
        raise RefusedByLoader(f"its auth-provider failed: {type(error).__name__}: {str(error)[:500]}") from None
    return str(read.api_key.get("BearerToken") or "")
