"""TLS sockets that are closed where the peer has reset the connection before the handshake.

Set as `sslsocket_class` of a context.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import Any


class TLSSocket(ssl.SSLSocket):
    """As the base class, which leaks: `wrap_socket` takes the file descriptor from the given socket
    and then raises, so that nothing is left that could close it."""

    def getpeername(self) -> Any:
        """The peer's address; raises OSError. `wrap_socket` asks for it."""
        try:
            return super().getpeername()
        except OSError:
            # A reset, where there is one. Not ENOTCONN, with which `wrap_socket` would go on.
            why = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or errno.ECONNRESET
            # wrap_socket has taken the descriptor and forgets it when this raises.
            self.close()
            raise OSError(why, os.strerror(why)) from None
