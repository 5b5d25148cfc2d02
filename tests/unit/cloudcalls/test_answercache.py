"""Shared answers: joined while they are asked for, kept for one poll, never more."""

from typing import Any

import pytest

from controllers.cloudcalls.answercache import AnswerCache, identity
from tests.unit.cloudcalls.support import node


def test_identity_is_the_instance_or_else_the_revision() -> None:
    known = node("n1", provider_id="test://1")
    assert identity(known) == identity(node("n1", provider_id="test://1", revision="2"))
    assert identity(known) != identity(node("n1", provider_id="test://2"))
    assert identity(node("n1")) == identity(node("n1"))
    assert identity(node("n1")) != identity(node("n1", revision="2"))
    recreated = node("n1", provider_id="test://1")
    assert recreated.metadata is not None
    recreated.metadata.uid = "another"
    assert identity(known) != identity(recreated)


@pytest.mark.row("N14")
def test_kept_for_its_time_counted_from_the_question() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    answers.settle("k", None, "a", asked_at=100.0, now=105.0)
    assert answers.recall("k", 109.9) == "a"
    assert answers.recall("k", 110.0) is None
    assert answers.recall("other", 105.0) is None


def test_nothing_is_kept_without_a_time_and_errors_never() -> None:
    answers: AnswerCache[str] = AnswerCache(0.0)
    answers.settle("k", None, "a", 100.0, 100.0)
    assert answers.recall("k", 100.0) is None
    assert len(answers) == 0
    keeping: AnswerCache[str] = AnswerCache(10.0)
    keeping.settle("k", None, ValueError(), 100.0, 100.0)
    assert len(keeping) == 0


def test_an_older_answer_does_not_replace_a_newer_one() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    answers.settle("k", None, "new", asked_at=105.0, now=106.0)
    answers.settle("k", None, "old", asked_at=100.0, now=107.0)
    assert answers.recall("k", 108.0) == "new"


def test_old_answers_are_freed() -> None:
    answers: AnswerCache[str] = AnswerCache(10.0)
    for i in range(100):
        answers.settle(i, None, "a", asked_at=float(i), now=float(i))
    assert len(answers) == 10


def test_joining() -> None:
    answers: AnswerCache[str] = AnswerCache(0.0)
    told: list[Any] = []
    first, second, third = object(), object(), object()
    assert not answers.join("k", first, 0, told.append)
    assert answers.join("k", second, 0, told.append)
    assert answers.join("k", third, -10, told.append)
    answers.settle("k", second, "not the one who asks", 0.0, 0.0)
    assert told == []
    answers.settle("k", first, "answer", 0.0, 0.0)
    assert told == ["answer", "answer"]
    assert not answers.join("k", second, 0, told.append), "nobody is asking any more"


def test_errors_are_told_too() -> None:
    answers: AnswerCache[str] = AnswerCache(0.0)
    told: list[Any] = []
    first = object()
    answers.join("k", first, 0, told.append)
    answers.join("k", object(), 0, told.append)
    error = ValueError()
    answers.settle("k", first, error, 0.0, 0.0)
    assert told == [error]


def test_the_urgent_do_not_wait_for_the_patient() -> None:
    answers: AnswerCache[str] = AnswerCache(0.0)
    sweep, new = object(), object()
    assert not answers.join("k", sweep, -10, lambda answer: None)
    assert not answers.join("k", new, 10, lambda answer: None)
