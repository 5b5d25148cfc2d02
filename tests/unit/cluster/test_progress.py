"""What `make cluster` says while it works."""

import pytest

from tests.cluster.progress import Progress


def test_each_part_is_said_with_its_time() -> None:
    now = [100.0]
    said: list[str] = []
    progress = Progress(said.append, lambda: now[0])
    with progress.part("cloud"):
        now[0] += 2.5
    with progress.part("nodes"):
        for what in ("a", "a", "b"):
            progress.waiting(what)
        now[0] += 10
    assert said == ["    2.5 s  cloud", "             ... a", "             ... b", "   10.0 s  nodes"]
    assert progress.parts == {"cloud": 2.5, "nodes": 10.0}
    assert progress.total == 12.5


def test_a_part_that_fails_is_not_said_to_be_done() -> None:
    said: list[str] = []
    progress = Progress(said.append)
    with pytest.raises(RuntimeError), progress.part("cloud"):
        raise RuntimeError
    assert (said, progress.parts) == ([], {})
