"""The README's tables are the code's, and what it and API.md show works. `python
tests/test_localcloud_readme.py` writes the tables again."""

from __future__ import annotations

import re
from pathlib import Path

from localcloud import api
from localcloud_provider.annotations import LocalAnnotations
from localcloud_provider.config import Config

from cloudprovider import CloudConfig

README = Path(__file__).parents[1] / "README.md"
API = README.parent / "API.md"


def written() -> str:
    """The README with today's tables."""
    text = README.read_text()
    for name, table in (("settings", Config.markdown_table()), ("annotations", LocalAnnotations.markdown_table())):
        begin, end = f"<!-- {name}: written by tests/test_localcloud_readme.py -->\n", "<!-- end -->"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}{table}{end}{rest.partition(end)[2]}"
    return text


def test_the_tables_are_current() -> None:
    assert README.read_text() == written(), f"run: python {Path(__file__).name}"


def test_the_configuration_that_is_shown_can_be_read() -> None:
    shown = README.read_text().partition("<<END\n")[2].partition("END\n")[0]
    config = Config.load(CloudConfig(path="", data=shown.encode()), environ={})
    assert config.url == "http://10.90.255.1:8090"


def test_every_path_of_the_api_is_shown() -> None:
    text = API.read_text()
    for path in api._PATHS:
        shown = (
            path.replace("/v1/machines/*", "/v1/machines/ID").replace("sshkeys/*", "sshkeys/USER").replace("*", "NAME")
        )
        last = shown.rpartition("/")[2]
        assert re.search(rf"{re.escape(shown)}\b|`\.\.\./{last}\b", text), f"API.md does not show {shown}"


if __name__ == "__main__":
    README.write_text(written())
