"""A provider's configuration: a class with types, read from a file, the environment and files of
secrets.

A vendor subclasses `ProviderConfig` and loads it in the factory::

    class AcmeConfig(ProviderConfig):
        env_prefix: ClassVar[str] = "ACME_"

        region: str
        token: SecretStr
        page_size: int = Field(default=100, ge=1, le=500)

    def new_provider(config: CloudConfig | None) -> Interface:
        return Acme(AcmeConfig.load(config))

Comes in: the `CloudConfig` of --cloud-config (YAML, JSON, or INI as Go's clouds read it), variables
such as ACME_TOKEN, and ACME_TOKEN_FILE. Goes out: one frozen value, or `InvalidConfig` with every
problem. `ConfigWatcher` loads it again when a file changes.

Not imported by `import cloudprovider`: pydantic and the YAML parser are loaded by those who need
them.
"""

from __future__ import annotations

from cloudprovider.config.model import ProviderConfig, Seconds
from cloudprovider.config.settings import CAFile, Endpoint, SecretWord
from cloudprovider.config.watcher import ConfigWatcher
from cloudprovider.errors import InvalidConfig

__all__ = ["CAFile", "ConfigWatcher", "Endpoint", "InvalidConfig", "ProviderConfig", "Seconds", "SecretWord"]
