"""Which values of a cloud config are kept out of what the process shows.

`config_values` takes every word that is not the name of a setting: for what a plugin's factory
raises, because parsers like to quote the line that they stumbled over. `secret_values` takes those
that a setting's name calls secret, or that look like it: for everything later, where regions, names
and URLs must stay readable. The config's syntax is the vendor's own affair, so both work on words
and quoted strings."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterable, Iterator

from cloudprovider.internal.cleaning import SHORTEST, Mask, conceal, redact

# The name of a setting: at the start of a line (YAML, INI, TOML, env files) or of a JSON member. A
# "=" that ends the line, or is doubled, is base64 padding.
_SETTING = re.compile(
    r"""(?:^[ \t]*(?:-[ \t]+)*(?:export[ \t]+)?|(?P<flow>[{,]\s*))["']?(?P<name>[A-Za-z_][\w.\-/]{0,63})["']?"""
    r"""\s*(?::|=(?!=|[ \t]*$))""",
    re.MULTILINE,
)
# Comments hold prose, whose words would spoil every message: whole lines of them, and those set off
# behind a value.
_COMMENT = re.compile(r"(?:^[ \t]*|[ \t]{2,})#[ \t].*$", re.MULTILINE)
_SECTION = re.compile(r"^[ \t]*\[{1,2}[^\]\n,:\"]*\]{1,2}[ \t]*$", re.MULTILINE)
_WORDS = re.compile(r"""[^\s"'`,;\[\]{}()<>]+""")
_PARTS = re.compile(r"[^:/@=&?#]+")
_QUOTED = re.compile(r"""[ \t]*(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""", re.DOTALL)
_USERINFO = re.compile(r"://([^/\s\"'@]*:)?([^/\s\"']+)@")
_PEM = re.compile(r"-----(?:BEGIN|END)[^-\n]*-----")

# What a setting's name says about its value. The last word decides where a name only speaks of a
# secret: token-file.
_SECRET_NAME = re.compile(
    r"(?i)passw|passphrase|(?:^|[_.-])pass$|pwd|secret|token|credential|private|signature|cookie|bearer|jwt"
    r"|(?:^|[./])keys?$|(?:api|access|account|application|auth|client|consumer|encryption|session|signing|ssh|shared"
    r"|storage|subscription|master|hmac)[_.-]?key"
)
_LAST_WORD = re.compile(r"(?:^|[_.\-/]|(?<=[a-z0-9])(?=[A-Z]))([A-Za-z]+)$")
_SPOKEN_OF = re.compile(
    r"(?i)names?|namespace|files?|path|dir|url|uri|endpoint|ref|type|kind|ttl|timeout|expiry|expiration|lifetime|enabled"
    r"|networking|network|cluster|zone"
)
_READABLE = re.compile(
    _SPOKEN_OF.pattern + r"|ids?|uuid|host|hostname|hosts|servers?|port|regions?|zones|user|username|login|email|mode"
    r"|version|cidrs?|networks|subnets?|vpc|project|tenant|domain|prefix|suffix|labels?|tags?|image|flavor|size|class"
    r"|interval|period|address|addresses|ips?|count|limit|level|format|nodes?|instances?|provider|methods?|outcome|routes?"
)
_FILE = re.compile(r"(?i)files?|path|dir")
_PLACES = ("/", "./", "../", "~/")  # how the names of files begin
# Without what a command, a query, a share with its password and most base64 have.
_FILE_NAME = re.compile(r"[\w.~-]*/[\w./~-]*|[\w~-][\w.~-]*\.[a-z][a-z0-9]{1,4}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


class MaskedCause(Exception):
    """Stands for an exception whose own text quotes the cloud config: its type, its traceback, its
    masked text."""

    def __init__(self, text: str, kind: type[BaseException]) -> None:
        super().__init__(text)
        self.kind = kind


def config_values(data: bytes) -> frozenset[str]:
    """The words of a config file that must not be shown. Pure; any bytes will do."""
    text = _COMMENT.sub("", data.decode("utf-8", errors="replace"))
    names = {match["name"] for match in _SETTING.finditer(text)}
    words = set(_WORDS.findall(_SETTING.sub(" ", text)))
    parts = {part for word in words for part in _PARTS.findall(word)}
    return frozenset(word for word in words | parts if len(word) >= SHORTEST and word not in names)


def secret_values(data: bytes) -> frozenset[str]:
    """The values of a config file that are secret by their setting's name or by their looks. Pure.

    A password in a URL is one, whatever the setting. Settings' names are left."""
    text = _body(data)
    found: set[str] = {password for _, password in _USERINFO.findall(text)}
    names: set[str] = set()
    for name, value in _settings(text):
        names.add(name)
        words = _WORDS.findall(_PEM.sub(" ", value))
        if _says_secret(name):
            whole = value.strip()
            found.update((whole, *words) if "\n" not in whole else words)
            found.update(part for word in words for part in _PARTS.findall(word) if not part.isalpha())
        elif not _READABLE.fullmatch(_last_word(name)):
            found.update(word for word in words if _looks_secret(word))
    return frozenset(value for value in found if len(value) >= SHORTEST and value not in names and not _is_count(value))


def file_names(data: bytes) -> frozenset[str]:
    """The names of files in a config file: who reads that one cannot be opened has to know which.
    Values of settings that are secret by their name are none. Pure."""
    found = {
        value.strip() for name, value in _settings(_body(data)) if not _says_secret(name) and _names_file(name, value)
    }
    return frozenset(one for one in found if len(one) >= SHORTEST and is_file_name(one))


def _names_file(setting: str, value: str) -> bool:
    return _FILE.fullmatch(_last_word(setting)) is not None or value.strip().startswith(_PLACES)


def is_file_name(text: str) -> bool:
    """Whether this can be nothing but the name of a file. Pure.

    Operators write the secret itself where its file belongs, and a key in base64 has "/" too: what
    could be one is no name."""
    return _FILE_NAME.fullmatch(text) is not None and not any(map(_could_be_secret, text.split("/")))


def _could_be_secret(part: str) -> bool:
    """Of a path's part, which is often too short to look secret alone: capitals among the others,
    with digits or more than names have."""
    capitals = sum(letter.isupper() for letter in part)
    mixed = part.lower() != part and part.upper() != part
    digits = any(letter.isdigit() for letter in part)
    return _looks_secret(part) or (mixed and (digits or 3 * capitals > len(part)))


def quoted_line(data: bytes, text: str) -> int:
    """The line of a config file, from 1, whose value a text quotes: the longest one that it does.
    0 where there is none, or several. Pure."""
    found: dict[int, list[int]] = {}
    for number, line in enumerate(data.decode("utf-8-sig", errors="replace").split("\n"), 1):
        # Whole words alone: "main" of one setting is in "domain" of any sentence.
        words = [word for word in config_values(line.encode()) if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)]
        if words:
            found.setdefault(max(map(len, words)), []).append(number)
    lines = found[max(found)] if found else []
    return lines[0] if len(lines) == 1 else 0


def values_of_secret(secret: str) -> frozenset[str]:
    """What of a secret must not be shown: all of it, or of a document its secret values. Pure."""
    whole = secret.strip()
    if "\n" in whole:
        return secret_values(whole.encode("utf-8", errors="surrogatepass"))
    return frozenset() if len(whole) < SHORTEST or _is_count(whole) else frozenset({whole})


def _is_count(value: str) -> bool:
    return len(value) < 6 and value.isdigit()


def _body(data: bytes) -> str:
    """A config file's text without comments and section headers."""
    return _SECTION.sub("", _COMMENT.sub("", data.decode("utf-8-sig", errors="replace")))


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of every setting. Further lines belong to the setting before."""
    name, at = "", 0
    while match := _SETTING.search(text, at):
        yield name, text[at : match.start()]
        name, at = match["name"], match.end()
        if quoted := _QUOTED.match(text, at):
            at = quoted.end()
            written = quoted["quoted"]
            yield name, written[1:-1]
            yield name, _unquoted(written)
        elif match["flow"] is None:
            line = text[at:].partition("\n")[0] if _flat(text, at) else ""
            yield name, line
            at += len(line)
    yield name, text[at:]


def _flat(text: str, at: int) -> bool:
    """Is the rest of this line one value, and not the begin of a list or an object?"""
    return text[at : at + 80].lstrip(" \t")[:1] not in ("{", "[")


def _unquoted(written: str) -> str:
    if written[0] == "'":
        return written[1:-1].replace("''", "'")
    try:
        return str(json.loads(written, strict=False))
    except ValueError:
        return written[1:-1]


def _says_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and not _SPOKEN_OF.fullmatch(_last_word(name))


def _last_word(name: str) -> str:
    match = _LAST_WORD.search(name)
    return match[1] if match else ""


def _looks_secret(word: str) -> bool:
    """Letters of both cases and digits, or a long run of letters and digits, or odd signs."""
    if len(word) < 8 or "://" in word or word.startswith(("/", "./")) or _UUID.fullmatch(word):
        return False
    digits = any(letter.isdigit() for letter in word)
    if digits and word.lower() != word and word.upper() != word:
        return True
    if digits and len(word) >= 20 and word.isalnum() and not word.isdigit():
        return True
    return any(letter in "!#$%^&*+~" for letter in word)


def conceal_config(data: bytes | None) -> None:
    """Conceal the secrets of a cloud config."""
    if data:
        conceal(secret_values(data))


def safe_cause(
    error: BaseException,
    data: bytes | None,
    values: Callable[[bytes], frozenset[str]] = config_values,
    keep: Iterable[str] = (),
) -> tuple[str, BaseException]:
    """What may be shown of `error`: a one-line text, and an exception that may be chained and
    logged with its traceback. `values` says what of the config `data` is hidden, and `keep` which
    texts are shown all the same.

    The exception is `error` itself unless its text, or that of an exception it is chained to,
    quotes `data`, or shows what looks like a credential.
    """
    hidden = Mask(values(data) if data else (), keep=keep)
    text = redact(hidden.apply(f"{type(error).__name__}: {error}"))
    chain = traceback.TracebackException.from_exception(error)
    whole = "".join(chain.format())
    if hidden.apply(whole) == whole and not _shows_credential(chain):
        return text, error
    return text, MaskedCause(text, type(error)).with_traceback(error.__traceback__)


def _shows_credential(error: traceback.TracebackException) -> bool:
    """Whether the text of an exception, or of one it is chained to, does; not its source lines."""
    link: traceback.TracebackException | None = error
    while link is not None:
        text = "".join(link.format_exception_only())
        if redact(text) != text:
            return True
        link = link.__cause__ or link.__context__
    return False
