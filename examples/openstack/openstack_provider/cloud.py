"""The way to OpenStack's services in one region: openstacksdk's connection, with its retries off
and time limits that follow the provider call under way.

Nothing is tried twice here: the host does that, and knows when. One pool of connections and one
token serve all threads; keystoneauth renews the token before it ends, and once when a service
refuses it. The login comes from the configuration's [Global], else from clouds.yaml, else from the
environment (OS_CLOUD, or OS_AUTH_URL and the like), as openstacksdk reads them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any, cast

import requests
from keystoneauth1.exceptions import ClientException
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from openstack.config import OpenStackConfig
from openstack.config.cloud_region import CloudRegion
from openstack.connection import Connection
from openstack.exceptions import SDKException
from openstack.utils import maximum_supported_microversion
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.errors import ConfigError, InvalidConfig
from cloudprovider.helpers import time_limits
from openstack_provider.config import Config
from openstack_provider.rest import API

_APP = "openstack-controller-manager"
_CONNECTIONS = 50
_MICROVERSION = "2.90"  # of Nova. From 2.47 on a server has its flavour's name
_NO_RETRIES = {"connect_retries": 0, "status_code_retries": 0}


class Cloud:
    """One region. Thread-safe."""

    def __init__(self, config: Config, region: str, sdk: Connection) -> None:
        self._config, self._sdk = config, sdk
        self.region = region
        """"" where the cloud has but one and nobody named it."""
        self.project = ""
        """The ID of the cluster's project, once the login has worked."""

    @classmethod
    def of(cls, config: Config, region: str = "") -> Cloud:
        """The region, else that of the configuration or the login. Asks OpenStack nothing. Raises
        `InvalidConfig`."""
        sdk = connection(config, region)
        return cls(config, str(sdk.config.get_region_name() or ""), sdk)

    @property
    def config(self) -> Config:
        """The settings as they are now."""
        return self._config

    @property
    def sdk(self) -> Connection:
        """openstacksdk's connection. Ask for it for each request, as for the services below: a new
        login makes a new one."""
        return self._sdk

    @property
    def mine(self) -> list[tuple[str, str]]:
        """The filter for what is in the cluster's project. Neutron also shows what other projects
        share with it, and an administrator is shown all."""
        project = self._sdk.session.get_project_id()
        return [("project_id", project)] if project else []

    @property
    def nova(self) -> API:
        return API(self._sdk.compute, maximum_supported_microversion(self._sdk.compute, _MICROVERSION))

    @property
    def neutron(self) -> API:
        return API(self._sdk.network)

    @property
    def octavia(self) -> API:
        return API(self._sdk.load_balancer)

    def use(self, config: Config) -> None:
        """Log in by these settings from the next request on. Raises `InvalidConfig`, and nothing
        has changed then: also for a login to another project, where no server of the cluster is, so
        that all of its nodes would be gone."""
        sdk = connection(config, self.region)
        with suppress(ClientException):  # that it does not work now is told by each request
            project = sdk.session.get_project_id()
            if self.project and project != self.project:
                raise InvalidConfig(
                    f"the new login is for the project {project}, and this cluster's is {self.project}: if the cluster "
                    "has moved there, restart the manager"
                )
        self._config, self._sdk = config, sdk


class _InTime(TCPKeepAliveAdapter):
    """Gives each request the time that is left of the provider call under way; one that could no
    longer end in time is not sent."""

    def __init__(self, most: float) -> None:
        self._most = most
        super().__init__(pool_maxsize=_CONNECTIONS, max_retries=0)

    @override
    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        within = {**options, "timeout": time_limits(most=self._most)}
        # pyright does not know the base class of keystoneauth's adapter
        return super().send(request, *args, **within)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def connection(config: Config, region: str = "") -> Connection:
    """A connection with a pool and a token of its own. Asks OpenStack nothing. Raises
    `InvalidConfig`."""
    http = requests.Session()
    for scheme in ("http://", "https://"):
        http.mount(scheme, _InTime(config.metadata.request_timeout))
    try:
        made = Connection(config=_login(config, region, http))
    except (SDKException, ClientException) as error:
        raise InvalidConfig(f"the login for OpenStack cannot be used: {error}") from error
    except InvalidConfig:
        raise
    except Exception as error:  # noqa: BLE001 - whatever openstacksdk makes of an odd clouds.yaml
        # Without its words, which may quote the file.
        raise InvalidConfig(f"clouds.yaml is not as openstacksdk wants it ({type(error).__name__})") from None
    # clouds.yaml may ask for a cache of answers: an old answer would say that a machine is there.
    made.cache_enabled = False
    # At DEBUG keystoneauth logs whole answers: user data and certificates are among them.
    logging.getLogger("keystoneauth").setLevel(logging.INFO)
    return made


