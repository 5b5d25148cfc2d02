"""The exception tree: how a provider tells the host what happened (stage 5, cloud call).

Raised by vendors' code and by the registry; read by the gateway, which turns each class into a
decision. Always matched with `isinstance`, so that subclasses and chained errors count::

    Exception
    └── CloudProviderError
        ├── InstanceNotFound
        ├── DiskNotFound
        ├── NotImplementedByProvider
        ├── ImplementedElsewhere
        ├── LoadBalancerKept
        ├── InvalidService
        │   └── InvalidAnnotations
        ├── InvalidConfig
        ├── RetryError
        ├── Throttled
        ├── CallInterrupted
        │   ├── CallCancelled
        │   └── CallDeadlineExceeded
        └── RegistryError
            ├── InvalidProviderName
            ├── DuplicateProvider
            ├── UnknownProvider
            ├── ProviderLoadError
            ├── ProviderFactoryError
            ├── ProviderTypeError
            └── ConfigError
                ├── ConfigMissing
                └── ConfigUnreadable

Only `InstanceNotFound` (or `instance_exists` answering False) says that an instance is gone.
Everything else, exceptions from outside this tree included, means "unknown": nothing is deleted
because of it.

A message may end up in a log or in an Event that every user of the cluster can read: leave secrets
out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from cloudprovider.internal.problem import Problem, sentences

__all__ = [
    "CloudProviderError",
    "InstanceNotFound",
    "DiskNotFound",
    "NotImplementedByProvider",
    "ImplementedElsewhere",
    "LoadBalancerKept",
    "InvalidService",
    "InvalidAnnotations",
    "InvalidConfig",
    "RetryError",
    "Throttled",
    "CallInterrupted",
    "CallCancelled",
    "CallDeadlineExceeded",
    "RegistryError",
    "InvalidProviderName",
    "DuplicateProvider",
    "UnknownProvider",
    "ProviderLoadError",
    "ProviderFactoryError",
    "ProviderTypeError",
    "ConfigError",
    "ConfigMissing",
    "ConfigUnreadable",
]


class CloudProviderError(Exception):
    """Base of every error that this package defines. Raised as such, it means "failed, retry with
    backoff".

    Follows: the error variables at the end of k8s.io/cloud-provider cloud.go.
    """


class InstanceNotFound(CloudProviderError):
    """The cloud answered, and the instance does not exist.

    Never for an instance that exists but is stopped or asleep, and never for a question that could
    not be answered (a timeout, a refused login, a truncated page): nodes are deleted on the
    strength of this class.
    """


class DiskNotFound(CloudProviderError):
    """The cloud answered, and the volume does not exist."""


class NotImplementedByProvider(CloudProviderError):
    """This provider does not do what was asked. The host goes on without it and does not retry.

    Python's own NotImplementedError counts as an ordinary failure: it marks unfinished code.
    """


class ImplementedElsewhere(CloudProviderError):
    """Another controller looks after this object, so ours leaves it alone.

    Only for `ensure_load_balancer` and `update_load_balancer`; never for
    `ensure_load_balancer_deleted`.
    """


class LoadBalancerKept(CloudProviderError):
    """The load balancer stays in the cloud on purpose, and its Service may go: an annotation of the
    provider asks for it, or it is protected against deletion.

    Only for `ensure_load_balancer_deleted`, each time that it is called. The host takes it for
    done: it removes its finalizer, and tells the Service's owner the message in an Event. Say there
    which load balancer it is. Raised from other methods it is an ordinary failure.
    """


class InvalidService(CloudProviderError):
    """The Service asks for something that cannot be done, and asking the cloud again does not help:
    its owner must change it. For `ensure_load_balancer` and `update_load_balancer`.

    `problems` are all that is wrong, each a clause for the Service's owner. The host tells them in
    one Warning Event. It calls again as soon as the Service changes, otherwise after `retry_after`
    seconds: an hour. A deletion never depends on what the Service asks for: raised from
    `ensure_load_balancer_deleted` this is an ordinary failure.
    """

    retry_after: Final = 3600.0

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(problems)
        super().__init__(*problems)

    def __str__(self) -> str:
        return "; ".join(self.problems)


class InvalidAnnotations(InvalidService):
    """Annotations of the Service cannot be used. Raised by
    `cloudprovider.helpers.ServiceAnnotations`."""


class InvalidConfig(CloudProviderError):
    """The provider's configuration cannot be used. `problems` are all that is wrong, each a line
    for the operator, with file and line or variable; none quotes a value. Raised by
    `cloudprovider.config.ProviderConfig.load`."""

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(problems)
        super().__init__(*problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


def _checked_delay(retry_after: float) -> float:
    delay = float(retry_after)
    if not math.isfinite(delay) or delay < 0:
        raise ValueError(f"retry_after must be a finite number of seconds >= 0, not {retry_after!r}")
    return delay


class RetryError(CloudProviderError):
    """Not ready yet: ask again after this time instead of backing off.

    `retry_after` is in seconds. For work that is on its way, such as a load balancer still being
    built. The host waits that long, one second at least, and up to a tenth more, so that objects
    that wait for the same time do not all come back at once. It never backs off, and does not count
    this as a failure. Raises ValueError when the delay is negative or not finite.

    Follows: k8s.io/cloud-provider api/retry_error.go.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        self.retry_after = _checked_delay(retry_after)
        super().__init__(message, self.retry_after)

    def __str__(self) -> str:
        return str(self.args[0])


