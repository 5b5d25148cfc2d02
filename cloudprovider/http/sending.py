"""One request on its way (stage 5, cloud call): sent once, through the proxy that the environment
names, and its answer read within the time of the call, and up to a size.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import urllib3
from pydantic import BaseModel

from cloudprovider.errors import CloudProviderError
from cloudprovider.helpers.timelimits import time_limit
from cloudprovider.http.answers import Answer, Failures, error_of
from cloudprovider.internal.proxies import proxy_from_environment

CONNECTIONS = 32  # that are kept open: the host calls from many threads at once
LARGEST = 64 * 2**20  # bytes of an answer, unpacked
_CHUNK = 2**16
_FORM = "application/x-www-form-urlencoded"


def pool_for(url: str, ca_file: str = "", environ: Mapping[str, str] = os.environ) -> urllib3.PoolManager:
    """Connections to a server, through the proxy of HTTPS_PROXY (HTTP_PROXY, NO_PROXY) where one is
    wanted. Raises CloudProviderError for a proxy that cannot be used."""
    options: dict[str, Any] = {"maxsize": CONNECTIONS, "ca_certs": ca_file or None}
    try:
        parts = urlsplit(url)
        host, port, tls = parts.hostname or "", parts.port, parts.scheme == "https"
    except ValueError as error:
        raise CloudProviderError(f"{url} cannot be used as an endpoint: {error}") from None
    found = proxy_from_environment(host, port or (443 if tls else 80), tls, environ)
    if found is None:
        return urllib3.PoolManager(**options)
    name, proxy = found
    try:
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        user = urlsplit(proxy).netloc.rpartition("@")[0]
        login = urllib3.make_headers(proxy_basic_auth=unquote(user)) if user else None
        return urllib3.ProxyManager(proxy, proxy_headers=login, **options)
    except (ValueError, urllib3.exceptions.HTTPError):  # its text might have the password in it
        raise CloudProviderError(f"{name} in the environment cannot be used; wanted is http://host:port") from None


def send(
    pool: urllib3.PoolManager,
    method: str,
    url: str,
    *,
    asked: str,
    headers: Mapping[str, str],
    failures: Failures,
    body: Any = None,
    form: Mapping[str, str] | None = None,
    secret: str = "",
    calls: int = 1,
) -> Answer:
    """Send one request, with `body`, a model or a value, as JSON, or `form` as a browser would.
    Raises CloudProviderError; where the cloud quotes `secret`, its words are shown without it."""
    limit = time_limit(calls=calls)  # raises where the host waits no longer, so that nothing is changed then
    end = time.monotonic() + limit
    content: dict[str, Any] = {"headers": headers}
    if form is not None:
        content = {"headers": {**headers, "Content-Type": _FORM}, "body": urlencode(form)}
    elif body is not None:
        content["json"] = body.model_dump(mode="json", by_alias=True) if isinstance(body, BaseModel) else body
    try:
        got = pool.request(
            method,
            url,
            **content,
            timeout=urllib3.Timeout(limit),
            redirect=False,  # credentials are for this endpoint alone
            retries=False,  # the host tries again, and knows when
            preload_content=False,
        )
        data = _read(got, asked, end)
    except urllib3.exceptions.HTTPError as error:
        where = url.partition("?")[0]
        raise CloudProviderError(f"{asked}: no answer from {where} (time limit {limit:.3g} s): {error}") from error
    if 200 <= got.status < 300:
        return Answer(asked, got.status, got.headers, data)
    data = data.replace(secret.encode(), b"...") if secret else data
    raise error_of(asked, got.status, got.headers, data, failures, got.reason or "")


def _read(got: urllib3.BaseHTTPResponse, asked: str, end: float) -> bytes:
    """The body. A time limit of urllib3 is for each read, so one that drips would never end."""
    data = bytearray()
    while chunk := got.read1(_CHUNK):
        data += chunk
        if len(data) > LARGEST or time.monotonic() > end:
            got.close()
            why = f"more than {LARGEST} bytes" if len(data) > LARGEST else "not whole when its time was over"
            raise CloudProviderError(f"{asked}: the answer is {why}")
    got.release_conn()
    return bytes(data)
