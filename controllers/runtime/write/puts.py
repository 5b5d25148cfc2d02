"""Stage 6: a versioned patch sent as a PUT of the whole object in Protobuf, which costs the API
server much less (docs/reference/benchmarks.md).

`patches.py` asks here first and sends the patch itself where the answer is None. The body is the
object as the server sent it, with our changes in it (`protobuf/replacing.py`); its UID and
resourceVersion are preconditions."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from controllers.runtime.api import METADATA_ONLY, ApiError, Conflict, Forbidden, NotFound, Response, RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.protobuf import CONTENT_TYPE

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 600.0
"""After a refusal, until the next try."""

_OF_THE_SERVER: Final = frozenset({400, 403, 405, 406, 415, 501})
"""A PUT that is answered so was not applied, and others would be answered so too: the permission is
missing, or a proxy or server knows no Protobuf."""
_OF_THE_OBJECT: Final = frozenset({413, 422})
"""Not applied either, but that says nothing of other objects."""
_DENIED: Final = re.compile(r"denied (the )?request")
"""As the API server words a webhook's or an admission policy's refusal, which is of the object too,
whatever status they chose."""


class Puts:
    """Sends PUTs to the Nodes of one API server as long as they are taken. Thread-safe.

    The first one is a trial: until it is answered no other is sent, so that a missing permission
    costs one request and not one from each thread.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._taken = False
        self._trying = False
        self._not_before = 0.0
        self._reported = False

    def send(
        self,
        rest: RestClient,
        path: str,
        data: bytes,
        patch: Mapping[str, Any],
        *,
        uid: str,
        version: str,
        timeout: float | None = None,
    ) -> Response | None:
        """Do what this merge patch does to the Node whose `kept` bytes these are; None, and nothing
        was changed, where the patch itself has to be sent.

        Raises as the patch would: Conflict for another version or UID, NotFound, and what leaves
        open whether it was applied.
        """
        from controllers.runtime.protobuf.replacing import replacement  # not loaded where all is JSON

        body = replacement(data, patch, uid=uid, version=version) if rest.protobuf else None
        if body is None or not self._begin():
            return None
        try:
            answer = rest.request(
                "PUT", path, body=body, content_type=CONTENT_TYPE, accept=METADATA_ONLY, timeout=timeout
            )
        except (Conflict, NotFound):
            self._end(taken=True)  # understood, and allowed
            raise
        except ApiError as error:
            denied = _DENIED.search(error.message) is not None
            if error.status in _OF_THE_SERVER and not denied:
                self._refused(error)
                return None
            self._end(taken=self._taken)
            if error.status in _OF_THE_OBJECT or (error.status in _OF_THE_SERVER and denied):
                log.debug("sent as a patch instead: %s", error)
                return None
            raise
        except BaseException:
            self._end(taken=self._taken)
            raise
        self._end(taken=True)
        return answer

    @staticmethod
    def usable(kept: bytes | None, metadata: Mapping[str, Any]) -> bytes | None:
        """These bytes, unless the metadata in an answer to a patch shows other labels and so on: a
        webhook may have changed them, and a PUT of the bytes would undo that."""
        if not kept:
            return None
        from controllers.runtime.protobuf.replacing import is_current

        try:
            return kept if is_current(kept, metadata) else None
        except ValueError:
            return None

    def _begin(self) -> bool:
        with self._lock:
            if self._taken:
                return True
            if self._trying or self._clock.monotonic() < self._not_before:
                return False
            self._trying = True
            return True

    def _end(self, *, taken: bool) -> None:
        with self._lock:
            self._taken, self._trying = taken, False

    def _refused(self, error: ApiError) -> None:
        with self._lock:
            self._taken = self._trying = False
            self._not_before = self._clock.monotonic() + AGAIN_SECONDS
            reported, self._reported = self._reported, True
        if reported:
            log.debug("nodes are still initialised by patches: %s", error)
            return
        fix = (
            "To avoid that, add to the ClusterRole of the manager's service account: apiGroups [''], resources "
            "[nodes], verbs [update]"
            if isinstance(error, Forbidden)
            else "--kube-api-content-type=application/json avoids these tries"
        )
        log.warning(
            "nodes are initialised by patches, which costs the API server more than a PUT, as that was refused: %s. %s",
            error, fix,
        )  # fmt: skip
