"""libcloud's errors become the contract's here, and nowhere else.

libcloud has an exception for refused credentials, one for rate limits and one for an HTTP status;
beside these its drivers raise whatever Python raises over an answer that they did not expect. None
of it ever means "gone": what is gone is decided in `machines`, by the answer to a question about
one machine.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager

from libcloud.common.exceptions import BaseHTTPError, RateLimitReachedError
from libcloud.common.types import InvalidCredsError, LibcloudError, MalformedResponseError, ProviderError
from requests.exceptions import RequestException, Timeout

from cloudprovider import CloudProviderError, NotImplementedByProvider, Throttled

NOT_FOUND = 404
_THROTTLED = re.compile(r"RequestLimitExceeded|Throttling|TooManyRequests|SlowDown|rateLimitExceeded|OverLimit", re.I)
_LENGTH = 300
_SHORTEST_SECRET = 4


class CloudError(CloudProviderError):
    """The cloud refused a request. `status` is the HTTP status, 0 where there is none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: BaseException) -> int:
    """The HTTP status in an error of libcloud's, 0 where it has none."""
    for name in ("code", "http_code"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return int(value)
    return 0


@contextmanager
def answered(driver: str, what: str, secrets: Set[str]) -> Iterator[None]:
    """Turn what libcloud raises in the body into the contract's errors. `secrets` are masked in the
    cloud's words; the body may add some.

    Raises `Throttled`, `NotImplementedByProvider`, `CloudError`, or `CloudProviderError` where no
    answer came. Errors of the contract pass.
    """
    try:
        yield
    except CloudProviderError:
        raise
    except InvalidCredsError:
        # Without the cause: some clouds repeat what was sent.
        raise CloudError(
            f"{what}: the cloud did not accept the credentials of driver {driver}. Check `arguments` and the files "
            "of `credentials` in the cloud config, and this machine's clock.",
            401,
        ) from None
    except RateLimitReachedError as exc:
        raise Throttled(f"the cloud throttles: {what}", exc.retry_after or None, whole_account=True) from None
    except (Timeout, RequestException) as exc:
        kind = "in time" if isinstance(exc, Timeout) else f"({type(exc).__name__})"
        raise CloudProviderError(f"{what}: the cloud did not answer {kind}: {_said(exc, secrets)}") from None
    except NotImplementedError as exc:
        raise NotImplementedByProvider(f"{what}: libcloud's driver {driver} cannot do it") from exc
    except MalformedResponseError:
        raise CloudProviderError(f"{what}: the cloud's answer cannot be read by libcloud's driver {driver}") from None
    except (BaseHTTPError, ProviderError, LibcloudError) as exc:
        raise _refused(what, exc, secrets) from None
    except Exception as exc:  # noqa: BLE001 - a driver raises whatever Python raises
        if _THROTTLED.search(str(exc)):
            raise Throttled(f"the cloud throttles: {what}") from None
        # The stack leads to the driver's mistake, but its text may repeat what was sent.
        shown = "".join(traceback.format_exception(exc))
        cause = None if any(len(one) >= _SHORTEST_SECRET and one in shown for one in tuple(secrets)) else exc
        raise CloudProviderError(
            f"{what}: libcloud's driver {driver} failed: {type(exc).__name__}: {_said(exc, secrets)}"
        ) from cause


def swallowed(driver: str, what: str, failures: Sequence[tuple[int, str]]) -> CloudProviderError:
    """The error for a driver that returned although the cloud failed some of its requests."""
    status, request = failures[0]
    if any(one == 429 for one, _ in failures):
        return Throttled(f"the cloud throttles: {what}", whole_account=True)
    return CloudError(
        f"{what}: libcloud's driver {driver} went on after {len(failures)} failed requests, so its answer may lack "
        f"something. The first: {status} for {request}",
        status,
    )


def _refused(what: str, exc: Exception, secrets: Iterable[str]) -> CloudProviderError:
    status, said = status_of(exc), _said(exc, secrets)
    if status == 429 or _THROTTLED.search(said):
        return Throttled(f"the cloud throttles: {what}", whole_account=True)
    if status in (401, 403):
        return CloudError(f"{what}: the cloud does not allow it ({status}): {said}", status)
    return CloudError(f"{what}: the cloud refused" + (f" ({status})" if status else "") + f": {said}", status)


def _said(exc: Exception, secrets: Iterable[str]) -> str:
    """The error in one short line, without secrets."""
    try:
        text = str(getattr(exc, "value", None) or exc)
    except TypeError:  # libcloud puts whole documents where a text is due
        text = str(getattr(exc, "message", ""))
    text = " ".join(text.split()) or type(exc).__name__
    for secret in tuple(secrets):  # another thread may add some
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "*****")
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}..."
