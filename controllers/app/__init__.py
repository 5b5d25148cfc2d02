"""The manager as a program and as a library: `main` for a vendor's main.py, the pieces for other programs.

Names are loaded when they are first used, so that `main` answers --help without importing the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controllers.app.catalog import CATALOG, Context, Controller, ControllerEntry
    from controllers.app.cli import main
    from controllers.app.config import parse
    from controllers.app.host import Host, hosting
    from controllers.app.manager import Manager, ManagerError
    from controllers.app.options import ManagerOptions, Options, option
    from controllers.app.process import run_until_signal
    from controllers.app.serving import HealthServer

__all__ = [
    # the program
    "main",
    # the manager in a program of your own
    "Manager",
    "ManagerError",
    "ManagerOptions",
    "Options",
    "parse",
    "run_until_signal",
    "HealthServer",
    # one controller in a program of your own
    "hosting",
    "Host",
    # controllers of your own
    "CATALOG",
    "ControllerEntry",
    "Context",
    "Controller",
    "option",
]

_HOMES = {
    "main": "cli",
    "Manager": "manager",
    "ManagerError": "manager",
    "ManagerOptions": "options",
    "Options": "options",
    "parse": "config",
    "hosting": "host",
    "Host": "host",
    "run_until_signal": "process",
    "HealthServer": "serving",
    "CATALOG": "catalog",
    "ControllerEntry": "catalog",
    "Context": "catalog",
    "Controller": "catalog",
    "option": "options",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
