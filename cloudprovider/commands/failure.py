"""Exit codes of the commands, and Failure: why a command ends with one of them."""

from __future__ import annotations

from typing import Final

from cloudprovider.internal.problem import Problem

FINE: Final = 0
PROBLEMS: Final = 1
WRONG_USAGE: Final = 2
NO_INSTANCE: Final = 3
"""`node-info`: the cloud answered that this machine is no instance of it."""
NO_TIME: Final = 4
"""`node-info`: there was no complete answer in time."""


class Failure(Exception):
    """A command cannot do what it was asked for. `problem` is for people, `code` is the exit
    code."""

    def __init__(self, problem: Problem, code: int = PROBLEMS) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.code = code


class UnusableAnswer(Exception):
    """What the provider answered cannot be used; the text says why, in our words."""
