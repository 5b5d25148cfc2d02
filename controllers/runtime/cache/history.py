"""Has the API server's history gone back? Judges the versions of lists (stage 1). Pure: no I/O, no clock.

resourceVersions only grow, with one exception: etcd was restored from a backup and counts on from an earlier number.
Then everything that was seen later has not happened. A server that merely lags must not be mistaken for that, so a
lower version is believed once two quorum lists, some seconds apart, agree: both are older than what was seen, and the
second is not older than the first. Quorum lists are answered by etcd itself, so a lagging API server cannot give them.

client-go takes any quorum list at once (its reflector sets its version to that of each list, and after "too old" and
"too large" answers it lists without a version). The end is the same here; the second list guards against a server that
talks to another etcd for a moment.
"""

from __future__ import annotations

import enum
from typing import Final

from controllers.runtime.cache.resources import is_newer

__all__ = ["History", "Verdict"]


class Verdict(enum.Enum):
    """What a list's version says."""

    ONWARD = "as new as what was seen, or newer"
    BEHIND = "older than what was seen; not believed, or not yet"
    RESTORED = "older than what was seen, and believed"


class History:
    """What quorum lists have said about the history of one kind. For one thread."""

    def __init__(self, believe_after: float) -> None:
        self._believe_after: Final = believe_after
        self._witness: tuple[str, float] | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether a quorum list was older than what was seen, and nothing has shown since that it was wrong."""
        return self._witness is not None

    def judge(self, seen: str, version: str, now: float, *, quorum: bool) -> Verdict:
        """Judge the version of a list that was asked for at `now` (monotonic seconds), where `seen` is the newest."""
        if not seen or not is_newer(seen, version):
            self._witness = None
            return Verdict.ONWARD
        if not quorum:
            return Verdict.BEHIND
        if self._witness is None or is_newer(self._witness[0], version):
            self._witness = (version, now)
        elif now - self._witness[1] >= self._believe_after:
            self._witness = None
            return Verdict.RESTORED
        return Verdict.BEHIND

    def wait(self, now: float) -> float:
        """Seconds until another quorum list may settle the doubt; 0.0 without one."""
        return 0.0 if self._witness is None else max(0.0, self._witness[1] + self._believe_after - now)
