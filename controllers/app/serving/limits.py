"""What one server takes, besides what all servers have in common (`server.py`). Stage: beside all of them, no I/O."""

from __future__ import annotations

import attrs

__all__ = ["Limits"]


@attrs.frozen(kw_only=True)
class Limits:
    """Bodies, and answers that wait for another machine."""

    max_body: int = 0
    """Bytes of a request's body; a longer one is refused with 413. 0: bodies are not read."""
    all_bodies: int = 0
    """Bytes of all bodies that are being received or answered; above it, the oldest that are received give way."""
    answer_seconds: float | None = None
    """From a complete request until the client has taken the whole answer; None: as for all servers."""
    idle_seconds: float | None = None
    """From an answer until the next request begins; None: as for a whole request. Longer than its clients keep idle
    connections, so that no request meets a connection that is being closed."""
    slow_answerers: int = 8
    """Threads for answers that wait for another machine."""
    slow_places: int = 64
    """Such answers under way or waiting; the next one is refused with 503."""
    slow_per_peer: int = 16
