"""The fixture `openstack` for the tests of any example. A test module asks for this plugin:

    pytest_plugins = ["tests.lab.openstack.fixtures"]

One set of services serves a whole test run, whoever asks first. Under xdist all tests that ask for
it run in one worker (--dist loadgroup).

    OPENSTACK_VENV=folder   starts them from that environment, which `make openstack` builds
    OPENSTACK_LAB=folder    uses those that `make openstack OPENSTACK_ARGS="--keep folder"` runs
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.openstack.cloud import OpenStack, load, running, unavailable

_RUNNING = pytest.StashKey[OpenStack]()


@pytest.fixture(scope="session")
def openstack(request: pytest.FixtureRequest) -> OpenStack:
    """OpenStack's own services: networks, a router, an image and a flavour are there, and what
    other tests have left."""
    stash = request.config.stash
    if _RUNNING not in stash:
        stack = ExitStack()
        request.config.add_cleanup(stack.close)
        stash[_RUNNING] = _services(stack)
    return stash[_RUNNING]


def _services(stack: ExitStack) -> OpenStack:
    if (folder := os.environ.get("OPENSTACK_LAB", "")) != "":
        return load(Path(folder).absolute())
    if (venv := os.environ.get("OPENSTACK_VENV", "")) == "":
        pytest.skip("OpenStack's own services: set OPENSTACK_VENV to an environment that has them, or `make openstack`")
    if reason := unavailable(Path(venv).absolute()):
        pytest.fail(f"OPENSTACK_VENV is set, but {reason}")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="openstack-", ignore_cleanup_errors=True))
    return stack.enter_context(running(Path(venv).absolute(), Path(folder)))


def pytest_configure(config: pytest.Config) -> None:
    """The mark below, which no configuration file knows."""
    config.addinivalue_line("markers", "openstack: asks OpenStack's own services (`make openstack`)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker for all of these tests, so that it starts the services once; and the mark by which
    `make openstack` chooses them. A test that runs over the double, too, has the fixture's name as
    the value of a parameter."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        values = callspec.params.values() if callspec is not None else ()
        if "openstack" in (*getattr(item, "fixturenames", ()), *(one for one in values if isinstance(one, str))):
            item.add_marker(pytest.mark.xdist_group("openstack"))
            item.add_marker(pytest.mark.openstack)
