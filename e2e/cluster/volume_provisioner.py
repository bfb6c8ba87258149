"""Makes the volumes of the storage class ``local`` (the default one) and removes those that are no longer claimed.

They are ``local`` volumes: unlike ``hostPath`` they take on the group that a pod asks for.
``python -m e2e.cluster.volume_provisioner NAME NUMBER`` runs in the first node until that ends.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any, Final

from e2e.cluster.api_client import ApiServerClient
from e2e.cluster.layout import ClusterSite, ClusterUnavailable
from e2e.cluster.node import VOLUMES, ClusterNode

CLASS: Final = "local"
PAUSE_S: Final = 0.3
MANAGER: Final = "volumes"
VOLUMES_PATH: Final = "/api/v1/persistentvolumes"
NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE: Final[dict[str, Any]] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "txlog.io/local",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def volume_for(claim: dict[str, Any]) -> dict[str, Any]:
    """For a claim that the scheduler has given a node."""
    told = claim["metadata"]
    on_it = {"key": "kubernetes.io/hostname", "operator": "In", "values": [told["annotations"][NODE]]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{told['uid']}"},
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": told["namespace"], "name": told["name"], "uid": told["uid"]},
            "local": {"path": f"{VOLUMES}/{told['uid']}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_it]}]}},
        },
    }


class VolumeProvisioner:
    """Of one data centre."""

    def __init__(self, site: ClusterSite) -> None:
        self.site = site
        self.api = ApiServerClient(site)

    def create_storage_class(self) -> None:
        """The storage class is there."""
        self.api.apply(f"/apis/storage.k8s.io/v1/storageclasses/{CLASS}", STORAGE, MANAGER)

    def reconcile(self) -> None:
        """Once: make what is asked for, remove what nobody has."""
        for claim in self.api.items("/api/v1/persistentvolumeclaims"):
            named = claim["metadata"].get("annotations", {}).get(NODE)
            if claim["status"].get("phase") == "Pending" and named and claim["spec"].get("storageClassName") == CLASS:
                k = int(named.rpartition("-")[2])
                (ClusterNode(self.site, k).host_path(VOLUMES) / claim["metadata"]["uid"]).mkdir(
                    parents=True, exist_ok=True
                )
                made = volume_for(claim)
                self.api.apply(f"{VOLUMES_PATH}/{made['metadata']['name']}", made, MANAGER)
        for made in self.api.items(VOLUMES_PATH):
            if made["status"].get("phase") == "Released":
                name = made["metadata"]["name"]
                self.api.delete(f"{VOLUMES_PATH}/{name}")
                for folder in self.site.folder.glob(f"n*/root{VOLUMES}/{name.removeprefix('pvc-')}"):
                    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    provisioner = VolumeProvisioner(ClusterSite(sys.argv[1], int(sys.argv[2])))
    classed = False
    while True:
        try:
            if not classed:
                provisioner.create_storage_class()
                classed = True
            provisioner.reconcile()
        except ClusterUnavailable as error:
            print(error, file=sys.stderr, flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
