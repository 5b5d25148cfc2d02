"""The faults that can be put between a host and the fake cloud (stage 5): one frozen model for each action.

Written in a configuration file under `faults`, or made in Python and handed to `FakeCloud.faults.add`. gate.py decides
which of them a call meets and carries them out, junk.py makes the wrong answers.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from cloudprovider.errors import (
    CloudProviderError,
    DiskNotFound,
    ImplementedElsewhere,
    InstanceNotFound,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from cloudprovider.testing.fake.errors import CredentialsExpired, QuotaExceeded
from cloudprovider.testing.fake.methods import Method, Returns, matching_methods
from cloudprovider.testing.fake.model import Count, Duration, Model, Patterns, as_patterns

__all__ = [
    "AnyFault",
    "ExpiredCredentials",
    "Fault",
    "HalfBuilt",
    "Hang",
    "Junk",
    "Partial",
    "Raise",
    "Throttle",
    "Wrong",
    "decode_fault",
]

_ERRORS: dict[str, type[BaseException]] = {
    cls.__name__: cls
    for cls in (
        CloudProviderError, InstanceNotFound, DiskNotFound, NotImplementedByProvider, ImplementedElsewhere,
        CredentialsExpired, QuotaExceeded, RuntimeError, ValueError, TypeError, KeyError, OSError, ConnectionError,
        TimeoutError, NotImplementedError, MemoryError, SystemExit,
    )
}  # fmt: skip
ErrorName = Literal[
    "CloudProviderError", "InstanceNotFound", "DiskNotFound", "NotImplementedByProvider", "ImplementedElsewhere",
    "RetryError", "Throttled", "CredentialsExpired", "QuotaExceeded", "RuntimeError", "ValueError", "TypeError",
    "KeyError", "OSError", "ConnectionError", "TimeoutError", "NotImplementedError", "MemoryError", "SystemExit",
]  # fmt: skip


class Junk(enum.Enum):
    """Answers that break the contract. Each fits some methods only; others answer truly."""

    NONE = "none"
    """None where something is promised."""
    TYPE = "type"
    """A value of another type."""
    EMPTY = "empty"
    """The right type with nothing in it."""
    ADDRESSES = "addresses"
    """Addresses that are none, and an address type that does not exist."""
    PROVIDER_ID = "provider-id"
    """A provider ID of another form."""
    OTHER_PROVIDER_ID = "other-provider-id"
    """The provider ID of an instance that is not the one asked about."""
    LABELS = "labels"
    """Labels of bad syntax, and of reserved prefixes."""
    PLACES = "places"
    """Zone, region and type that are no valid label values; routes to what is no CIDR."""
    ERRORS = "errors"
    """In a batch: an exception from outside the contract as the value of a name."""
    UNASKED = "unasked"
    """In a batch: more names than were asked for, all of them "gone"."""
    KEYS = "keys"
    """In a batch: the right values under provider IDs in place of names."""
    MUTATED = "mutated"
    """The true answer, after scribbling on the arguments."""


class Fault(Model):
    """What every fault has: which calls it meets, and when. Durations in seconds, counted from when it was added."""

    name: str = ""
    """Identifies it for `remove` and `release`; made up when empty."""
    method: Patterns = "*"
    """Methods it meets, as patterns."""
    key: Patterns = ()
    """Only calls about a key that matches: node name or provider ID, "namespace/name" of a Service or the load
    balancer's name, a route's name, destination or node, a volume's ID or name, a cluster's name. Empty: all calls."""
    caller: Patterns = ()
    """Only callers whose name or process ID matches. Empty: all."""
    scope: Literal["call", "key"] | None = None
    """In a batch: strike the whole call, or only the answers of the matching keys. Default: "key" where `key` is given,
    and for wrong answers, but for those that only a whole call can give; else "call". """
    times: Annotated[int, Field(ge=1, strict=True)] | None = None
    """It strikes so often, then never again."""
    skip: Count = 0
    """So many matching calls pass before the first strike."""
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """It strikes a matching call with this probability, drawn by the seed, the key, and how often that was asked."""
    start: Duration = 0.0
    stop: Duration | None = None
    """It strikes only in this window."""

    @property
    def key_scoped(self) -> bool:
        """Whether, in a batch, it concerns single keys."""
        return self.scope == "key" if self.scope is not None else bool(self.key)

    def fits(self, method: Method) -> bool:
        """Whether it has any effect on this method."""
        return True

    @model_validator(mode="after")
    def _check(self) -> Self:
        chosen = matching_methods(as_patterns(self.method))
        if not chosen:
            raise ValueError("'method' matches no method of the fake cloud")
        if not any(self.fits(method) for method in chosen):
            raise ValueError("this fault has no effect on any of the methods that 'method' matches")
        if self.stop is not None and self.stop <= self.start:
            raise ValueError("'stop' must be later than 'start'")
        return self


class _Failing(Fault):
    message: str = ""
    when: Literal["before", "after"] = "before"
    """Before the cloud did anything, or after it did all that was asked: the caller cannot tell."""

    def _text(self, method: str) -> str:
        return self.message or f"injected into {method} by the fault {self.name}"

    def exception(self, method: str) -> BaseException:
        """A new exception of the kind to raise."""
        return CloudProviderError(self._text(method))


class Raise(_Failing):
    """The call raises."""

    action: Literal["raise"] = "raise"
    error: ErrorName = "CloudProviderError"
    retry_after: Duration | None = None
    """For RetryError and Throttled."""

    def exception(self, method: str) -> BaseException:
        if self.error == "RetryError":
            return RetryError(self._text(method), 1.0 if self.retry_after is None else self.retry_after)
        if self.error == "Throttled":
            return Throttled(self._text(method), self.retry_after)
        return _ERRORS[self.error](self._text(method))


class Throttle(_Failing):
    """The call raises Throttled."""

    action: Literal["throttle"] = "throttle"
    retry_after: Duration | None = None

    def exception(self, method: str) -> BaseException:
        return Throttled(self._text(method), self.retry_after)


class ExpiredCredentials(_Failing):
    """The call raises CredentialsExpired: the cloud says nothing about the object."""

    action: Literal["expired-credentials"] = "expired-credentials"

    def exception(self, method: str) -> BaseException:
        return CredentialsExpired(self.message or "the credentials of this client have expired")


class HalfBuilt(_Failing):
    """`ensure_load_balancer` creates a load balancer without address or backends, then raises."""

    action: Literal["half-built"] = "half-built"
    method: Patterns = "ensure_load_balancer"

    def fits(self, method: Method) -> bool:
        return method.returns is Returns.NEW_BALANCER


class Hang(Fault):
    """The call does not return until the fault is released or removed, or `seconds` have passed; then it goes on."""

    action: Literal["hang"] = "hang"
    seconds: Duration | None = None
    mode: Literal["hard", "soft"] = "hard"
    """A hard hang does not notice that the host cancels the call or that its deadline passes; a soft one does."""
    when: Literal["before", "after"] = "before"


class Wrong(Fault):
    """The call succeeds with an answer that is not true. Methods that answer nothing pass untouched."""

    action: Literal["wrong"] = "wrong"
    answer: Literal["not-found", "junk", "stale"]
    """Stale is what was true before the last change of each object asked about; it always strikes the whole call."""
    junk: Junk | None = None
    """Which junk; None draws one that fits the method, by the seed."""
    age: Duration | None = None
    """Stale answers only about changes younger than this; None: however old."""

    @property
    def key_scoped(self) -> bool:
        whole = self.answer == "stale" or self.junk in (Junk.UNASKED, Junk.KEYS, Junk.MUTATED)
        return not whole and self.scope != "call"

    def fits(self, method: Method) -> bool:
        return method.returns is not Returns.NOTHING and not (
            self.answer != "junk" and method.returns is Returns.NEW_BALANCER
        )

    @model_validator(mode="after")
    def _check_answer(self) -> Self:
        if self.junk is not None and self.answer != "junk":
            raise ValueError("'junk' goes with 'answer: junk'")
        if self.age is not None and self.answer != "stale":
            raise ValueError("'age' goes with 'answer: stale'")
        return self


class Partial(Fault):
    """A batch leaves names out of its answer. Other methods pass untouched."""

    action: Literal["partial"] = "partial"
    method: Patterns = "instances_*"
    drop: Annotated[float, Field(gt=0, le=1)] | None = None
    """This share of the names that match `key`, at least one; default: all where `key` is given, else half."""

    def fits(self, method: Method) -> bool:
        return method.batch


AnyFault = Annotated[
    Raise | Throttle | Hang | Wrong | Partial | ExpiredCredentials | HalfBuilt, Field(discriminator="action")
]
_ADAPTER: TypeAdapter[AnyFault] = TypeAdapter(AnyFault)


@lru_cache(maxsize=1024)
def decode_fault(text: str) -> AnyFault:
    """A fault from its JSON text. Raises pydantic's ValidationError."""
    return _ADAPTER.validate_json(text)
