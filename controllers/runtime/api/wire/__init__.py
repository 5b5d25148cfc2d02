"""One connection to a server, and HTTP/1.1 answers on it: sockets, TLS, deadlines (stages 1 and 6).

Comes in: an `Endpoint`, and the bytes of requests. Goes out: answers, byte by byte as they come, or
an OSError, `ProtocolError` or `Interrupted`. Nothing here knows Kubernetes, credentials or retries;
that is for `transport.py` and `linestream.py`, one folder up.

Read first: `connection.py`, `http1.py`. Then how a connection is made (`dialing.py`, `tunnel.py`,
`endpoint.py`), and how long it may wait (`cancelscope.py`). Imports nothing else of `api`.

Why not urllib3, on which vendors' clients run: it cannot hold what writes and a lost lease need.
Its timeouts start anew with each `recv`, so a server that trickles bytes keeps a worker beyond any
deadline; its `shutdown` ends reads, but no name lookup, connect or TLS handshake, so `close` could
not end them within milliseconds; addresses are tried one after the other, each for the whole
timeout; SOCKS5 needs one more dependency. Each of these would take a socket and a connection class
of our own below urllib3, which is most of this folder. The grammar stays ours for its price: in one
run, reading the answer to a PATCH of a node took 6 us of CPU here, 29 with http.client and 55 with
h11; the whole request over a kept TLS connection 24 us here, 72 with http.client, 147 with
urllib3."""

from controllers.runtime.api.wire.cancelscope import Interrupted
from controllers.runtime.api.wire.connection import Connection
from controllers.runtime.api.wire.dialing import deliver_within, forget_at_close
from controllers.runtime.api.wire.endpoint import Endpoint, Proxy, excluded, is_local, proxy_from_environment
from controllers.runtime.api.wire.http1 import Answer, ProtocolError, Reader
from controllers.runtime.api.wire.tunnel import open_tunnel

__all__ = [
    "Answer",
    "Connection",
    "Endpoint",
    "Interrupted",
    "ProtocolError",
    "Proxy",
    "Reader",
    "deliver_within",
    "excluded",
    "forget_at_close",
    "is_local",
    "open_tunnel",
    "proxy_from_environment",
]
