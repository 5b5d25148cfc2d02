"""help() shows what each field is for: of every value that vendors build or get."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
from typing import Any

import attrs
import pytest

import cloudprovider
from cloudprovider import InstanceMetadata, helpers
from cloudprovider.helpers import Kind
from cloudprovider.internal.fields import FIELDS, documented

VALUES = sorted(
    {
        value
        for module in (cloudprovider, helpers)
        for value in [getattr(module, name) for name in module.__all__]
        if isinstance(value, type) and attrs.has(value) and not issubclass(value, Kind)
    },
    key=lambda kind: kind.__name__,
)


def test_the_values_of_the_contract_are_found_and_shown_as_in_a_signature() -> None:
    names = {kind.__name__ for kind in VALUES}
    assert {"InstanceMetadata", "Route", "Zone", "OwnedLoadBalancer", "CloudConfig", "Call", "ServicePort"} <= names
    told = InstanceMetadata.__doc__ or ""
    assert told.startswith("One instance as the cloud knows it.")
    assert "    zone: str = ''\n        Becomes the label topology.kubernetes.io/zone" in told
    assert "    additional_labels: Mapping[str, str] = dict()\n" in told


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_help_shows_each_field_with_its_text(kind: type[Any]) -> None:
    shown = pydoc.plain(pydoc.render_doc(kind))
    for one in attrs.fields(kind):
        text = inspect.getdoc(getattr(kind, one.name))
        assert text, f"{kind.__name__}.{one.name} has no text below it"
        assert text in inspect.getdoc(kind).replace("\n        ", "\n")  # type: ignore[union-attr]
        assert f"{one.name}: " in shown
    assert FIELDS in shown


def test_values_are_what_they_were_and_a_vendors_class_keeps_its_fields() -> None:
    @attrs.frozen
    class More(InstanceMetadata):
        rack: str = ""

    value = InstanceMetadata(zone="north-1")
    assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == attrs.evolve(value)
    with pytest.raises(AttributeError):
        value.zone = "south-1"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        value.other = 1  # type: ignore[attr-defined]
    assert More(zone="a", rack="b") == More(zone="a", rack="b")
    assert [one.name for one in attrs.fields(More)][-1] == "rack"


def test_without_the_source_the_docstring_is_the_classs_own() -> None:
    space: dict[str, Any] = {"attrs": attrs, "documented": documented}
    exec("@documented\n@attrs.frozen\nclass Lone:\n    'Its own text.'\n    name: str = ''\n", space)
    assert space["Lone"].__doc__ == "Its own text."
    assert inspect.getdoc(space["Lone"].name) in (None, "")
