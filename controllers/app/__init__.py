"""The manager as a program and as a library: `main` for a vendor's main.py, the rest for others.

Names are loaded when they are first used, so that `main` answers --help at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy

if TYPE_CHECKING:
    from controllers.catalog import CATALOG, WEBHOOKS
    from controllers.cli.main import main
    from controllers.cli.process import run_until_signal
    from controllers.endpoints.options import ServingOptions
    from controllers.endpoints.servers import HealthServer
    from controllers.flags.parse import parse
    from controllers.manager.embedding import Host, hosting
    from controllers.manager.manager import Manager
    from controllers.manager.provider_host import ManagerError, NeverLed
    from controllers.plan.run import PlanRun
    from controllers.registration.entry import Context, Controller, ControllerEntry, Rule
    from controllers.registration.options import ManagerOptions, Options
    from controllers.webhooks.webhook import WebhookEntry
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "controllers.catalog": "CATALOG WEBHOOKS",
            "controllers.cli.main": "main",
            "controllers.cli.process": "run_until_signal",
            "controllers.endpoints.options": "ServingOptions",
            "controllers.endpoints.servers": "HealthServer",
            "controllers.flags.parse": "parse",
            "controllers.manager.embedding": "Host hosting",
            "controllers.manager.manager": "Manager",
            "controllers.manager.provider_host": "ManagerError NeverLed",
            "controllers.plan.run": "PlanRun",
            "controllers.registration.entry": "Context Controller ControllerEntry Rule",
            "controllers.registration.options": "ManagerOptions Options",
            "controllers.webhooks.webhook": "WebhookEntry",
        },
    )

__all__ = [
    # the program
    "main",
    # the manager in a program of your own
    "Manager",
    "ManagerError",
    "PlanRun",
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
