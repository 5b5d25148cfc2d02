"""Types for fields of a `ProviderConfig` that say how a cloud's API is reached, with their
checks."""

from __future__ import annotations

import ssl
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

__all__ = ["CAFile", "Endpoint", "SecretWord"]

_LOCAL = ("127.0.0.1", "::1", "localhost")


def _endpoint(text: str) -> str:
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("must be a URL without user, query and fragment, such as https://api.cloud.example/v1")
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        raise ValueError("must begin with https://, or everyone on the way could read the secrets")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _word(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value().strip()
    if not text or any(not "!" <= letter <= "~" for letter in text):
        raise ValueError("must be one word of printable ASCII characters")
    return SecretStr(text)


def _certificates(path: str) -> str:
    try:
        if path:
            ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        raise ValueError("must be a readable file with CA certificates in PEM") from error
    return path


Endpoint = Annotated[str, AfterValidator(_endpoint)]
"""The URL of an API; HTTPS, but for this machine itself."""

SecretWord = Annotated[SecretStr, AfterValidator(_word)]
"""A token or a secret: one word, which cannot break out of a header."""

CAFile = Annotated[str, AfterValidator(_certificates)]
"""A file with the CA certificates (PEM) that the API is trusted by; "" for those of the system."""
