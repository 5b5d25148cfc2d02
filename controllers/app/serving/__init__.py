"""Health, metrics and what else the manager tells about itself, over HTTP.

Comes in: connections (`server.py`, with their TLS, which speaks `http1.py`), the checks of the manager's parts
(`health.py`), the metrics registry. Goes out: answers to kubelets, scrapers and people (`endpoints.py`, `pages.py`),
over plain HTTP (`plain.py`) and over HTTPS to those who may (`secure.py`, `authentication.py`, `authorization.py`), as
the Go manager gives them. `setup.py` builds it all from the options.

Read first: `endpoints.py`, `secure.py`, `setup.py`. Names are loaded when they are first used, so that --help imports
little of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.app.serving.checks import Check, Checks, report
    from controllers.app.serving.health import Health
    from controllers.app.serving.options import ServingOptions
    from controllers.app.serving.plain import HealthServer
    from controllers.app.serving.rights import SERVING_RULES
    from controllers.app.serving.setup import Serving, ServingError
    from controllers.app.serving.slis import HealthMetrics
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "checks": ["Check", "Checks", "report"],
            "health": ["Health"],
            "options": ["ServingOptions"],
            "plain": ["HealthServer"],
            "rights": ["SERVING_RULES"],
            "setup": ["Serving", "ServingError"],
            "slis": ["HealthMetrics"],
        },
    )

__all__ = [
    "Check",
    "Checks",
    "Health",
    "HealthMetrics",
    "HealthServer",
    "SERVING_RULES",
    "Serving",
    "ServingError",
    "ServingOptions",
    "report",
]
