"""One connection to a server, and HTTP/1.1 answers on it: sockets, TLS, proxies, deadlines (stages 1 and 6).

Comes in: an `Endpoint`, and the bytes of requests.
Goes out: answers, byte by byte as they come, or an OSError, `ProtocolError` or `Interrupted`. Nothing here knows
Kubernetes, credentials or retries; that is for `transport.py` and `linestream.py`, one folder up.

Read first: `connection.py`, `http1.py`. Then how a connection is made (`dialing.py`, `tunnel.py`, `endpoint.py`), and
how long it may wait (`lifetime.py`). Imports nothing else of `api`.
"""

from controllers.runtime.api.wire.connection import Connection
from controllers.runtime.api.wire.endpoint import Endpoint, Proxy
from controllers.runtime.api.wire.http1 import Answer, ProtocolError, Reader
from controllers.runtime.api.wire.lifetime import Interrupted
from controllers.runtime.api.wire.tunnel import open_tunnel

__all__ = ["Answer", "Connection", "Endpoint", "Interrupted", "ProtocolError", "Proxy", "Reader", "open_tunnel"]
