"""Exceptions of the contract are checked where they are built."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from cloudprovider import errors
from cloudprovider.errors import (
    CloudProviderError,
    ConfigError,
    InstanceNotFound,
    InvalidConfig,
    InvalidService,
    Pending,
    QuotaExceeded,
    RegistryError,
    RetryError,
    Throttled,
)

WRONG: list[tuple[Callable[..., Exception], tuple[Any, ...], dict[str, Any], str]] = [
    (InvalidService, (["UDP", "port 80"],), {}, r"for a list of them write InvalidService\(\*problems\)"),
    (InvalidService, (), {}, r'say what is wrong, as in InvalidService\("port 80 is reserved"\)'),
    (InvalidConfig, (3,), {}, r"InvalidConfig\(\*problems\); it is of type int: 3"),
    (Throttled, (5.0,), {}, "the message must be a str"),
    (Throttled, ("slowly",), {"retry_after": "5"}, "retry_after must be a number of seconds"),
    (Throttled, ("slowly",), {"whole_account": 1}, "whole_account must be True or False"),
    (RetryError, (5.0, "building"), {}, "the message must be a str"),
    (RetryError, ("building", True), {}, r'as in RetryError\("the cloud is busy", 5.0\)'),
    (Pending, ("building", "5"), {}, "Pending: retry_after must be a number of seconds"),
    (Pending, (None,), {}, "Pending: the message must be a str"),
    (QuotaExceeded, (100,), {}, r'as in QuotaExceeded\("server web-1: HTTP 500"\); it is of type int: 100'),
    (CloudProviderError, (OSError("down"),), {}, "it is of type OSError: OSError"),
    (InstanceNotFound, (None,), {}, "InstanceNotFound: the message must be a str"),
    (RegistryError, ("x",), {"details": "one"}, "details must be several str"),
    (RegistryError, ("x",), {"known": [1]}, "each of known must be a str"),
    (RegistryError, ("x",), {"fix": None}, "fix must be a str"),
    (ConfigError, ("x",), {"path": 1}, "path must be a str"),
]


@pytest.mark.row("P8")
@pytest.mark.parametrize(("kind", "args", "named", "says"), WRONG)
def test_what_is_built_wrongly_is_refused_with_what_to_write(
    kind: Callable[..., Exception], args: tuple[Any, ...], named: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        kind(*args, **named)


@pytest.mark.row("P8")
def test_every_class_refuses_a_number_for_its_message() -> None:
    kinds: list[Any] = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CloudProviderError)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        with pytest.raises(TypeError, match=kind.__name__):
            kind(*((404, 1.0) if kind is RetryError else (404,)))


@pytest.mark.row("P8")
def test_a_long_value_is_cut() -> None:
    with pytest.raises(TypeError) as caught:
        InvalidService(["x" * 500])  # type: ignore[arg-type]
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_delay_that_cannot_be_waited_for_is_refused(seconds: float) -> None:
    for kind in (RetryError, Pending, Throttled):
        with pytest.raises(ValueError, match=r"retry_after.*finite"):
            kind("x", seconds)


def test_what_is_right_is_taken() -> None:
    assert str(InstanceNotFound()) == ""
    assert str(CloudProviderError("server web-1", 404)) == "('server web-1', 404)"
    assert str(InvalidService("a", "b")) == "a; b"
    assert Pending("building").retry_after == 5.0
    assert isinstance(Pending("building"), RetryError), "what handles the one handles the other"
    assert RetryError("building", 3).retry_after == 3.0
    for error in (Pending("building", 7.0), InvalidService("a", "b"), Throttled("slowly", 2.0), QuotaExceeded("full")):
        for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (type(same), str(same), same.retry_after) == (type(error), str(error), error.retry_after)


def test_a_class_with_a_constructor_of_its_own_passes_on_what_it_likes() -> None:
    class AcmeError(Exception):
        def __init__(self, code: int, text: str) -> None:
            super().__init__(code, text)

    class NotFound(AcmeError, InstanceNotFound):
        pass

    assert NotFound(404, "no such server").args == (404, "no such server")
