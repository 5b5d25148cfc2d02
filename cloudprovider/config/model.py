"""ProviderConfig: the class that a vendor's configuration derives from, and how it is loaded.

The file's values come from `documents.py`; variables of the environment go over them; pydantic
checks the whole, and its errors become lines that name file and line, or the variable. Values
themselves are never quoted: they may be secrets.
"""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Secret, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from cloudprovider.cloudconfig import CloudConfig
from cloudprovider.config.documents import Document, DocumentError, Place, parse
from cloudprovider.config.watcher import ConfigWatcher
from cloudprovider.errors import ConfigUnreadable, InvalidConfig
from cloudprovider.internal.cleaning import conceal
from cloudprovider.internal.configsecrets import values_of_secret
from cloudprovider.internal.problem import nearest
from cloudprovider.kinds import Duration, ListOf

_LISTS = (list, tuple, set, frozenset)


class _Seconds(Duration):
    described = f"{Duration.described}, or a number of seconds"

    def number(self, text: str) -> float:
        try:
            return float(text) if text.replace(".", "", 1).isdecimal() else super().number(text)
        except ValueError:
            raise self.refusal() from None


Seconds = Annotated[float, _Seconds()]
"""A number of seconds, written as a number or as Go writes durations: 90, 1m30s."""


class ProviderConfig(BaseModel):
    """A vendor's configuration: fields with types, checked as pydantic does, frozen. Unknown fields
    are refused.

    Use `pydantic.SecretStr` for secrets: they show as asterisks in repr and logs, and the manager
    masks what they hold in all that it shows, wherever they come from; `get_secret_value()` gives
    the text. Fields that are models themselves should derive from this
    class too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)

    env_prefix: ClassVar[str] = ""
    """How variables of the environment begin: with "ACME_", ACME_REGION is the field `region`,
    ACME_TOKEN_FILE names a file with the field `token`, and ACME_LIMITS__BURST is the field `burst`
    of `limits`. Empty: none is read."""

    @classmethod
    def load(cls, source: CloudConfig | None = None, *, environ: Mapping[str, str] | None = None) -> Self:
        """The configuration from the file of --cloud-config (None, or an empty one: no file) and
        the environment, which counts more; `environ` takes the place of `os.environ`.

        What its secrets hold is masked from now on. A variable that is empty counts as not set.
        Lists and objects are JSON there, or in INI too, lists with commas. Raises `InvalidConfig`
        with every problem: file and line, or variable; field; what is allowed.
        """
        reader = _Reader(cls, source, os.environ if environ is None else environ)
        values = reader.read()
        problems = reader.problems
        try:
            made = cls.model_validate(values)
        except ValidationError as error:
            # A validator of the provider's may quote what it refuses.
            conceal((one for secret in _given_secrets(cls, values) for one in values_of_secret(secret)), loaded=True)
            found = error.errors(include_url=False, include_input=False)
            problems += [reader.line_of(one) for one in found if not reader.is_known(one)]
        else:
            # A file that could not be read is a problem, even where every field has a default.
            if not problems:
                conceal((one for secret in _secrets(made) for one in values_of_secret(secret)), loaded=True)
                return made
        # A union of types tells one mistake once for each of them.
        raise InvalidConfig(*dict.fromkeys(problems))

    @classmethod
    def config_files(
        cls, source: CloudConfig | None = None, *, environ: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """The files that `load` reads: that of --cloud-config, and those of secrets."""
        given = os.environ if environ is None else environ
        own = (source.path,) if source is not None and source.path else ()
        names = [f"{name}_FILE" for name, _, _ in _variables(cls, cls.env_prefix)] if cls.env_prefix else []
        return (*own, *(given[name] for name in names if given.get(name)))

    def watcher(
        self,
        source: CloudConfig | None,
        changed: Callable[[Self], object],
        *,
        environ: Mapping[str, str] | None = None,
        period: float = 5.0,
    ) -> ConfigWatcher[Self]:
        """What loads this configuration again when a file of it changes, and calls `changed` with
        the new one. Start it in `Interface.initialize`; see `ConfigWatcher`. `source` and `environ`
        are those that it was loaded from."""
        files = self.config_files(source, environ=environ)
        return ConfigWatcher(self, files, partial(self._again, source, environ), changed, period=period)

    def _again(self, source: CloudConfig | None, environ: Mapping[str, str] | None) -> Self:
        # The file's own text, as it is now: a Secret's mount turns to another folder.
        again = source.read_again() if source is not None and source.path else source
        return type(self).load(again, environ=environ)

    @classmethod
    def json_schema(cls) -> str:
        """The JSON Schema of the file, for editors and for the values of a chart. Ends with a
        newline."""
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **cls.model_json_schema()}
        return json.dumps(schema, indent=2) + "\n"

    @classmethod
    def markdown_table(cls) -> str:
        """The fields as a table in Markdown, for the vendor's docs: name, variable, default,
        meaning. Ends with a newline."""
        rows = ["| field | variable | default | meaning |", "|---|---|---|---|"]
        for name, place, info in _variables(cls, cls.env_prefix):
            default = "required" if info.is_required() else _shown(info)
            variable = f"`{name}`" if cls.env_prefix else ""
            cells = (f"`{'.'.join(place)}`", variable, default, " ".join((info.description or "").split()))
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        return "\n".join(rows) + "\n"


class _Reader:
    """One reading: what stands where, for the messages. Not shared."""

    def __init__(self, model: type[ProviderConfig], source: CloudConfig | None, environ: Mapping[str, str]) -> None:
        self._model = model
        self._source = source
        self._environ = environ
        self._document = Document()
        self._from: dict[Place, str] = {}  # the variable that each value came from
        self._unread: set[Place] = set()  # what a file would hold that cannot be read; () for the config file
        self.problems: list[str] = []

    def is_known(self, error: Any) -> bool:
        """Whether it only follows from what could not be read."""
        return error["type"] == "missing" and bool(self._unread & {(), tuple(error["loc"])})

    def read(self) -> dict[str, Any]:
        """The values, file and environment together; what cannot be read is among the problems."""
        if self._source is not None and self._source.data:
            try:
                self._document = parse(self._source.text(), self._source.path)
            except ConfigUnreadable as error:
                self.problems.append(str(error))
                self._unread.add(())
            except DocumentError as error:
                self._unread.add(())
                self.problems += [f"{self._place(line)}: {text}" for line, text in error.problems]
        values = self._document.values
        if self._document.plain:
            lines: dict[Place, int] = {}
            # Of INI alone, whose values are all texts under names in any case.
            values = self._fitted(self._model, values, (), (), lines)
            self._document = Document(values, lines, plain=True)
        if self._model.env_prefix:
            for name, place, info in _variables(self._model, self._model.env_prefix):
                text = self._variable(name, place)
                if text is not None:
                    _put(values, place, _meant(info.annotation, text))
        return values

    def _variable(self, name: str, place: Place) -> str | None:
        text, path = self._environ.get(name, ""), self._environ.get(f"{name}_FILE", "")
        # Two answers to one question: which of them counts nobody would remember.
        if text and path:
            self.problems.append(f"{name}: is set, and so is {name}_FILE: set one of them")
        elif path:
            try:
                text = Path(path).read_text(encoding="utf-8").strip("\r\n")
            except (OSError, ValueError) as error:
                why = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8 text"
                self.problems.append(f"{name}_FILE: cannot read {path}: {why}")
                # So that the field is not called missing as well: one mistake, one line.
                self._unread.add(place)
        if text:
            self._from[place] = f"{name}_FILE" if path else name
        return text or None

    def _fitted(
        self, model: Any, values: Mapping[str, Any], was: Place, place: Place, lines: dict[Place, int]
    ) -> dict[str, Any]:
        """INI's values under the names of the fields, whatever case and dashes they are written
        with, as their types want them. Notes their lines under the new names. A name that is
        written in two ways is a problem: one of the two would be lost."""
        fields: dict[str, FieldInfo] = model.model_fields if _is_model(model) else {}
        named = {_plain(name): name for name in fields}
        # A section with a name in quotes is an entry of a mapping: of models, maybe.
        below = (get_args(model) or (Any,))[-1]
        fitted: dict[str, Any] = {}
        for written, value in values.items():
            name = named.get(_plain(written), written)
            info = fields.get(name)
            line = self._document.lines.get((*was, written), 0)
            if name in fitted:
                before = lines[*place, name]
                self.problems.append(f"{self._place(line)}: {written}: is written in another way in line {before}")
            lines[*place, name] = line
            kind = _bare(info.annotation) if info is not None else below
            if isinstance(value, dict):
                fitted[name] = self._fitted(kind, value, (*was, written), (*place, name), lines)
            else:
                fitted[name] = _meant(kind, value) if isinstance(value, str) else value
        return fitted

    def line_of(self, error: Any) -> str:
        """One of pydantic's errors as a line for people."""
        place: Place = tuple(error["loc"])
        shown = _dotted(place)
        message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
        # It has no line: what names it is how it could be given.
        if error["type"] == "missing":
            names = [name for name, at, _ in _variables(self._model, self._model.env_prefix) if at == place]
            instead = f" (or {names[0]}, {names[0]}_FILE)" if names and self._model.env_prefix else ""
            return f"{self._file()}{shown}: is required{instead}"
        if error["type"] == "extra_forbidden":
            known = self._names(place[:-1])
            near = nearest(str(place[-1]), known)
            message = f"unknown field; did you mean {near}?" if near else f"unknown field; known: {', '.join(known)}"
        for end in range(len(place), 0, -1):
            if place[:end] in self._from:
                return f"{self._from[place[:end]]}: {message}"
        line = next(filter(None, (self._document.lines.get(place[:end]) for end in range(len(place), 0, -1))), 0)
        where = f"{self._place(line)}: " if line or self._document.values else self._file()
        return f"{where}{shown}: {message}" if shown else f"{where}{message}"

    def _names(self, place: Place) -> list[str]:
        model: Any = self._model
        for part in place:
            if _is_model(model) and part in model.model_fields:
                model = _bare(model.model_fields[str(part)].annotation)
            else:  # an entry of a list, or of a mapping
                model = next((one for one in get_args(model) if _is_model(one)), None)
        return sorted(model.model_fields) if _is_model(model) else []

    def _place(self, line: int) -> str:
        name = (self._source.path if self._source is not None else "") or "the cloud config"
        return f"{name}, line {line}" if line else name

    def _file(self) -> str:
        return f"{self._source.path}: " if self._source is not None and self._source.path else ""


