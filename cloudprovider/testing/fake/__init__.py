"""The provider `fake`: a cloud in memory, with faults on demand, for our tests, yours, and demos.

::

    with FakeCloud() as cloud:
        cloud.console.add_instance("node-1", zone="north-1")  # what people do to a cloud
        cloud.faults.on("instance*", raises(Throttled("slow down")), times=3)  # what goes wrong
        ...
        assert cloud.calls.count("ensure_load_balancer") == 1  # what its clients did

In a test the `FakeCloud` is the provider. A process of its own gets `--cloud-provider=fake` and the
`--cloud-config` that `FakeCloud.share` writes: it then works on the cloud of the test.
`examples/fake-cloud.yaml` shows the whole configuration.
"""

from cloudprovider.testing.fake.calls import CallBook, Caller, CallRecord
from cloudprovider.testing.fake.cloud import FakeCloud, new_provider
from cloudprovider.testing.fake.config import FakeConfig
from cloudprovider.testing.fake.console import Console
from cloudprovider.testing.fake.faults import (
    Action,
    FakeCloudClosed,
    Fault,
    Faults,
    Strike,
    answers,
    half_builds,
    hangs,
    raises,
)
from cloudprovider.testing.fake.machines import BadRequest
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
    "FakeConfig",
    "new_provider",
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
    "Faults",
    "Fault",
    "Strike",
    "Action",
    "raises",
    "hangs",
    "answers",
    "half_builds",
    # errors
    "BadRequest",
    "FakeCloudClosed",
]
