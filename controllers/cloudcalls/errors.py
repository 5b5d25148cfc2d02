"""What a cloud call can end in, besides an answer (stage 5, cloud call).

The one place where vendors' exceptions are read. The gateway passes each of them through
:func:`translate`; what comes out goes to the controllers, and :func:`outcome_of` gives the metric's
label. The gateway's own errors::

    Exception
    ├── CloudCallError
    │   ├── CallFailed           the provider raised something outside the tree of cloudprovider.errors
    │   │   └── CallAborted      ... that was meant to end the process: SystemExit, KeyboardInterrupt
    │   ├── InvalidAnswer        the provider answered something that cannot be used
    │   ├── AnswerMissing        a batch answer left this key out: unknown, never gone
    │   ├── Contradiction        one method says that an instance is gone, another that it exists
    │   └── CallsClosed          the gateway is shut; the call was not made
    └── Parked (controllers.runtime.queue.outcomes)
        └── CallOverdue          no answer in time; the key rests until the call ends

Vendor code ends at the gate. Whatever a method raised becomes an error of ours in the vendor's
thread, within the call's deadline, with plain text and plain numbers; so no `__str__` and no
property of a vendor's class runs anywhere else. Exceptions that it was raised `from` count, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Final

from cloudprovider import (
    CallCancelled,
    CallDeadlineExceeded,
    CloudProviderError,
    DiskNotFound,
    ImplementedElsewhere,
    InstanceNotFound,
    InvalidService,
    LoadBalancerKept,
    NotImplementedByProvider,
    QuotaExceeded,
    RetryError,
    Throttled,
)
from cloudprovider.internal.cleaning import text_of
from cloudprovider.internal.errorchain import links
from cloudprovider.loading.diagnostics import provider_place
from controllers.runtime.queue import Parked, retry_after_of

SUCCESS = "success"
OVERDUE = "overdue"
"""No answer before the deadline."""
PARTIAL = "partial"
"""A batch answered, and for some of its keys with an error, nothing, or junk."""
REFUSED = "refused"
"""The guard did not let the call through (the lease is lost). The provider was not called."""

_LONGEST = 700  # of what the provider raised, so that an Event has room for the place
_SHOWN = 10
_PROBLEMS = 100


class CloudCallError(Exception):
    """Base of what the gateway itself says about a call. Retried with backoff."""


class CallFailed(CloudCallError):
    """The provider raised an exception outside the contract; it is the ``__cause__``. `place` is
    where in the provider's code, "" where that is not known."""

    place = ""


class CallAborted(CallFailed):
    """The provider raised SystemExit, KeyboardInterrupt or their like. It cost this call only."""


class InvalidAnswer(CloudCallError):
    """The provider's answer cannot be used; nothing of it was.

    `problems` holds every fault of the answer, each a clause for people. `usable` is the answer
    without its faulty fields, None where nothing is left to use.
    """

    def __init__(self, method: str, problems: Sequence[str], usable: object = None) -> None:
        self.method = method
        self.problems = tuple(problems)
        self.usable = usable
        shown = [*self.problems[:_SHOWN], f"and {len(self.problems) - _SHOWN} more"][: len(self.problems)]
        super().__init__(f"the provider's {method} gave an unusable answer: {'; '.join(shown)}")


class AnswerMissing(CloudCallError):
    """A batch answer without this key. Nothing is known about it."""


class Contradiction(CloudCallError):
    """One method says that an instance is gone, another that it exists: it is not gone."""

    def __init__(self, gone: str, exists: str) -> None:
        super().__init__(
            f"the provider's {gone} says that the instance is gone, and its {exists} that it exists. Fix: correct "
            f"{gone}: does it read every page of the cloud's listing?"
        )


class CallsClosed(CloudCallError):
    """The program is stopping; this call was not made."""


class CallOverdue(Parked):
    """No answer within the call's timeout. The call still runs, cancelled, in a lost thread.

    `until` ends (with None, never with an exception) when the call does; before that no other call
    is made for `key`."""

    def __init__(
        self, method: str, key: str, seconds: float, until: Future[None], flag: str = "--cloud-api-timeout"
    ) -> None:
        super().__init__(until, f"the provider's {method} has not answered for {key} after {seconds:g} s ({flag})")
        self.method = method
        self.key = key


