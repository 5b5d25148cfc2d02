"""What the fields of a kubeconfig must be (before stage 1). Pure.

YAML takes everything: "false" in quotes is a text, and so true; a text where a list should be is a
list of letters. As client-go, `kubeconfig.py` refuses both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final


def mistyped(entry: Mapping[str, object]) -> str:
    """What is wrong with the type of a field of a cluster, a user or its `exec`, or "". Of those
    fields that nothing else checks; one without a value is not there."""
    for key, (fits, what) in _TYPES.items():
        if entry.get(key) not in (None, "") and not fits(entry[key]):
            return f"{key} is not {what}"
    return ""


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_texts_by_key(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) and _are_texts(value[key]) for key in value)


def _are_variables(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and _are_texts([one.get("name"), one.get("value")]) for one in value
    )


_SWITCH: Final = (lambda value: isinstance(value, bool), "true or false, without quotes")
_STRING: Final = (lambda value: isinstance(value, str), "a string; put it in quotes")
_TYPES: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    **dict.fromkeys(("insecure-skip-tls-verify", "provideClusterInfo"), _SWITCH),
    **dict.fromkeys(("tls-server-name", "proxy-url", "as", "as-uid"), _STRING),
    **dict.fromkeys(("as-groups", "args"), (_are_texts, "a list of strings")),
    "as-user-extra": (_are_texts_by_key, "a mapping of lists of strings"),
    "env": (_are_variables, "a list of mappings with name and value"),
}
