"""Answers that are not asked for again: kept for one poll (row N14)."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.cloudcalls.answers import AnswerCache
from tests.unit.cloudcalls.support import node


@pytest.mark.row("N14")
def test_an_answer_serves_for_its_time_from_the_question_on_and_no_older_one_replaces_it() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    one = node("n1")
    answers.keep(one, "new", asked_at=105.0, now=106.0)
    answers.keep(one, "old", asked_at=100.0, now=107.0)
    assert answers.recall(one, 114.9) == "new"
    assert answers.recall(one, 115.0) is None


def test_old_answers_are_freed() -> None:
    for ttl in (10, 0):
        answers: AnswerCache[str] = AnswerCache(ttl)
        for i in range(100):
            answers.keep(node(f"n{i}"), "a", asked_at=float(i), now=float(i))
        assert len(answers) == ttl


@pytest.mark.parametrize(
    ("provider_id", "other", "same"),
    [
        ("test://1", {"provider_id": "test://1", "revision": "2"}, True),
        ("test://1", {"provider_id": "test://2"}, False),
        ("test://1", {"provider_id": "test://1", "uid": "another"}, False),
        ("", {}, True),
        ("", {"revision": "2"}, False),
    ],
)
def test_an_answer_is_about_the_instance_or_else_about_the_revision(
    provider_id: str, other: dict[str, Any], same: bool
) -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    answers.keep(node("n1", provider_id=provider_id), "a", 0.0, 0.0)
    assert (answers.recall(node("n1", **other), 0.0) == "a") is same
