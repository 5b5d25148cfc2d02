"""The one cleaning of every text that leaves the process, so that nothing of ours shows a secret or
forges a line: log lines, tracebacks, Events (a tenant reads them), health details.

A text is cut to what will be looked at, so that megabytes cost no more than a line; the values that
are to be concealed are masked (`Mask`), what looks like a credential is redacted (`redact`), line
breaks and control characters are escaped. Pure, but for what the process conceals. Which values of
a cloud config are secret says `configsecrets.py`."""

from __future__ import annotations

import base64
import functools
import html
import json
import re
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final
from urllib.parse import quote, quote_plus

LONGEST: Final = 4096
"""Characters of a log message."""
LONGEST_ERROR: Final = 1000
"""Characters of an exception's message, which is a part of a log message or an Event."""
LONGEST_STACK: Final = 16384
"""Characters of a traceback, its whole chain."""
WINDOW: Final = 12
"""So long a piece of a secret gives it away."""

_MOST_LOADED: Final = 16  # sets of values; a secret that rotates each hour must not fill the memory

_CHAIN: Final = 8  # exceptions of one chain
_FRAMES: Final = 24  # of one exception, the innermost
_MEMBERS: Final = 4  # of an exception group, and notes of one exception
_MARGIN: Final = 1024  # looked at beyond the bound, so that a secret across it is recognised
_LEFT: Final = 24  # of that, what is left of a secret across its own end may be too short to be recognised
_ELSEWHERE: Final = re.compile(r"[^ -~]")  # what is not plain ASCII, and has to be looked at
MASK: Final = "***"
SHORTEST: Final = 4
"""Shorter values are not masked: that would garble any sentence."""
_PIECE: Final = 8  # so long a piece gives a value of the cloud config away
_ENCODED: Final = 6  # shorter pieces of base64 say nothing

# The forms in which credentials are written. A second line of defence: a cloud's library may quote
# a request or a line of its configuration in an exception. Names of nodes, UIDs, provider IDs,
# versions and prose must stay readable. Every pattern looks at a bounded number of characters from
# each place where it may begin, or consumes what it looked at, so that the time grows with the text
# alone: repeats are possessive (`++`) or bounded.

REDACTED: Final = "<redacted>"

