"""The manager as a program and as a library: `main` for a vendor's main.py, the pieces for other programs.

Names are loaded when they are first used, so that `main` answers --help without importing the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.app.catalog import CATALOG, WEBHOOKS
    from controllers.app.cli import main
    from controllers.app.entry import Context, Controller, ControllerEntry, Rule
    from controllers.app.flags.parse import parse
    from controllers.app.manager import Manager
    from controllers.app.options import ManagerOptions, Options
    from controllers.app.process import run_until_signal
    from controllers.app.serving import HealthServer, ServingOptions
    from controllers.app.standalone import Host, hosting
    from controllers.app.startup import ManagerError, NeverLed
    from controllers.app.webhooks.entry import WebhookEntry
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "catalog": ["CATALOG", "WEBHOOKS"],
            "cli": ["main"],
            "flags.parse": ["parse"],
            "entry": ["Context", "Controller", "ControllerEntry", "Rule"],
            "standalone": ["Host", "hosting"],
            "manager": ["Manager"],
            "options": ["ManagerOptions", "Options"],
            "process": ["run_until_signal"],
            "serving": ["HealthServer", "ServingOptions"],
            "startup": ["ManagerError", "NeverLed"],
            "webhooks.entry": ["WebhookEntry"],
        },
    )

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
    "ServingOptions",
    # one controller in a program of your own
    "hosting",
    "Host",
    "NeverLed",
    # controllers of your own
    "CATALOG",
    "ControllerEntry",
    "Context",
    "Controller",
    "Rule",
    # webhooks of your own
    "WEBHOOKS",
    "WebhookEntry",
]
