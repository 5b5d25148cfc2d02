"""The labels, annotations and taints that an instance gives to its Node: one rule for the manager,
which writes them, and for `check`, which shows them. Pure."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cloudprovider.helpers.labels import (
    instance_labels,
    is_kubernetes_label,
    label_key_problems,
    label_value_problems,
)
from cloudprovider.wellknown import (
    TAINT_EFFECT_NO_EXECUTE,
    TAINT_EFFECT_NO_SCHEDULE,
    TAINT_EFFECT_PREFER_NO_SCHEDULE,
)

if TYPE_CHECKING:
    from cloudprovider.instances import InstanceMetadata, Taint

_EFFECTS: Final = (TAINT_EFFECT_NO_SCHEDULE, TAINT_EFFECT_PREFER_NO_SCHEDULE, TAINT_EFFECT_NO_EXECUTE)
_ANNOTATIONS: Final = 32 * 1024  # bytes; with our record of them twice, of 256 KiB for everybody's
_OURS: Final = "kubernetes-cloud-provider/"


def is_reserved(key: str) -> bool:
    """Whether no provider may write this key: Kubernetes' own, and the host's, which keeps its
    records there."""
    return is_kubernetes_label(key) or key.startswith(_OURS)


def wanted_labels(metadata: InstanceMetadata) -> dict[str, str]:
    """The labels that this answer asks for."""
    wanted = instance_labels(metadata.instance_type, metadata.zone, metadata.region)
    wanted.update({key: value for key, value in metadata.additional_labels.items() if not is_reserved(key)})
    return wanted


def wanted_annotations(metadata: InstanceMetadata) -> dict[str, str]:
    """The annotations that this answer asks for."""
    return {key: value for key, value in metadata.annotations.items() if not is_reserved(key)}


def wanted_taints(metadata: InstanceMetadata) -> tuple[Taint, ...]:
    """The taints that this answer asks for, once, when the node joins."""
    return tuple(taint for taint in metadata.taints if not is_reserved(taint.key))


def refused(metadata: InstanceMetadata) -> dict[str, tuple[str, ...]]:
    """What is refused for lying in a reserved namespace, by field, as sentences for people."""
    asked: dict[str, Iterable[str]] = {
        "additional_labels": metadata.additional_labels,
        "taints": dict.fromkeys(taint.key for taint in metadata.taints),
        "annotations": metadata.annotations,
    }
    return {
        name: tuple(
            f"{name}: {key!r} is reserved for Kubernetes, and not written" for key in sorted(keys) if is_reserved(key)
        )
        for name, keys in asked.items()
    }


def taint_problems(taints: Sequence[Taint]) -> list[str]:
    """What is wrong with the taints of an answer, each and all together."""
    problems = []
    for taint in taints:
        where = f"taint {reprlib.repr(str(taint))}"
        problems += [f"{where}: {fault}" for fault in label_key_problems(taint.key)]
        problems += [f"{where}: {fault}" for fault in label_value_problems(taint.value)]
        if taint.effect not in _EFFECTS:
            problems.append(f"{where}: the effect must be {', '.join(_EFFECTS[:-1])} or {_EFFECTS[-1]}")
    counts = Counter((taint.key, taint.effect) for taint in taints)
    problems += [f"there are {count} taints {key}:{effect}" for (key, effect), count in counts.items() if count > 1]
    return problems


def annotation_problems(annotations: Mapping[str, str]) -> list[str]:
    """What is wrong with the annotations of an answer, each and all together."""
    problems = [f"annotations: {fault}" for key in annotations for fault in label_key_problems(key)]
    problems += [
        f"annotations[{reprlib.repr(key)}] has a character that is no text"
        for key, value in annotations.items()
        if not _is_encodable(value)
    ]
    # As the record has them: in it a control character takes six bytes.
    size = len(json.dumps(dict(annotations), ensure_ascii=False).encode(errors="replace"))
    if size > _ANNOTATIONS:
        problems.append(f"annotations take {size} bytes as JSON, more than {_ANNOTATIONS}")
    return problems


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character of UTF-16
        return False
    return True
