"""One check of one part, how the health endpoints write checks, and how metrics count them.

The text follows https://kubernetes.io/docs/reference/using-api/health-checks/: 200 `ok`, or 500
with one line per check, whose reason is withheld from strangers. Names, labels and words of the
metrics are those of k8s.io/component-base metrics/prometheus/slis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import attrs

from cloudprovider.internal.cleaning import one_line
from controllers.runtime.metrics import Metrics

ENDPOINTS: Final = ("healthz", "livez", "readyz")
SLI_SAMPLES: Final = ("kubernetes_healthcheck", "kubernetes_healthchecks_total", "process_start_time_seconds")
_LONGEST_DETAIL: Final = 1024
_WITHHELD: Final = "reason withheld"


@attrs.frozen
class Check:
    """One answer: the part's name, whether it is well, and what is worth knowing, or ""."""

    name: str
    ok: bool
    detail: str = ""


Checks = Callable[[], Iterable[Check]]
"""Called at every request, from several threads at once; must not block."""


def report(
    endpoint: str,
    checks: Sequence[Check],
    *,
    verbose: bool = False,
    details: bool = True,
    excluded: Collection[str] = (),
) -> tuple[int, str]:
    """The status code and body for these checks, in the format of the Kubernetes components. Pure.

    Without `details` a failed check's reason is withheld; the log has it. Excluded checks count as
    well; a name among them that no check has is reported.
    """
    ill = False
    lines = []
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        ill = ill or not check.ok
        detail = one_line(check.detail, _LONGEST_DETAIL) if details else "" if check.ok else _WITHHELD
        reason = f": {detail}" if detail else ""
        lines.append(f"[+]{check.name} ok{reason}" if check.ok else f"[-]{check.name} failed{reason}")
    if not ill and not verbose:
        return 200, "ok"
    # A probe that excludes a misspelt check would go on failing, and nobody would see why.
    unknown = sorted(set(excluded) - {check.name for check in checks})
    if unknown:
        named = ", ".join(f'"{one_line(name, 100)}"' for name in unknown[:5])
        lines.append(f"warn: some health checks cannot be excluded: no matches for {named}")
    lines.append(f"{endpoint} check {'failed' if ill else 'passed'}")
    return (500 if ill else 200), "\n".join(lines) + "\n"


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
        """Count one look at the checks of this endpoint. One that is gone has no result."""
        names = set()
        for check in checks:
            names.add(check.name)
            self._last.labels(name=check.name, type=endpoint).set(1 if check.ok else 0)
            self._total.labels(name=check.name, type=endpoint, status="success" if check.ok else "error").inc()
        for gone in self._shown.get(endpoint, set()) - names:
            self._last.remove(gone, endpoint)
        self._shown[endpoint] = names
