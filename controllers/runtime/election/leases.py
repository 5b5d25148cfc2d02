"""One Lease at the API server: read, created, replaced, watched.

Requests go out with short timeouts over connections that nothing else uses (rows K4, K6 of known
problems: a pool that hangs must not cost the lease); Leases come back as raw JSON, so that no field
is lost when they are put back.
"""

from __future__ import annotations

from collections.abc import Callable

from controllers.runtime.api import Conflict, LineStream, NotFound, RestClient, ServerError
from controllers.runtime.election.record import Lease, read, released
from controllers.runtime.election.settings import LeaseSettings

_PREFIX = "/apis/coordination.k8s.io/v1/namespaces"


class LeaseAPI:
    """Requests about one Lease. Every method may be called from any thread and raises ApiError."""

    def __init__(self, rest: RestClient, settings: LeaseSettings) -> None:
        self._rest = rest
        self._settings = settings
        self._collection = f"{_PREFIX}/{settings.namespace}/leases"
        self._path = f"{self._collection}/{settings.name}"

    def read(self, timeout: float | None = None) -> Lease | None:
        """The Lease as it is now; None when there is none. `timeout`: seconds, if fewer."""
        try:
            return self._ask("GET", self._path, timeout=timeout)
        except NotFound:
            return None

    def create(self, lease: Lease, timeout: float | None = None) -> Lease:
        """Create it; AlreadyExists when another was first."""
        return self._ask("POST", self._collection, lease, timeout)

    def replace(self, lease: Lease, timeout: float | None = None) -> Lease:
        """Put it in the place of the one that it was made from; Conflict when that has changed."""
        return self._ask("PUT", self._path, lease, timeout)

    def release(self, lease: Lease | None, now: float, left: Callable[[], float]) -> bool:
        """Take us out of the Lease, last seen as `lease`; False where we are not in it.

        Where it has changed it is read again, until the seconds `left` are used up. `now`: time of
        day."""
        while lease is not None and read(lease).holder == self._settings.identity:
            try:
                self.replace(released(lease, self._settings, now), left())
            except Conflict:
                lease = self.read(left())
            else:
                return True
        return False

    def watch(self) -> LineStream:
        """A watch of this Lease alone; its first event tells how it is now."""
        return self._rest.stream(
            self._collection,
            query={"watch": "true", "fieldSelector": f"metadata.name={self._settings.name}"},
            # While there is a leader something comes at every retry period of its own.
            read_timeout=self._settings.lease_duration,
        )

    def _ask(self, method: str, path: str, lease: Lease | None = None, timeout: float | None = None) -> Lease:
        limit = self._settings.request_timeout
        answer = self._rest.request(
            method, path, body=lease, timeout=limit if timeout is None else max(0.0, min(timeout, limit))
        ).json()
        # A proxy may answer for a server that is away; to lead on its word would be to lead beside
        # another.
        if answer.get("kind") != "Lease":
            raise ServerError(f"the answer is no Lease: {str(answer)[:100]}", method=method, path=path)
        return answer
