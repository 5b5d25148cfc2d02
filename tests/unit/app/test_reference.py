"""The reference page in docs/ is the one that the declarations give."""

from __future__ import annotations

from pathlib import Path

from controllers.app.catalog import CATALOG
from controllers.app.config import table
from controllers.app.reference import page
from controllers.app.unsupported import unsupported_flags

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(CATALOG), "run: python -m controllers.app.reference > docs/reference.md"


def test_every_flag_and_every_permission_has_one_row() -> None:
    text = page(CATALOG)
    for flag in [*table(CATALOG), *unsupported_flags()]:
        assert text.count(f"`--{flag.name}`") == 1, flag.name
    for entry in CATALOG:
        assert text.count(f"\n| {entry.name} | ") == len(entry.rules)