def _secrets(value: object) -> Iterator[str]:
    """The texts of all secrets in a configuration."""
    if isinstance(value, SecretStr | SecretBytes | Secret):
        held: object = value.get_secret_value()
        yield held.decode("utf-8", "replace") if isinstance(held, bytes) else str(held)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _secrets(one)


def _given_secrets(model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[str]:
    """The texts that are given for fields that are secret, in what is no configuration yet."""
    for _, place, info in _variables(model, ""):
        kind, given = _bare(info.annotation), values
        if isinstance(kind, type) and issubclass(kind, SecretStr | SecretBytes):
            for part in place[:-1]:
                below = given.get(part)
                given = below if isinstance(below, Mapping) else {}
            yield str(given.get(place[-1], ""))


def _variables(
    model: type[BaseModel], prefix: str, place: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...], FieldInfo]]:
    """(variable, place, field) of every field, those of models in it included."""
    for name, info in model.model_fields.items():
        kind = _bare(info.annotation)
        variable, here = f"{prefix}{name.upper()}", (*place, name)
        if _is_model(kind):
            yield from _variables(kind, f"{variable}__", here)
        else:
            yield variable, here, info


def _bare(annotation: Any) -> Any:
    """The type without `| None` and Annotated."""
    while True:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            annotation = arguments[0]
        elif origin in (Union, types.UnionType):
            some = [one for one in arguments if one is not type(None)]
            if len(some) != 1:
                return annotation
            annotation = some[0]
        else:
            return annotation


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _meant(annotation: Any, text: str) -> object:
    """What a text stands for in a field of this type: JSON or a comma-separated list for lists,
    JSON for mappings."""
    kind = _bare(annotation)
    origin = get_origin(kind) or kind
    is_list = origin in (*_LISTS, Sequence)
    if not (is_list or origin in (dict, Mapping) or _is_model(origin)):
        return text
    try:
        found: object = json.loads(text) if text.lstrip()[:1] in ("[", "{") else ListOf.parts(text) if is_list else text
    except (ValueError, RecursionError):
        return text  # refused by the field's type
    return found


def _put(values: dict[str, Any], place: tuple[str, ...], value: object) -> None:
    for part in place[:-1]:
        below = values.get(part)
        if below is not None and not isinstance(below, dict):
            return  # it stays in the place of an object, so that it is refused and not lost
        values[part] = values = dict(below or {})
    values[place[-1]] = value


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _dotted(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _shown(info: FieldInfo) -> str:
    default = info.default
    empty = info.default_factory is not None or default in (None, "", (), [], frozenset())
    return "" if empty else f"`{default}`"