# A word that a name of a secret contains. "tokens" is a count: max_tokens=100.
_NAME: Final = (
    r"(?:token(?!s)|passw(?:or)?d|passphrase|(?<![a-z])pass(?=[\"'\\]{0,3}\s{0,4}[:=])|pwd|secret|credential"
    r"|(?:api|access|account|auth|encryption|signing|shared|storage|subscription|master|private)[_.\- ]?key(?!s)"
    r"|(?<![a-z])sig(?:nature)?(?==))"
)
# What may follow in the name; where it ends so, the value only says where a secret is: token-file,
# secretName.
_REFERENCE: Final = (
    r"(?:names?|namespaces?|files?|paths?|dirs?|urls?|uris?|endpoints?|refs?|references?|types?|kinds?|ttl|timeouts?"
    r"|expiry|expires|expiration|lifetime|enabled|count|bucket|length|provider|source)"
)
_REST: Final = rf"(?![\w.\-]{{0,40}}?{_REFERENCE}[\"'\\]{{0,3}}\s{{0,4}}[:=])[\w.\-]{{0,40}}+"
_BETWEEN: Final = r"[\"'\\]{0,3}\s{0,4}(?>=>|:=|[:=])\s{0,8}"
# Words that follow in prose ("password: must not be empty") or are no secret (token=true).
_WORDS: Final = (
    r"(?:a|an|and|any|are|auth|authentication|authorization|bad|by|cannot|could|credentials?|default|denied|does|empty"
    r"|error|expired|failed|false|field|flow|for|from|has|have|in|invalid|is|it|key|malformed|missing|must|no|none|nil"
    r"|not|null|of|on|or|permission|provider|required|requires|scheme|schemes|set|should|string|that|the|this|to"
    r"|tokens?|true|type|unauthorized|unknown|unset|value|was|were|will|with|wrong|your)(?![\w+/=~@-])(?!\.\w)"
)
# First words of a sentence behind ": ", where "=" would say that they are the value.
_PROSE: Final = (
    r"(?<=:\s)(?:about|access|after|all|already|also|although|as|at|because|before|being|both|but|cannot|can't|check|context"
    r"|connection|deadline|disabled|does|doesn't|either|every|expects?|expected|forbidden|got|had|he|if|incorrect|insufficient"
    r"|internal|login|longer|mismatch|more|neither|never|nothing|only|please|refused|rejected|request|response|revoked|see"
    r"|server|some|still|than|their|then|there|they|timeout|timed|too|unable|unsupported|until|used|using|use|when|where"
    r"|which|while|without|you)(?![\w+/=~@'-])(?!\.\w)"
)
_DOUBLE: Final = r'"(?:[^"\\]|\\.)*+"?'
_SINGLE: Final = r"'(?:[^'\\]|\\.)*+'?"
_ESCAPED: Final = r"\\[\"'][^\"'\\]*+(?:\\(?![\"'])[^\"'\\]*+)*+"
# The host of a URL is no secret, as in "POST .../tokenreviews: https://10.0.0.1:6443: timed out".
_HOST: Final = r"https?://(?:[\w.\-]{1,253}+|\[[\da-fA-F:.%]{2,60}+\])(?::\d{1,5}+)?+/?(?=[:,;.)\]]{0,3}(?:\s|\Z))"
# An HTTP status behind ": "; behind "=" three digits are a value, which may be a secret.
_STATUS: Final = r"(?<=:\s)\d{3}(?=[,;:.)\]}]{0,2}(?:\s|\Z))"
_BARE: Final = rf"(?!{_WORDS})(?!{_PROSE})(?!{_HOST})(?!{_STATUS})[^\s\"',;&<>(){{}}\[\]][^\s\"',;&)}}\]<]*+"
_VALUE: Final = rf"(?:{_DOUBLE}|{_SINGLE}|{_ESCAPED}|{_BARE})"

# A request and what went wrong: "POST /oauth/token: dial tcp: no route". Only where that is a word,
# and not without the method: a path may be a file's, whose content may follow.
_REQUEST: Final = (
    r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) (?:https?://[\w.\-\[\]:]{1,260}+)?+/[\w./%~\-]{0,256}+: "
    r"(?=(?:[A-Za-z]?[a-z]{1,14}|[A-Z]{2,6}|[A-Za-z]{1,30}?(?:Error|Exception|Timeout|Pool))(?![\w+/=~@-])(?!\.\w))"
)

