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
    │   └── CallsClosed          the gateway is shut; the call was not made
    └── Parked (controllers.runtime.queue.outcomes)
        └── CallOverdue          no answer in time; the key rests until the call ends

Errors of `cloudprovider.errors`, subclasses included, pass as they are. "Chained errors count"
means explicit chains: `raise MyError() from Throttled()` is a Throttled, as Go's `%w` would have
it. An exception that merely happened while another was handled (`__context__`) says nothing: a
lookup that fails with a timeout inside `except InstanceNotFound:` must never count as "gone".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from cloudprovider import (
    CallCancelled,
    CallDeadlineExceeded,
    CloudProviderError,
    DiskNotFound,
    ImplementedElsewhere,
    InstanceNotFound,
    InvalidService,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from controllers.runtime.cleaning import text_of
from controllers.runtime.queue import Parked, retry_after_of

SUCCESS = "success"
OVERDUE = "overdue"
"""No answer before the deadline."""
SUPERSEDED = "superseded"
"""Given up before its deadline, because the batch's keys are asked about in smaller ones."""
PARTIAL = "partial"
"""A batch answered, and for some of its keys with an error, nothing, or junk."""
REFUSED = "refused"
"""The guard did not let the call through (the lease is lost). The provider was not called."""

_CHAIN_LIMIT = 32
_SHOWN = 10


class CloudCallError(Exception):
    """Base of what the gateway itself says about a call. Retried with backoff."""


class CallFailed(CloudCallError):
    """The provider raised an exception outside the contract; it is the ``__cause__``."""


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
    (CallDeadlineExceeded, OVERDUE),
    (CallCancelled, "cancelled"),
    (CallOverdue, OVERDUE),
    (InvalidAnswer, "invalid"),
    (CallsClosed, "cancelled"),
    (AnswerMissing, "missing"),
    (CallAborted, "aborted"),
)

_ERROR = "error"

OUTCOMES = tuple(dict.fromkeys((SUCCESS, PARTIAL, REFUSED, SUPERSEDED, *(name for _, name in _OUTCOMES), _ERROR)))
"""Every value of the label `outcome`."""

_CHAINED = tuple(kind for kind, _ in _OUTCOMES if issubclass(kind, CloudProviderError))


def outcome_of(error: BaseException) -> str:
    """The outcome label of a call that ended in `error`. The outermost known exception decides."""
    for link in _chain(error):
        for kind, name in _OUTCOMES:
            if isinstance(link, kind):
                return name
    return _ERROR


def translate(error: BaseException, method: str) -> Exception:
    """What the controllers get to see for an exception that `method` raised.

    An error of the contract stays itself. Of a foreign exception that was raised `from` one, a
    fresh error of the contract's class is made, so that `isinstance` and `retry_after` work for the
    callers; anything else becomes CallFailed. The original is the ``__cause__`` of what is made.
    Never raises, whatever the exception's own code does.
    """
    try:
        return _translate(error, method)
    except Exception:  # noqa: BLE001 - vendor boundary: the exception's own properties may raise
        failed = CallFailed(f"the provider's {method} failed: {_name(error)}, which cannot be read")
        failed.__cause__ = error
        return failed


def _translate(error: BaseException, method: str) -> Exception:
    for link in _chain(error):
        kind = next((known for known in _CHAINED if isinstance(link, known)), None)
        if kind is None:
            continue
        if link is error and isinstance(error, Exception) and _well_formed(error):
            return error
        made = _twin(kind, link, f"{_name(error)}: {text_of(error)}")
        if made is not None:
            made.__cause__ = error
            return made
        break
    if isinstance(error, CloudProviderError | CloudCallError) and not isinstance(error, RetryError | Throttled):
        return error
    if not isinstance(error, Exception):
        failed: CallFailed = CallAborted(f"the provider's {method} raised {_name(error)}: {text_of(error)}")
    else:
        failed = CallFailed(f"the provider's {method} failed: {_name(error)}: {text_of(error)}")
    failed.__cause__ = error
    return failed


def _name(error: BaseException) -> str:
    return type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and its explicit causes, outermost first; bounded: chains may have loops."""
    link: BaseException | None = error
    for _ in range(_CHAIN_LIMIT):
        if link is None:
            return
        yield link
        link = link.__cause__


def _well_formed(error: Exception) -> bool:
    if isinstance(error, RetryError):
        return retry_after_of(error) is not None
    if isinstance(error, Throttled):
        return getattr(error, "retry_after", 0) is None or retry_after_of(error) is not None
    return True


def _twin(kind: type[BaseException], link: BaseException, text: str) -> Exception | None:
    """An error of class `kind` that says what `link` says; None when `link` lacks what it takes."""
    if kind is Throttled:
        whole = getattr(link, "whole_account", False) is True
        return Throttled(text, retry_after_of(link), whole_account=whole)
    if kind is RetryError:
        delay = retry_after_of(link)
        return None if delay is None else RetryError(text, delay)
    made = kind(text)
    return made if isinstance(made, Exception) else None
