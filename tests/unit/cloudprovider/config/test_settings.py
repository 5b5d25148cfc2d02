"""Settings that say how a cloud's API is reached: what is refused, and why."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

from cloudprovider.config import CAFile, Endpoint, SecretWord


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Endpoint, "https://api.cloud.example/v1/", ""),
        (Endpoint, "http://localhost:80/v1", ""),
        (Endpoint, "api.cloud.example", "must be a URL"),
        (Endpoint, "https://user:s3cret@api.cloud.example", "must be a URL without user"),
        (Endpoint, "http://api.cloud.example", "must begin with https://"),
        (SecretWord, "s3cret", ""),
        (SecretWord, " ", "must be one word"),
        (SecretWord, "s3cret\nX-Other: 1", "must be one word"),
        (CAFile, "", ""),
        (CAFile, "/no/such/file", "must be a readable file with CA certificates"),
        (CAFile, __file__, "must be a readable file with CA certificates"),
    ],
)
def test_settings(kind: Any, value: str, problem: str) -> None:
    adapter = TypeAdapter(kind)
    if problem:
        with pytest.raises(ValidationError, match=problem):
            adapter.validate_python(value)
        return
    found = adapter.validate_python(value)
    assert (found.get_secret_value() if isinstance(found, SecretStr) else found) == value.rstrip("/")
