"""`node-info --resolv-conf`: a resolver file, adapted by the provider's `scrub_dns`."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloudprovider.commands.asking import UnusableAnswer
from cloudprovider.commands.cli import main
from cloudprovider.commands.resolvconf import adapted, read_resolver
from tests.support.plugins import write_distribution

FILE = """\
# made by the cloud
search c.project.internal google.internal
nameserver 10.0.0.2
options ndots:2   # kept
nameserver 10.0.0.3
"""
LINES = st.one_of(
    st.sampled_from(["nameserver 10.0.0.1", "nameserver", "search a.example b.example", "domain x", "options ndots:5"]),
    st.text(max_size=20),
)


def unchanged(servers: Sequence[str], searches: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    return servers, searches


@given(st.lists(LINES), st.sampled_from(["\n", "\r\n", ""]))
def test_a_provider_that_changes_nothing_gives_the_same_file(lines: list[str], end: str) -> None:
    text = "\n".join(lines) + end
    assert adapted(text, unchanged) == text


@example(["\r#"], [], [])
@given(st.lists(LINES), st.lists(st.ip_addresses().map(str), max_size=4), st.lists(st.sampled_from("abc"), max_size=3))
def test_what_the_provider_says_is_what_is_read_back(lines: list[str], servers: list[str], searches: list[str]) -> None:
    text = "\n".join(lines)
    made = adapted(text, lambda *_: (servers, searches))
    assert read_resolver(made) == (servers, searches)
    assert _kept(made) == _kept(text)


def _kept(text: str) -> list[str]:
    return [line.rstrip("\r\n") for line in StringIO(text, newline="") if line.startswith(("options", "#"))]


def test_only_the_lines_that_change_are_replaced() -> None:
    made = adapted(FILE, lambda servers, searches: (servers, ["google.internal"]))
    assert made == FILE.replace("c.project.internal ", "")
    made = adapted(FILE, lambda servers, searches: (["10.0.0.9", "fd00::9%eth0"], ()))
    assert made.splitlines() == [
        "# made by the cloud",
        "nameserver 10.0.0.9",
        "nameserver fd00::9%eth0",
        "options ndots:2   # kept",
    ]


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0b", "\x0c", "\x1e"])
def test_a_comment_goes_on_to_the_end_of_its_line(odd: str) -> None:
    text = f"# by hand{odd}nameserver 10.9.9.9\r\nnameserver 10.0.0.2\r\n"
    assert read_resolver(text) == (["10.0.0.2"], [])
    assert adapted(text, lambda servers, searches: ([], searches)) == f"# by hand{odd}nameserver 10.9.9.9\r\n"


def test_the_last_search_line_counts_and_a_domain_is_one() -> None:
    assert read_resolver("search a b\ndomain c\n; search d\n") == ([], ["c"])
    assert read_resolver("domain c\nsearch a b\n") == ([], ["a", "b"])


@pytest.mark.parametrize(
    "answer",
    [None, (), ("10.0.0.1", []), (["10.0.0.1"], None), ([1], []), (["ten"], []), (["10.0.0.1"], ["a b"]), ([], [""])],
)
def test_junk_is_refused(answer: Any) -> None:
    with pytest.raises(UnusableAnswer):
        adapted(FILE, lambda *_: answer)


SCRUBBING = """
from cloudprovider import Interface


class Scrubbing(Interface):
    def provider_name(self):
        return "scrubbing"

    def scrub_dns(self, nameservers, searches):
        return nameservers, [one for one in searches if one != "google.internal"]


def new_provider(config):
    return Scrubbing()
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    entry = "scrubbing = scrubbing_module:new_provider"
    write_distribution(tmp_path, "scrubbing-cloud", entry, scrubbing_module=SCRUBBING)
    file = tmp_path / "resolv.conf"
    file.write_bytes(FILE.encode() + b"# \xff\n")
    assert main(["node-info", "--cloud-provider=scrubbing", f"--resolv-conf={file}"]) == 0
    assert capfdbinary.readouterr().out == file.read_bytes().replace(b" google.internal", b"")
    target = tmp_path / "adapted.conf"
    assert main(["node-info", "--cloud-provider=scrubbing", f"--resolv-conf={file}", f"--write={target}"]) == 0
    assert target.read_bytes() == file.read_bytes().replace(b" google.internal", b"")
