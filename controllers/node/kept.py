"""Stage 4: DECIDE. Which labels and annotations of a node are ours, and what is written of them.
Pure: no I/O, no clock.

The proof is `Known`: what the cloud asked for on this node while this process ran. The record, an
annotation on the node for the next process, is only a hint: its kubelet may write it, and so may
everyone who may annotate the node. It is read once, when a process first compares the node with the
cloud, and only two things follow from it: a label that the cloud asks for on this very node takes
the cloud's present value, or an additional label stays away. A label known only from the record is
never removed, and no label of kubernetes.io or k8s.io is touched but the six of instance type, zone
and region (NodeRestriction lets a kubelet set those itself).

A label is written when it is absent, or when it still has the value that we wrote. Any other value
is kept. Instance type, zone and region are written again after they were removed; an additional
label stays away until the cloud asks for another value. Only while the node carries the
uninitialized taint, instance type, zone and region replace other values, as in the Go controller.

Annotations of the provider are kept by the rules of additional labels, with a record of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from cloudprovider.checks.nodelabels import is_reserved, wanted_annotations, wanted_labels
from cloudprovider.helpers.labels import LABEL_PAIRS, missing_twins
from cloudprovider.helpers.objects import annotations_of, labels_of
from controllers.runtime.write import Patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import InstanceMetadata

APPLIED_LABELS: Final = "kubernetes-cloud-provider/applied-labels"
"""Annotation on nodes: the labels that this controller wrote, as a JSON object. Never changes."""

APPLIED_ANNOTATIONS: Final = "kubernetes-cloud-provider/applied-annotations"
"""The same of annotations. Never changes."""

PAIRED: Final = frozenset(key for pair in LABEL_PAIRS for key in pair)
"""Instance type, zone and region: the stable keys and their deprecated labels."""


@frozen
class Known:
    """What this process knows of one node's labels, or of its annotations."""

    written: Mapping[str, str]
    """Value of each one that is ours, as the cloud asked for it; the record holds the same."""
    added: frozenset[str] = frozenset()
    """The additional ones among them that the cloud asked for while this process ran. Only those
    may be removed."""
    annotations: Known | None = None
    """Of the labels: the same of the node's annotations; None where the cloud never had any."""


@frozen
class Kept:
    """What is written of labels and annotations, and what is known of them after that."""

    patch: Patch
    known: Known
    replaced: Mapping[str, tuple[str, str]]
    """Labels that somebody else gave to a new node: their value, and the cloud's."""


def kept(node: V1Node, metadata: InstanceMetadata, known: Known | None, *, new: bool) -> Kept:
    """What a node gets of the labels and annotations that the cloud asks for, and the records of
    what is ours then. `new`: it has only joined. `known`: what this process knew of it before, None
    when it never compared it with the cloud."""
    rule = _first if new else _followed
    there, written = labels_of(node), _written(node, known, APPLIED_LABELS)
    labels = rule(there, wanted_labels(metadata), written, known, silent=not metadata.additional_labels)
    # Not what the cloud says alone: a pair that a user or a kubelet wrote in part agrees then, too.
    labels.changed.update(missing_twins({key: v for key, v in {**there, **labels.changed}.items() if v is not None}))
    annotations = None
    noted_before = known.annotations if known else None
    # Most nodes have none, nor had.
    if metadata.annotations or noted_before is not None or APPLIED_ANNOTATIONS in annotations_of(node):
        there, written = annotations_of(node), _written(node, noted_before, APPLIED_ANNOTATIONS)
        asked = wanted_annotations(metadata)
        annotations = rule(there, asked, written, noted_before, silent=not metadata.annotations)
    noted = dict(annotations.changed) if annotations else {}
    for record, part in ((APPLIED_LABELS, labels), (APPLIED_ANNOTATIONS, annotations)):
        if part is None:
            continue
        ours = dict(part.known.written)
        if ours != recorded(node, record):
            # Letters as they are: as escapes they would take up to three times the bytes.
            text = json.dumps(ours, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            noted[record] = text if ours else None
    meta = {name: dict(changed) for name, changed in (("labels", labels.changed), ("annotations", noted)) if changed}
    # Versioned: what is written depends on the present labels, which may just have been changed.
    patch = Patch({"metadata": meta}, versioned=True) if meta else Patch()
    after = evolve(labels.known, annotations=annotations.known) if annotations else labels.known
    return Kept(patch, after, labels.replaced)


def recorded(node: V1Node, record: str = APPLIED_LABELS) -> dict[str, str]:
    """The labels that we wrote on this node, from its annotation; {} if missing or spoilt. Or the
    annotations: `record` says which."""
    # Its kubelet may write it: whatever cannot be read is no record, and never an error.
    raw = annotations_of(node).get(record)
    try:
        found = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):  # brackets nest as deep as a kubelet likes
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): value for key, value in found.items() if isinstance(value, str)}


@frozen
class _Part:
    """The same of the labels, or of the annotations."""

    changed: dict[str, str | None]
    known: Known
    replaced: Mapping[str, tuple[str, str]] = field(factory=dict)


def _first(
    there: Mapping[str, str], asked: Mapping[str, str], written: Mapping[str, str], known: Known | None, silent: bool
) -> _Part:
    """What of one kind a node that joins gets. For it an answer that is `silent` says enough."""
    changed: dict[str, str | None] = {}
    replaced = {}
    ours = {} if known is None else {key: value for key, value in written.items() if key not in asked}
    for key, value in asked.items():
        present = there.get(key)
        # A kubelet may start with --node-labels of its own; of type, zone and region the cloud
        # knows better, as in Go.
        if key in PAIRED or present in (None, written.get(key)):
            ours[key] = value
            if present != value:
                changed[key] = value
                if present is not None and present != written.get(key):
                    replaced[key] = (present, value)
    return _Part(changed, _known(ours, asked, known), replaced)


def _followed(
    there: Mapping[str, str], asked: Mapping[str, str], written: Mapping[str, str], known: Known | None, silent: bool
) -> _Part:
    """What of one kind an initialised node gets. `silent`: the cloud says nothing of additional
    ones."""
    changed: dict[str, str | None] = {}
    ours: dict[str, str] = {}
    for key, value in asked.items():
        present, last = there.get(key), written.get(key)
        if present == value:
            if last is not None or key in PAIRED:
                ours[key] = value
        elif present is None:
            ours[key] = value
            if key in PAIRED or last != value:
                changed[key] = value
            # else: an additional one that was removed since stays away
        elif present == last:
            changed[key] = ours[key] = value
        elif last is not None:
            ours[key] = last  # another value is there; should it go, ours counts as removed
    for key, last in written.items():
        if key in asked:
            continue
        if key in PAIRED or silent:
            ours[key] = last  # an empty answer erases nothing
        elif known is not None and key in known.added and there.get(key) == last:
            changed[key] = None  # the cloud asked for it, asks no more, and it still is as we wrote it
    return _Part(changed, _known(ours, asked, known))


def _written(node: V1Node, known: Known | None, record: str) -> Mapping[str, str]:
    """What we wrote, from this process's memory; from the record if it never compared the node."""
    if known is not None:
        return known.written
    return {key: value for key, value in recorded(node, record).items() if key in PAIRED or not is_reserved(key)}


def _known(ours: Mapping[str, str], asked: Mapping[str, str], known: Known | None) -> Known:
    before = known.added if known is not None else frozenset()
    return Known(ours, frozenset(key for key in ours if key not in PAIRED and (key in asked or key in before)))
