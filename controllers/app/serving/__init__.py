"""Health, metrics and what else the manager tells about itself, over HTTP.

Comes in: connections (`reception.py`, which speaks `http1.py`), the checks of the manager's parts (`health.py`), the
metrics registry. Goes out: answers to kubelets, scrapers and people (`plain.py`), as the Go manager gives them.

Read first: `checks.py`, `plain.py`. Names are loaded when they are first used, so that --help imports none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.app.serving.checks import Check, Checks, report
    from controllers.app.serving.health import Health
    from controllers.app.serving.plain import HealthServer
else:
    __getattr__, __dir__ = lazy(
        __name__, {"checks": ["Check", "Checks", "report"], "health": ["Health"], "plain": ["HealthServer"]}
    )

__all__ = ["Check", "Checks", "Health", "HealthServer", "report"]
