"""Vendors' exceptions, and what becomes of them."""

import inspect
from concurrent.futures import Future

import pytest

import cloudprovider.errors as contract
from cloudprovider import (
    CallCancelled,
    CallDeadlineExceeded,
    CallInterrupted,
    CloudProviderError,
    DiskNotFound,
    ImplementedElsewhere,
    InstanceNotFound,
    InvalidAnnotations,
    InvalidConfig,
    LoadBalancerKept,
    NotImplementedByProvider,
    Pending,
    QuotaExceeded,
    RegistryError,
    RetryError,
    Throttled,
)
from cloudprovider.internal.cleaning import text_of
from controllers.cloudcalls.answers import (
    OUTCOMES,
    AnswerMissing,
    CallAborted,
    CallFailed,
    CallOverdue,
    CallsClosed,
    InvalidAnswer,
    outcome_of,
    translate,
)
from controllers.runtime.queue import Parked


class VendorError(Exception):
    pass


def chained(outer: BaseException, *causes: BaseException) -> BaseException:
    link = outer
    for cause in causes:
        link.__cause__ = cause
        link = cause
    return outer


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Throttled(), "throttled"),
        (RetryError("soon", 3), "retry"),
        (Pending("being built"), "retry"),
        (QuotaExceeded("100 of 100 routes"), "quota_exceeded"),
        (InstanceNotFound("i-1"), "not_found"),
        (DiskNotFound("d"), "not_found"),
        (NotImplementedByProvider(), "not_implemented"),
        (ImplementedElsewhere(), "implemented_elsewhere"),
        (InvalidAnnotations("a: is wrong"), "invalid_service"),
        (LoadBalancerKept("lb-1"), "kept"),
        (CallDeadlineExceeded(), "overdue"),
        (CallCancelled(), "cancelled"),
        (CallsClosed(), "cancelled"),
        (AnswerMissing(), "missing"),
        (InvalidAnswer("m", ["x"]), "invalid"),
        (CallAborted(), "aborted"),
        (CallFailed(), "error"),
        (CloudProviderError("?"), "error"),
        (ValueError(), "error"),
        (NotImplementedError(), "error"),
    ],
)
@pytest.mark.row("M6")
def test_outcomes(error: Exception, outcome: str) -> None:
    assert outcome_of(error) == outcome
    assert outcome in OUTCOMES
    subclass = type("Vendors" + type(error).__name__, (type(error),), {})
    assert outcome_of(subclass.__new__(subclass, *error.args)) == outcome


def test_every_class_of_the_contract_is_mapped() -> None:
    ignored = (RegistryError, InvalidConfig)  # never raised by a call
    general = {CloudProviderError, CallInterrupted}
    for kind in vars(contract).values():
        if inspect.isclass(kind) and issubclass(kind, CloudProviderError) and not issubclass(kind, ignored):
            error = kind("x", 1.0) if kind in (RetryError, Throttled) else kind("x")
            assert (outcome_of(error) == "error") == (kind in general), kind
            made = translate(error, "m")
            assert type(made) is kind
            assert str(made) == str(error)
            assert made.__cause__ is error


@pytest.mark.parametrize(
    ("error", "kind", "retry_after"),
    [
        *(
            (chained(VendorError("quota"), ValueError("y"), cause), type(cause), getattr(cause, "retry_after", None))
            for cause in (
                Throttled("slow down", 7),
                RetryError("building", 12),
                InstanceNotFound("i-1"),
                DiskNotFound("d"),
                NotImplementedByProvider(),
                ImplementedElsewhere(),
            )
        ),
        (chained(CloudProviderError("lookup failed"), InstanceNotFound("i-1")), InstanceNotFound, None),
        (chained(SystemExit(1), Throttled()), Throttled, None),
    ],
    ids=str,
)
def test_an_explicit_chain_counts(
    error: BaseException, kind: type[CloudProviderError], retry_after: float | None
) -> None:
    made = translate(error, "instance_exists")
    assert isinstance(made, kind)
    assert getattr(made, "retry_after", None) == retry_after
    assert f"{type(error).__name__}: {error}" in str(made)
    assert made.__cause__ is error
    assert outcome_of(error) == outcome_of(made)


def test_the_outermost_known_class_decides() -> None:
    assert outcome_of(chained(RetryError("later", 1), InstanceNotFound())) == "retry"
    made = translate(chained(Throttled("busy", 1), InstanceNotFound()), "m")
    assert type(made) is Throttled
    assert str(made) == "busy (retry after 1 s)"


def test_what_was_merely_being_handled_does_not_count() -> None:
    def lookup() -> None:
        try:
            raise InstanceNotFound("i-1")
        except InstanceNotFound:
            raise TimeoutError("second lookup")  # noqa: B904 - this is the case

    with pytest.raises(TimeoutError) as caught:
        lookup()
    assert isinstance(caught.value.__context__, InstanceNotFound)
    assert outcome_of(caught.value) == "error"
    assert type(translate(caught.value, "instance_exists")) is CallFailed


def test_foreign_exceptions_become_call_failed() -> None:
    error = KeyError("zone")
    made = translate(error, "get_zone")
    assert type(made) is CallFailed
    assert made.__cause__ is error
    assert "get_zone" in str(made)
    assert "KeyError" in str(made)


def test_a_subclass_without_a_delay_is_mended_or_failed() -> None:
    class Careless(RetryError):
        def __init__(self) -> None:
            Exception.__init__(self, "no delay")

    class CarelessThrottle(Throttled):
        def __init__(self) -> None:
            Exception.__init__(self, "no delay", None)

    assert type(translate(Careless(), "m")) is CallFailed
    made = translate(CarelessThrottle(), "m")
    assert isinstance(made, Throttled)
    assert made.retry_after is None


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "5", None, True])
def test_a_delay_spoilt_later_is_not_believed(delay: object) -> None:
    error = RetryError("x", 1)
    error.retry_after = delay  # type: ignore[assignment]  # what a careless vendor does
    assert type(translate(error, "m")) is CallFailed


def test_hostile_exceptions_cost_nothing_more() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    class Trap(Throttled):
        def __init__(self) -> None:
            Exception.__init__(self)

        @property
        def retry_after(self) -> float:  # type: ignore[override]
            raise RuntimeError("no")

    assert "cannot be shown" in str(translate(Mute(), "m"))
    assert isinstance(translate(Trap(), "m"), CallFailed)
    assert len(text_of(ValueError("x" * 100_000))) < 2000


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = VendorError("a"), VendorError("b")
    chained(first, second, first)
    assert outcome_of(first) == "error"
    assert type(translate(first, "m")) is CallFailed


def test_overdue_is_parked_and_says_who() -> None:
    until: Future[None] = Future()
    error = CallOverdue("instance_metadata", "node/n1", 30.0, until)
    assert isinstance(error, Parked)
    assert error.until is until
    assert "instance_metadata" in str(error)
    assert "node/n1" in str(error)
    assert outcome_of(error) == "overdue"


def test_invalid_answers_show_ten_problems_and_keep_all() -> None:
    error = InvalidAnswer("m", [f"p{i}" for i in range(25)])
    assert len(error.problems) == 25
    assert "p9" in str(error)
    assert "and 15 more" in str(error)
    assert str(InvalidAnswer("m", ["only"])).endswith(": only")
    assert "more" not in str(InvalidAnswer("m", [f"p{i}" for i in range(10)]))
