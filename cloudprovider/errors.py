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
        ├── QuotaExceeded
        ├── RetryError
        │   └── Pending
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
because of it. Each raises TypeError where it is built of something else than it asks for.

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
    "QuotaExceeded",
    "RetryError",
    "Pending",
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


_SHOWN: Final = 80  # characters of a wrong value


def _wrong(error: BaseException, name: str, wanted: str, value: object) -> TypeError:
    """An exception is built of something else than it asks for. It would be found out only where
    the host reads it, far from the line that built it."""
    shown = repr(value)
    cut = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
    return TypeError(f"{type(error).__name__}: {name} must be {wanted}; it is of type {type(value).__name__}: {cut}")


def _text(error: BaseException, name: str, value: object, wanted: str = "a str") -> None:
    if not isinstance(value, str):
        raise _wrong(error, name, wanted, value)


def _message(error: BaseException, value: object) -> None:
    _text(error, "the message", value, f'a str, as in {type(error).__name__}("server web-1: HTTP 500")')


def _texts(error: BaseException, name: str, values: Iterable[str]) -> tuple[str, ...]:
    # A text alone would fall apart into its letters, each of them a line.
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise _wrong(error, name, 'several str, as in ["...", "..."]', values)
    found = tuple(values)
    for one in found:
        _text(error, f"each of {name}", one)
    return found


def _problems(error: BaseException, problems: tuple[str, ...]) -> tuple[str, ...]:
    name = type(error).__name__
    # An Event without a reason helps nobody at three in the morning.
    if not problems:
        raise TypeError(f'{name}: say what is wrong, as in {name}("port 80 is reserved")')
    for one in problems:
        _text(error, "each problem", one, f"a str; for a list of them write {name}(*problems)")
    return problems


def _delay(error: BaseException, value: object) -> float:
    # `Throttled("busy", True)` would be one second.
    if not isinstance(value, int | float) or isinstance(value, bool):
        name = type(error).__name__
        raise _wrong(error, "retry_after", f'a number of seconds, as in {name}("the cloud is busy", 5.0)', value)
    # A key that waits for infinity is never tried again, and nobody sees it.
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"retry_after must be a finite number of seconds >= 0, not {value!r}")
    return float(value)


class CloudProviderError(Exception):
    """Base of every error that this package defines. Raised as such, it means "failed, retry with
    backoff". `message` says what was asked and what the cloud answered.

    Follows: the error variables at the end of k8s.io/cloud-provider cloud.go.
    """

    def __init__(self, message: str = "", *more: object) -> None:
        # One with a constructor of its own, or of a client's library too, passes on what it likes.
        if type(self).__init__ is CloudProviderError.__init__:
            _message(self, message)
        super().__init__(*((message,) if message or more else ()), *more)


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
    its owner must change it. For `check_service` and `ensure_load_balancer`.

    `problems` are all that is wrong, each a clause for the Service's owner. The host tells them in
    one Warning Event. It calls again as soon as the Service changes, otherwise after `retry_after`
    seconds: an hour. A deletion never depends on what the Service asks for: raised from
    `ensure_load_balancer_deleted` this is an ordinary failure.
    """

    retry_after: Final = 3600.0

    def __init__(self, *problems: str) -> None:
        self.problems = _problems(self, problems)
        super().__init__(*problems)

    def __str__(self) -> str:
        return "; ".join(self.problems)


class InvalidAnnotations(InvalidService):
    """Annotations of the Service cannot be used. Raised by
    `cloudprovider.helpers.ServiceAnnotations`."""


class QuotaExceeded(CloudProviderError):
    """A limit of the cloud is reached: asking again does not help until something else goes or the
    limit is raised. For `create_route`, `ensure_load_balancer` and `update_load_balancer`.

    The host tells the message in a Warning Event, and does not back off: a route is asked for again
    when another route or a node goes, and everything after `retry_after` seconds: ten minutes.
    """

    retry_after: Final = 600.0


class InvalidConfig(CloudProviderError):
    """The provider's configuration cannot be used. `problems` are all that is wrong, each a line
    for the operator, with file and line or variable; none quotes a value. Raised by
    `cloudprovider.config.ProviderConfig.load`."""

    def __init__(self, *problems: str) -> None:
        self.problems = _problems(self, problems)
        super().__init__(*problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


class RetryError(CloudProviderError):
    """Nothing failed: ask again after `retry_after` seconds. See `Pending`, which says the same of
    work that the cloud has begun.

    The host waits one second at least, and later no less than a tenth of the time that it has
    waited so far (a minute at most): a build of an hour is not asked about each second. Up to a
    tenth is added by chance, so that objects that wait for the same time do not all come back at
    once. It is no failure in the log, in Events, metrics and alerts. The message is told to the
    object's owner in a Normal Event when its words change, and in a Warning after 15 minutes.

    Raises ValueError when the delay is negative or not finite.

    Follows: k8s.io/cloud-provider api/retry_error.go.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        _message(self, message)
        self.retry_after = _delay(self, retry_after)
        super().__init__(message, self.retry_after)

    def __str__(self) -> str:
        return str(self.args[0])


class Pending(RetryError):
    """The cloud has begun the work and is not done: it builds, changes or deletes. Call again after
    `retry_after` seconds to see how far it is.

    The method is called again with the same arguments, in this process or in a later one: it must
    find what it began in the cloud, and begin nothing twice. What the host does meanwhile, see
    `RetryError`.
    """

    def __init__(self, message: str, retry_after: float = 5.0) -> None:
        super().__init__(message, retry_after)


class Throttled(CloudProviderError):
    """The cloud refused because it was asked too often.

    `retry_after` is in seconds, None when the cloud named no time. The gateway slows down calls of
    this kind (about nodes, load balancers, routes ...), or with `whole_account` all calls to the
    provider, and repeats this one. Raises ValueError when the delay is negative or not finite.
    """

    def __init__(self, message: str = "", retry_after: float | None = None, *, whole_account: bool = False) -> None:
        _message(self, message)
        if not isinstance(whole_account, bool):
            raise _wrong(self, "whole_account", "True or False", whole_account)
        self.whole_account = whole_account
        self.retry_after = None if retry_after is None else _delay(self, retry_after)
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
        _message(self, message)
        for name, value in (("fix", fix), ("provider", provider), ("distribution", distribution)):
            _text(self, name, value)
        self.what = message
        self.details = _texts(self, "details", details)
        self.fix = fix
        self.provider = provider
        self.distribution = distribution
        self.known = tuple(sorted(_texts(self, "known", known)))
        names = f" Known providers: {', '.join(self.known)}." if self.known else ""
        super().__init__(sentences(message, self.details, fix) + names)

    @property
    def problem(self) -> Problem:
        """The parts of the message, to be shown among others."""
        known = f" (installed: {', '.join(self.known)})" if self.known else ""
        return Problem(self.what, f"{self.fix}{known}", self.details)


class InvalidProviderName(RegistryError):
    """The name is empty, reserved, or has characters that a provider ID cannot begin with."""


class DuplicateProvider(RegistryError):
    """Two different factories, or two installed distributions, claim one name."""


class UnknownProvider(RegistryError):
    """Nothing is registered or installed under this name."""


class ProviderLoadError(RegistryError):
    """The plugin's entry point could not be imported, or does not name something callable."""


class ProviderFactoryError(RegistryError):
    """The plugin's factory raised. Values of the cloud config are masked in the message, but for
    names of files.

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
        _text(self, "path", path)
        self.path = path


class ConfigMissing(ConfigError):
    """There is no file at this path."""


class ConfigUnreadable(ConfigError):
    """There is something at this path, but it cannot be read as a file."""
