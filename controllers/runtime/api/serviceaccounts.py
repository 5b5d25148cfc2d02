"""A service account of its own for each identity, with tokens from TokenRequest (stages 1 and 6),
for --use-service-account-credentials.

Tokens are requested with the manager's own client, kept in memory alone, and renewed before they
end; 401 renews at once. Follows the dynamic client builder of k8s.io/controller-manager."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any, Final

from controllers.runtime.api.credentials import Credential, Credentials, Source
from controllers.runtime.api.errors import AlreadyExists, ApiError, CredentialsUnavailable, Forbidden, NotFound
from controllers.runtime.api.ratelimit import Sleeper
from controllers.runtime.api.restclient import RestClient
from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

LIFETIME: Final = 3600
"""Seconds for which a token is asked, as Go; the API server may give another time."""
_TIMEOUT: Final = 10.0
# At a random share, so that the tokens of all accounts are not renewed together.
_EARLIEST, _LATEST = 0.7, 0.8  # of a token's life, at which it is renewed


class TokenSource(Source):
    """The tokens of one service account. A request for one ends with the client's connections."""

    slow = True

    def __init__(
        self,
        namespace: str,
        name: str,
        tokens: RestClient,
        accounts: RestClient,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`tokens` requests the tokens; `accounts` creates the account where it is missing: a
        write, which the fence of a lost lease stops."""
        self.origin = f"a token of the service account {namespace}/{name}"
        self._namespace = namespace
        self._name = name
        self._tokens = tokens
        self._accounts = accounts
        self._clock = clock
        self._chance = chance

    def fetch(self) -> Credential:
        """Request a token; create a missing account first. Raises CredentialsUnavailable."""
        try:
            return self._request()
        except NotFound:
            # Unlike Go, an account is created only once it is known to be missing: where the
            # manifest brings the accounts, no right to read or create them is needed.
            self._create()
        try:
            return self._request()
        except NotFound as error:
            raise self._unavailable(error) from error

    def _request(self) -> Credential:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFETIME},
        }
        began = self._clock.time()
        try:
            answer = self._tokens.request(
                "POST", f"{self._path}/{self._name}/token", body=body, timeout=_TIMEOUT
            ).json()
        except NotFound:
            raise
        except Forbidden as error:
            raise self._unavailable(
                error,
                "Missing permission of the manager's own service account: apiGroups [''], resources "
                f"[serviceaccounts/token], resourceNames [{self._name}], verbs [create], namespace {self._namespace}",
            ) from error
        except ApiError as error:
            raise self._unavailable(error) from error
        token, seconds = _token_of(answer)
        if not token:
            raise CredentialsUnavailable(f"the answer to the token request for {self._shown} holds no token")
        # Its life counts from our clock, whatever the server's says.
        share = _EARLIEST + (_LATEST - _EARLIEST) * self._chance()
        return Credential(f"Bearer {token}", expires_at=began + seconds, renew_at=began + seconds * share)

    def _create(self) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        try:
            self._accounts.request("POST", self._path, body=body, timeout=_TIMEOUT)
        except AlreadyExists:
            return  # another replica's
        except ApiError as error:
            raise self._unavailable(
                error,
                "The account does not exist and cannot be created. Create it (python -m controllers.cli.rbac "
                "--use-service-account-credentials prints it), or grant: apiGroups [''], resources [serviceaccounts], "
                f"verbs [create], namespace {self._namespace}",
            ) from error
        log.info("created the service account %s", self._shown)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/serviceaccounts"

    @property
    def _shown(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _unavailable(self, error: ApiError, fix: str = "") -> CredentialsUnavailable:
        return CredentialsUnavailable(
            f"no token for the service account {self._shown}: {error}{f'. {fix}' if fix else ''}"
        )


class ServiceAccounts:
    """The credentials of every account that was asked for; each is made once. Thread-safe."""

    def __init__(self, namespace: str, tokens: RestClient, accounts: RestClient, sleeper: Sleeper) -> None:
        self._namespace = namespace
        self._tokens = tokens
        self._accounts = accounts
        self._sleeper = sleeper
        self._lock = threading.Lock()
        self._credentials: dict[str, Credentials] = {}

    def credentials(self, name: str) -> Credentials:
        """The credentials of the account of this name. Requests nothing yet."""
        with self._lock:
            found = self._credentials.get(name)
            if found is None:
                source = TokenSource(self._namespace, name, self._tokens, self._accounts, self._sleeper.clock)
                found = self._credentials[name] = Credentials(source, self._sleeper)
            return found


def _token_of(answer: Any) -> tuple[str, float]:
    """The token in a TokenRequest's answer, or "", and the seconds that it lives."""
    if not isinstance(answer, dict):
        return "", 0.0
    token = (answer.get("status") or {}).get("token")
    seconds = (answer.get("spec") or {}).get("expirationSeconds")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        return "", 0.0
    return token, float(seconds or LIFETIME)
