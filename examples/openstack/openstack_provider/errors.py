"""OpenStack's errors become the contract's here, and nowhere else.

Every method that the host calls has its body under `answered`. Inside, code that expects a certain
answer catches openstacksdk's own exceptions (`NotFoundException`, `ConflictException`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from keystoneauth1.exceptions import ClientException
from openstack.exceptions import HttpException, SDKException

from cloudprovider import CloudProviderError, Throttled


@contextmanager
def answered() -> Generator[None, None, None]:
    """Turn what openstacksdk raises in the body into the contract's errors: for a with statement,
    or over a function."""
    try:
        yield
    except HttpException as error:
        if error.status_code == 429:
            raise Throttled(str(error)) from error
        raise CloudProviderError(str(error)) from error
    except (SDKException, ClientException) as error:
        raise CloudProviderError(str(error)) from error
