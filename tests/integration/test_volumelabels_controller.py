"""The persistent-volume-label controller over both API servers: each volume is labelled once, or
told why not."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import CloudProviderError, DiskNotFound, Interface, PVLabeler
from cloudprovider.helpers import key_of
from cloudprovider.testing.waiting import eventually
from controllers.volumelabels.controller import VolumeLabelController
from tests.integration.conftest import EMBEDDED, Cluster, Share
from tests.support.process import Start
from tests.support.running import at_work

VOLUMES = "/api/v1/persistentvolumes"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


class Disks(Interface, PVLabeler):
    """A cloud that has these disks, by the volume's name; of others it knows nothing."""

    def __init__(self, labels: Mapping[str, Mapping[str, str] | CloudProviderError]) -> None:
        self._labels = dict(labels)
        self._lock = threading.Lock()
        self.asked: list[str] = []

    def provider_name(self) -> str:
        return "disks"

    def pv_labeler(self) -> PVLabeler:
        return self

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        with self._lock:
            self.asked.append(key_of(pv))
            found = self._labels.get(key_of(pv), {})
        if isinstance(found, CloudProviderError):
            raise found
        return found

    def put(self, name: str, labels: Mapping[str, str]) -> None:
        with self._lock:
            self._labels[name] = labels


def volume(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    source = spec or {"nfs": {"server": "10.0.0.1", "path": "/exports"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source},
    }


def labelling(api: Cluster, disks: Disks, folder: Path) -> AbstractContextManager[object]:
    return at_work(VolumeLabelController, api.server.write_kubeconfig(folder / "admin"), disks)


def zones_allowed(found: dict[str, Any]) -> dict[str, list[str]]:
    [term] = found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return {one["key"]: one["values"] for one in term["matchExpressions"]}


def test_volumes_of_this_cloud_are_labelled_once_and_all_others_left_alone(api: Cluster, tmp_path: Path) -> None:
    disks = Disks({"bare": {ZONE: "z-1", REGION: "r-1"}, "spread": {ZONE: "z-1__z-2"}, "driven": {ZONE: "z-1"}})
    api.create(VOLUMES, volume("bare"))
    api.create(VOLUMES, volume("foreign"))
    api.create(VOLUMES, volume("driven", csi={"driver": "csi.example.com", "volumeHandle": "d-1"}))
    with labelling(api, disks, tmp_path):
        eventually(lambda: api.reasons("bare") == ["LabelledVolume"], 60)
        api.create(VOLUMES, volume("spread"))
        eventually(lambda: api.reasons("spread") == ["LabelledVolume"], 60)
        api.patch(f"{VOLUMES}/bare", {"metadata": {"annotations": {"example.com/seen": "1"}}})
        eventually(lambda: "foreign" in disks.asked, 60)
    written = {item["metadata"]["name"]: item for item in api.items(VOLUMES)}
    assert written["bare"]["metadata"]["labels"] == {ZONE: "z-1", REGION: "r-1"}
    assert zones_allowed(written["bare"]) == {ZONE: ["z-1"], REGION: ["r-1"]}
    assert written["spread"]["metadata"]["labels"] == {ZONE: "z-1__z-2"}
    assert zones_allowed(written["spread"]) == {ZONE: ["z-1", "z-2"]}
    for name in ("foreign", "driven"):
        assert not written[name]["metadata"].get("labels")
        assert "nodeAffinity" not in written[name]["spec"]
        assert api.reasons(name) == []
    assert sorted(disks.asked) == ["bare", "foreign", "spread"]

    versions = api.versions(VOLUMES)
    with labelling(api, disks, tmp_path):  # the next process writes nothing, and asks about what lacks something
        eventually(lambda: disks.asked.count("foreign") == 2, 60)
    assert api.versions(VOLUMES) == versions
    assert disks.asked.count("bare") == 1


@EMBEDDED
def test_what_a_user_wrote_stays_and_a_contradiction_is_told(api: Cluster, tmp_path: Path) -> None:
    disks = Disks({"moved": {ZONE: "z-1", REGION: "r-1"}, "half": {ZONE: "z-1", REGION: "r-1"}})
    api.create(VOLUMES, volume("moved", {ZONE: "z-9"}))
    api.create(VOLUMES, volume("half", {ZONE: "z-1", "team": "blue"}))
    with labelling(api, disks, tmp_path):
        eventually(lambda: api.reasons("moved") == ["VolumeLabelsContradict"], 60)
        eventually(lambda: api.reasons("half") == ["LabelledVolume"], 60)
        [event] = api.events_of("moved")
        assert f"its label {ZONE} is 'z-9', and the cloud says 'z-1'" in event["message"]
        assert api.get(f"{VOLUMES}/moved")["metadata"]["labels"] == {ZONE: "z-9"}
        assert "nodeAffinity" not in api.get(f"{VOLUMES}/moved")["spec"]
        [told] = api.events_of("half")
        assert told["message"] == f"Written, as the cloud says: {REGION}=r-1, node affinity"
        assert api.get(f"{VOLUMES}/half")["metadata"]["labels"] == {ZONE: "z-1", REGION: "r-1", "team": "blue"}
        api.patch(f"{VOLUMES}/moved", {"metadata": {"labels": {ZONE: "z-1"}}})  # as the Event advises
        eventually(lambda: "LabelledVolume" in api.reasons("moved"), 60)
    assert zones_allowed(api.get(f"{VOLUMES}/moved")) == {ZONE: ["z-1"], REGION: ["r-1"]}


@EMBEDDED
def test_a_missing_disk_and_a_failing_cloud_are_told_and_asked_again(api: Cluster, tmp_path: Path) -> None:
    disks = Disks({"lost": DiskNotFound("no disk lost"), "sick": CloudProviderError("the cloud is ill")})
    api.create(VOLUMES, volume("lost"))
    api.create(VOLUMES, volume("sick"))
    with labelling(api, disks, tmp_path):
        eventually(lambda: "DiskNotFound" in api.reasons("lost"), 60)
        eventually(lambda: "FailedToLabelVolume" in api.reasons("sick"), 60)
        disks.put("sick", {ZONE: "z-1"})
        disks.put("lost", {ZONE: "z-2"})
        eventually(lambda: "LabelledVolume" in api.reasons("sick"), 60)
        eventually(lambda: "LabelledVolume" in api.reasons("lost"), 60)
    assert api.get(f"{VOLUMES}/lost")["metadata"]["labels"] == {ZONE: "z-2"}


@EMBEDDED
def test_the_manager_runs_it_when_it_is_named(api: Cluster, start: Start, share: Share, tmp_path: Path) -> None:
    share("volumes: [{id: data, zones: [z-1, z-2], region: r-1}]")
    api.create(VOLUMES, volume("data"))
    process = start.manager(api.server.write_kubeconfig(tmp_path / "admin"), "--controllers=pvlabel")
    eventually(lambda: api.get(f"{VOLUMES}/data")["metadata"].get("labels"), 60, lambda: process.log)
    assert api.get(f"{VOLUMES}/data")["metadata"]["labels"] == {ZONE: "z-1__z-2", REGION: "r-1"}
    eventually(lambda: "labelled persistentvolume data" in process.log, 10, lambda: process.log)
