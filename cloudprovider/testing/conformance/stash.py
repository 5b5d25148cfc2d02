"""What the suite and its pytest plugin leave for one another on pytest's nodes. Cheap to import."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cloudprovider.testing.conformance.bench import Bench
    from cloudprovider.testing.conformance.features import Feature

BENCH: pytest.StashKey[Bench] = pytest.StashKey()
"""Where the bench of a test class is kept, on its pytest node."""
FAILED: pytest.StashKey[dict[str, dict[str, Feature]]] = pytest.StashKey()
"""On a module: by provider, the scenarios that failed without a cluster, with their features."""
OUTLIVED: pytest.StashKey[list[threading.Thread]] = pytest.StashKey()
"""On the configuration: threads of providers that outlive the stop signal."""


def teller(config: pytest.Config) -> Callable[[str], None]:
    """Writes a line to the terminal while a test runs, whether or not its output is captured."""

    def tell(line: str) -> None:
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        if terminal is None:  # a worker of pytest-xdist has none
            return
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            terminal.ensure_newline()
            terminal.write_line(line)

    return tell
