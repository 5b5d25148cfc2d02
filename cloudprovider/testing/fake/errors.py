"""What the fake cloud raises besides the contract's own errors.

::

    CloudProviderError            (cloudprovider.errors)
    +-- FakeConfigError           the configuration has problems; lists every one of them
    +-- FakeCloudClosed           the cloud was closed while the call waited in it
    +-- QuotaExceeded             an address range is used up
    +-- BadRequest                the cloud cannot do what was asked: unknown load balancer, bad CIDR, batch too long

None of them means "gone": a host must treat each as unknown.
"""

from cloudprovider.errors import CloudProviderError, InvalidConfig


class FakeConfigError(InvalidConfig):
    """The fake cloud's configuration is wrong. `problems` holds a line for each fault: file and
    line, path, what is wrong."""


class FakeCloudClosed(CloudProviderError):
    """`FakeCloud.close` was called while this call was waiting, or before it."""


class QuotaExceeded(CloudProviderError):
    """An address range of the fake cloud is used up."""


class BadRequest(CloudProviderError):
    """The fake cloud refuses the request as it stands; repeating it unchanged fails again."""
