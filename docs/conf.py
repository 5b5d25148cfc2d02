"""The documentation site: `make docs` builds it into build/docs with Sphinx; it works offline.

The pages are plain Markdown, to be read on a code host as well. What only the site needs is made
here: the navigation, from the links of index.md, and pages and links of the repository outside of
docs/.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

FIELDS = "Fields:"  # what cloudprovider.internal.fields adds to a docstring, for help()
DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE_URL = os.environ.get("DOCS_SOURCE_URL", "").rstrip("/")
"""Where the repository's files are shown: `https://HOST/OWNER/NAME/blob/COMMIT`. Empty: see
`outside`."""

project = "kubernetes-cloud-provider"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
copyright = "the authors, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
default_role = "py:obj"  # a name in `backticks` in a docstring is a link where the name is documented

add_module_names = False
python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
smartquotes = False  # it makes a dash of the two hyphens of a flag
autodoc_typehints = "signature"

myst_heading_anchors = 4
myst_all_links_external = False

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]

CODE = re.compile(r"(`[^`]*`?)")
MARKUP = re.compile(r"(?<!\*)\*(?!\*)|(?<=\w)_(?!\w)|\|")
LINK = re.compile(r"(?<![!`])\[([^]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")

COPIES = DOCS / "repository"
"""Pages of the repository that lie outside of docs/ and belong to the site. Made here, not kept."""
OUTSIDE = [
    page
    for pattern in ("*.md", "changes/README.md", "examples/**/*.md", "tests/lab/README.md")
    for page in ROOT.glob(pattern)
    if page != ROOT / "README.md"  # the site's is index.md
]


def copy_pages() -> None:
    for page in OUTSIDE:
        copy, text = COPIES / page.relative_to(ROOT), f"---\norphan: true\n---\n{page.read_text()}"
        if not copy.is_file() or copy.read_text() != text:  # else it is built again each time
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)


def led(folder: Path, target: Path) -> str:
    """What the site has for this path, seen from a page in that folder of docs/.

    A page of the site is itself, and a folder the README in it. Everything else is shown where the
    repository is. Where that is not known, a file is downloaded, and a folder is the README in the
    next folder above that has one.
    """
    if target.is_dir() and target / "README.md" in OUTSIDE:
        target /= "README.md"
    if target in (ROOT, DOCS, ROOT / "README.md"):
        target = DOCS / "index.md"
    elif target in OUTSIDE:
        target = COPIES / target.relative_to(ROOT)
    elif SOURCE_URL and (target.is_dir() or not target.is_relative_to(DOCS)):
        return f"{SOURCE_URL}/{target.relative_to(ROOT)}"
    elif target.is_dir():
        return led(folder, target.parent)
    return os.path.relpath(target, folder)


def links(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead each link to what the site has for it. What is missing is for Sphinx to complain
    about."""
    here = (DOCS / page).parent
    home = ROOT / here.relative_to(COPIES) if here.is_relative_to(COPIES) else here

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        path = Path(os.path.normpath(home / target))
        return f"[{text}]({led(here, path)}{anchor or ''})" if path.exists() else found[0]

    source[0] = LINK.sub(link, source[0])


def navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Add a hidden toctree for each section of index.md, of the pages that it links to, by the
    words of the link. The pages of a folder beside a page of its name, as guides/troubleshooting/,
    are below that page instead."""
    here, whole = DOCS / f"{page}.md", f"\n{source[0]}"
    for section in source[0].split("\n## ")[1:] if page == "index" else [whole]:
        caption, _, text = section.partition("\n")
        entries: dict[str, str] = {}
        for words, target, anchor in LINK.findall(text):
            above = Path(os.path.normpath(here.parent / target)).parent.with_suffix(".md")
            if target.endswith(".md") and not anchor and here == (above if above.is_file() else DOCS / "index.md"):
                entries.setdefault(target, f"{' '.join(words.split())} <{target.removesuffix('.md')}>")
        if entries:
            head = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
            source[0] = "\n".join([source[0], "", *head, *entries.values(), "```", ""])


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep what is no markup in our docstrings from being taken for it: a lone star, a name's last
    underscore, a bar.

    They are plain text with `names`, **words in bold**, lists and indented blocks after "::".
    """
    if what == "class" and FIELDS in lines:
        del lines[lines.index(FIELDS) :]  # each field stands below with its own text
    block = -1  # the indentation of the line that ends with "::", while its block goes on
    for number, line in enumerate(lines):
        indentation = len(line) - len(line.lstrip())
        if block >= 0 and (not line.strip() or indentation > block):
            continue
        block = indentation if line.endswith("::") else -1
        lines[number] = "".join(
            part if part.startswith("`") else MARKUP.sub(r"\\\g<0>", part) for part in CODE.split(line)
        )


def setup(app: Sphinx) -> dict[str, bool]:
    copy_pages()
    app.connect("source-read", links)
    app.connect("source-read", navigation)
    app.connect("autodoc-process-docstring", plain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
