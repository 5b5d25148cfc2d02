"""A machine's resolver file, adapted by the provider's `scrub_dns`. Pure but for the call of the
provider.

The file's text comes in; out goes the text for the kubelet's `resolvConf`. Lines that the provider
does not change stay as they are, comments and options among them; a provider that changes nothing
gives back the same text.

Follows: resolv.conf(5), and parseResolvConf in k8s.io/kubernetes pkg/kubelet/network/dns: of
several `search` and `domain` lines the last one counts, and a trailing comment is part of the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import StringIO

from cloudprovider.commands.asking import UnusableAnswer
from cloudprovider.ips import parse_ip

Scrub = Callable[[Sequence[str], Sequence[str]], object]
_SEARCHES = frozenset({"search", "domain"})


def read_resolver(text: str) -> tuple[list[str], list[str]]:
    """(name servers, search domains) of a resolver file's text."""
    servers: list[str] = []
    searches: list[str] = []
    for line in _lines(text):
        keyword, values = _words(line)
        if keyword == "nameserver" and values:
            servers.append(values[0])
        elif keyword in _SEARCHES:
            searches = values if keyword == "search" else values[:1]
    return servers, searches


def adapted(text: str, scrub: Scrub) -> str:
    """The text with the name servers and search domains that `scrub` makes of its own.

    Raises `UnusableAnswer`, and what `scrub` raises.
    """
    servers, searches = read_resolver(text)
    new_servers, new_searches = _checked(scrub(tuple(servers), tuple(searches)), {*servers, *searches})
    lines = _lines(text)
    # What is unchanged keeps its line, with comments and spacing.
    if new_servers != servers:
        lines = _replaced(lines, {"nameserver"}, [f"nameserver {server}" for server in new_servers])
    if new_searches != searches:
        lines = _replaced(lines, _SEARCHES, [f"search {' '.join(new_searches)}"] if new_searches else [])
    return "".join(lines)


def _lines(text: str) -> list[str]:
    """The lines with their ends; `splitlines` would end one at U+2028 or a form feed, too."""
    return list(StringIO(text, newline=""))


def _words(line: str) -> tuple[str, list[str]]:
    words = line.split()
    if not words or words[0][0] in "#;":
        return "", []
    return words[0], words[1:]


def _replaced(lines: Sequence[str], keywords: Iterable[str], new: Sequence[str]) -> list[str]:
    """The lines with the new ones where the first of these keywords stood, or at the end, and the
    others left out."""
    of_them = [index for index, line in enumerate(lines) if _words(line)[0] in keywords]
    at = of_them[0] if of_them else len(lines)
    before = list(lines[:at])
    # A file may lack its last line's end: a name server must not be glued to that line.
    if new and before and not before[-1].endswith(("\n", "\r")):
        before[-1] += "\n"
    after = [line for index, line in enumerate(lines) if index >= at and index not in of_them]
    return [*before, *(f"{line}\n" for line in new), *after]


def _checked(answer: object, known: set[str]) -> tuple[list[str], list[str]]:
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise UnusableAnswer(f"scrub_dns returned {_kind(answer)}, not (nameservers, searches)")
    servers, searches = (_texts(part, name) for part, name in zip(answer, ("nameservers", "searches"), strict=True))
    wrong = [one for one in servers if one not in known and parse_ip(one.partition("%")[0]) is None]
    wrong += [one for one in searches if one not in known and (one.split() != [one] or one[0] in "#;")]
    if wrong:
        raise UnusableAnswer(f"scrub_dns returned {wrong[0]!r}, which is no IP address of a name server and no domain")
    return servers, searches


def _texts(part: object, name: str) -> list[str]:
    if isinstance(part, str | bytes) or not isinstance(part, Sequence) or not all(isinstance(one, str) for one in part):
        raise UnusableAnswer(f"scrub_dns returned {_kind(part)} as {name}, not a sequence of texts")
    return list(part)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
