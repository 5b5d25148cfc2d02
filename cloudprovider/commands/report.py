"""What a check found, step by step, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from cloudprovider.internal.problem import Problem

if TYPE_CHECKING:
    from cloudprovider.commands.forecast import Forecast

OK, PROBLEM, SKIPPED = "ok", "problem", "skipped"


@frozen
class Step:
    """What was tried, and what came of it. A problem has `problem`, the others `text`."""

    name: str
    state: str
    text: str = ""
    problem: Problem | None = None
    error: BaseException | None = field(default=None, repr=False)
    """What the provider's code raised, with secrets masked."""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        problem = None if self.problem is None else self.problem.as_json()
        return {"step": self.name, "state": self.state, "text": self.text or None, "problem": problem}


@define
class Report:
    """The steps of one provider, in order."""

    provider: str
    distribution: str = ""
    capabilities: tuple[str, ...] = ()
    steps: list[Step] = field(factory=list)
    node: Forecast | None = None
    """What the manager would make of the Node that was asked about."""

    @property
    def problems(self) -> list[Problem]:
        """All that is wrong."""
        return [step.problem for step in self.steps if step.problem is not None]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "provider": self.provider,
            "distribution": self.distribution or None,
            "capabilities": list(self.capabilities),
            "problems": len(self.problems),
            "steps": [step.as_json() for step in self.steps],
            "node": None if self.node is None else self.node.as_json(),
        }

    def ok(self, name: str, text: str) -> None:
        """Note a step that went well."""
        self.steps.append(Step(name, OK, text))

    def skipped(self, name: str, reason: str) -> None:
        """Note a step that was not tried."""
        self.steps.append(Step(name, SKIPPED, reason))

    def problem(self, name: str, problem: Problem, error: BaseException | None = None) -> None:
        """Note something that is wrong."""
        self.steps.append(Step(name, PROBLEM, problem=problem, error=error))
