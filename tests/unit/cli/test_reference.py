"""The reference page in docs/ is the one that the declarations give."""

from __future__ import annotations

from pathlib import Path

from controllers.catalog import CATALOG
from controllers.cli.reference import page
from controllers.flags.parse import table
from tests.support import gomanager

DOCS = Path(__file__).parents[3] / "docs" / "reference"
PAGE = DOCS / "flags.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(CATALOG), "run: make generate"


def test_the_page_of_the_go_managers_flags_is_current_and_complete() -> None:
    text = gomanager.page(CATALOG)
    assert (DOCS / "go-flags.md").read_text() == text, "run: make generate"
    for name in gomanager.GO_FLAGS:
        assert text.count(f"| `--{name}` |") == 1
    assert "| `--node-monitor-period` | `5s` | works |" in text
    assert "| `--kube-api-qps` | `20` | works; the default is `0`, which is no limit" in text
    assert "| `--min-resync-period` | `12h0m0s` | without effect: " in text


def test_every_flag_and_every_permission_has_one_row() -> None:
    text = page(CATALOG)
    for flag in table(CATALOG):
        assert text.count(f"`--{flag.name}`") == 1, flag.name
    for entry in CATALOG:
        assert text.count(f"\n| {entry.name} | ") == len(entry.rules)
