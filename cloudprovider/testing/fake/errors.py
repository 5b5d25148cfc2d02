"""Stage 5's answers when they are failures: what the fake cloud raises besides the contract's own errors.

::

    CloudProviderError            (cloudprovider.errors)
    +-- FakeConfigError           the configuration has problems; lists every one of them
    +-- FakeStateError            the file that holds the cloud cannot be opened, read or written
    +-- FakeCloudClosed           the cloud was closed while the call waited in it
    +-- CredentialsExpired        an "expired-credentials" fault: nothing is known about the object asked for
    +-- QuotaExceeded             a configured quota or address range is used up
    +-- BadRequest                the cloud cannot do what was asked: unknown load balancer, bad CIDR, batch too long

None of them means "gone": a host must treat each as unknown.
"""

from collections.abc import Sequence

from cloudprovider.errors import CloudProviderError, InvalidConfig

__all__ = [
    "BadRequest",
    "CredentialsExpired",
    "FakeCloudClosed",
    "FakeConfigError",
    "FakeStateError",
    "QuotaExceeded",
]


class FakeConfigError(InvalidConfig):
    """The fake cloud's configuration is wrong. `problems` holds one ``path: what is wrong`` line for each fault."""

    def __init__(self, problems: Sequence[str], source: str = "") -> None:
        super().__init__(*problems)
        self.source = source
        where = f" in {source}" if source else ""
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        self._text = "\n  ".join([f"fake cloud configuration: {count}{where}", *self.problems])

    def __str__(self) -> str:
        return self._text


class FakeStateError(CloudProviderError):
    """The SQLite file behind the cloud cannot be used; the message names the file and the fix."""


class FakeCloudClosed(CloudProviderError):
    """`FakeCloud.close` was called while this call was waiting, or before it."""


class CredentialsExpired(CloudProviderError):
    """What a cloud answers to a client whose credentials ran out."""


class QuotaExceeded(CloudProviderError):
    """A quota or an address range of the fake cloud is used up."""


class BadRequest(CloudProviderError):
    """The fake cloud refuses the request as it stands; repeating it unchanged fails again."""
