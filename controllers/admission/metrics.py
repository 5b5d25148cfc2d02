"""The counts of webhook requests, under Go's names (k8s.io/cloud-provider app/webhook_metrics.go). Stage: beside all.

Go counts only the requests that failed; here those that were answered are counted too, with the code 200.
"""

from __future__ import annotations

from typing import Final

from controllers.runtime.metrics import Metrics

__all__ = ["WebhookMetrics"]

_BUCKETS: Final = (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0)
_LABELS: Final = ("code", "webhook")


class WebhookMetrics:
    """Thread-safe."""

    def __init__(self, metrics: Metrics) -> None:
        self._total = metrics.counter(
            "cloud_provider_webhook_request_total", "Number of HTTP requests partitioned by status code.", _LABELS
        )
        self._seconds = metrics.histogram(
            "cloud_provider_webhook_request_duration_seconds",
            "Request latency in seconds. Broken down by status code.",
            _LABELS,
            _BUCKETS,
        )

    def answered(self, webhook: str, code: int, seconds: float) -> None:
        """A request was answered with this HTTP status."""
        self._total.labels(code=str(code), webhook=webhook).inc()
        self._seconds.labels(code=str(code), webhook=webhook).observe(seconds)
