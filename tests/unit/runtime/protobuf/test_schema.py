"""The schema is complete, compiled, and says the same as Kubernetes' own files, and the tables of
what JSON shows say the same as the tags of Go's types."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from pydantic import BaseModel

from controllers.runtime.cache.resources import (
    ENDPOINT_SLICES,
    LEASES,
    NODES,
    PERSISTENT_VOLUMES,
    SERVICES,
    Resource,
)
from controllers.runtime.protobuf.reading import ALWAYS_SHOWN, INLINE, POINTERS, SHOWN_UNLESS_ZERO
from controllers.runtime.protobuf.schema import message_class
from tests.generate import PROTO, compiled_schema
from tests.support.gomodules import module

LEFT_OUT = {
    "ObjectMeta": {"managedFields"},
    "NodeSpec": {"configSource"},
    "NodeStatus": {
        "images", "volumesInUse", "volumesAttached", "config", "runtimeHandlers", "features", "declaredFeatures",
    },
    "ListMeta": {"shardInfo"},
    "Endpoint": {"hostname", "targetRef", "deprecatedTopology", "hints"},
}  # fmt: skip
SOURCES = {
    "k8s.io.api.discovery.v1": ("k8s.io/api", "discovery/v1"),
    "k8s.io.api.core.v1": ("k8s.io/api", "core/v1"),
    "k8s.io.api.coordination.v1": ("k8s.io/api", "coordination/v1"),
    "k8s.io.apimachinery.pkg.apis.meta.v1": ("k8s.io/apimachinery", "pkg/apis/meta/v1"),
}
HOMES = (*(f"k8s.io.apimachinery.pkg.{name}" for name in ("runtime", "api.resource", "util.intstr")), *SOURCES)
"""Packages, in the order in which a message's name is looked for: TypeMeta is that of `runtime`."""
OWN = {"ObjectList", "ListEnvelope", *(f"Whole{name}" for name in ("Node", "ObjectMeta", "Entry", "NodeSpec", "Taint"))}
"""Messages that Kubernetes has under other names, or with other types of the same wire form."""


def ours() -> dict[str, DescriptorProto]:
    file = FileDescriptorProto.FromString(PROTO.with_suffix(".binpb").read_bytes())
    return {message.name: message for message in file.message_type}


def fields(message: DescriptorProto) -> dict[str, tuple[Any, ...]]:
    """Number, label and type of each field; a message's type by the last part of its name."""
    entries = {entry.name: entry for entry in message.nested_type}
    found: dict[str, tuple[Any, ...]] = {}
    for field in message.field:
        kind = field.type_name.rpartition(".")[2]
        inner = fields(entries[kind]) if kind in entries else kind
        found[field.name] = (field.number, field.label, field.type, inner)
    return found


def test_the_compiled_schema_is_that_of_the_source() -> None:
    assert FileDescriptorProto.FromString(PROTO.with_suffix(".binpb").read_bytes()) == FileDescriptorProto.FromString(
        compiled_schema()
    ), "run `make generate`"


def test_only_the_entries_of_maps_have_options() -> None:
    """`reading.py` tells maps so: asking for the options themselves imports what it costs."""
    todo = [message_class("Node").DESCRIPTOR.file.message_types_by_name]
    found = 0
    while todo:
        for message in todo.pop().values():
            assert message.has_options == message.GetOptions().map_entry, message.full_name
            found += message.has_options
            todo.append(message.nested_types_by_name)
    assert found


@pytest.mark.parametrize(
    "resource", [NODES, SERVICES, PERSISTENT_VOLUMES, LEASES, ENDPOINT_SLICES], ids=lambda one: one.kind
)
def test_every_field_of_a_model_is_there(resource: Resource[Any]) -> None:
    """What the models of the official client know, and trimming does not drop, is read."""
    seen: set[type] = set()
    todo: list[tuple[type[BaseModel], str]] = [(resource.model, resource.kind)]
    while todo:
        model, name = todo.pop()
        if model in seen:
            continue
        seen.add(model)
        described = dict(message_class(name).DESCRIPTOR.fields_by_name)
        if name == INLINE[0]:
            described |= described.pop(INLINE[1]).message_type.fields_by_name
        known = {_shown(field_name, field): field for field_name, field in model.model_fields.items()}
        outermost = {"kind", "apiVersion"} if model is resource.model else set()
        assert described.keys() == known.keys() - outermost - LEFT_OUT.get(name, set()), name
        for shown in described.keys() & known.keys():
            kind = described[shown].message_type
            if kind is not None and kind.GetOptions().map_entry:
                kind = kind.fields_by_name["value"].message_type
            todo += [(one, kind.name) for one in _models(known[shown].annotation)]


