"""Keeps values of the cloud config out of error messages.

The registry passes the text of whatever a plugin's factory raised through here, because parsers like to quote
the line that they stumbled over, and that line may hold a password.

The config's syntax is the vendor's own affair, so this works on words: every word that is not the name of a
setting counts as a value, and every longer piece of a value is masked wherever it appears. Values of fewer
than four characters are left, since masking those would garble any sentence.
"""

from __future__ import annotations

import re
import traceback

__all__ = ["MaskedCause", "config_values", "mask", "safe_cause"]

MASK = "***"
_SHORTEST = 4  # shorter values are not masked
_WINDOW = 8  # a piece of this length gives a longer value away

# The name of a setting: at the start of a line (YAML, INI, TOML, env files) or of a JSON member. A "=" that ends the
# line, or is doubled, is base64 padding.
_SETTING = re.compile(
    r"""(?:^[ \t]*(?:-[ \t]+)*|[{,]\s*)["']?(?P<name>[A-Za-z_][\w.\-/]{0,63})["']?\s*(?::|=(?!=|[ \t]*$))""",
    re.MULTILINE,
)
# Comments hold prose, whose words would spoil every message: whole lines of them, and those set off behind a value.
_COMMENT = re.compile(r"(?:^[ \t]*|[ \t]{2,})#[ \t].*$", re.MULTILINE)
_WORDS = re.compile(r"""[^\s"'`,;\[\]{}()<>]+""")
_PARTS = re.compile(r"[^:/@=&?#]+")


class MaskedCause(Exception):
    """Stands for an exception whose own text quotes the cloud config: its type, its traceback, its masked
    text."""


def config_values(data: bytes) -> frozenset[str]:
    """The words of a config file that must not be shown. Pure; any bytes will do."""
    text = _COMMENT.sub("", data.decode("utf-8", errors="replace"))
    names = {match["name"] for match in _SETTING.finditer(text)}
    words = set(_WORDS.findall(_SETTING.sub(" ", text)))
    parts = {part for word in words for part in _PARTS.findall(word)}
    return frozenset(word for word in words | parts if len(word) >= _SHORTEST and word not in names)


def mask(text: str, values: frozenset[str]) -> str:
    """`text` with every value, and every piece of eight or more characters of one, replaced by "***".
    Pure."""
    hidden = bytearray(len(text))
    for value in values:
        if len(value) < _WINDOW and value.isalpha():
            # A plain short word ("true", "main"): only where it stands alone.
            spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text)]
        else:
            size = min(len(value), _WINDOW)
            pieces = {value[start : start + size] for start in range(len(value) - size + 1)}
            spans = [(at, at + size) for piece in pieces for at in _occurrences(text, piece)]
        for start, end in spans:
            hidden[start:end] = b"\x01" * (end - start)
    out: list[str] = []
    for index, letter in enumerate(text):
        if not hidden[index]:
            out.append(letter)
        elif not index or not hidden[index - 1]:
            out.append(MASK)
    return "".join(out)


def _occurrences(text: str, piece: str) -> list[int]:
    found = []
    at = text.find(piece)
    while at >= 0:
        found.append(at)
        at = text.find(piece, at + 1)
    return found


def safe_cause(error: BaseException, data: bytes | None) -> tuple[str, BaseException]:
    """What may be told of `error`: a one-line text, and an exception that may be chained and logged with its
    traceback.

    The exception is `error` itself unless its text, or that of an exception it is chained to, quotes `data`.
    """
    values = config_values(data) if data else frozenset()
    text = mask(f"{type(error).__name__}: {error}", values)
    whole = "".join(traceback.TracebackException.from_exception(error).format())
    if mask(whole, values) == whole:
        return text, error
    return text, MaskedCause(text).with_traceback(error.__traceback__)
