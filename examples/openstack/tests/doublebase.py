"""What the parts of the double share: the recording as templates of objects, refusals, listings."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from openstackwalk import RECORDED

Record = dict[str, Any]
Query = Mapping[str, list[str]]
_PAGING = {"limit", "marker", "fields", "sort", "sort_key", "sort_dir", "page_reverse"}


class Refused(Exception):
    """An answer that is none of the good ones."""

    def __init__(self, status: int, document: Any) -> None:
        super().__init__(status, document)
        self.status, self.document = status, document


@cache
def _recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text())  # type: ignore[no-any-return]


def answer(step: str) -> Any:
    """A copy of what the services answered at this step of the walk."""
    return deepcopy(_recorded()[step]["answer"])


def one(step: str) -> Record:
    """A copy of the one object in that answer, or of the first one of a list."""
    [*values] = answer(step).values()
    value = values[0]
    return value[0] if isinstance(value, list) else value  # type: ignore[no-any-return]


def refuse(step: str, **words: object) -> Refused:
    """That step's refusal, with other words in its message."""
    document = answer(step)
    for part in (document, *(value for value in document.values() if isinstance(value, dict))):
        for key in ("message", "faultstring"):
            if key in part and "message" in words:
                part[key] = words["message"]
    return Refused(_recorded()[step]["status"], document)


def new_id() -> str:
    """A new UUID."""
    return str(uuid.uuid4())


def like(made: Record, template: Record) -> Record:
    """The object with the template's keys, as far as it has them."""
    return {key: made[key] for key in template if key in made}


def _matches(thing: Record, key: str, wanted: list[str]) -> bool:
    if key in ("tags", "tags-any", "not-tags", "not-tags-any"):
        asked, has = {tag for text in wanted for tag in text.split(",")}, set(thing.get("tags", ()))
        found = bool(asked & has) if key.endswith("any") else asked <= has
        return found is not key.startswith("not")
    if key == "fixed_ips":
        return any(f"{name}={value}" in wanted for ip in thing["fixed_ips"] for name, value in ip.items())
    if key == "security_groups":
        return bool(set(wanted) & set(thing[key]))
    value = thing.get(key)
    if isinstance(value, bool):
        return str(value).lower() in {text.lower() for text in wanted}
    return str("" if value is None else value) in wanted


def listed(
    things: Iterable[Record],
    query: Query,
    wrong: Callable[[str], Exception],
    other: Mapping[str, Callable[[Record, list[str]], bool]] = {},
) -> tuple[list[Record], bool, bool]:
    """The page of the listing that the query asks for; whether the page is full; and whether there
    is one before it. `wrong`: the refusal of a filter that no object knows. `other`: filters beside
    the objects' own fields."""
    found = list(things)
    for key, wanted in query.items():
        if key in _PAGING:
            continue
        if found and key not in other and "tags" not in key and all(key not in thing for thing in found):
            raise wrong(key)
        check = other.get(key)
        found = [thing for thing in found if (check(thing, wanted) if check else _matches(thing, key, wanted))]
    marker, limit = query.get("marker", [""])[0], int(query.get("limit", ["0"])[0])
    if marker:
        ids = [thing["id"] for thing in found]
        if marker not in ids:
            raise wrong("marker")
        found = found[ids.index(marker) + 1 :]
    full = 0 < limit <= len(found)
    found = found[:limit] if limit else found
    if fields := query.get("fields"):
        found = [{key: thing[key] for key in fields if key in thing} for thing in found]
    return found, full, bool(marker)