class Throttled(CloudProviderError):
    """The cloud refused because it was asked too often.

    `retry_after` is in seconds, None when the cloud named no time. The gateway slows down calls of
    this kind (about nodes, load balancers, routes ...), or with `whole_account` all calls to the
    provider, and repeats this one. Raises ValueError when the delay is negative or not finite.
    """

    def __init__(self, message: str = "", retry_after: float | None = None, *, whole_account: bool = False) -> None:
        self.whole_account = whole_account
        self.retry_after = None if retry_after is None else _checked_delay(retry_after)
        super().__init__(message, self.retry_after)

    def __str__(self) -> str:
        text = str(self.args[0]) or "the cloud throttles this client"
        return text if self.retry_after is None else f"{text} (retry after {self.retry_after:g} s)"


class CallInterrupted(CloudProviderError):
    """The host no longer wants the answer of the call under way; see
    `cloudprovider.current_call`."""


class CallCancelled(CallInterrupted):
    """The host cancelled the call: it is stopping, or it lost the lease."""


class CallDeadlineExceeded(CallInterrupted):
    """The call's deadline has passed."""


class RegistryError(CloudProviderError):
    """A provider could not be registered, found or started. The message names the culprit and the
    fix.

    `provider` is the name asked for, `distribution` the installed distribution to blame ("name
    version", empty when there is none), `known` the names that exist, sorted, where the name is
    what is wrong; the message ends with them. `what`, `details` and `fix` are the parts of the
    message, which has a line for each detail.
    """

    def __init__(
        self,
        message: str,
        *,
        details: Iterable[str] = (),
        fix: str = "",
        provider: str = "",
        distribution: str = "",
        known: Iterable[str] = (),
    ) -> None:
        self.what = message
        self.details = tuple(details)
        self.fix = fix
        self.provider = provider
        self.distribution = distribution
        self.known = tuple(sorted(known))
        names = f" Known providers: {', '.join(self.known)}." if self.known else ""
        super().__init__(sentences(message, self.details, fix) + names)

    @property
    def problem(self) -> Problem:
        """The parts of the message, to be shown among others."""
        return Problem(self.what, self.fix, self.details)


class InvalidProviderName(RegistryError):
    """The name is empty, reserved, or has characters that a provider ID cannot begin with."""


class DuplicateProvider(RegistryError):
    """Two different factories, or two installed distributions, claim one name."""


class UnknownProvider(RegistryError):
    """Nothing is registered or installed under this name."""


class ProviderLoadError(RegistryError):
    """The plugin's entry point could not be imported, or does not name something callable."""


class ProviderFactoryError(RegistryError):
    """The plugin's factory raised. Values of the cloud config are masked in the message.

    An exception of several lines is shown line by line: raise one with a line for each mistake of a
    config file.
    """


class ProviderTypeError(RegistryError):
    """The plugin's factory takes no cloud config, or returned something other than a
    `cloudprovider.Interface`."""


class ConfigError(RegistryError):
    """The cloud config file could not be used. `path` names it."""

    def __init__(self, message: str, *, fix: str = "", path: str = "", provider: str = "") -> None:
        super().__init__(message, fix=fix, provider=provider)
        self.path = path


class ConfigMissing(ConfigError):
    """There is no file at this path."""


class ConfigUnreadable(ConfigError):
    """There is something at this path, but it cannot be read as a file."""