_FORMS: Final[tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]] = (
    (
        r"(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
        REDACTED,
    ),
    # Headers: the whole value, whatever its scheme. Also as Python shows them: ('Authorization',
    # 'Bearer x').
    (
        r"(?i)\b((?:proxy-)?authorization[\"'\\]{0,3}\s{0,4}[:=,]\s{0,4}(?:b(?=[\"']))?+[\"'\\]{0,2})"
        r"(?:((?:bearer|basic|digest|negotiate|token|aws4-hmac-sha256)\s++))?+"
        rf"(?!{_WORDS}|<)[^\s\"',;\\]++(?(2)|(?: [^\s\"',;\\<]++)?)",
        rf"\1\2{REDACTED}",
    ),
    (
        r"(?i)\b((?:set-)?cookie[\"'\\]{0,3}\s{0,4}[:=]\s{0,4}[\"'\\]{0,2})(?=[^\s=]{1,64}=)[^\r\n\"'\\]++",
        rf"\1{REDACTED}",
    ),
    (rf"(?i)\b(bearer\s++)(?!{_WORDS})(?!\w{{1,20}}=\")[\w.~+/=-]++", rf"\1{REDACTED}"),
    (r"\b((?i:basic)\s++)(?=[a-z0-9+/]*+[A-Z=])[A-Za-z0-9+/]{6,}+={0,2}", rf"\1{REDACTED}"),
    # JSON Web Tokens, also cut ones: base64 of '{"' and more.
    (r"\beyJ[\w-]{10,}+(?:\.[\w-]*+){0,4}", REDACTED),
    # Credentials in a URL, and user:token@host without a scheme; an image's name:tag@sha256:... is
    # none.
    (r"(://)[^/\s:@\"'<>]{0,256}+:[^/\s\"'<>]*@", rf"\1{REDACTED}@"),
    (r"(://)(?=[^/\s@]*?\d)[^/\s:@\"'<>]{8,}+@", rf"\1{REDACTED}@"),
    (
        r"(?<![\w:/.@+%-])(?!mailto:)([\w.+%-]++:)[^\s:@/\"'`,;<>()]++@(?!sha\d{3}:)(?=[A-Za-z0-9\[])",
        rf"\1{REDACTED}@",
    ),
    # name=value, name: value, "name": "value", ('name', 'value'), <name>value</name>, --name value
    (
        rf"(?s)(?P<request>{_REQUEST})|(?i:({_NAME}{_REST}{_BETWEEN}(?:b(?=[\"']))?+){_VALUE})",
        lambda found: found["request"] or found[2] + REDACTED,
    ),
    (
        rf"(?is)({_NAME}[\w.\-]{{0,40}}+([\"'])\s{{0,4}},\s{{0,4}}b?)(?:{_DOUBLE}|{_SINGLE})",
        rf"\1\2{REDACTED}\2",
    ),
    (rf"(?i)({_NAME}[\w.\-]{{0,40}}+>)[^<\s][^<]{{0,512}}+(?=</)", rf"\1{REDACTED}"),
    (rf"(?i)(--[\w-]{{0,40}}?{_NAME}\s{{1,8}})(?!{_WORDS})(?!-)[\w.~+/=@!%^*-]++", rf"\1{REDACTED}"),
    # Keys that say themselves what they are: AWS, GitHub, GitLab, Google, Slack, DigitalOcean,
    # Vault.
    (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", REDACTED),
    (
        r"\b(?:gh[opsur]_|github_pat_|glpat-|AIza|ya29\.|xox[abeprs]-|do[opr]_v1_|hv[sbr]\.)[\w.-]{16,}+",
        REDACTED,
    ),
)
_ANY: Final = re.compile(
    r"(?i)token|passw|passphrase|pass[\"'\\]{0,3}\s{0,4}[:=]|pwd|secret|credential|authorization|key|sig|cookie|bearer|basic|eyJ|@|akia|asia"
    r"|gh[opsur]_|glpat|aiza|ya29|xox|_v1_|hv[sbr]\."
)


@functools.cache
def _forms() -> tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]:
    # Not with the import: that would be 6 ms of each start, and most lines have nothing to hide.
    return tuple((re.compile(pattern), replacement) for pattern, replacement in _FORMS)


def redact(text: str) -> str:
    """`text` without what looks like a credential; names, schemes and hosts stay readable."""
    if _ANY.search(text) is None:
        return text
    for pattern, replacement in _forms():
        text = pattern.sub(replacement, text)
    return text


