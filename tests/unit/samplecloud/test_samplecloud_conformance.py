"""The sample provider's own conformance file, as its author runs it; only that the provider is not
installed here."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from samplecloud_provider.provider import new_provider

from cloudprovider.loading import registry
from tests.unit.samplecloud.conftest import SOURCE

sys.path.append(str(SOURCE / "tests"))
from test_samplecloud import TestSampleCloud, lab

__all__ = ["TestSampleCloud", "lab"]


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """The name of the entry point leads to the provider."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", registry.Registry())
        registry.register_cloud_provider("samplecloud", new_provider)
        yield
