"""The documentation site: `make docs` builds it into build/docs with Sphinx; it works offline.

The pages are plain Markdown, to be read on a code host as well. What only the site needs is made
here: the navigation, from the links of index.md, and what becomes of a link to a file outside of
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

PAGE = re.compile(r"\]\(([^)#\s]+\.md)\)")
CODE = re.compile(r"(`[^`]*`?)")
MARKUP = re.compile(r"(?<!\*)\*(?!\*)|(?<=\w)_(?!\w)|\|")
LINK = re.compile(r"(?<!!)\[([^]]+)\]\((\.\.?/[^)#\s]+)(#[^)\s]*)?\)")


def outside(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to files outside of docs/ to where the repository is shown.

    Where that is not known, pages and folders become text, and MyST copies other files into the
    site for download.
    """

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.groups()
        path = Path(os.path.normpath((DOCS / page).parent / target))
        if path.is_relative_to(DOCS) or not path.exists():  # what is missing is for Sphinx to complain about
            return found[0]
        if SOURCE_URL:
            return f"[{text}]({SOURCE_URL}/{path.relative_to(ROOT)}{anchor or ''})"
        return text if path.is_dir() or path.suffix == ".md" else found[0]

    source[0] = LINK.sub(link, source[0])


def navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to index.md one hidden toctree for each of its sections, of the pages that the section
    links to."""
    if page != "index":
        return
    trees = []
    for section in source[0].split("\n## ")[1:]:
        caption = section.partition("\n")[0]
        trees += [
            "```{toctree}",
            ":hidden:",
            f":caption: {caption}",
            "",
            *dict.fromkeys(PAGE.findall(section)),
            "```",
            "",
        ]
    source[0] = "\n".join([source[0], "", *trees])


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
    app.connect("source-read", navigation)
    app.connect("source-read", outside)
    app.connect("autodoc-process-docstring", plain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
