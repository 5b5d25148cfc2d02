"""Faults of the cloud, F17 to F24 and F30: by the fake cloud's hook."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from cloudprovider import CloudProviderError, InstanceState, Throttled
from cloudprovider.testing.fake import Action, Strike, answers, half_builds, hangs, raises
from tests.lab.faults.field import Field

EVERY: Final = ("*instance*", "*load_balancer*", "*route*")
CHANGES: Final = ("ensure_load_balancer*", "update_load_balancer", "create_route", "delete_route")
_SETTLING: Final = 3.0
"""Seconds for which a cloud does not know what it has just made."""


def standing(
    methods: str | tuple[str, ...], do: Callable[[], Action]
) -> Callable[[Field], AbstractContextManager[None]]:
    """The fault in which these calls end so."""

    @contextmanager
    def stand(field: Field) -> Iterator[None]:
        with field.cloud_fault(methods, do()):
            yield

    return stand


throttled = standing(EVERY, lambda: raises(Throttled("slow down", 1.0)))
expired_credentials = standing(EVERY, lambda: raises(CloudProviderError("401: the credentials have expired")))
half_built = standing("ensure_load_balancer", half_builds)
raising = standing(EVERY, lambda: raises(RuntimeError("a mistake of the provider")))
junk = standing(EVERY, lambda: answers("junk"))
hanging = standing(EVERY, hangs)
no_deletion = standing("ensure_load_balancer_deleted", lambda: raises(CloudProviderError("in use")))


@contextmanager
def truncated_pages(field: Field) -> Iterator[None]:
    """Of every listing, and of every answer about many nodes, only the first half comes."""

    def half(strike: Strike) -> Any:
        truth = strike.proceed()
        if isinstance(truth, Mapping):
            return dict(list(truth.items())[: len(truth) // 2])
        return list(truth)[: len(truth) // 2]

    with field.cloud_fault(("list_routes", "instances_*"), half):
        yield


@contextmanager
def not_there_yet(field: Field) -> Iterator[None]:
    """What was made a moment ago is not found: load balancers, and
    machines after they were described."""

    def age(method: str, name: str) -> float:
        found = [one.time for one in field.cloud.calls.log(method) if name in one.keys and one.ended]
        return time.time() - found[-1] if found else float("inf")

    def unseen(strike: Strike) -> Any:
        name = strike.request.keys[0][0]
        truth = strike.proceed()
        return None if age("ensure_load_balancer", name) < _SETTLING else truth

    described: set[str] = set()
    denied: set[str] = set()

    def describe(strike: Strike) -> Any:
        truth = strike.proceed()
        described.update(strike.names)
        return truth

    def unknown(strike: Strike) -> Any:
        """Once for each machine, after it was described: another replica of the cloud answers."""
        truth = strike.proceed()
        new = {name for name in strike.names if name in described and name not in denied}
        denied.update(new)
        if strike.request.method.batch:
            return {name: InstanceState.GONE if name in new else one for name, one in truth.items()}
        return truth and not new

    with ExitStack() as ends:
        ends.enter_context(field.cloud_fault("get_load_balancer", unseen, needed=False))
        ends.enter_context(field.cloud_fault(("instance_exists", "instances_state"), unknown, key="made-*"))
        ends.enter_context(field.cloud_fault(("instance_metadata", "instances_metadata"), describe, key="made-*"))
        field.join(3, ready="False")
        yield
