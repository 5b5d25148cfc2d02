"""`python -m cloudprovider new --diff`: what the template of this version would change in a package
that an earlier one wrote. Writes nothing.

`new` leaves a note in the package, `.cloudprovider.json`: the name, and a digest of each file as it
was written. So a file that only its owner changed is no difference. Without the note (the package
is older than it is) every file is compared.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

NOTE: Final = ".cloudprovider.json"


@frozen
class Note:
    """What `new` remembers of what it wrote."""

    name: str
    http: bool
    files: Mapping[str, str]
    """The digest of each file, by its path."""

    @classmethod
    def of(cls, name: str, http: bool, rendered: Mapping[str, str]) -> Note:
        """The note of files that are written now."""
        return cls(name, http, {path: _digest(text) for path, text in sorted(rendered.items())})

    def text(self) -> str:
        """What is in its file."""
        return json.dumps({"name": self.name, "http": self.http, "files": dict(self.files)}, indent=1) + "\n"


def read_note(folder: Path) -> Note | None:
    """The note in a package; None without one. Raises ValueError for one that cannot be read, and
    OSError."""
    try:
        found = json.loads((folder / NOTE).read_text("utf-8"))
        name, http, files = found["name"], found["http"], found["files"]
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{folder / NOTE} cannot be read: {error}") from error
    if (
        not isinstance(name, str) or not isinstance(http, bool) or not isinstance(files, dict)
        or any(path.startswith("/") or ".." in path.split("/") for path in files)  # others' files would be shown
    ):  # fmt: skip
        raise ValueError(f"{folder / NOTE} cannot be read: it has not what `new` writes")
    return Note(name, http, files)


def changes(folder: Path, note: Note | None, rendered: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(what to know, unified diff) of each file that the template of this version would change,
    from what the package has to what it would be. Raises OSError, and ValueError for a file that is
    no text."""
    was = note.files if note is not None else {}
    for path in sorted({*rendered, *was}):
        new, old = rendered.get(path), _text(folder / path)
        # The template has not changed since: whatever is different is the owner's.
        if new == old or (new is not None and was.get(path) == _digest(new)):
            continue
        if old is None and path in was:
            continue  # its owner removed it
        # To be merged by hand, so it is said first.
        yours = old is not None and was.get(path, _digest(old)) != _digest(old)
        if new is None:
            why = f"{path}: the template has it no more"
        elif old is None:
            why = f"{path}: new in the template"
        else:
            why = f"{path}: changed in the template" if note is not None else f"{path}: differs from the template"
        yield (
            f"{why}{', and by you' if yours else ''}",
            "".join(
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                for line in difflib.unified_diff(
                    (old or "").splitlines(keepends=True),
                    (new or "").splitlines(keepends=True),
                    "/dev/null" if old is None else f"a/{path}",
                    "/dev/null" if new is None else f"b/{path}",
                )
            ),
        )


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