def _shown(name: str, field: Any) -> str:
    """The field's name in JSON."""
    return str(field.validation_alias.choices[0]) if field.validation_alias else name


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def test_every_message_is_kubernetes_own(tmp_path: Path) -> None:
    """Names, numbers and types; skipped where the Go modules are not on the machine."""
    out = tmp_path / "set"
    api, machinery = module("k8s.io/api"), module("k8s.io/apimachinery")
    files = [f"{name}/{folder}/generated.proto" for name, folder in SOURCES.values()]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-Ik8s.io/api={api}", f"-Ik8s.io/apimachinery={machinery}"]
    subprocess.run([*command, "--include_imports", f"--descriptor_set_out={out}", *files], check=True)
    theirs = {
        (file.package, message.name): fields(message)
        for file in FileDescriptorSet.FromString(out.read_bytes()).file
        for message in file.message_type
    }
    checked = 0
    for name, message in ours().items():
        if name in OWN:
            continue
        mine = fields(message)
        (home, *_) = [package for package in HOMES if (package, name) in theirs]
        its = theirs[home, name]
        assert mine == {field: what for field, what in its.items() if field in mine}, name
        assert its.keys() - mine.keys() <= LEFT_OUT.get(name, set()), name
        checked += 1
    assert checked > 60


def test_what_json_shows_is_what_gos_tags_say() -> None:
    """The tables of `reading.py`; skipped where the Go modules are not on the machine."""
    always: dict[str, set[str]] = {}
    pointers: dict[str, set[str]] = {}
    unless_zero: dict[str, set[str]] = {}
    described = ours()
    for name, number, go_type, tag in _go_fields():
        fields_here = described[name].field if name in described and name != "TypeMeta" else ()
        found = [field for field in fields_here if field.number == number]
        if not found or (name, found[0].name) == INLINE:
            continue
        field = found[0]
        shown, *options = tag.split(",")
        assert shown == field.name
        scalar = field.type != field.TYPE_MESSAGE and field.label != field.LABEL_REPEATED
        if not {"omitempty", "omitzero"} & set(options):
            always.setdefault(name, set()).add(shown)
        if go_type.startswith("*") and scalar:
            pointers.setdefault(name, set()).add(shown)
        if "omitzero" in options:
            unless_zero.setdefault(name, set()).add(shown)
    assert always == {name: set(shown.split()) for name, shown in ALWAYS_SHOWN.items()}
    assert pointers == {name: set(shown.split()) for name, shown in POINTERS.items()}
    assert unless_zero == {name: set(shown.split()) for name, shown in SHOWN_UNLESS_ZERO.items()}


_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'(\S+)\s+`.*?json:"([^"]*)".*?protobuf:"\w+,(\d+),')


def _go_fields() -> Iterator[tuple[str, int, str, str]]:
    """Struct, number, type and JSON tag of each field; of structs of one name the first, as in
    HOMES."""
    seen: set[str] = set()
    for name, folder in SOURCES.values():
        for struct, body in _STRUCT.findall((module(name) / folder / "types.go").read_text()):
            if struct in seen:
                continue
            seen.add(struct)
            for line in body.splitlines():
                if not line.strip().startswith("//") and (match := _FIELD.search(line)):
                    yield struct, int(match[3]), match[1], match[2]


THREADS = """
import sys, threading
sys.setswitchinterval(1e-6)
together, errors = threading.Barrier(8), []

def read():
    together.wait()
    try:
        from controllers.runtime.protobuf.reading import read_object
        for kind in ("Node", "Service", "Lease"):
            read_object(kind, bytes([10, 3, 10, 1, 110]))
    except Exception as error:
        errors.append(error)

threads = [threading.Thread(target=read) for _ in range(8)]
for one in threads:
    one.start()
for one in threads:
    one.join()
sys.exit(repr(errors) if errors else 0)
"""


def test_informers_that_read_their_first_list_together_have_the_same_messages() -> None:
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
