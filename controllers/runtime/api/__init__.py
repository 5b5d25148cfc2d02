"""How the API server is reached (stages 1 and 6): all between this process and its socket.

Comes in: flags and files that say where the server is and who we are (`kubeconfig.py`,
`credentials.py`, `tls.py`). Goes out: clients, one for each identity (`clients.py`), whose requests
go over kept connections (`transport.py`), streams of lines for watches (`linestream.py`), one
exception for each meaning of "no" (`errors.py`), and the word whether the server answers at all
(`reachability.py`). One connection, with TLS, proxies and deadlines: `wire/`.

Read first: `clients.py`, `restclient.py`, `transport.py`. Imports no other wing."""

from controllers.runtime.api.clients import ClientBuilder, ClientSettings
from controllers.runtime.api.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    ClientClosed,
    Conflict,
    CredentialsUnavailable,
    Forbidden,
    Gone,
    HalfOpen,
    Invalid,
    NotFound,
    ObjectNotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_status,
)
from controllers.runtime.api.kubeconfigfile import ClientConfigError
from controllers.runtime.api.linestream import LineStream
from controllers.runtime.api.reachability import NO_ANSWERS, Recovery
from controllers.runtime.api.restclient import MERGE_PATCH, METADATA_ONLY, STRATEGIC_PATCH, Response, RestClient
from controllers.runtime.api.tls import SecretFile

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "ClientBuilder",
    "ClientClosed",
    "ClientConfigError",
    "ClientSettings",
    "Conflict",
    "CredentialsUnavailable",
    "Forbidden",
    "Gone",
    "HalfOpen",
    "Invalid",
    "LineStream",
    "MERGE_PATCH",
    "METADATA_ONLY",
    "NO_ANSWERS",
    "NotFound",
    "ObjectNotFound",
    "Recovery",
    "Response",
    "RestClient",
    "STRATEGIC_PATCH",
    "SecretFile",
    "ServerError",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "from_status",
]
