"""Problem: one thing that is wrong with a provider, as people read it. What happened and
where, what to do.

Made by `diagnostics` and `providerchecks`; shown by the registry's errors, the manager's log and
the command line.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen


@frozen
class Problem:
    """One thing that is wrong: what happened and where, and what to do. Clauses without a full
    stop."""

    what: str
    fix: str
    details: tuple[str, ...] = ()
    """What is shown line by line, such as each mistake in a file."""
    fatal: bool = True
    """Whether a program must not start with it."""

    def __str__(self) -> str:
        """For people: one line, or with details several."""
        return sentences(self.what, self.details, self.fix)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {"what": self.what, "details": list(self.details), "fix": self.fix, "fatal": self.fatal}


def sentences(what: str, details: Sequence[str], fix: str) -> str:
    """A problem as text for people: on one line, or with `details` on a line each. What happened,
    and what to do."""
    if details:
        return "\n".join([f"{what}:", *(f"  {line}" for line in details), *([f"Fix: {fix}."] if fix else [])])
    end = "" if what.endswith(("?", ".")) else "."
    return f"{what}{end} Fix: {fix}." if fix else f"{what}{end}"
