"""One check of one part, and how the health endpoints write them. Pure.

Stage: beside all of them. The checks come from the manager's parts (`health.py`); the text goes to whoever asks. It
follows the Kubernetes API health endpoints (https://kubernetes.io/docs/reference/using-api/health-checks/): 200 `ok`,
or 500 with one line per check. As there, the details of a check, which tell of names and permissions, are not for
strangers: for them the reason is withheld.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import attrs

from controllers.runtime.cleaning import one_line

__all__ = ["ENDPOINTS", "Check", "Checks", "report"]

ENDPOINTS: Final = ("healthz", "livez", "readyz")
_LONGEST_DETAIL: Final = 1024
_WITHHELD: Final = "reason withheld"


@attrs.frozen
class Check:
    """One answer: the part's name, whether it is well, and what is wrong or worth knowing (may be empty)."""

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

    Without `details` a failed check's reason is withheld; the log has it. Excluded checks count as well; a name among
    them that no check has is told.
    """
    ill = False
    lines = []
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        ill = ill or not check.ok
        detail = one_line(check.detail, _LONGEST_DETAIL) if details else "" if check.ok else _WITHHELD
        told = f": {detail}" if detail else ""
        lines.append(f"[+]{check.name} ok{told}" if check.ok else f"[-]{check.name} failed{told}")
    if not ill and not verbose:
        return 200, "ok"
    unknown = sorted(set(excluded) - {check.name for check in checks})
    if unknown:
        named = ", ".join(f'"{one_line(name, 100)}"' for name in unknown[:5])
        lines.append(f"warn: some health checks cannot be excluded: no matches for {named}")
    lines.append(f"{endpoint} check {'failed' if ill else 'passed'}")
    return (500 if ill else 200), "\n".join(lines) + "\n"
