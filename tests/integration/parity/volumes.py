"""PersistentVolumes: defaults, the protection finalizer, validation, status."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, delete, get, merge, post, strategic

VOLUMES = "/api/v1/persistentvolumes"
CSI = {"csi": {"driver": "a.b", "volumeHandle": "v"}}


def volume(name: str, source: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A PersistentVolume to send."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        **(CSI if source is None else source),
        **spec,
    }
    return {"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


def expression(key: str, *values: str) -> dict[str, Any]:
    """One requirement of an affinity."""
    return {"key": key, "operator": "In", "values": list(values)}


def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    """A patch that sets the whole affinity."""
    terms = [{"matchExpressions": list(expressions)}]
    return {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}


SCENARIOS = [
    Scenario(
        "volumes: defaults, protection, sources",
        [
            post(VOLUMES, {**volume("vp-csi"), "status": {"phase": "Bound"}}, expect=201),
            post(VOLUMES, volume("vp-host", {"hostPath": {"path": "/x"}}), expect=201),
            post(
                VOLUMES,
                volume("vp-aws", {"awsElasticBlockStore": {"volumeID": "vol-1"}}, storageClassName="fast"),
                expect=201,
            ),
            post(
                VOLUMES,
                volume("vp-gce", {"gcePersistentDisk": {"pdName": "d"}}, persistentVolumeReclaimPolicy="Delete"),
                expect=201,
            ),
            post(VOLUMES, volume("vp-nfs", {"nfs": {"server": "s", "path": "/"}}, volumeMode="Block"), expect=201),
            post(VOLUMES, volume("vp-ref", claimRef={"namespace": "default", "name": "c"}), expect=201),
            get(VOLUMES, query={"fieldSelector": "metadata.name=vp-aws"}),
            delete(f"{VOLUMES}/vp-csi", expect=200),
            get(f"{VOLUMES}/vp-csi", expect=200),
            merge(f"{VOLUMES}/vp-csi", {"metadata": {"finalizers": None}}, expect=200),
            get(f"{VOLUMES}/vp-csi", expect=404),
        ],
        [f"{VOLUMES}/{name}" for name in ("vp-csi", "vp-host", "vp-aws", "vp-gce", "vp-nfs", "vp-ref")],
    ),
    Scenario(
        "volumes that are refused",
        [
            post(VOLUMES, volume("Vp_Bad"), expect=422),
            post(VOLUMES, volume("vp-bad", {}), expect=422),
            post(VOLUMES, volume("vp-bad", accessModes=[]), expect=422),
            post(VOLUMES, volume("vp-bad", accessModes=["Sometimes"]), expect=422),
            post(VOLUMES, volume("vp-bad", capacity={}), expect=422),
            post(VOLUMES, volume("vp-bad", capacity={"storage": "0"}), expect=422),
            post(VOLUMES, volume("vp-bad", persistentVolumeReclaimPolicy="Burn"), expect=422),
            post(VOLUMES, volume("vp-bad", volumeMode="Odd"), expect=422),
            post(VOLUMES, volume("vp-bad", {"csi": {"driver": "", "volumeHandle": ""}}), compare="outcome", expect=422),
            post(VOLUMES, volume("vp-bad", {"local": {"path": "/x"}}), expect=422),
            post(VOLUMES, volume("vp-bad", storageClassName="A B"), expect=422),
            post(VOLUMES, volume("vp-bad", nodeAffinity={"required": {"nodeSelectorTerms": []}}), expect=422),
        ],
        [f"{VOLUMES}/vp-bad"],
    ),
    Scenario(
        "volumes: labels, affinity, immutable source, status",
        [
            post(VOLUMES, volume("vp-labels")),
            merge(f"{VOLUMES}/vp-labels", {"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}}, expect=200),
            strategic(
                f"{VOLUMES}/vp-labels",
                {
                    "spec": {
                        "nodeAffinity": {
                            "required": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}
                                        ]
                                    }
                                ]
                            }
                        }
                    }
                },
                expect=200,
            ),
            post(
                VOLUMES,
                {
                    **volume(
                        "vp-old",
                        persistentVolumeReclaimPolicy="Recycle",
                        nodeAffinity={
                            "required": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {
                                                "key": "failure-domain.beta.kubernetes.io/zone",
                                                "operator": "In",
                                                "values": ["z"],
                                            },
                                            {"key": "a", "operator": "Exists"},
                                        ]
                                    }
                                ]
                            }
                        },
                        source={"nfs": {"server": "s", "path": "/"}},
                    ),
                    "metadata": {
                        "name": "vp-old",
                        "annotations": {
                            "volume.beta.kubernetes.io/storage-class": "x",
                            "volume.beta.kubernetes.io/mount-options": "y",
                        },
                    },
                },
                expect=201,
            ),
            post(
                VOLUMES,
                {
                    **volume("vp-mount"),
                    "metadata": {"name": "vp-mount", "annotations": {"volume.beta.kubernetes.io/mount-options": "y"}},
                },
                expect=422,
            ),
            merge(f"{VOLUMES}/vp-labels", {"spec": {"csi": {"volumeHandle": "w"}}}, compare="outcome", expect=422),
            merge(f"{VOLUMES}/vp-labels", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, expect=200),
            merge(f"{VOLUMES}/vp-labels", {"status": {"phase": "Bound"}}, expect=200),
            merge(
                f"{VOLUMES}/vp-labels/status",
                {"status": {"phase": "Bound"}, "spec": {"volumeMode": "Block"}},
                expect=200,
            ),
            merge(f"{VOLUMES}/vp-labels/status", {"status": {"message": "x"}}, expect=200),
        ],
        [f"{VOLUMES}/vp-labels", f"{VOLUMES}/vp-old"],
    ),
    Scenario(
        "volumes: an affinity that is set stays",
        [
            post(VOLUMES, volume("vp-aff"), expect=201),
            merge(f"{VOLUMES}/vp-aff", affinity(expression(BETA_ZONE, "a"), expression("x", "y")), expect=200),
            merge(f"{VOLUMES}/vp-aff", affinity(expression(BETA_ZONE, "b"), expression("x", "y")), expect=422),
            merge(f"{VOLUMES}/vp-aff", affinity(expression(BETA_ZONE, "a")), expect=422),
            merge(f"{VOLUMES}/vp-aff", affinity(expression("x", "y"), expression(BETA_ZONE, "a")), expect=422),
            merge(f"{VOLUMES}/vp-aff", affinity(expression(ZONE, "b"), expression("x", "y")), expect=422),
            merge(f"{VOLUMES}/vp-aff", affinity(expression(REGION, "a"), expression("x", "y")), expect=422),
            merge(f"{VOLUMES}/vp-aff", {"spec": {"nodeAffinity": None}}, expect=422),
            merge(f"{VOLUMES}/vp-aff", {"spec": {"nodeAffinity": {"required": None}}}, expect=422),
            merge(f"{VOLUMES}/vp-aff", affinity(expression(ZONE, "a"), expression("x", "y")), expect=200),
            merge(f"{VOLUMES}/vp-aff", affinity(expression(BETA_ZONE, "a"), expression("x", "y")), expect=422),
            merge(f"{VOLUMES}/vp-aff", affinity({"key": ZONE, "operator": "Exists"}), expect=422),
            merge(
                f"{VOLUMES}/vp-aff", {**affinity(expression(ZONE, "c")), "metadata": {"labels": {"a": "b"}}}, expect=422
            ),
            merge(f"{VOLUMES}/vp-aff", {"metadata": {"labels": {"a": "b"}}}, expect=200),
        ],
        [f"{VOLUMES}/vp-aff"],
    ),
]
