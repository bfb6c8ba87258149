"""Every example: the API server takes the manifest and every object that the operator makes of it. Or the operator
names what does not run on Kubernetes, as examples/README.md does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from control_plane import ROOT, ControlPlane
from golden import AROUND
from test_resource_rules import applied

from txlog.config.manifest_reader import ClusterManifest, load_manifests
from txlog_operator.manifest_validation import read_manifest
from txlog_operator.specs import desired_objects

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
MANIFESTS = [(folder, manifest) for folder in FOLDERS for manifest in load_manifests(folder)]
ELSEWHERE = {("two-engines", "us"), ("two-engines-rdf4j", "us")}
"""Data centres with stores that the operator does not run."""
UID = "5f0c0ffe-0000-4000-8000-000000000000"


def called(each: tuple[Path, ClusterManifest]) -> str:
    return f"{each[0].name}-{each[1].data_center}"


def as_resource(manifest: ClusterManifest, namespace: str) -> dict[str, object]:
    found = manifest.cluster.model_dump(mode="json", by_alias=True, exclude_unset=True)
    found["metadata"] = {"name": manifest.cluster.metadata.name, "namespace": namespace}
    return found


@pytest.mark.kubernetes
@pytest.mark.parametrize("each", MANIFESTS, ids=called)
def test_an_example_is_accepted_with_all_that_is_made_of_it(
    plane: ControlPlane, namespace: str, each: tuple[Path, ClusterManifest]
) -> None:
    folder, manifest = each
    resource = as_resource(manifest, namespace)
    assert applied(plane, resource) == ""
    cluster, problems = read_manifest(resource)
    if (folder.name, manifest.data_center) in ELSEWHERE:
        assert any("workers.engine" in problem for problem in problems), problems
        return
    assert problems == []
    assert cluster is not None
    found = desired_objects(cluster, replace(AROUND, owner_uid=UID))
    assert len(found) >= 10
    text = "\n---\n".join(json.dumps(made) for made in found)
    plane.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_the_list_of_examples_says_which_ones_run_on_kubernetes() -> None:
    rows = [line for line in (EXAMPLES / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == {folder.name for folder in FOLDERS}
    elsewhere = {name for name, _ in ELSEWHERE}
    for row in rows:
        name = row.split("`")[1]
        assert row.endswith("| on one machine |" if name in elsewhere else "| on one machine, on Kubernetes |"), row
