"""One connection to a server, and HTTP/1.1 answers on it: sockets, TLS, deadlines (stages 1 and 6).

Comes in: an `Endpoint`, and the bytes of requests. Goes out: answers, byte by byte as they come, or
an OSError, `ProtocolError` or `Interrupted`. Nothing here knows Kubernetes, credentials or retries;
that is for `transport.py` and `linestream.py`, one folder up.

Read first: `connection.py`, `http1.py`. Then how a connection is made (`dialing.py`, `tunnel.py`,
`endpoint.py`), and how long it may wait (`cancelscope.py`). Imports nothing else of `api`."""

# Why not urllib3, on which vendors' clients run: its timeouts start again with each `recv`, so a
# server that trickles bytes keeps a worker beyond any deadline; its `shutdown` ends reads, but no
# name lookup, connect or TLS handshake; addresses are tried one after the other, each for the whole
# timeout; SOCKS5 needs one more dependency. A socket and a connection class of our own below
# urllib3 would be most of this folder. And the price: a request over a kept TLS connection takes
# 24 us of CPU here, 72 with http.client, 147 with urllib3.

from controllers.runtime.api.wire.cancelscope import Interrupted
from controllers.runtime.api.wire.connection import Connection
from controllers.runtime.api.wire.dialing import deliver_within, forget_at_close
from controllers.runtime.api.wire.endpoint import Endpoint, Proxy
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
    "forget_at_close",
    "open_tunnel",
]
