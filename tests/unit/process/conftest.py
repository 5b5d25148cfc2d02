"""For tests that run the program in this process: its logging is undone after each."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from controllers.process import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    names = ["", "urllib3", "kubernetes", *logs.OURS]
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = list(root.handlers)
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