def clouds_file(config: Config) -> str:
    """The clouds.yaml that the login comes from; "" where it comes from elsewhere, or from no
    file."""
    if not (_by_file(config) or (not config.auth_url and os.environ.get("OS_CLOUD"))):
        return ""
    found = OpenStackConfig(**_files(config)).config_filename
    return str(found or "")


def _by_file(config: Config) -> bool:
    return config.use_clouds or bool(config.cloud)


def _files(config: Config) -> dict[str, Any]:
    return {"config_files": [config.clouds_file]} if config.clouds_file else {}


def _login(config: Config, region: str, http: requests.Session) -> CloudRegion:
    by_file = _by_file(config)
    by_environment = not by_file and not config.auth_url
    if by_environment and not (os.environ.get("OS_CLOUD") or os.environ.get("OS_AUTH_URL")):
        raise InvalidConfig(
            "there is no login for OpenStack: give auth-url in [Global], or use-clouds and cloud, or the variables "
            "OS_CLOUD or OS_AUTH_URL"
        )
    if path := clouds_file(config):
        try:
            CloudConfig(path, b"").read_again()  # its secrets are masked from now on in what this process shows
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error
    loader = OpenStackConfig(
        # keystoneauth's session class, with connections of ours
        session_constructor=cast("type[Session]", partial(Session, session=http)),
        app_name=_APP,
        app_version=version("kubernetes-cloud-provider"),
        load_yaml_config=by_file or by_environment,
        load_envvars=by_environment,
        **_files(config),
    )
    options: dict[str, Any] = {"auth": _auth(config), **_NO_RETRIES}
    if auth_type := _auth_type(config):
        options["auth_type"] = auth_type
    if region or config.region:
        options["region_name"] = region or config.region
    if not by_environment or config.os_endpoint_type != "public":
        options["interface"] = config.os_endpoint_type
    files = {"cacert": config.ca_file, "cert": config.cert_file, "key": config.key_file}
    options |= {name: path for name, path in files.items() if path}
    if config.tls_insecure:
        options["verify"] = False
    entry = config.cloud or os.environ.get("OS_CLOUD") if by_file or by_environment else None
    if entry and entry not in (there := loader.get_cloud_names()):
        raise InvalidConfig(_no_entry(config, loader.config_filename, there))
    return loader.get_one(cloud=entry, **options)  # what [Global] gives counts more than the entry


def _no_entry(config: Config, file: str | None, there: Sequence[str]) -> str:
    """Why there is no such entry. Quotes nothing of cloud.conf but the names of settings: the host
    masks every other word of it."""
    if file:
        setting = "cloud" if config.cloud else "OS_CLOUD"
        return f"{setting}: the file of logins has no entry of this name; it has: {', '.join(there) or 'none'}"
    if config.clouds_file:
        return "clouds-file: there is no such file; a relative path begins where the program was started"
    return (
        "there is no clouds.yaml in the folder where the program was started, in ~/.config/openstack or in "
        "/etc/openstack: say by clouds-file where it is"
    )


def _auth_type(config: Config) -> str:
    """keystoneauth's plug-in for what the configuration gives; "" where that is all in
    clouds.yaml."""
    if config.application_credential_secret.get_secret_value():
        return "v3applicationcredential"
    if config.token.get_secret_value():
        return "v3token"
    return "v3password" if config.password.get_secret_value() else ""


def _auth(config: Config) -> Mapping[str, str]:
    """What [Global] gives, under keystoneauth's names."""
    user_domain = config.user_domain_id or config.domain_id, config.user_domain_name or config.domain_name
    project_domain = config.tenant_domain_id or config.domain_id, config.tenant_domain_name or config.domain_name
    trust = config.trust_id
    by_credential = bool(config.application_credential_secret.get_secret_value())
    given = {
        "auth_url": config.auth_url,
        "username": config.username,
        "user_id": config.trustee_id or config.user_id,
        "password": config.trustee_password.get_secret_value() or config.password.get_secret_value(),
        "token": config.token.get_secret_value(),
        "trust_id": trust,
        "application_credential_id": config.application_credential_id,
        "application_credential_name": config.application_credential_name,
        "application_credential_secret": config.application_credential_secret.get_secret_value(),
        "user_domain_id": user_domain[0],
        "user_domain_name": "" if user_domain[0] else user_domain[1],
    }
    if not (trust or by_credential):  # those are for one project already
        given |= {
            "project_id": config.tenant_id,
            "project_name": "" if config.tenant_id else config.tenant_name,
            "project_domain_id": project_domain[0],
            "project_domain_name": "" if project_domain[0] else project_domain[1],
        }
    return {name: value for name, value in given.items() if value}
