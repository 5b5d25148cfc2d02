"""Single requests to Nova, Neutron and Octavia, as JSON; and OpenStack's errors, which become the
contract's here, and nowhere else.

openstacksdk's own objects would ask for more than is needed, and leave out what they do not know.
Every method that the host calls has its body under `answered`. Inside, code that expects a certain
answer catches openstacksdk's own exceptions (`NotFoundException`, `ConflictException`)::

    400 403 409 413, of a quota -> QuotaExceeded       409 "immutable" -> Pending
    429, and 413 503 with Retry-After -> Throttled     412 -> RetryError
    all others -> OpenStackError

404 is no `InstanceNotFound` here: only the code that asked about one server knows what it means.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast
from urllib.parse import urlsplit

import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import (
    CatalogException,
    ClientException,
    ConnectFailure,
    ConnectTimeout,
    DiscoveryFailure,
    HttpError,
    SSLError,
)
from openstack.exceptions import (
    HttpException,
    NotFoundException,
    PreconditionFailedException,
    SDKException,
    raise_from_response,
)

from cloudprovider import CloudProviderError, Pending, QuotaExceeded, RetryError, Throttled

JSON = dict[str, Any]
BALANCERS: Final = "/lbaas/loadbalancers"
IN_URL: Final = 100
"""IDs in the URL of one request."""


def ask(
    service: Adapter, method: str, path: str, *, query: Iterable[tuple[str, str]] = (),
    body: Mapping[str, Any] | None = None, revision: int | None = None, microversion: str | None = None,
) -> JSON:  # fmt: skip
    """One request; the answer's body. With a revision, Neutron refuses (412) where the thing has
    another one by now."""
    headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
    answer = service.request(
        path, method, params=list(query), json=body, headers=headers, microversion=microversion, raise_exc=False
    )
    if answer.status_code == 404 and not _document(answer):
        # Not a service's word that something is gone: a proxy's, which did not find the service.
        raise HttpException("no service of OpenStack answered", response=answer, details=answer.text)
    raise_from_response(answer)
    found = _document(answer)
    if found is None and answer.content:
        raise SDKException(f"{method} {path} answered {answer.status_code}, and no JSON: look for a proxy in between")
    return _Answer(found or {})


class _Answer(JSON):
    """An answer's body, where a key that must be there is asked for."""

    def __missing__(self, key: str) -> Any:
        raise SDKException(f"an answer of OpenStack has no {key!r}, but {', '.join(self) or 'nothing'}")


def _document(answer: requests.Response) -> JSON | None:
    """None of an answer that is no JSON object."""
    try:
        found = answer.json()
    except ValueError:
        return None
    return cast("JSON", found) if isinstance(found, dict) else None


class API:
    """One of the services. A body is named as OpenStack names it: `post("/ports", port={...})`.
    Raises what openstacksdk raises."""

    def __init__(self, adapter: Adapter, microversion: str | None = None) -> None:
        self._adapter = adapter
        self._microversion = microversion

    def get(self, path: str) -> JSON:
        return ask(self._adapter, "GET", path, microversion=self._microversion)

    def post(self, path: str, **body: Any) -> JSON:
        return ask(self._adapter, "POST", path, body=body)

    def put(self, path: str, *, revision: int | None = None, **body: Any) -> JSON:
        """With the revision of a thing as it was read, `RetryError` where it has another one."""
        try:
            return ask(self._adapter, "PUT", path, body=body, revision=revision)
        except PreconditionFailedException as error:
            raise RetryError(f"{path} changed meanwhile", 1.0) from error

    def delete(self, path: str, *, revision: int | None = None) -> None:
        """Gone already is fine. With a revision as `put`."""
        try:
            ask(self._adapter, "DELETE", path, revision=revision)
        except NotFoundException:
            return
        except PreconditionFailedException as error:
            raise RetryError(f"{path} changed meanwhile", 1.0) from error

    def pages(self, path: str, *query: tuple[str, str]) -> Iterator[list[JSON]]:
        """A listing. By markers: behind a proxy the links of the services may lead elsewhere.
        openstacksdk's own lists ask for one more page at the end of each."""
        key = path.removesuffix("/detail").rpartition("/")[2].replace("-", "_")
        more, is_last = query, False
        while not is_last:
            answer = ask(self._adapter, "GET", path, query=more, microversion=self._microversion)
            page: list[JSON] = answer[key]
            yield page
            is_last = not page or all(link["rel"] != "next" for link in answer.get(f"{key}_links") or ())
            more = (*query, ("marker", page[-1]["id"])) if page else query

    def listed(self, path: str, *query: tuple[str, str]) -> list[JSON]:
        """All pages of a listing."""
        return [one for page in self.pages(path, *query) for one in page]

    def with_any(self, path: str, name: str, values: Iterable[str], *query: tuple[str, str]) -> list[JSON]:
        """What has one of these values under this name, `IN_URL` values in a request."""
        wanted = sorted(values)
        parts = [wanted[start : start + IN_URL] for start in range(0, len(wanted), IN_URL)]
        return [one for part in parts for one in self.listed(path, *query, *((name, value) for value in part))]


