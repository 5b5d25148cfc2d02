"""The way to OpenStack's services in one region: openstacksdk's connection, with its retries off
and time limits that follow the provider call under way.

Nothing is tried twice here: the host does that, and knows when. One pool of connections and one
token serve all threads.
"""

from __future__ import annotations

from openstack.connection import Connection

from openstack_provider.config import Config


class Cloud:
    """One region. Thread-safe."""

    def __init__(self, config: Config, region: str, sdk: Connection) -> None:
        self.config = config
        self.region = region
        """"" where the cloud has but one and nobody named it."""
        self.sdk = sdk
        """`sdk.compute`, `sdk.network` and `sdk.load_balancer` ask the services. What they raise
        becomes the contract's errors under `errors.answered`."""
