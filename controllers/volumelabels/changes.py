"""Stage 4: DECIDE. From a PersistentVolume and the cloud's labels of it to one patch, or to
contradictions. Labels and node affinity that are there are never changed: a user may know better.

Follows the admission plugin PersistentVolumeLabel of Kubernetes, and the
PersistentVolumeLabelController of cloud-controller-manager until 1.14, with the stable topology
keys in place of the beta ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from cloudprovider.helpers.labels import LABEL_PAIRS, label_value_to_zone_list
from cloudprovider.helpers.objects import labels_of
from cloudprovider.wellknown import LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE
from controllers.runtime.write import Patch, changed, combined

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node_selector_requirement import V1NodeSelectorRequirement
    from kubernetes.client.models.v1_node_selector_term import V1NodeSelectorTerm
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

_TOPOLOGY: Final = (LABEL_TOPOLOGY_ZONE, LABEL_TOPOLOGY_REGION)
_STABLE: Final = {beta: stable for stable, beta in LABEL_PAIRS if stable in _TOPOLOGY}


@frozen
class Labelling:
    """What is to be done about a volume: a patch (maybe empty), or contradictions."""

    patch: Patch = field(factory=Patch)
    contradictions: tuple[str, ...] = ()
    """What on the volume says otherwise than the cloud, each as a clause for people."""


def needs_labels(volume: V1PersistentVolume) -> bool:
    """Whether the cloud is asked about this volume: it has no zone label, or no node affinity.

    Volumes of CSI drivers get their topology from the driver; a deleted one needs none."""
    spec, meta = volume.spec, volume.metadata
    # A CSI driver wrote its own topology keys, which are not ours to judge.
    if spec is None or spec.csi is not None or (meta is not None and meta.deletion_timestamp is not None):
        return False
    return LABEL_TOPOLOGY_ZONE not in stable_labels(labels_of(volume)) or spec.node_affinity is None


def stable_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels with the stable keys of zone and region; a beta key replaces a missing one."""
    # Volumes made before Kubernetes 1.17 have the beta keys, and must not get the pair twice.
    plain = {key: value for key, value in labels.items() if key not in _STABLE}
    return {_STABLE[key]: value for key, value in labels.items() if key in _STABLE} | plain


def labelling(volume: V1PersistentVolume, answer: Mapping[str, str]) -> Labelling:
    """What the volume lacks of the cloud's labels, and the node affinity of its zones and region.

    Raises ValueError where the answer names an empty zone."""
    wanted, present = stable_labels(answer), stable_labels(labels_of(volume))
    topology = {key: _values(key, wanted[key]) for key in _TOPOLOGY if wanted.get(key)}
    contradictions = [
        f"its label {key} is {present[key]!r}, and the cloud says {wanted[key]!r}"
        for key in sorted(wanted.keys() & present.keys())
        if not _same(key, present[key], wanted[key])
    ]
    # It cannot be changed once it is set: what is wrong in it can only be told.
    affinity = volume.spec.node_affinity if volume.spec is not None else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else []
    contradictions += [
        f"its node affinity allows no node whose {key} is {' or '.join(map(repr, values))}, where the cloud has it"
        for key, values in topology.items()
        if terms and all(_excludes(term, key, values) for term in terms)
    ]
    # Nothing at all is written then, so that no volume ends with half of each.
    if contradictions:
        return Labelling(contradictions=tuple(contradictions))
    missing = {key: value for key, value in wanted.items() if key not in present}
    patches = [changed({}, {"metadata": {"labels": missing}})] if missing else []
    if topology and affinity is None:
        patches.append(changed({}, {"spec": {"nodeAffinity": _affinity(topology)}}))
    # One write: between two, the scheduler could bind a pod to a volume without its affinity.
    made = combined(*patches)
    return Labelling(Patch(made.body, made.content_type, versioned=True) if made else Patch())


def described(patch: Patch) -> str:
    """What a patch of `labelling` writes, for people: its labels, and any node affinity."""
    labels = patch.body.get("metadata", {}).get("labels", {})
    parts = [f"{key}={value}" for key, value in sorted(labels.items())]
    return ", ".join([*parts, "node affinity"] if "spec" in patch.body else parts)


def _affinity(topology: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    expressions = [{"key": key, "operator": "In", "values": list(values)} for key, values in topology.items()]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def _values(key: str, value: str) -> tuple[str, ...]:
    """The zones of a zone label, each once; a region is one."""
    return tuple(dict.fromkeys(label_value_to_zone_list(value))) if key == LABEL_TOPOLOGY_ZONE else (value,)


def _same(key: str, one: str, other: str) -> bool:
    """Equality of two values of a label; of zones the order does not matter."""
    if key != LABEL_TOPOLOGY_ZONE:
        return one == other
    # "a__b" is "b__a"; what a user wrote may be no list of zones at all.
    try:
        return set(_values(key, one)) == set(_values(key, other))
    except ValueError:
        return False


def _excludes(term: V1NodeSelectorTerm, key: str, values: tuple[str, ...]) -> bool:
    """Whether a term of an affinity lets no node of these zones, or this region, in."""
    return any(_denies(one, values) for one in term.match_expressions or () if _STABLE.get(one.key, one.key) == key)


def _denies(requirement: V1NodeSelectorRequirement, values: tuple[str, ...]) -> bool:
    given = set(requirement.values or ())
    match requirement.operator:
        case "In":
            return given.isdisjoint(values)
        case "NotIn":
            return given.issuperset(values)
        # Gt, Lt and Exists say nothing against a zone; and what is unknown must not forbid it.
        case operator:
            return operator == "DoesNotExist"