_QUOTA = re.compile(
    r"over ?quota|quota (has been|exceeded)|exceeds the maximum|no more ip addresses|find any ip address", re.IGNORECASE
)
_SHOWN = 300
_CREDENTIALS = (
    "OpenStack did not accept the login: check user, password or application credential, domain and project in the "
    "cloud config or clouds.yaml, and that they have not expired"
)
_ROLES = (
    "The login lacks a role: it needs `member` in the project, and `load-balancer_member` where Octavia asks for that"
)


class OpenStackError(CloudProviderError):
    """OpenStack refused a request. `status` is the HTTP status, 0 where no answer came."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def answered() -> Generator[None, None, None]:
    """Turn what openstacksdk raises in the body into the contract's errors: for a with statement,
    or over a function.

    Raises `Throttled`, `QuotaExceeded`, `Pending`, or `OpenStackError`. Errors of the contract
    pass.
    """
    try:
        yield
    except HttpException as error:
        retry_after = error.response.headers.get("Retry-After", "") if error.response is not None else ""
        raise _refused(error.status_code or 0, error, str(error.details or error.message), retry_after) from error
    except HttpError as error:  # keystoneauth's: Keystone, and discovery
        details = str(error.details or error.message)
        raise _refused(error.http_status, error, details, str(error.retry_after or "")) from error
    except CatalogException as error:
        raise OpenStackError(
            f"{error}: the catalog of this login has no such service in this region. Check region and os-endpoint-type"
        ) from error
    except ConnectTimeout as error:
        raise OpenStackError(f"no answer in time: {error}") from error
    except SSLError as error:
        raise OpenStackError(f"TLS failed: {error}. Check ca-file in the cloud config") from error
    except (ConnectFailure, DiscoveryFailure) as error:
        raise OpenStackError(f"OpenStack did not answer: {error}") from error
    except (SDKException, ClientException) as error:
        raise OpenStackError(f"OpenStack could not be asked: {error}") from error


def _refused(status: int, error: HttpException | HttpError, details: str, retry_after: str) -> CloudProviderError:
    text = " ".join(details.split())
    told = f"{error.method or 'a request'} {_plain(str(error.url or ''))} failed: {status}: "
    told += text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    told += f" (request {error.request_id})" if error.request_id else ""
    seconds = float(retry_after) if re.fullmatch(r"\d{1,6}", retry_after) else None
    if status == 429 or (status in (413, 503) and seconds is not None):
        return Throttled(told, seconds)
    if status == 413 or (status in (400, 403, 409) and _QUOTA.search(text)):
        return QuotaExceeded(told)
    if status == 409 and "immutable" in text:
        return Pending(told)
    if status == 412:
        return RetryError(f"{told}: another program changed it at the same time", 1.0)
    if status == 401:
        return OpenStackError(f"{told}. {_CREDENTIALS}", status)
    return OpenStackError(f"{told}. {_ROLES}" if status == 403 else told, status)


def _plain(url: str) -> str:
    """The URL without its query, which may be long."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}" if parts.netloc else url.partition("?")[0]
