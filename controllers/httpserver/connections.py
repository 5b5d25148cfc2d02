"""Connections of unknown clients on one event loop: bounded in number, in time and by peer.

`h11` is the grammar, `stream.py` the bytes. Handlers run in threads, so the loop never waits for
one, and a client that is silent, sends its request byte by byte or does not read its answer costs a
socket and a task, no thread, and delays no other client.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, TypeVar

import attrs
import h11

from cloudprovider.internal.cleaning import text_of
from cloudprovider.threads import NoThreadLeft, ThreadPool
from controllers.httpserver.messages import (
    Certificate,
    Handler,
    Limits,
    Request,
    Response,
    Shares,
    group_of,
    subject_of,
)
from controllers.httpserver.stream import CHUNK, Stream
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.runtime.queue import FailureLog

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_HEAD: Final = 16384  # bytes of a request's line and headers
_ACCEPTED_AT_ONCE: Final = 32  # connections, before those that are there have their turn
_LINGER: Final = 2.0  # seconds for a client whose request was not read to its end
_NO_DESCRIPTOR: Final = 0.025  # seconds until connections are accepted again
_WINDOW: Final = 30.0  # seconds between two lines about one kind of broken connection: anybody may connect
_ANSWERERS: Final = 4  # threads for what is answered at once
_BROKEN: Final = Response(500, b"internal error\n")
_BUSY: Final = Response(503, b"too many requests wait for an answer\n", headers=(("Retry-After", "1"),))


class _Refused(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


class _Client:
    """One connection, in the loop's thread."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self.sock = sock
        self.peer = peer
        self.group = group_of(peer)
        self.began = asyncio.get_running_loop().time()
        self.certificate: Certificate | None = None
        self.idle = False  # answered, and nothing of a further request is there
        self.busy = False  # its request is complete, and its answer is being made
        self.sends_body = False
        self.held = 0  # bytes of the body that is received or answered
        self.method = ""
        self.limit: asyncio.Timeout | None = None
        self.task: asyncio.Task[None] | None = None

    def until(self, seconds: float) -> None:
        """Close it after so long, whatever the deadline was before. Called when a phase begins
        (request, answer, idle), so that no byte within it extends its time."""
        if self.limit is not None:
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)


