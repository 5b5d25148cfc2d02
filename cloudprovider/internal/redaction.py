"""The forms in which credentials are written, and `redact`, which hides them. Pure.

A second line of defence: a cloud's library may quote a request or a line of its configuration in an
exception. Names of nodes, UIDs, provider IDs, versions and prose must stay readable. Every pattern
looks at a bounded number of characters from each place where it may begin, or consumes what it
looked at, so that the time grows with the text alone: repeats are possessive (`++`) or bounded."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

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