class Mask:
    """Hides a set of values, and pieces of `window` or more characters of them, but for what stands
    within a text of `keep`. Immutable; for any thread."""

    def __init__(self, values: Iterable[str], *, window: int = _PIECE, keep: Iterable[str] = ()) -> None:
        self.values = frozenset(value for value in values if len(value) >= SHORTEST)
        self._window = window
        self._keep = frozenset(keep)
        self._pieces: set[str] = set()  # of the window's length
        self._short: dict[int, set[str]] = {}  # whole values shorter than that, by length
        self._alone: dict[int, set[str]] = {}  # plain short words ("true", "main"): only where they stand alone
        for value in self.values:
            if len(value) >= window:
                self._pieces.update(value[at : at + window] for at in range(len(value) - window + 1))
            else:
                kind = self._alone if value.isalpha() else self._short
                kind.setdefault(len(value), set()).add(value)

    def apply(self, text: str) -> str:
        """`text` with each value and piece replaced by "***". In linear time."""
        if not self.values:
            return text
        end = 0  # of what is hidden so far
        out: list[str] = []
        for start, stop in self._spans(text):
            if start >= end:
                if start > end or not out:
                    out += (text[end:start], MASK)
                end = stop
            else:
                end = max(end, stop)
        return "".join(out) + text[end:]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        spans = [(at, at + size) for size, known in self._sizes() for at in _found(text, size, known)]
        for size, known in self._alone.items():
            words = ((at, at + size) for at in _found(text, size, known))
            spans += [(at, end) for at, end in words if not _is_word(text[at - 1 : at] + text[end : end + 1])]
        # A config may name a thousand files, of which a line has one.
        kept = [(at, at + len(one)) for one in self._keep if one in text for at in _found(text, len(one), {one})]
        return sorted(span for span in spans if not any(at <= span[0] and span[1] <= end for at, end in kept))

    def _sizes(self) -> Iterator[tuple[int, set[str]]]:
        if self._pieces:
            yield self._window, self._pieces
        yield from self._short.items()


def _found(text: str, size: int, known: set[str]) -> list[int]:
    return [at for at in range(len(text) - size + 1) if text[at : at + size] in known]


def _is_word(letters: str) -> bool:
    """Does one of these letters belong to a word?"""
    return any(letter == "_" or letter.isalnum() for letter in letters)


