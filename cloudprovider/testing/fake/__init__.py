"""The provider `fake`: a cloud in memory or in a file, with faults on demand. For our tests, yours, and demos.

`FakeCloud(FakeConfig(...))` in a test, `--cloud-provider=fake --cloud-config=FILE` in the manager;
`examples/fake-cloud.yaml` shows the whole configuration.
"""

from cloudprovider.testing.fake.cloud import FakeCloud, new_provider
from cloudprovider.testing.fake.config import FakeConfig, InstanceConfig, InstanceGenerator, read_config
from cloudprovider.testing.fake.errors import (
    BadRequest,
    CredentialsExpired,
    FakeCloudClosed,
    FakeConfigError,
    FakeStateError,
    QuotaExceeded,
)
from cloudprovider.testing.fake.faults import (
    ExpiredCredentials,
    HalfBuilt,
    Hang,
    Junk,
    Partial,
    Raise,
    Throttle,
    Wrong,
)
from cloudprovider.testing.fake.gate import CallRecord

__all__ = [
    "FakeCloud",
    "FakeConfig",
    "InstanceConfig",
    "InstanceGenerator",
    "new_provider",
    "read_config",
    "CallRecord",
    # faults
    "ExpiredCredentials",
    "HalfBuilt",
    "Hang",
    "Junk",
    "Partial",
    "Raise",
    "Throttle",
    "Wrong",
    # errors
    "BadRequest",
    "CredentialsExpired",
    "FakeCloudClosed",
    "FakeConfigError",
    "FakeStateError",
    "QuotaExceeded",
]
