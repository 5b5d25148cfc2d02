"""The provider `fake`: a cloud in memory or in a file, with faults on demand. For our tests, yours, and demos.

`FakeCloud(FakeConfig(...))` in a test, `--cloud-provider=fake --cloud-config=FILE` in the manager;
`examples/fake-cloud.yaml` shows the whole configuration.
"""

from cloudprovider.testing.fake.calls import CallBook, Caller, CallRecord
from cloudprovider.testing.fake.cloud import Attached, FakeCloud, attach, new_provider
from cloudprovider.testing.fake.config import (
    ClusterConfig,
    FakeConfig,
    InstanceConfig,
    InstanceGenerator,
    LoadBalancerConfig,
    OnDemand,
    RouteConfig,
    RouteTableConfig,
    VolumeConfig,
)
from cloudprovider.testing.fake.configfile import parse_config, read_config
from cloudprovider.testing.fake.console import Console
from cloudprovider.testing.fake.errors import (
    BadRequest,
    CredentialsExpired,
    FakeCloudClosed,
    FakeConfigError,
    FakeStateError,
    QuotaExceeded,
)
from cloudprovider.testing.fake.faultbook import ActiveFault, FaultBook
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
from cloudprovider.testing.fake.records import (
    Cluster,
    Instance,
    LoadBalancerRecord,
    LoadBalancerState,
    Port,
    RouteRecord,
    Volume,
)

__all__ = [
    "FakeCloud",
    "new_provider",
    "attach",
    "Attached",
    # configuration
    "FakeConfig",
    "InstanceConfig",
    "InstanceGenerator",
    "OnDemand",
    "LoadBalancerConfig",
    "RouteTableConfig",
    "RouteConfig",
    "VolumeConfig",
    "ClusterConfig",
    "read_config",
    "parse_config",
    # the console, and what it shows
    "Console",
    "Instance",
    "LoadBalancerRecord",
    "LoadBalancerState",
    "Port",
    "RouteRecord",
    "Volume",
    "Cluster",
    # what the cloud's clients did
    "CallBook",
    "CallRecord",
    "Caller",
    # faults
    "FaultBook",
    "ActiveFault",
    "ExpiredCredentials",
    "HalfBuilt",
    "Hang",
    "Junk",
    "Partial",
    "Raise",
    "Throttle",
    "Wrong",
    # listing by cluster
    # errors
    "BadRequest",
    "CredentialsExpired",
    "FakeCloudClosed",
    "FakeConfigError",
    "FakeStateError",
    "QuotaExceeded",
]