_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (Throttled, "throttled"),
    (RetryError, "retry"),
    (InstanceNotFound, "not_found"),
    (DiskNotFound, "not_found"),
    (NotImplementedByProvider, "not_implemented"),
    (ImplementedElsewhere, "implemented_elsewhere"),
    (InvalidService, "invalid_service"),
    (QuotaExceeded, "quota_exceeded"),
    (LoadBalancerKept, "kept"),
    (CallDeadlineExceeded, OVERDUE),
    (CallCancelled, "cancelled"),
    (CallOverdue, OVERDUE),
    (InvalidAnswer, "invalid"),
    (CallsClosed, "cancelled"),
    (AnswerMissing, "missing"),
    (CallAborted, "aborted"),
)

_ERROR = "error"

OUTCOMES = tuple(dict.fromkeys((SUCCESS, PARTIAL, REFUSED, *(name for _, name in _OUTCOMES), _ERROR)))
"""Every value of the label `outcome`."""

_CHAINED = tuple(kind for kind, _ in _OUTCOMES if issubclass(kind, CloudProviderError))


CLOUD_ERRORS: Final = (CloudProviderError, CloudCallError, Parked)
"""What a call to the cloud may raise; CallsClosed among them says that the manager stops."""


def outcome_of(error: BaseException) -> str:
    """The outcome label of a call that ended in `error`. The outermost known exception decides."""
    for link in links(error):
        for kind, name in _OUTCOMES:
            if isinstance(link, kind):
                return name
    return _ERROR


def translate(error: BaseException, method: str) -> Exception:
    """What the controllers get to see for an exception that `method` raised: always a new one.

    An exception of the contract, a subclass of one, and a foreign one raised `from` one become one
    of that class of the contract; anything else becomes CallFailed. The original is the
    ``__cause__``, for the log's stack alone. To be called in the vendor's thread: it runs the
    exception's own code. Never raises, whatever that code does.
    """
    if isinstance(error, CloudCallError) and type(error).__module__ == __name__:
        return error  # our own check of an answer
    try:
        made = _translate(error, method)
    except BaseException:  # noqa: BLE001 - the vendor boundary: even SystemExit costs this call only
        made = CallFailed(f"the provider's {method} failed: {_name(error)}, which cannot be read")
    made.__cause__ = error
    return made


def _translate(error: BaseException, method: str) -> Exception:
    text = text_of(error)
    for link in links(error):
        if isinstance(link, _CHAINED):
            made = _plain(link, text if link is error else f"{_name(error)}: {text}")
            if made is not None:
                return made
            break
    if isinstance(error, CloudProviderError) and not isinstance(error, RetryError | Throttled):
        return _kind(error)(text)
    return failed(error, method)


def failed(error: BaseException, method: str) -> CallFailed:
    """The error of a call that ended in an exception outside the contract, with the place in the
    provider's code, as for a bug. In the vendor's thread."""
    kind, verb = (CallFailed, "failed:") if isinstance(error, Exception) else (CallAborted, "raised")
    place = provider_place(error)
    at = f" ({place})" if place else ""
    made = kind(f"the provider's {method} {verb} {_name(error)}: {text_of(error)[:_LONGEST]}{at}")
    made.place = place
    return made


def _name(error: BaseException) -> str:
    return type(error).__name__


def _kind(error: BaseException) -> type[CloudProviderError]:
    """The class of the contract that comes first among those of this exception."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == CloudProviderError.__module__)


def _plain(link: BaseException, text: str) -> CloudProviderError | None:
    """An error of the contract that says what `link` says; None when `link` lacks what it takes."""
    kind, delay = _kind(link), retry_after_of(link)
    if issubclass(kind, Throttled):
        said = "" if delay is None else f" (retry after {delay:g} s)"
        whole = getattr(link, "whole_account", False) is True
        return kind(text.removesuffix(said), delay, whole_account=whole)
    if issubclass(kind, RetryError):
        return None if delay is None else kind(text, delay)
    if issubclass(kind, InvalidService):
        return kind(*map(text_of, islice(getattr(link, "problems", ()), _PROBLEMS)))
    return kind(text)
