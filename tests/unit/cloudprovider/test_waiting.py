"""``eventually``, on which every integration test leans."""

import threading

import pytest

from cloudprovider.testing.waiting import eventually


def test_returns_the_first_true_value_or_says_what_was_awaited_and_last_seen() -> None:
    values = iter([0, "", None, "found", "later"])
    assert eventually(lambda: next(values)) == "found"
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: all nodes ready \(last value: \[\]\)"):
        eventually(list, 0.01, "all nodes ready")
    with pytest.raises(AssertionError, match="3 left"):
        eventually(bool, 0.01, lambda: f"{3} left")
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 // 0, 10.0)


def test_assertions_mean_not_yet() -> None:
    tries = []

    def check() -> bool:
        tries.append(1)
        assert len(tries) == 3
        return True

    assert eventually(check)

    def never() -> bool:
        raise AssertionError("never so")

    with pytest.raises(AssertionError) as failure:
        eventually(never, 0.01)
    assert "never so" in str(failure.value.__cause__)


def test_news_are_seen_at_once() -> None:
    changed = threading.Condition()
    seen: list[int] = []

    def tell() -> None:
        with changed:
            seen.append(1)
            changed.notify_all()

    thread = threading.Thread(target=tell)

    def predicate() -> bool:
        if not thread.ident:
            thread.start()
        return bool(seen)

    assert eventually(predicate, changed=changed)
    thread.join()
