"""The TxLogCluster of each data centre, as a user would write it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from e2e.kubernetes.data_center_access import NAME, NAMESPACE

MASTERS: Final = {"uk": 2, "us": 1}
TOKEN_SECRET: Final = "peer-token"
TOKEN: Final = "a token that only masters know, 0123456789"


def peer_specs(masters: Mapping[str, int]) -> list[dict[str, Any]]:
    """``masters``: how many each data centre has."""
    return [
        {"name": name, "masters": count, "address": f"{NAME}-{{index}}.{NAME}-masters.{NAMESPACE}.svc.{name}.local"}
        for name, count in masters.items()
    ]


def cluster_manifest(data_center: str, **spec: Any) -> dict[str, Any]:
    """Small enough for two cores; a split is called one after seconds."""
    return {
        "apiVersion": "txlog.io/v1alpha1",
        "kind": "TxLogCluster",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "dataCenter": data_center,
            "peers": peer_specs(MASTERS),
            "maxPeerLag": "4s",
            "security": {"peerTokenSecretRef": {"name": TOKEN_SECRET}},
            "masters": {"storage": {"size": "1Gi"}},
            "workers": {"replicas": 1, "storage": {"size": "1Gi"}},
            **spec,
        },
    }


def token_secret() -> dict[str, Any]:
    """The Secret by which masters know each other, the same in all data centres."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TOKEN_SECRET, "namespace": NAMESPACE},
        "data": {"token": base64.b64encode(TOKEN.encode()).decode()},
    }
