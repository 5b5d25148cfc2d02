"""Reads a configuration file, JSON or YAML, and tells all of its problems at once (before stage 5 begins).

Every entry of a list and every section is checked by itself, so one bad field hides nothing of the rest; what then
still spans several entries, such as a name taken twice, is checked over those that are well.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_origin, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError
from yaml.nodes import MappingNode, ScalarNode

from cloudprovider.testing.fake.config import FakeConfig
from cloudprovider.testing.fake.errors import FakeConfigError
from cloudprovider.testing.fake.expand import expand
from cloudprovider.testing.fake.problems import pydantic_problems

__all__ = ["check_config", "parse_config", "read_config"]

_SafeLoader: Any = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # the C one reads 5,000 instances in a tenth of the time


class _Loader(_SafeLoader):  # type: ignore[misc]  # the base is chosen at run time
    """Safe YAML that remembers keys given twice, of which plain YAML would silently keep the last."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.doubles: list[str] = []

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, ScalarNode):
                if key.value in seen:
                    self.doubles.append(f"line {key.start_mark.line + 1}: {key.value!r} is given twice")
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def read_config(data: bytes, source: str = "") -> FakeConfig:
    """The configuration in a file's bytes; an empty file gives the defaults. Raises `FakeConfigError`.

    `source` names the file in the error. A YAML error is told by its place, without quoting the text.
    """
    loader: _Loader | None = None
    try:
        loader = _Loader(data.decode("utf-8-sig"))
        raw = loader.get_single_data()
    except UnicodeDecodeError as error:
        raise FakeConfigError([f"byte {error.start + 1}: the file is not UTF-8"], source) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise FakeConfigError([f"{where}{error.problem or 'this is neither JSON nor YAML'}"], source) from None
    except yaml.YAMLError:
        raise FakeConfigError(["the file is neither JSON nor YAML"], source) from None
    finally:
        if loader is not None:
            loader.dispose()
    return parse_config({} if raw is None else raw, source, loader.doubles)


def parse_config(raw: object, source: str = "", problems: list[str] | None = None) -> FakeConfig:
    """The configuration in parsed JSON or YAML. Raises `FakeConfigError`. `problems` are those found before."""
    problems = list(problems or ())
    if not isinstance(raw, Mapping):
        raise FakeConfigError([*problems, "the file must hold fields with values"], source)
    good: dict[str, Any] = {}
    places: dict[str, list[int]] = {}
    for name, value in raw.items():
        adapter = _adapters().get(str(name))
        if adapter is None:
            problems.append(f"{name}: no such field")
        elif isinstance(value, list) and get_origin(FakeConfig.model_fields[name].annotation) is tuple:
            kept = _items(name, adapter, value, problems)
            good[name] = tuple(kept.values())
            places[name] = list(kept)
        elif value is not None:
            try:
                good[name] = adapter.validate_python(value)
            except ValidationError as error:
                problems += pydantic_problems(error, name)
    config = FakeConfig.model_construct(**good)
    problems += expand(config, places).problems
    if problems:
        raise FakeConfigError(problems, source)
    return config


def check_config(config: FakeConfig) -> None:
    """Check what spans several entries of a configuration made in Python. Raises `FakeConfigError`."""
    if problems := expand(config).problems:
        raise FakeConfigError(problems)


@lru_cache(maxsize=1)
def _adapters() -> Mapping[str, TypeAdapter[Any]]:
    """What checks each field by itself."""
    hints = get_type_hints(FakeConfig, include_extras=True)
    return {name: TypeAdapter(hints[name]) for name in FakeConfig.model_fields}


def _items(name: str, adapter: TypeAdapter[Any], values: list[Any], problems: list[str]) -> dict[int, Any]:
    """The entries of a list that are well, by their place."""
    kept: dict[int, Any] = {}
    for place, value in enumerate(values):
        try:
            kept[place] = adapter.validate_python([value])[0]
        except ValidationError as error:
            # The entry stands at place 0 of the list of one that was checked.
            problems += [f"{name}[{place}]{line.removeprefix('[0]')}" for line in pydantic_problems(error)]
    return kept
