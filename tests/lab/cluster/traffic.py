"""A client of a load balancer that counts what is lost: a request every few milliseconds, each on a
connection of its own, so that every one is balanced anew.

``python -m tests.lab.cluster.traffic ADDRESS:PORT --seconds 60`` does it from the command line.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

from attrs import define, field, frozen

_REQUEST = b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
_ANSWER_BYTES = 65_536


@frozen
class Lost:
    """A request that got no answer with status 200. `at` is in Unix seconds, `after` in seconds."""

    at: float
    after: float
    why: str


@define
class Report:
    """What became of the requests so far."""

    sent: int = 0
    answered: int = 0
    slowest: float = 0.0
    """Seconds, of those that were answered."""
    lost: list[Lost] = field(factory=list)
    by: Counter[str] = field(factory=Counter)
    """By the first line of the answer's body, how many: which pod answered, where it says so."""

    def __str__(self) -> str:
        head = f"{self.sent} requests, {len(self.lost)} lost, the slowest answer after {1000 * self.slowest:.0f} ms"
        reasons = Counter(one.why for one in self.lost)
        spans = f", from {self.lost[0].at:.2f} to {self.lost[-1].at:.2f}" if self.lost else ""
        return "\n  ".join((head + spans, *(f"{count} times: {why}" for why, count in reasons.most_common(5))))


class Traffic:
    """Sends requests in a thread of its own while it is entered; `report` may be read at any time.

    A request that has no whole answer within `timeout` seconds is lost. `every` is in seconds, from
    the start of one request to the start of the next, however long the answers take.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        path: str = "/",
        every: float = 0.01,
        timeout: float = 3.0,
        at_most: int = 500_000,
    ) -> None:
        self.report = Report()
        self.host, self.port = host, port
        self._request = _REQUEST % (path.encode(), host.encode())
        self._every = every
        self._timeout = timeout
        self._at_most = at_most
        self._done = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic", daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(self._timeout + 5)

    def finish(self) -> None:
        """Wait until `at_most` requests were sent, and each has its answer or is lost."""
        self._thread.join()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        under_way: set[asyncio.Task[None]] = set()
        while not self._done.is_set() and self.report.sent < self._at_most:
            task = asyncio.create_task(self._one())
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            self.report.sent += 1
            await asyncio.sleep(max(0.0, begun + self.report.sent * self._every - loop.time()))
        if under_way:
            await asyncio.wait(under_way)

    async def _one(self) -> None:
        at, began = time.time(), time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._exchange()
        except (OSError, TimeoutError) as error:
            self.report.lost.append(Lost(at, time.monotonic() - began, type(error).__name__))
            return
        took = time.monotonic() - began
        head, _, body = answer.partition(b"\r\n\r\n")
        status = head.split(b"\r\n", 1)[0]
        if b" 200" not in status:
            self.report.lost.append(Lost(at, took, status.decode(errors="replace") or "no answer"))
            return
        self.report.answered += 1
        self.report.slowest = max(self.report.slowest, took)
        self.report.by[body.split(b"\n", 1)[0].decode(errors="replace")[:80]] += 1

    async def _exchange(self) -> bytes:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(self._request)
            answer = bytearray()
            while len(answer) < _ANSWER_BYTES and (piece := await reader.read(4096)):
                answer += piece
            return bytes(answer)
        finally:
            writer.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.cluster.traffic", description=__doc__)
    parser.add_argument("target", help="ADDRESS:PORT of a load balancer")
    parser.add_argument("--path", default="/")
    parser.add_argument("--every", type=float, default=0.01, help="seconds between two requests (default: 0.01)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long (default: 30)")
    options = parser.parse_args(arguments)
    host, _, port = options.target.rpartition(":")
    with Traffic(host, int(port), path=options.path, every=options.every) as traffic:
        time.sleep(options.seconds)
    print(traffic.report)
    for pod, count in traffic.report.by.most_common():
        print(f"  {count} answers of {pod}")
    return 1 if traffic.report.lost else 0


if __name__ == "__main__":
    sys.exit(main())
