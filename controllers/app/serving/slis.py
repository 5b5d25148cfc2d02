"""What health came to, as service level indicators: /metrics/slis, and among the other metrics.

Stage: beside all of them. Data comes from the looks of `health.py`; it goes to the registry. Names, labels and words
are those of k8s.io/component-base metrics/prometheus/slis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controllers.app.serving.checks import Check
from controllers.runtime.metrics import Metrics

__all__ = ["SLI_SAMPLES", "HealthMetrics"]

SLI_SAMPLES: Final = ("kubernetes_healthcheck", "kubernetes_healthchecks_total", "process_start_time_seconds")


class HealthMetrics:
    """Counts looks. For one thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._last = metrics.gauge(
            "kubernetes_healthcheck", "Whether a check passed (1) or failed (0) at the last look.", ("name", "type")
        )
        self._total = metrics.counter(
            "kubernetes_healthchecks_total",
            "Looks at each check, by what came of them: success or error.",
            ("name", "type", "status"),
        )
        self._shown: dict[str, set[str]] = {}

    def observe(self, endpoint: str, checks: Iterable[Check]) -> None:
        """Count one look at the checks of this endpoint. A check that is there no more has no last result."""
        names = set()
        for check in checks:
            names.add(check.name)
            self._last.labels(name=check.name, type=endpoint).set(1 if check.ok else 0)
            self._total.labels(name=check.name, type=endpoint, status="success" if check.ok else "error").inc()
        for gone in self._shown.get(endpoint, set()) - names:
            self._last.remove(gone, endpoint)
        self._shown[endpoint] = names
