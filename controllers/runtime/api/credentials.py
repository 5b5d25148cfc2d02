"""Who we are to the API server, kept fresh: token files and credential plugins (stages 1 and 6).

Every request of `clients.py`, and of vendors' official clients, asks `Credentials` for the present
Authorization header. Tokens never appear in a message, a log line or a repr. Follows
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins."""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

from attrs import field, frozen

from cloudprovider.internal.backoff import Backoff
from cloudprovider.threads import NoThreadLeft, start
from controllers.runtime.api.errors import ClientClosed, CredentialsUnavailable
from controllers.runtime.api.ratelimit import Sleeper

log = logging.getLogger(__name__)

FETCH_TIMEOUT: Final = 60.0
"""Seconds that a request waits for a credential plugin."""
LOOK_SECONDS: Final = 10.0
"""Between two looks whether what a source is made from has changed on disk."""
_RETRY: Final = Backoff(base=1.0, cap=30.0)
_AS_HEADERS: Final = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))


@frozen
class Credential:
    """What a source yields: Authorization or "", certificate and key or b"", its end."""

    authorization: str = field(default="", repr=False)
    expires_at: float | None = None  # unix seconds
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    renew_at: float | None = None  # unix seconds; None: shortly before the end


class Source(ABC):
    """Where they come from."""

    slow: bool = False
    """`fetch` may block for long, so it runs in a thread of its own."""
    period: float = math.inf
    """Seconds after which to fetch again; infinite when only the expiry counts."""
    pace: float = 1.0
    """Least seconds between two fetches that rejected credentials cause."""
    origin: str = ""
    """What the credential is and where it comes from, in words, for a 401."""
    version: int = 0
    """Another one after a `look`: fetch again, whatever is still good."""
    needs_restart: str = ""
    """What has changed on disk and cannot be used by this process, in words; or ""."""

    @abstractmethod
    def fetch(self) -> Credential:
        """What to send now. May raise anything, that counts as "not available now"."""

    def look(self) -> None:  # noqa: B027 - most are made once
        """Look whether what the source is made from has changed; cheap. Asked every `LOOK_SECONDS`,
        and after a 401."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End a fetch under way, where that is possible; called once, at the end."""


