"""What a kubeconfig may say: one table of rules for each of its parts (before stage 1). Pure.

The facts are client-go's: validation.go, client_config.go and api/v1 of tools/clientcmd,
plugin/pkg/client/auth/exec. Where ours is laxer or stricter on purpose, the page
`docs/reference/kubeconfig.md` says so. YAML takes everything: "false" in quotes is a
text, and so true; a text where a list should be is a list of letters. Both are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Entry = Mapping[str, Any]
"""A part without its empty fields."""
Rule = tuple[Callable[[Entry], object], str]
"""True of an entry that breaks it; and what is wrong then, to follow the entry's name."""

EXEC_VERSIONS: Final = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
FILES: Final = ("certificate-authority", "client-certificate", "client-key")
"""Fields that name a file, and have a twin with its contents, `-data`."""
_INTERACTIVE_MODES: Final = ("Never", "IfAvailable", "Always")


def problem(rules: Sequence[Rule], entry: Entry) -> str:
    """What is wrong with the entry, or ""; its fields' types are looked at first."""
    for key, (fits, what) in _TYPES.items():
        if key in entry and not fits(entry[key]):
            return f": {key} is not {what}"
    return next((text for broken, text in rules if broken(entry)), "")


def filled(entry: Entry) -> dict[str, Any]:
    """The fields that have a value: one that is empty is not there, as in client-go."""
    return {key: value for key, value in entry.items() if value not in (None, "", [])}


def file_of(entry: Entry, key: str) -> bool:
    """Whether the entry has this file, by name or as data."""
    return key in entry or f"{key}-data" in entry


def _has(*keys: str) -> Callable[[Entry], bool]:
    return lambda entry: any(entry.get(key) for key in keys)


def _lacks(key: str) -> Callable[[Entry], bool]:
    return lambda entry: key not in entry


def _both(one: Callable[[Entry], object], other: Callable[[Entry], object]) -> Callable[[Entry], bool]:
    return lambda entry: bool(one(entry) and other(entry))


def _twins(key: str) -> Rule:
    return _both(_has(key), _has(f"{key}-data")), f" has both {key} and {key}-data; remove one"


def _half(there: str, lacking: str) -> Rule:
    return (
        lambda entry: file_of(entry, f"client-{there}") and not file_of(entry, f"client-{lacking}"),
        f" has a client {there} but no client-{lacking}; give both",
    )


DOCUMENT: Final[Sequence[Rule]] = (
    (lambda entry: entry.get("kind", "Config") != "Config", " is not a kubeconfig: its kind is not Config"),
    (lambda entry: entry.get("apiVersion", "v1") != "v1", " is not a kubeconfig: its apiVersion is not v1"),
)
CLUSTER: Final[Sequence[Rule]] = (
    (_lacks("server"), " has no server; add it"),
    _twins("certificate-authority"),
    (
        lambda entry: entry.get("insecure-skip-tls-verify") and file_of(entry, "certificate-authority"),
        " has both insecure-skip-tls-verify and a certificate authority; remove one",
    ),
)
USER: Final[Sequence[Rule]] = (
    _twins("client-certificate"),
    _twins("client-key"),
    _half("certificate", "key"),
    _half("key", "certificate"),
    (
        _both(_has("token", "tokenFile"), _has("username", "password")),
        " has more than one way to log in, a token and a username or password; keep one",
    ),
    (_both(_has("exec"), _has("auth-provider")), " has both exec and auth-provider; remove one"),
    (
        _both(_has("as-uid", "as-groups", "as-user-extra"), _lacks("as")),
        " has as-uid, as-groups or as-user-extra without as: whom to act as; add it",
    ),
    (
        lambda entry: "token" in entry and not _is_token(entry["token"].strip()),
        ": token is not a bearer token; correct it",
    ),
)
EXEC: Final[Sequence[Rule]] = (
    (_lacks("command"), " has no command; add it"),
    (_lacks("apiVersion"), " has no apiVersion; add it"),
    (
        lambda entry: entry["apiVersion"] not in EXEC_VERSIONS,
        f" has an apiVersion that is not supported; use one of {', '.join(EXEC_VERSIONS)}",
    ),
    (
        _both(lambda entry: entry["apiVersion"] == EXEC_VERSIONS[0], _lacks("interactiveMode")),
        f" has no interactiveMode, which {EXEC_VERSIONS[0]} asks for; add Never",
    ),
    (
        lambda entry: entry.get("interactiveMode", "Never") not in _INTERACTIVE_MODES,
        f" has an interactiveMode that is none of {', '.join(_INTERACTIVE_MODES)}",
    ),
)


def _is_token(text: str) -> bool:
    return text.isascii() and text.isprintable() and bool(text) and " " not in text


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_texts_by_key(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) and _are_texts(value[key]) for key in value)


def _are_variables(value: object) -> bool:
    """One without a value has the empty text, as in client-go."""
    return isinstance(value, list) and all(
        isinstance(one, dict) and one.get("name") and _are_texts([one["name"], one.get("value") or ""]) for one in value
    )


_SWITCH: Final = (lambda value: isinstance(value, bool), "true or false, without quotes")
_STRING: Final = (lambda value: isinstance(value, str), "a string; put it in quotes")
_MAPPING: Final = (lambda value: isinstance(value, dict), "a mapping")
_STRINGS: Final = (
    *("server", "tls-server-name", "proxy-url", *FILES, *(f"{key}-data" for key in FILES)),
    *("token", "tokenFile", "username", "password", "as", "as-uid"),
    *("command", "apiVersion", "kind", "installHint", "interactiveMode", "current-context"),
)
_TYPES: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    **dict.fromkeys(_STRINGS, _STRING),
    **dict.fromkeys(("insecure-skip-tls-verify", "provideClusterInfo"), _SWITCH),
    **dict.fromkeys(("exec", "auth-provider"), _MAPPING),
    **dict.fromkeys(("as-groups", "args"), (_are_texts, "a list of strings")),
    "as-user-extra": (_are_texts_by_key, "a mapping of lists of strings"),
    "env": (_are_variables, "a list of mappings with name and value"),
}
