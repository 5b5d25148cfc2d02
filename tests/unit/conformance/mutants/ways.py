"""Ways in which many methods are broken: each makes a broken method of a right one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from cloudprovider import Call, CloudProviderError, InstanceNotFound, call_scope

Method = Callable[..., Any]
Way = Callable[[Method], Method]
RACE = 0.004  # seconds for which a shared variable is open to other threads


def is_outage(error: CloudProviderError) -> bool:
    """Whether the lab broke the cloud: the fake raises subclasses for everything else."""
    return type(error) is CloudProviderError


def _way(body: Callable[..., Any]) -> Way:
    """`body` gets the right method of the mutant, and the arguments."""

    def make(method: Method) -> Method:
        @wraps(method)
        def broken(self: Any, *arguments: Any) -> Any:
            return body(partial(method, self), *arguments)

        return broken

    return make


def _unlimited(ask: Method, *arguments: Any) -> Any:
    with call_scope(Call()):
        return ask(*arguments)


unlimited = _way(_unlimited)
"""Nothing in it looks at the host's deadline, nor at whether the host still wants it."""


def _shared(ask: Method, *arguments: Any, kept: list[Any] = []) -> Any:  # noqa: B006 - that is the mistake
    kept[:] = arguments
    time.sleep(RACE)
    return ask(*kept)


shared_by_threads = _way(_shared)
"""What it is asked about is kept in a variable of all threads."""


def answering(change: Callable[..., Any]) -> Way:
    """Its answer is what `change` makes of the right one and the arguments."""
    return _way(lambda ask, *arguments: change(ask(*arguments), *arguments))


def answering_each(kind: type[Any], change: Callable[[Any], Any]) -> Way:
    """In the answer to a batch, the values of this type are changed."""
    return answering(
        lambda found, _: {name: change(one) if isinstance(one, kind) else one for name, one in found.items()}
    )


def instead_of(
    kind: type[Exception], answer: Callable[..., Any], *, where: Callable[[Any], bool] = lambda error: True
) -> Way:
    """In place of such an error it answers what is made of the arguments."""

    def body(ask: Method, *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except kind as error:
            if not where(error):
                raise
            return answer(*arguments)

    return _way(body)


def in_an_outage(answer: Callable[..., Any]) -> Way:
    """In place of an error of the cloud it answers what is made of the arguments."""
    return instead_of(CloudProviderError, answer, where=is_outage)


def gone(*_: object) -> Any:
    """For `in_an_outage`: it says that the instance is gone."""
    raise InstanceNotFound("there is none")
