"""The code blocks of README and docs: what tests run, check and type-check.

Data comes from the pages (`pages.py`). An HTML comment directly above a block, which readers do not
see, marks it:

    <!-- block: continued -->           goes on from the Python block before it on the page
    <!-- block: after MODULE -->        starts with the names of that module
    <!-- block: from PATH -->           an excerpt, word for word, of a file with tests of its own
    <!-- block: not run: REASON -->     only syntax and types are checked; the reason is printed

Why not Sybil or pytest-examples: Sybil runs all blocks of a page in one namespace, and
pytest-examples each block alone, while a page here has several programs of several blocks each; and
neither checks commands of a console against our own flags, charts and targets (`console.py`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve, frozen

ROOT = Path(__file__).parents[2]
DOCUMENTED = ROOT / "tests" / "documented"
"""The modules that documented code imports as the reader's own, such as `acme_api`: a folder for
`sys.path`."""

_BLOCK = re.compile(
    r"(?:^ *<!-- block: (?P<mark>[^\n]+?) -->\n\s*)?^(?P<indent> *)(?P<fence>```+)(?P<language>[\w{}-]*)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.M | re.S,
)
_MARK = re.compile(r"<!-- block: ")


@frozen
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    """Number of its first line of code, from 1."""
    language: str
    """As the fence names it; "" where it names none."""
    text: str
    """The code without the page's indentation, an excerpt with its own; ends with a newline, unless
    it is empty."""
    continued: bool = False
    after: str = ""
    """Module whose names the block takes for granted."""
    source: str = ""
    """Path, in the repository, of the file that it is an excerpt of."""
    not_run: str = ""
    """Why it is not run."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page.name}:{self.line}"


@frozen
class Unit:
    """Python blocks of a page that are one program: the first, and those that continue it."""

    blocks: Sequence[Block]

    @property
    def not_run(self) -> str:
        """Why it is not run; "" if it is."""
        return next((block.not_run for block in self.blocks if block.not_run), "")

    @property
    def source(self) -> str:
        """The program, each line with the number that it has on the page, so that messages name the
        page's lines."""
        lines: list[str] = []
        first = self.blocks[0]
        if first.after:
            lines.append(f"from {first.after} import *")
        for block in self.blocks:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return str(self.blocks[0])


def blocks(page: Path) -> list[Block]:
    """Every block of the page, in order. Raises ValueError for a mark that is unknown, or above
    nothing."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        code = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.M)
        block = _marked(Block(page, line, match["language"], code), match["mark"])
        found.append(block if block.source else evolve(block, text=textwrap.dedent(block.text)))
    marks, marked = len(_MARK.findall(text)), sum(match["mark"] is not None for match in _BLOCK.finditer(text))
    if marks != marked:
        raise ValueError(f"{page}: {marks - marked} mark(s) without a block directly below")
    return found


def units(page: Path) -> list[Unit]:
    """The page's Python programs; excerpts of files are left out."""
    programs: list[list[Block]] = []
    for block in blocks(page):
        if block.language != "python" or block.source:
            continue
        if block.continued:
            if not programs:
                raise ValueError(f"{block}: continued, but no Python block stands before it")
            programs[-1].append(block)
        else:
            programs.append([block])
    return [Unit(program) for program in programs]


def _marked(block: Block, mark: str | None) -> Block:
    if mark is None:
        return block
    if mark == "continued":
        return evolve(block, continued=True)
    if mark.startswith("after "):
        return evolve(block, after=mark.removeprefix("after "))
    if mark.startswith("from "):
        return evolve(block, source=mark.removeprefix("from "))
    if mark.startswith("not run: "):
        return evolve(block, not_run=mark.removeprefix("not run: "))
    raise ValueError(f"{block}: unknown mark {mark!r}")