def impersonation_headers(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headers of `as`, `as-uid`, `as-groups` and `as-user-extra`, which the official loader
    ignores."""
    headers = [(header, str(user[key])) for key, header in _AS_HEADERS if user.get(key)]
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    extra = cast("Mapping[str, list[str]]", user.get("as-user-extra") or {})
    headers += [(f"Impersonate-Extra-{_escaped(key)}", str(value)) for key, values in extra.items() for value in values]
    return tuple(headers)


def _escaped(key: str) -> str:
    """A key as part of a header's name: what must not stand there is percent-encoded, as the API
    server expects it."""
    return quote(str(key), safe="!#$&'*+-.^_`|~")


class Fixed(Source):
    """A credential that never changes."""

    pace = math.inf

    def __init__(self, authorization: str = "", *, origin: str = "") -> None:
        self._credential = Credential(authorization)
        self.origin = origin

    def fetch(self) -> Credential:
        return self._credential


class TokenFile(Source):
    """A bearer token in a file that someone replaces before it expires, as the kubelet does."""

    period = 10.0

    def __init__(self, path: str, fallback: str = "", *, origin: str = "") -> None:
        """`fallback` is the token to use while the file cannot be read, as in client-go; "" for
        none."""
        self.origin = origin
        self._path = path
        self._fallback = fallback

    def fetch(self) -> Credential:
        """Read the file; raises CredentialsUnavailable while it is empty, missing or not a
        token."""
        try:
            return Credential(f"Bearer {self._read()}")
        except CredentialsUnavailable:
            if not self._fallback:
                raise
            return Credential(f"Bearer {self._fallback}")

    def _read(self) -> str:
        try:
            token = Path(self._path).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it holds no ASCII text"
            raise CredentialsUnavailable(f"token file {self._path}: {reason}") from None
        if not token:
            raise CredentialsUnavailable(f"token file {self._path} is empty; is it being replaced?")
        if not token.isprintable() or " " in token:
            raise CredentialsUnavailable(f"token file {self._path} holds more than one token")
        return token


class Credentials:
    """The present credential of a source; thread-safe. One thread fetches, others use what is good.

    A fetch that fails leaves the former credential in use until it expires, and is tried again
    after 1 to 30 seconds."""

    def __init__(
        self,
        source: Source,
        sleeper: Sleeper,
        *,
        fetched: Callable[[], object] = lambda: None,
    ) -> None:
        """`fetched` is called after each fetch, in its thread: certificates may be other ones."""
        self._source = source
        self._sleeper = sleeper
        self._clock = sleeper.clock
        self._fetched = fetched
        self._lock = threading.Lock()
        self._value: str | None = None
        self._expires_at: float | None = None
        self._error: str = ""
        self._check_at = -math.inf
        self._look_at = -math.inf
        self._version = 0
        self._fetched_at = -math.inf
        self._fetching = False
        self._failures = 0

    @property
    def origin(self) -> str:
        """What the credential is and where it comes from, in words."""
        return self._source.origin

    @property
    def needs_restart(self) -> str:
        """As of the source."""
        return self._source.needs_restart

    def authorization(self, cancelled: Callable[[], bool] | None = None, timeout: float = FETCH_TIMEOUT) -> str:
        """The Authorization header's value, or "" for none; raises CredentialsUnavailable.

        Blocks only when there is no usable credential: until a plugin answers, `timeout` or 60 s at
        most, or until `cancelled`.
        """
        value, now = self._value, self._clock.monotonic()
        if value is not None and now < self._check_at and now < self._look_at:
            return value
        with self._lock:
            if now >= self._look_at:
                self._look_at = now + LOOK_SECONDS
                self._source.look()
                if self._source.version != self._version:
                    self._check_at = -math.inf
            if not self._fetching and self._clock.monotonic() >= self._check_at:
                # In a thread of its own: a plugin may hang, and others go on with what is still
                # good.
                if self._source.slow:
                    self._start_fetching()
                else:
                    self._store(self._try_fetch())
            if self._expires_at is not None and self._clock.monotonic() >= self._expires_at:
                self._value = None
            value, fetching = self._value, self._fetching
        limit = max(0.0, min(timeout, FETCH_TIMEOUT))
        if value is None and fetching:
            self._sleeper.wait_for(lambda: not self._fetching or (cancelled is not None and cancelled()), limit)
            value = self._value
        if value is None:
            if self._sleeper.closed:
                raise ClientClosed("the client is closed", sent=False)
            raise CredentialsUnavailable(self._error or f"no credentials within {limit:.3g} s")
        return value

    def rejected(self, authorization: str) -> None:
        """The server answered 401 to this value: look and fetch before the next request."""
        with self._lock:
            self._look_at = -math.inf
            if authorization == self._value and self._source.pace != math.inf:
                again = self._fetched_at + self._source.pace
                # Not before `pace`: a server that refuses every token must not have a plugin run
                # for each request.
                if again < self._check_at:
                    self._check_at = again
                if self._clock.monotonic() >= again:
                    self._value = None

    def close(self) -> None:
        """End a fetch under way. May be called twice."""
        self._source.close()

    def _start_fetching(self) -> None:
        """Have another thread fetch; if none can be started, that is a failure as any other."""
        try:
            start(self._fetch, "credentials")
        except NoThreadLeft as error:
            self._store(f"credentials: {error}")
        else:
            self._fetching = True  # the thread needs the lock, which we hold, to say that it is done

    def _fetch(self) -> None:
        found = self._try_fetch()
        with self._lock:
            self._store(found)
            self._fetching = False
        self._sleeper.wake()

    def _try_fetch(self) -> Credential | str:
        self._version = self._source.version
        try:
            found = self._source.fetch()
            self._fetched()
        except CredentialsUnavailable as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - it is logged and tried again
            return f"credentials: {type(error).__name__}: {str(error)[:500]}"
        return found

    def _store(self, found: Credential | str) -> None:
        now = self._fetched_at = self._clock.monotonic()
        if isinstance(found, Credential):
            if self._failures:
                log.info("credentials are available again")
            self._value, self._error, self._failures = found.authorization, "", 0
            self._expires_at = None
            keep = self._source.period
            if found.expires_at is not None:
                left = found.expires_at - self._clock.time()
                if left > 0:
                    self._expires_at = now + left
                    # Early enough to survive a slow plugin, late enough not to run it all the time.
                    keep = min(keep, max(1.0, left - min(60.0, left / 5)))
                else:  # perhaps our clock is wrong: the server decides, as with client-go
                    keep = min(keep, self._source.pace)
            if found.renew_at is not None:
                keep = min(keep, max(1.0, found.renew_at - self._clock.time()))
            self._check_at = now + keep
            return
        self._error = found
        if not self._failures:
            log.warning("%s (%s)", found, "keeping the previous ones" if self._value else "retrying")
        self._check_at = now + _RETRY.delay(self._failures)
        self._failures += 1
