"""How long a connection may wait, and how another thread ends it (stages 1 and 6).

Sockets never block: each wait is a `poll` for the time that is left. So a deadline holds however
the peer trickles, however TLS cuts its records, and over a stop of the process. The kernel's socket
timeouts would cost 5 us less of the 100 us of a PATCH over TLS, but they start again with each byte
and end with each signal."""

from __future__ import annotations

import errno
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

from controllers.runtime.clock import SYSTEM_CLOCK, Clock, wait_for

_LONGEST_POLL: Final = 3600.0


class Interrupted(Exception):
    """Another thread ended this connection."""


class CancelScope:
    """The time limits and open sockets of one connection; `cancel` may come from any thread.

    `deadline` (clock seconds) ends everything when set, else `timeout` bounds each step."""

    __slots__ = ("_condition", "_sockets", "cancelled", "clock", "deadline", "timeout")

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.deadline: float | None = None
        self.timeout: float | None = None
        self.cancelled = False
        self._condition = threading.Condition(threading.Lock())
        self._sockets: list[socket.socket] = []

    def begin_step(self) -> float | None:
        """Begin a step: its end (None: no limit); raises TimeoutError or Interrupted."""
        if self.cancelled:
            raise Interrupted
        until = self.deadline
        if until is not None:
            if until <= self.clock.monotonic():
                raise TimeoutError("timed out")
        elif self.timeout is not None:
            until = self.clock.monotonic() + self.timeout
        return until

    def remaining(self, until: float | None) -> float | None:
        """Seconds left until then; raises TimeoutError when there are none, and Interrupted."""
        if self.cancelled:
            raise Interrupted
        if until is None:
            return None
        left = until - self.clock.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def wait(self, poll: select.poll, until: float | None, at_most: float | None = None) -> list[tuple[int, int]]:
        """Wait until a socket of `poll` is ready; [] when `at_most` seconds end before `until`.

        Raises TimeoutError or Interrupted."""
        while True:
            left = self.remaining(until)
            bound = _LONGEST_POLL if left is None or left > _LONGEST_POLL else left
            last = at_most is not None and at_most <= bound
            if last and at_most is not None:
                bound = at_most
            # Rounded up: a wait cut short by less than a millisecond would spin.
            ready = poll.poll(bound * 1000 + 1)
            if ready or last:
                return ready

    def wait_for(self, predicate: Callable[[], bool], until: float | None) -> None:
        """Wait until `predicate` holds, looked at after each `notify`; or raises."""
        with self._condition:
            left = self.remaining(until)
            wait_for(self.clock, self._condition, lambda: self.cancelled or predicate(), left)
        if self.cancelled:
            raise Interrupted
        if not predicate():
            raise TimeoutError("timed out")

    def notify(self, act: Callable[[], None]) -> None:
        """Change something that `wait_for` waits for."""
        with self._condition:
            act()
            self._condition.notify_all()

    def add(self, sock: socket.socket, replaces: socket.socket | None = None) -> None:
        """From now on `cancel` shuts this socket, `close` closes it; raises Interrupted."""
        with self._condition:
            if replaces is not None and replaces in self._sockets:
                self._sockets.remove(replaces)
            self._sockets.append(sock)
            if self.cancelled:
                raise Interrupted

    def remove(self, sock: socket.socket) -> None:
        """Close one of its sockets."""
        with self._condition:
            if sock in self._sockets:
                self._sockets.remove(sock)
            sock.close()

    def cancel(self) -> None:
        """End whatever the using thread waits for: it gets an OSError. Never blocks."""
        with self._condition:
            self.cancelled = True
            self._condition.notify_all()
            for sock in self._sockets:
                _shut_down(sock)

    def close(self) -> None:
        """Close every socket; only for the thread that uses them, or for anyone when none does."""
        with self._condition:
            for sock in self._sockets:
                sock.close()
            self._sockets.clear()


def _shut_down(sock: socket.socket) -> None:
    try:
        # Not SSLSocket.shutdown, which would also drop the TLS state under the reading thread.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF, errno.EINVAL):
            raise
