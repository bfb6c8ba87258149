"""The health checks of the page for GitOps, as Argo CD and Flux evaluate them, over what the operator reports."""

from __future__ import annotations

from typing import Any

import cel
import pytest
from control_plane import ROOT
from lupa import lua51
from observations import NOW, manifest, whole
from ruamel.yaml import YAML

from txlog.config.cluster import TxLogCluster
from txlog.config.cluster_status import ClusterStatus
from txlog_operator import conditions, reconcile_outcome, status_writer
from txlog_operator.cluster_phase import cluster_phase_of
from txlog_operator.hibernation import HIBERNATED
from txlog_operator.kube_client import ApiError
from txlog_operator.observation import ClusterObservation

PAGE = ROOT / "docs/how-to/deploy-with-gitops.md"
GENERATION = 7


def page_blocks() -> list[dict[str, Any]]:
    """The YAML blocks of the page."""
    blocks = PAGE.read_text().split("```yaml\n")[1:]
    return [YAML(typ="safe").load(block.split("```")[0]) for block in blocks]


def argo_health(resource: dict[str, Any]) -> tuple[str, str]:
    """As Argo CD does it: Lua 5.1, the resource in ``obj``, and no library but the basic one."""
    (script,) = [
        text
        for block in page_blocks()
        for name, text in block.get("data", {}).items()
        if name == "resource.customizations.health.txlog.io_TxLogCluster"
    ]
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    for library in ("os", "io", "package", "debug", "string", "table", "math"):
        lua.globals()[library] = None
    lua.globals()["obj"] = lua.table_from(resource, recursive=True)
    found = lua.execute(script)
    return found["status"], found["message"]


def flux_health(resource: dict[str, Any]) -> str:
    """As Flux does it: the expressions in this order; an error of one of them counts as in progress."""
    (checks,) = [block["spec"]["healthCheckExprs"] for block in page_blocks() if "healthCheckExprs" in str(block)]
    (check,) = checks
    assert (check["apiVersion"], check["kind"]) == (resource["apiVersion"], resource["kind"])
    for name in ("inProgress", "failed", "current"):
        try:
            if cel.evaluate(check[name], resource):
                return name
        except RuntimeError:
            return "inProgress"
    return "inProgress"


def reported(status: ClusterStatus | None, generation: int = GENERATION) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiVersion": "txlog.io/v1alpha1",
        "kind": "TxLogCluster",
        "metadata": {"name": "catalogue", "generation": generation},
        "spec": {},
    }
    return found if status is None else {**found, "status": status_writer.status_to_json(status)}


def written(
    cluster: TxLogCluster, seen: ClusterObservation, problems: list[str] | None = None, error: Exception | None = None
) -> ClusterStatus:
    """What the operator writes after a reconcile."""
    wrong = problems or []
    outcome = (
        reconcile_outcome.check_plan([], cluster.spec.paused, [], wrong)
        if error is None
        else reconcile_outcome.check_broken_off(error)
    )
    before = ClusterStatus(observed_generation=GENERATION - 1)
    return status_writer.make_status(cluster, GENERATION, seen, cluster_phase_of(seen), wrong, before, outcome)


def never_valid() -> ClusterStatus:
    checks = conditions.invalid_spec_checks(["peers: too many"])
    return ClusterStatus(conditions=status_writer.merge_conditions(checks, [], GENERATION, NOW))


def test_a_cluster_that_serves() -> None:
    found = reported(written(manifest(), whole(manifest())))
    assert found["status"]["observedGeneration"] == GENERATION
    assert argo_health(found)[0] == "Healthy"
    assert flux_health(found) == "current"


@pytest.mark.parametrize("status", [None, ClusterStatus(), ClusterStatus(observed_generation=GENERATION - 1)])
def test_a_manifest_that_no_operator_has_carried_out(status: ClusterStatus | None) -> None:
    assert argo_health(reported(status)) == (
        "Progressing",
        "the operator has not carried out the manifest yet",
    )
    assert flux_health(reported(status)) == "inProgress"


def test_a_newer_manifest_than_the_one_that_serves() -> None:
    found = reported(written(manifest(), whole(manifest())), GENERATION + 1)
    assert argo_health(found)[0] == "Progressing"
    assert flux_health(found) == "inProgress"


def test_masters_that_do_not_answer() -> None:
    seen = whole(manifest())
    silent = ClusterObservation(**{**vars(seen), "masters": dict.fromkeys(seen.masters), "master_pods": {}})
    found = reported(written(manifest(), silent))
    available = next(each for each in found["status"]["conditions"] if each["type"] == "Available")
    expected = {"False": "Degraded", "Unknown": "Progressing"}[available["status"]]
    assert argo_health(found) == (expected, available["message"])
    assert flux_health(found) == "inProgress"


@pytest.mark.parametrize(
    "status",
    [
        never_valid(),
        written(manifest(), whole(manifest()), ["durability: no such level"]),
        written(manifest(), whole(manifest()), error=ApiError(422, "storage: field is immutable")),
    ],
    ids=["never valid", "not valid any more", "cannot be carried out"],
)
def test_a_manifest_that_cannot_be_carried_out(status: ClusterStatus) -> None:
    found = reported(status)
    assert found["status"].get("observedGeneration") != GENERATION
    health, message = argo_health(found)
    assert health == "Degraded"
    assert any(word in message for word in ("too many", "no such level", "immutable"))
    assert flux_health(found) == "failed"
    corrected = reported(status, GENERATION + 1)  # and not looked at yet
    assert argo_health(corrected)[0] == "Progressing"
    assert flux_health(corrected) == "inProgress"


def test_a_hibernated_cluster() -> None:
    status = written(manifest(), whole(manifest())).model_copy(update={"state": HIBERNATED})
    assert argo_health(reported(status)) == ("Suspended", "hibernated")
    assert flux_health(reported(status)) == "current"
