"""Links inside the repository lead somewhere: to a file, a folder, or a heading of a page."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

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


def test_links_lead_somewhere_and_one_that_is_a_files_name_to_that_file() -> None:
    wrong = []
    for page in pages():
        named = re.findall(r"\[([\w./-]+\.md)\]\(([^)#]+)", page.read_text())
        odd = [f"{text} leads to {link}" for text, link in named if not link.endswith(text)]
        wrong += [f"{page.relative_to(ROOT)}: {one}" for one in [*broken(page), *odd]]
    assert wrong == []


def test_no_two_pages_have_one_name() -> None:
    """Neither as a title nor in the sidebar, which has the words of the links in index.md."""
    ours = [page for page in pages() if page.is_relative_to(DOCS)]
    titles = Counter(re.findall(r"^# (.+)", page.read_text(), re.M)[0] for page in ours)
    sections = (DOCS / "index.md").read_text().partition("\n## ")[2]
    named = Counter(" ".join(text.split()) for text in re.findall(r"\[([^]]+)\]\([^)]+\.md\)", sections))
    assert [name for name, times in [*titles.items(), *named.items()] if times > 1] == []


def test_pages_name_no_page_by_its_file() -> None:
    """A reader sees a title, not the name of a file."""
    named = [
        f"{page.relative_to(ROOT)}: {text}"
        for page in pages()
        if page.is_relative_to(DOCS)
        for text in re.findall(r"\[([a-z-]+\.md)\]\(", page.read_text())
    ]
    assert named == []
