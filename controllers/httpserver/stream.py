"""The bytes of one connection, through TLS where it is spoken.

TLS is done by the TLS library's memory buffers: asyncio's own transport keeps 256 KiB for each
connection, has one context for all of them (ours changes with the files), sends no alert when it
refuses a certificate, and refuses client certificates whose alternative names are no UTF-8."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")

CHUNK: Final = 65536
_PIECE: Final = 262144  # of an answer, until the other connections have their turn
_PLAIN_TEXT: Final = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"This port speaks HTTPS.\n"
)


class Stream:
    """`handshake` first. It, `read` and `send` raise OSError when the connection is broken."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(0)  # drain() waits until everything is sent
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True) if context is not None else None
        self._shaken = False

    async def handshake(self) -> bytes | None:
        """The client's certificate in DER, if it showed one; nothing at all without TLS."""
        if self._tls is None:
            return None
        try:
            await self._through(self._tls.do_handshake)
        except ssl.SSLError as error:
            # A browser or a probe without https gets told so, in plain text.
            if error.reason == "HTTP_REQUEST":
                self._out.read()  # the alert
                self._out.write(_PLAIN_TEXT)
            await self._flush()
            raise
        self._shaken = True
        return self._tls.getpeercert(binary_form=True)

    async def read(self) -> bytes:
        """What has come, at least one byte; nothing at the end."""
        tls = self._tls
        return await self._reader.read(CHUNK) if tls is None else await self._through(lambda: tls.read(CHUNK))

    async def send(self, *parts: bytes) -> None:
        """Send these; returns when the system has taken all of them."""
        for part in parts:
            view = memoryview(part)
            for at in range(0, len(view), _PIECE):
                piece = view[at : at + _PIECE]
                if self._tls is not None:
                    self._tls.write(piece)
                    await self._flush()
                else:
                    self._writer.write(piece)
                    await self._writer.drain()

    async def linger(self) -> None:
        """End our side, and read until the client ends its own: to close with bytes unread would
        reset the connection, and the client would not get the answer."""
        if self._tls is not None:
            self._farewell()
            await self._flush()
        else:
            self._writer.write_eof()
        while await self._reader.read(CHUNK):
            pass

    def close(self) -> None:
        """Close at once, with TLS's farewell where it can still be sent."""
        transport = self._writer.transport
        if self._shaken and not transport.get_write_buffer_size():
            self._farewell()
            self._writer.write(self._out.read())
        if transport.get_write_buffer_size():
            transport.abort()  # the client does not read: close() would wait for it
        else:
            transport.close()

    async def _through(self, act: Callable[[], T]) -> T:
        """The result of a step of TLS, with all the bytes it takes from and gives the client."""
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._reader.read(CHUNK)
                if data:
                    self._in.write(data)
                else:
                    self._in.write_eof()

    async def _flush(self) -> None:
        if self._out.pending:
            self._writer.write(self._out.read())
            await self._writer.drain()

    def _farewell(self) -> None:
        if self._tls is not None:
            with suppress(ssl.SSLError):  # the client's own farewell is not waited for
                self._tls.unwrap()
