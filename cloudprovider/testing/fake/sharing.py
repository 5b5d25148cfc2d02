"""One cloud for several processes: the one that made it serves it, and the others ask it.

Each call of the contract travels pickled, by `multiprocessing.connection` over the loopback
interface, to who knows the key of the server. So store, faults and log are those of one process,
and a client that is killed loses nothing: what it asked for is done, as in a real cloud."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pickle import PicklingError
from typing import Any

from cloudprovider.call import Call, call_scope, current_call
from cloudprovider.errors import CloudProviderError
from cloudprovider.testing.fake.calls import Caller

_TICK = 0.02  # seconds between two looks whether the host cancelled the call
Answer = Callable[[str, Sequence[Any], Caller], Any]


class CloudServer:
    """Serves a cloud on a free port of the loopback interface, from its making until `close`.
    `answer` carries out one call."""

    def __init__(self, answer: Answer) -> None:
        self.key = secrets.token_hex(16)
        self._answer = answer
        self._closed = False
        self._listener = Listener(("127.0.0.1", 0), backlog=128)
        host, port = self._listener.address
        self.address = f"{host}:{port}"
        threading.Thread(target=self._accept, name="fake-cloud", daemon=True).start()

    def close(self) -> None:
        """Take no more clients; calls under way end as they may."""
        self._closed = True
        with contextlib.suppress(OSError):  # wakes the thread that accepts
            socket.create_connection(self._listener.address).close()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            # One for each client, and daemons: a call that hangs holds up nobody, nor the end of
            # the test.
            threading.Thread(target=self._serve, args=(connection,), name="fake-cloud-client", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        # A client that ends in the middle of anything is no news here: tests kill their processes.
        with connection, contextlib.suppress(OSError, EOFError, AuthenticationError):
            # Here and not in `accept`: a client that says nothing would keep the others out.
            deliver_challenge(connection, self.key.encode())
            answer_challenge(connection, self.key.encode())
            while not self._closed:
                message = connection.recv()
                if message is None:  # cancelled when it was answered already
                    return
                method, arguments, caller, deadline, cancelled = message
                good, answer = True, None
                try:
                    # The deadline is one of the monotonic clock, which the processes of a machine
                    # share.
                    with call_scope(Call(deadline, _Cancelled(connection, cancelled))):
                        answer = self._answer(method, arguments, caller)
                except BaseException as error:  # noqa: BLE001 - raised again by the client
                    good, answer = False, error
                try:
                    connection.send((good, answer))
                # The client waits for an answer, whatever it is.
                except (PicklingError, TypeError, AttributeError) as error:  # what a fault answered
                    connection.send((False, CloudProviderError(f"{method}: the answer cannot travel: {error}")))


class _Cancelled:
    """Set when the client says that it no longer wants the answer, or is gone: a `StopSignal`."""

    def __init__(self, connection: Connection, already: bool) -> None:
        self._connection = connection
        self._already = already

    def is_set(self) -> bool:
        return self._already or self._connection.poll()

    def wait(self, timeout: float | None = None) -> bool:
        return self._already or self._connection.poll(timeout)


class CloudClient:
    """Asks the process that serves the cloud. Thread-safe; a connection for each call under way."""

    def __init__(self, server: str, key: str) -> None:
        host, _, port = server.rpartition(":")
        self._address = (host, int(port))
        self._key = key
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def ask(self, method: str, arguments: tuple[Any, ...], caller: Caller) -> Any:
        """Make the call there; returns its answer or raises its exception. Raises
        `CloudProviderError` when no process serves it."""
        call = current_call()
        connection: Connection | None = None
        reusable = False
        try:
            connection = self._connect()
            cancelled = call.is_cancelled()
            connection.send((method, arguments, caller, call.deadline, cancelled))
            while not (cancelled or connection.poll(_TICK)):
                if cancelled := call.is_cancelled():
                    connection.send(None)  # it answers all the same: a hang that is hard takes its time
            good, answer = connection.recv()
            # The answer to a call that was given up may still be on its way.
            reusable = not cancelled
        except (OSError, EOFError, AuthenticationError) as error:
            raise CloudProviderError(f"{method}: the process that serves the fake cloud is gone") from error
        finally:
            if connection is not None:
                self._give_back(connection, reusable)
        if not good:
            try:
                raise answer
            finally:
                del answer  # the traceback holds this frame
        return answer

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _connect(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Client(self._address, authkey=self._key.encode())

    def _give_back(self, connection: Connection, reusable: bool) -> None:
        if not reusable:
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)