def forms(value: str) -> frozenset[str]:
    """How else a value may be written: as JSON, YAML, Python or XML quotes it, in a URL, in base64
    (also amid other text, as in `user:password`). Contains the value itself."""
    found = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    found |= {value.replace("'", "''"), quote(value), quote(value, safe=""), quote_plus(value), html.escape(value)}
    data = value.encode("utf-8", errors="surrogatepass")
    for before in range(3):  # bytes of other text in the first group
        encoded = base64.b64encode(bytes(before) + data).rstrip(b"=").decode()
        # Of the first and the last group of four, letters depend on what stands beside the value.
        inner = encoded[(0, 2, 3)[before] : len(data + bytes(before)) // 3 * 4]
        for text in (inner, encoded) if not before else (inner,):
            if len(text) >= _ENCODED:
                found |= {text, text.replace("+", "-").replace("/", "_")}
    return frozenset(found)


class Cleaner:
    """Cleans texts, hiding one set of values, but for what stands within a text of `keep`.
    Immutable; for any thread."""

    def __init__(self, values: Iterable[str] = (), *, window: int = WINDOW, keep: Iterable[str] = ()) -> None:
        self.values = frozenset(values)
        self._mask = Mask((form for value in self.values for form in forms(value)), window=window, keep=keep)

    def line(self, value: object, limit: int = LONGEST, *, fold: bool = False) -> str:
        """Any object's text on one line of at most `limit` characters, even if its ``str`` raises.

        With `fold`, each run of blanks and line breaks is shown as one blank."""
        text = _text(value)
        shown = redact(self._mask.apply(text[: limit + _MARGIN]))
        if len(text) > limit + _MARGIN:
            shown = shown[:-_LEFT]
        if fold:
            shown = " ".join(shown.split())
        if not shown.isprintable():
            shown = _ELSEWHERE.sub(_escape, shown)
        if len(text) <= limit + _MARGIN and len(shown) <= limit:
            return shown
        return f"{shown[: limit - 3]}..."

    def stack(self, error: BaseException, limit: int = LONGEST_STACK) -> str:
        """The traceback of `error` and of what it is chained to, as Python prints it, cleaned.

        Every line begins with a space, so none can pass for a log line; a message is one line, so
        none can pass for a frame. The outermost exceptions and the innermost frames are kept where
        there are too many."""
        lines: list[str] = []
        length = 0
        for part in _parts(error):
            line = "  " + self.line(part)
            length += len(line) + 1
            if length > limit:
                lines.append("  ... (cut)")
                break
            lines.append(line)
        return "\n".join(lines)


_lock = threading.Lock()
_always: frozenset[str] = frozenset()
_loaded: deque[frozenset[str]] = deque(maxlen=_MOST_LOADED)
_of_process = Cleaner()


def of_process() -> Cleaner:
    """The cleaner that hides all that is to be concealed."""
    return _of_process


def conceal(values: Iterable[str], *, loaded: bool = False) -> None:
    """From now on nothing of this process shows these values, at any boundary. Calls add up.

    `loaded`: of a configuration, which may be loaded again with others; the latest are kept."""
    global _always, _of_process
    new = frozenset(values)
    with _lock:
        if loaded:
            if new in _loaded:
                _loaded.remove(new)
            _loaded.append(new)
        else:
            _always |= new
        known = _always.union(*_loaded)
        if known != _of_process.values:
            _of_process = Cleaner(known)


def one_line(value: object, limit: int = LONGEST) -> str:
    """`Cleaner.line` with all that the process conceals."""
    return _of_process.line(value, limit)


def text_of(error: object) -> str:
    """An exception's message on one line, fit for a log message or an Event. Cleaned before it is
    cut: half a secret is not recognised."""
    return _of_process.line(error, LONGEST_ERROR, fold=True)


def stack_of(error: BaseException, limit: int = LONGEST_STACK) -> str:
    """`Cleaner.stack` with all that the process conceals."""
    return _of_process.stack(error, limit)


def _text(value: object) -> str:
    try:
        return str(value)
    except (Exception, SystemExit) as broken:  # noqa: BLE001 - foreign classes; a message that fails costs no more
        return f"(its message cannot be shown: {type(broken).__name__})"


def _escape(match: re.Match[str]) -> str:
    letter = match[0]
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _parts(error: BaseException) -> Iterator[str]:
    """The chain from the cause to the error, line by line; bounded in links, frames and members."""
    links: list[tuple[BaseException, str]] = []
    seen: set[int] = set()
    link: BaseException | None = error
    how = ""
    while link is not None and id(link) not in seen and len(links) < _CHAIN:
        seen.add(id(link))
        links.append((link, how))
        if link.__cause__ is not None:
            link, how = link.__cause__, "The above exception was the direct cause of the following exception:"
        elif link.__context__ is not None and not link.__suppress_context__:
            link, how = link.__context__, "During handling of the above exception, another exception occurred:"
        else:
            link = None
    if link is not None:
        yield "(earlier exceptions of this chain are left out)"
    for number, (one, how) in enumerate(reversed(links)):
        if number:
            yield ""
        yield from _one(one)
        if how:
            yield ""
            yield how


def _one(error: BaseException, depth: int = 0) -> Iterator[str]:
    frames = _frames(error.__traceback__)
    if frames:
        yield "Traceback (most recent call last):"
        yield from frames
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = _text(error)
    yield f"{name}: {text}" if text else name
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list | tuple):
        yield from (_text(note) for note in notes[:_MEMBERS])
    if isinstance(error, BaseExceptionGroup) and depth < 2:
        for number, member in enumerate(error.exceptions[:_MEMBERS], 1):
            yield f"--- {number} of {len(error.exceptions)} in this group:"
            yield from _one(member, depth + 1)


def _frames(trace: TracebackType | None) -> list[str]:
    formatted = traceback.format_list(traceback.extract_tb(trace, limit=-_FRAMES))
    return [line for entry in formatted for line in entry.rstrip("\n").split("\n")]


def few(names: Sequence[str], most: int) -> str:
    """The first `most` of these names, and how many more there are: for a line that people read."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
