"""Links inside the repository lead somewhere: to a file, a folder, or a heading of a page."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT, anchors, pages, without_code

LINK = re.compile(r"(?<!`)\[[^]]*\]\(([^)\s]+)\)")
DOCS = ROOT / "docs"


def broken(page: Path) -> list[str]:
    found = []
    text = without_code(page.read_text())
    for match in LINK.finditer(text):  # also where its words stand on two lines
        number, link = text.count("\n", 0, match.end()) + 1, match[1]
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = Path(os.path.normpath(page.parent / target)) if target else page
        if not path.exists():
            found.append(f"{number}: {link}: no such file")
        elif anchor and anchor not in anchors(path.read_text()):
            found.append(f"{number}: {link}: no such heading")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_that_is_a_files_name_leads_to_that_file(page: Path) -> None:
    named = re.findall(r"\[([\w./-]+\.md)\]\(([^)#]+)", page.read_text())
    assert [f"{text} leads to {link}" for text, link in named if not link.endswith(text)] == []


def test_every_page_of_the_site_is_in_its_index() -> None:
    text = (DOCS / "index.md").read_text()
    linked = {DOCS / link for link in LINK.findall(text)}
    assert [
        str(page) for page in pages() if page.is_relative_to(DOCS) and page not in linked | {DOCS / "index.md"}
    ] == []


def test_pages_name_no_page_by_its_file() -> None:
    """A reader sees a title, not the name of a file."""
    named = [
        f"{page.relative_to(ROOT)}: {text}"
        for page in pages()
        if page.is_relative_to(DOCS)
        for text in re.findall(r"\[([a-z-]+\.md)\]\(", page.read_text())
    ]
    assert named == []
