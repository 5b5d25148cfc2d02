"""The repository's pages in Markdown, for tests of what they say: which there are, and the anchors
of headings."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.M | re.S)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#* *$", re.M)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def pages() -> list[Path]:
    """Every page that git knows, or will know when it is added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return sorted(path for name in listed if (path := ROOT / name).is_file())


def without_code(text: str) -> str:
    """The text with its fenced blocks emptied, so that lines keep their numbers. Pure."""
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)


def anchors(text: str) -> set[str]:
    """The fragments by which the page's headings can be linked to, made as code hosts and the site
    make them. Pure."""
    found: dict[str, int] = {}
    for heading in _HEADING.findall(without_code(text)):
        plain = _LINK.sub(r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{number}" if number else slug for slug, last in found.items() for number in range(last + 1)}
