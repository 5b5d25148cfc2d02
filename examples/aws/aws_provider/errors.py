"""AWS's errors become the contract's here, and nowhere else.

Every method that the host calls has its body under `answered`. Inside, code that expects a certain
answer of AWS asks `error_code`. What AWS writes about credentials is not repeated: it may quote the
signed headers.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
)

from cloudprovider import CloudProviderError, Throttled

THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded", "EC2ThrottledException", "PriorRequestNotComplete", "RequestLimitExceeded",
        "RequestThrottled", "RequestThrottledException", "SlowDown", "ThrottledException", "Throttling",
        "ThrottlingException", "TooManyRequestsException",
    }
)  # fmt: skip
CREDENTIALS = frozenset(
    {
        "AuthFailure", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidAccessKeyId",
        "InvalidClientTokenId", "MissingAuthenticationToken", "NotAuthorized", "RequestExpired",
        "SignatureDoesNotMatch", "UnrecognizedClientException",
    }
)  # fmt: skip
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "OptInRequired", "UnauthorizedOperation"})

_CHECK_CREDENTIALS = (
    "Check where this program gets its credentials from: AWS_ACCESS_KEY_ID, the shared file (AWS_PROFILE), "
    "AWS_WEB_IDENTITY_TOKEN_FILE, or the role of the machine that it runs on"
)
_BLOB = re.compile(r"\s*Encoded authorization failure message:\s*\S+")


class AWSError(CloudProviderError):
    """AWS refused a request. `code` is AWS's own word for the reason."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def answered() -> Generator[None, None, None]:
    """Turn what botocore raises in the body into the contract's errors: for a with statement, or
    over a function.

    Raises `Throttled`, `AWSError`, or `CloudProviderError` where no answer came. Errors of the
    contract pass.
    """
    try:
        yield
    except ClientError as exc:
        raise _from_answer(exc) from exc
    except (CredentialRetrievalError, NoCredentialsError, PartialCredentialsError, TokenRetrievalError) as exc:
        # Without the cause: it may hold what the source of the credentials answered.
        raise CloudProviderError(
            f"there are no credentials for AWS ({type(exc).__name__}). {_CHECK_CREDENTIALS}."
        ) from None
    except BotoCoreError as exc:
        raise CloudProviderError(f"AWS did not answer: {exc}") from exc


def error_code(exc: ClientError) -> str:
    """AWS's word for why it refused, such as "TargetGroupNotFound"; "" where it gave none."""
    details: Mapping[str, Any] = exc.response.get("Error", {})
    return str(details.get("Code", ""))


def _from_answer(exc: ClientError) -> CloudProviderError:
    code, call = error_code(exc), exc.operation_name
    if code in THROTTLED:
        return Throttled(f"AWS throttles {call} ({code})", _retry_after(exc))
    if code in CREDENTIALS:
        return AWSError(
            f"AWS did not accept the credentials for {call} ({code}). {_CHECK_CREDENTIALS}, and this machine's clock.",
            code,
        )
    message = _BLOB.sub("", str(exc.response.get("Error", {}).get("Message", ""))).strip()
    if code in DENIED:
        return AWSError(
            f"AWS does not allow {call} ({code}): {message} Compare the IAM policy of this program's role with "
            "iam-policy.json.",
            code,
        )
    request = exc.response.get("ResponseMetadata", {}).get("RequestId", "")
    return AWSError(f"{call} failed: {code}: {message}" + (f" (request {request})" if request else ""), code)


def _retry_after(exc: ClientError) -> float | None:
    """The seconds of the header Retry-After; None where AWS named no time."""
    headers = exc.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    value = str(headers.get("retry-after", ""))
    return float(value) if value.isdecimal() else None
