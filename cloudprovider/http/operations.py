"""Operations: what a cloud begins with status 202 and does later (stage 5, cloud call)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from attrs import frozen

from cloudprovider.call import current_call
from cloudprovider.errors import Pending
from cloudprovider.http.answers import CloudError, NotFoundError
from cloudprovider.internal.fields import documented

__all__ = ["Operation", "Operations"]

FIRST, LONGEST = 0.1, 2.0  # seconds between two looks
MARGIN = 2.0  # seconds of the call that are left for what follows


@documented
@frozen
class Operation:
    """What the cloud says of an operation."""

    id: str
    done: bool
    error: str = ""
    """Why it failed, in the cloud's words; "" while it has not."""


class Operations:
    """The operations under way, by what they are about (a load balancer's name). They are in memory
    alone: after a restart the state of the thing itself must tell. For any thread.

    `look` asks the cloud for one by its ID. `within` is for how many seconds of a call an operation
    is waited for, `again` when the host calls again.
    """

    def __init__(self, look: Callable[[str], Operation], *, within: float = 10.0, again: float = 5.0) -> None:
        self._look = look
        self.within = within
        self.again = again
        self._lock = threading.Lock()
        self._running: dict[str, str] = {}

    def begin(self, about: str, operation: Operation) -> None:
        """Remember an operation that the cloud began, and wait for it. Raises as `settle` does."""
        with self._lock:
            self._running[about] = operation.id
        self._wait(about, operation)

    def settle(self, about: str) -> None:
        """Return once no operation about this is under way. To be called before another change.

        Raises Pending while it is, and CloudError, once, where it failed. An operation that the
        cloud knows no more counts as over: the state of the thing itself tells."""
        with self._lock:
            operation_id = self._running.get(about)
        if operation_id is not None:
            self._wait(about, self._seen(operation_id))

    def _wait(self, about: str, operation: Operation) -> None:
        call, left, pause = current_call(), self.within, FIRST
        while not operation.done and not operation.error:
            remaining = call.remaining()
            if left < pause or (remaining is not None and remaining < pause + MARGIN):
                raise Pending(f"the cloud still works on {about} (operation {operation.id})", self.again)
            call.pause(pause)
            left, pause = left - pause, min(LONGEST, 2 * pause)
            operation = self._seen(operation.id)
        with self._lock:
            self._running.pop(about, None)
        if operation.error:
            raise CloudError(f"{about}: the cloud's operation {operation.id} failed: {operation.error}")

    def _seen(self, operation_id: str) -> Operation:
        try:
            return self._look(operation_id)
        except NotFoundError:
            return Operation(operation_id, done=True)
