"""Tokens for the cloud's API (stage 5, cloud call): where they come from, and when the next one is
fetched. One thread fetches at a time, before the old token ends, and once more where the cloud
answers 401. No token is in a repr or in a message.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote_plus

import urllib3
from attrs import field, frozen
from pydantic import Field
from typing_extensions import override

from cloudprovider.errors import CallInterrupted, CloudProviderError, Throttled
from cloudprovider.http.answers import CloudError, Failures, Resource
from cloudprovider.http.cached import Cached
from cloudprovider.http.sending import pool_for, send

__all__ = ["ClientCredentials", "FileToken", "StaticToken", "Token", "TokenSource"]


@frozen
class Token:
    """A token, and for how many seconds it is good from now; infinity where it does not end. Raises
    CloudProviderError for a text that no header can have."""

    text: str = field(repr=False)
    seconds: float = math.inf

    def __attrs_post_init__(self) -> None:
        # The error of the HTTP client would show it.
        if not (self.text.isascii() and self.text.isprintable()):
            raise CloudProviderError("the token cannot be sent: it has a line break, or a letter that is not ASCII")


class TokenSource(ABC):
    """What a `Client` gets its tokens from. Derive from it for another way to log in; the rest (one
    fetch at a time, early, once more after a 401) is done here. For any thread."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cached = Cached(self._fetched, lambda token: token.seconds, monotonic=monotonic)

    @abstractmethod
    def fetch(self) -> Token:
        """A new token from where it is made. Called by one thread at a time. Raises
        CloudProviderError; with no secret in the message."""

    def _fetched(self) -> Token:
        try:
            return self.fetch()
        except CloudProviderError as error:
            if isinstance(error, Throttled | CallInterrupted) or type(error) in (CloudError, CloudProviderError):
                raise
            # A login that finds nothing, is busy or refuses says nothing of what is asked for.
            # Not `from error`: chained errors count.
            raise CloudError(f"login: {str(error).removeprefix('login: ')}") from None

    def token(self) -> Token:
        """The token to send. Raises CloudProviderError."""
        return self._cached.get()

    def after_401(self, refused: Token) -> Token:
        """The token to send after this one was refused; one with the same text where there is no
        other, or where it was fetched less than a second ago. Raises CloudProviderError."""
        return self._cached.other_than(refused)


class StaticToken(TokenSource):
    """A token that is in the configuration."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._token = Token(text)

    @override
    def fetch(self) -> Token:
        return self._token


class FileToken(TokenSource):
    """A token that another program keeps up to date in a file, such as a mounted Secret. It is read
    every ten seconds, and after a 401."""

    def __init__(self, path: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(monotonic=monotonic)
        self._path = path

    @override
    def fetch(self) -> Token:
        try:
            text = Path(self._path).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8 text"
            raise CloudProviderError(f"the token's file {self._path} cannot be read: {why}") from None
        if not text:
            raise CloudProviderError(f"the token's file {self._path} is empty")
        return Token(text, 10.0)


class _Granted(Resource):
    access_token: str = Field(min_length=1)
    expires_in: float = Field(default=300.0, gt=0)


class ClientCredentials(TokenSource):
    """Logs in with an ID and a secret, as OAuth 2.0 calls client credentials. `fields` are further
    ones of the form (`scope`, `audience`); with `basic` ID and secret are in the header
    Authorization and not in the form, escaped as fields of a form are. A token without `expires_in`
    is used for five minutes.

    Follows: RFC 6749, sections 2.3.1 and 4.4.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: str,
        *,
        fields: Mapping[str, str] | None = None,
        basic: bool = False,
        ca_file: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(monotonic=monotonic)
        self._url = url
        self._secret = secret
        login = f"{quote_plus(client_id)}:{quote_plus(secret)}"
        self._headers = urllib3.make_headers(basic_auth=login) if basic else {}
        own = {} if basic else {"client_id": client_id, "client_secret": secret}
        self._form = {"grant_type": "client_credentials", **own, **(fields or {})}
        self._pool = pool_for(url, ca_file)

    @override
    def fetch(self) -> Token:
        try:
            answer = send(
                self._pool, "POST", self._url, asked="login", headers=self._headers, failures=Failures(),
                form=self._form, secret=self._secret, calls=2,
            )  # fmt: skip
        except CloudError as error:
            if error.status in (400, 401, 403):  # the answer's words are left out
                text = f"login: {error.status}, the cloud does not accept the client's ID and secret"
                raise CloudError(text) from None
            raise
        granted = answer.read(_Granted)
        return Token(granted.access_token, granted.expires_in)
