"""Client: the way to a cloud's HTTP API (stage 5, cloud call): requests of one path, and listings
of many pages. See `answers` for what becomes of each status.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pydantic import BaseModel

from cloudprovider.errors import CloudProviderError
from cloudprovider.http.answers import Answer, CloudError, Failures, NotFoundError
from cloudprovider.http.sending import pool_for, send
from cloudprovider.http.tokens import TokenSource

__all__ = ["Client", "bearer", "next_link", "path_of"]

ModelT = TypeVar("ModelT", bound=BaseModel)


def bearer(token: str) -> Mapping[str, str]:
    """The headers of a request with a bearer token."""
    return {"Authorization": f"Bearer {token}"}


class Client:
    """Requests to one API. Each is sent once, within the time that is left of the provider call,
    and raises CloudProviderError for whatever goes wrong; the host tries again. After a 401 it is
    sent once more if there is a newer token. Redirects are not followed. For any thread.

    `headers` makes the headers of a token, `failures` is how this cloud says that something went
    wrong.
    """

    def __init__(
        self,
        endpoint: str = "",
        tokens: TokenSource | None = None,
        *,
        ca_file: str = "",
        failures: Failures | None = None,
        headers: Callable[[str], Mapping[str, str]] = bearer,
    ) -> None:
        self._failures = failures or Failures()
        self._headers = headers
        self.use(endpoint, tokens, ca_file=ca_file)

    def use(self, endpoint: str, tokens: TokenSource | None = None, *, ca_file: str = "") -> None:
        """Take another endpoint, tokens and CA certificates: of a configuration that was loaded
        again. No request has the new endpoint and the old token."""
        self._way = (endpoint.rstrip("/"), tokens, pool_for(endpoint, ca_file))  # at once

    def get(self, kind: type[ModelT], path: str, fields: Mapping[str, str] | None = None, *, calls: int = 1) -> ModelT:
        """What is at a path; `fields` are the query. NotFoundError only if the cloud itself says
        so. `calls` is how many requests this provider call still makes, this one included."""
        return self.send("GET", path, fields=fields, calls=calls).read(kind)

    def find(self, kind: type[ModelT], path: str, fields: Mapping[str, str] | None = None) -> ModelT | None:
        """What is at a path; None only if the cloud itself says that there is no such thing."""
        try:
            return self.get(kind, path, fields)
        except NotFoundError:
            return None

    def pages(
        self,
        kind: type[ModelT],
        path: str,
        fields: Mapping[str, str] | None = None,
        *,
        following: Callable[[ModelT, Answer], Mapping[str, str] | None],
    ) -> list[ModelT]:
        """Every page of a listing. `following` gives the fields that ask for the page after this
        one, and None for the last: a cursor, a number, or `next_link`. They are put over `fields`.

        A page that fails raises, so half a listing is never taken for a whole one, and so does a
        page that leads back to one that was read."""
        asked: dict[str, str] = dict(fields or {})
        seen, found = [asked], []
        while True:
            answer = self.send("GET", path, fields=asked)
            found.append(answer.read(kind))
            more = following(found[-1], answer)
            if more is None:
                return found
            asked = {**asked, **more}
            if asked in seen:
                raise CloudProviderError(f"GET {path}: page {len(found)} leads back to a page that was read")
            seen.append(asked)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        fields: Mapping[str, str] | None = None,
        calls: int = 1,
    ) -> Answer:
        """One request, with `body` (a model, or a plain value) as JSON. Where it raises, a change
        may have been made all the same."""
        endpoint, tokens, pool = self._way
        token = tokens.token() if tokens is not None else None
        url = endpoint + path + (f"?{urlencode(fields)}" if fields else "")

        def once() -> Answer:
            text = "" if token is None else token.text
            headers = self._headers(text) if text else {}
            return send(
                pool, method, url, asked=f"{method} {path}", headers=headers, failures=self._failures, body=body,
                secret=text, calls=calls,
            )  # fmt: skip

        try:
            return once()
        except CloudError as error:
            if error.status != 401 or tokens is None or token is None:
                raise
            refused, token = token, tokens.after_401(token)
            if token.text == refused.text:
                raise
        return once()

    def delete(self, path: str) -> Answer | None:
        """Delete what is at a path; None where it does not exist. The answer may have an operation
        in it."""
        try:
            return self.send("DELETE", path)
        except NotFoundError:
            return None


def path_of(*parts: str) -> str:
    """The path of a resource, "/servers/i-1", its parts escaped. Raises CloudProviderError for a
    part that would lead to another path: "", "." and ".."."""
    for part in parts:
        if part in ("", ".", ".."):
            raise CloudProviderError(f"{part!r} in {parts} cannot be a part of a path")
    return "".join(f"/{quote(part, safe='')}" for part in parts)


_LINK = re.compile(r"<([^<>]*)>((?:\s*;\s*[\w!#$&+.^`|~-]+\s*(?:=\s*(?:\"[^\"]*\"|[^\s\",;]*))?)*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s\",;]*))", re.I)


def next_link(_page: object, answer: Answer) -> Mapping[str, str] | None:
    """For `Client.pages`: the fields of the next page where the header Link names it, with
    rel="next". Host and path of the link are not used: tokens go to the endpoint alone.

    Follows: RFC 8288.
    """
    for target, parameters in _LINK.findall(answer.headers.get("Link", "")):
        rel = _REL.search(parameters)
        if rel is not None and "next" in (rel[1] or rel[2] or "").lower().split():
            try:
                return dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))
            except ValueError:
                raise CloudProviderError(f"{answer.asked}: the header Link cannot be read") from None
    return None