class Connections:
    """Everything between bind and close. `run` in one thread; `stop` from any, at any time."""

    def __init__(
        self,
        listener: socket.socket,
        answer: Handler,
        name: str,
        tls: Callable[[], ssl.SSLContext] | None,
        limits: Limits,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._answer = answer
        self._name = name
        self._tls = tls
        self._limits = limits
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._fast = ThreadPool(f"{name}-answers", _ANSWERERS)
        self._slow = ThreadPool(f"{name}-asks", limits.slow_threads)
        self._slow_places = Shares(limits.slow_places, limits.slow_per_peer)
        # In the order in which they began to wait for a request.
        self._clients: dict[_Client, None] = {}
        self._groups: dict[bytes, int] = {}
        # Of closed connections too, until they have ended.
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: FailureLog[str] = FailureLog(name, log, clock=SYSTEM_CLOCK, window=_WINDOW)

    def stop(self) -> None:
        """Have `run` end."""
        self._from_thread(self._stopped.set)

    def run(self) -> None:
        """Serve until `stop`, then close everything."""
        self._loop.set_exception_handler(self._failed_in_loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
        try:
            await self._stopped.wait()
        finally:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            for client in list(self._clients):
                self._close(client)
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)  # the transports close their sockets

    def _failed_in_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failed(context.get("exception") or RuntimeError(context.get("message")))

    def _failed(self, error: BaseException) -> None:
        """A mistake of ours costs its connection, and neither the server nor many lines."""
        made = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
        self._failures.failed("connection", "it is closed", made, text_of(made), stack=True)

    # Connections: accepted, bounded, closed.

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # the client is gone already, or no descriptor is left
                log.debug("%s: a connection could not be accepted: %s", self._name, error)
                if error.errno in (errno.EMFILE, errno.ENFILE) and not self._evict(None):
                    self._loop.remove_reader(self._listener)  # it stays ready: not in a circle
                    self._loop.call_later(_NO_DESCRIPTOR, self._accept_again)
                return
            client = _Client(sock, str(address[0]))
            if not self._make_room(client.group):
                sock.close()
                continue
            self._clients[client] = None
            self._groups[client.group] = self._groups.get(client.group, 0) + 1
            client.task = self._loop.create_task(self._attend(client))
            self._tasks.add(client.task)
            client.task.add_done_callback(self._tasks.discard)
            client.task.add_done_callback(lambda _, sock=sock: sock.close())  # type: ignore[misc]  # even if it never began

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _make_room(self, group: bytes) -> bool:
        """False where everybody is being answered: the new one has to come again."""
        # A peer that takes too many pays itself, with its oldest.
        if self._groups.get(group, 0) >= self._limits.per_peer:
            return self._evict(group)
        if len(self._clients) >= self._limits.connections:
            # Whoever has most gives one up, so that one peer cannot shut out the others.
            return self._evict(max(self._groups, key=self._groups.__getitem__)) or self._evict(None)
        return True

    def _evict(self, group: bytes | None) -> bool:
        """Close the oldest connection, of this peer or of anybody, whose answer is not being
        made.

        A probe sends its request at once, so it is answered long before it is the oldest.
        """
        for client in self._clients:
            if not client.busy and group in (None, client.group):
                self._close(client)
                return True
        return False

    def _bound_bodies(self, group: bytes) -> None:
        """Close this peer's oldest connections that send bodies, until it leaves as much free as it
        has."""
        free = self._limits.all_bodies - sum(one.held for one in self._clients)
        own = [one for one in self._clients if one.group == group]
        held = sum(one.held for one in own)
        for client in [one for one in own if one.sends_body]:
            if held <= free:
                return
            held, free = held - client.held, free + client.held
            self._close(client)

    def _close(self, client: _Client) -> None:
        self._forget(client)
        if client.task is not None:
            client.task.cancel()

    def _forget(self, client: _Client) -> None:
        if client in self._clients:
            del self._clients[client]
            self._groups[client.group] -= 1
            if not self._groups[client.group]:
                del self._groups[client.group]

    # One connection: handshake, request, answer, the next request.

    async def _attend(self, client: _Client) -> None:
        try:
            async with asyncio.timeout(self._limits.request_seconds) as client.limit:
                context = self._tls() if self._tls is not None else None
                reader, writer = await asyncio.open_connection(sock=client.sock, limit=CHUNK)
                stream = Stream(reader, writer, context)
                try:
                    shown = await stream.handshake()
                    client.certificate = subject_of(shown) if shown else None
                    await self._talk(client, stream)
                finally:
                    stream.close()
        except OSError as error:  # a deadline (TimeoutError) too
            log.debug("%s: the connection of %s broke or was too slow: %s", self._name, client.peer, error)
        except Exception as error:  # noqa: BLE001 - the top of a task: this connection alone is closed
            self._failed(error)
        finally:
            self._forget(client)

    async def _talk(self, client: _Client, stream: Stream) -> None:
        # The limit is what h11 keeps of an incomplete head: one byte more is refused.
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD - 1)
        while True:
            try:
                request = await self._request(client, stream, http)
            except (_Refused, h11.RemoteProtocolError) as error:
                status = error.status if isinstance(error, _Refused) else error.error_status_hint
                answer = Response(status, f"{HTTPStatus(status).phrase}\n".encode())
                await stream.send(*_encoded(http, answer, head_only=client.method == "HEAD", close=True))
                break
            if request is None:
                return
            client.busy = True
            client.until(self._limits.answer_seconds)
            answer = await self._answered(client, request)
            client.busy, client.held = False, 0
            unread = http.their_state is h11.SEND_BODY
            last = unread or self._loop.time() - client.began > self._limits.connection_seconds
            await stream.send(*_encoded(http, answer, head_only=request.method == "HEAD", close=last))
            if unread:
                break
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()
            self._wait_for_next(client, begun=bool(http.trailing_data[0]))
        client.until(_LINGER)
        await stream.linger()

    def _wait_for_next(self, client: _Client, *, begun: bool) -> None:
        client.method, client.idle = "", not begun
        client.until(self._limits.request_seconds if begun else self._limits.idle_seconds)
        if client in self._clients:
            del self._clients[client]  # it begins to wait again: now it is the youngest
            self._clients[client] = None

    async def _request(self, client: _Client, stream: Stream, http: h11.Connection) -> Request | None:
        """A whole request; None at the end of the connection. Raises _Refused."""
        request: Request | None = None
        parts: list[bytes] = []
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                if request is not None and http.they_are_waiting_for_100_continue:
                    await stream.send(http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                data = await stream.read()
                if not data:
                    return None
                if client.idle:
                    client.idle = False
                    client.until(self._limits.request_seconds)
                http.receive_data(data)
            elif isinstance(event, h11.Request):
                request = _request_of(event, client)
                client.method = request.method
                if not self._body_follows(request):
                    return request
                client.sends_body = True
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                # Counted as it comes: a length that is announced costs nothing yet.
                client.held += len(event.data)
                self._bound_bodies(client.group)
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                client.sends_body = False
                return attrs.evolve(request, body=b"".join(parts)) if parts else request
            else:
                return None

    def _body_follows(self, request: Request) -> bool:
        """Whether the rest of this request is read: not where none are taken. Raises _Refused."""
        limits = self._limits
        if limits.require_certificate and request.certificate is None:
            raise _Refused(HTTPStatus.UNAUTHORIZED)
        chunked, length = "transfer-encoding" in request.headers, int(request.headers.get("content-length", "0"))
        if not limits.max_body:
            return not chunked and not length  # what is read then is the end of the message
        if chunked:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED)
        if length > limits.max_body:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return True

    # Answers, in threads.

    async def _answered(self, client: _Client, request: Request) -> Response:
        answer = await self._in_thread(self._fast, request, lambda: self._answer(request))
        if isinstance(answer, Response):
            return answer
        release = self._slow_places.take(client.group)
        if release is None:
            # Slow answers ask the API server: one peer must not take all the threads for them.
            return _BUSY
        return await self._in_thread(self._slow, request, answer, release)

    async def _in_thread(
        self, pool: ThreadPool, request: Request, make: Callable[[], T], release: Callable[[], None] = lambda: None
    ) -> T | Response:
        """What this returns, in a thread of the pool.

        A connection that is closed meanwhile gives back neither thread nor place: its thread
        does."""
        made: asyncio.Future[T | Response] = self._loop.create_future()

        def end(answer: T | Response) -> None:
            release()
            if not made.done():
                made.set_result(answer)

        def work() -> Callable[[], object]:
            answer: T | Response = _BROKEN
            try:
                if not made.done():
                    answer = make()
            except BaseException:  # a thread's top; SystemExit of a vendor's code too
                log.exception("%s: %s %s could not be answered", self._name, request.method, request.target)
            return lambda: self._from_thread(end, answer)

        try:
            pool.run(work)
        except NoThreadLeft as error:
            release()
            raise OSError(str(error)) from error
        return await made

    def _from_thread(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the server has stopped, and its loop is closed
            self._loop.call_soon_threadsafe(call, *arguments)


def _request_of(event: h11.Request, client: _Client) -> Request:
    if event.http_version not in (b"1.0", b"1.1"):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for raw, value in event.headers:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return Request(
        method=event.method.decode("latin-1"),
        target=event.target.decode("latin-1"),
        headers=headers,
        peer=client.peer,
        certificate=client.certificate,
    )


def _encoded(http: h11.Connection, answer: Response, *, head_only: bool, close: bool) -> list[bytes]:
    """The answer as it is sent; a large body is not copied."""
    headers = [
        ("Content-Type", answer.kind),
        ("Content-Length", str(len(answer.body))),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-cache, private"),
        *answer.headers,
    ]
    if close:
        headers.append(("Connection", "close"))
    reason = HTTPStatus(answer.status).phrase
    head = http.send(h11.Response(status_code=answer.status, headers=headers, reason=reason)) or b""
    body = [] if head_only else http.send_with_data_passthrough(h11.Data(data=answer.body)) or []
    http.send(h11.EndOfMessage())
    return [head, *body] if len(answer.body) > CHUNK else [b"".join([head, *body])]
