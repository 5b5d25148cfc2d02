"""The pictures of the docs are the ones that their sources give, and each is shown on a page."""

from __future__ import annotations

import pytest

from tests import pictures
from tests.pictures import plots
from tests.support.pages import ROOT, pages

PAGE = """<!-- make bench: routes -->
| contender | routes, s | calls |
|---|---|---|
| ours | 1.05 / 1.25 | 1,501 |
| Go default | 23.71 |  |
<!-- end of routes -->
"""


def test_the_pictures_are_current() -> None:
    assert pictures.outdated() == [], "run: make generate"


def test_a_picture_that_was_edited_or_whose_source_changed_is_outdated(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (pictures.FOLDER / "lease.svg").read_text()
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    assert not pictures.current("lease")
    (pictures.FOLDER / "lease.svg").write_text(text.replace("</svg>", "<g/></svg>"))
    assert not pictures.current("lease")
    (pictures.FOLDER / "lease.svg").write_text(text)
    assert pictures.current("lease")


def test_every_picture_is_shown_and_is_drawn_by_us() -> None:
    shown = "".join(page.read_text() for page in pages())
    assert [name for name in pictures.names() if f"/pictures/{name}.svg)" not in shown] == []
    assert {path.name for path in (ROOT / "docs" / "pictures").iterdir()} == {f"{one}.svg" for one in pictures.names()}


def test_a_picture_has_no_colour_of_its_own_and_loads_nothing() -> None:
    for name in pictures.names():
        body = (pictures.FOLDER / f"{name}.svg").read_text().partition("</style>")[2]
        assert "#0a00" not in body
        assert "var(--ink)" in body
        assert "<image" not in body
        assert "<script" not in body


def test_a_table_of_the_benchmarks_is_read() -> None:
    assert plots.table(PAGE, "routes") == {
        "ours": {"routes, s": 1.25, "calls": 1501},
        "Go default": {"routes, s": 23.71},
    }
