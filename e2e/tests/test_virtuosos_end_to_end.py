"""A cluster whose workers are Virtuosos: what is written at either master is the same in both, also after one was
killed and has gone back to its last checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from e2e.lib.cluster.local import cluster_up, run_txlog
from e2e.lib.load.requests import WriteProber, write_one
from txlog.cli.content_verification import compare_contents
from txlog.local.engines.virtuoso_server import obtain_virtuoso

ROOT = Path(__file__).parents[2]
XSD = "http://www.w3.org/2001/XMLSchema#"
QUADS = f"""\
<urn:e2e:a> <urn:e2e:name> "01"^^<{XSD}int> .
<urn:e2e:a> <urn:e2e:name> "12345678901"^^<{XSD}integer> .
<urn:e2e:a> <urn:e2e:name> "x"@EN-us <urn:e2e:g> .
<urn:e2e:b> <urn:e2e:when> "2020-01-02T03:04:05+00:00"^^<{XSD}dateTime> <urn:e2e:g> .
<urn:e2e:b> <urn:e2e:long> "P1D"^^<{XSD}duration> <urn:e2e:h> .
"""


@pytest.mark.skipif(
    shutil.which("virtuoso-t") is None and shutil.which("apt-get") is None,
    reason="a Virtuoso is fetched by apt-get, which is not here",
)
@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_two_virtuosos_in_one_cluster(tmp_path: Path) -> None:
    obtain_virtuoso()  # before anything is timed
    manifests = []
    for dc in ("uk", "us"):
        text = (ROOT / "examples" / "two-engines" / "uk.yaml").read_text()
        text = text.replace("engine: oxigraph", "engine: virtuoso").replace("dataCenter: uk", f"dataCenter: {dc}")
        manifests.append(tmp_path / f"{dc}.yaml")
        manifests[-1].write_text(text.replace("mixedEngines: true", "nonDeterministicUpdates: refuse"))
    with cluster_up(tmp_path / "state", tuple(manifests)) as cluster:
        cluster.wait_applying(180)
        assert {worker.engine for worker in cluster.topology.workers} == {"virtuoso"}
        uk, us = (cluster.master_of(dc) for dc in cluster.topology.data_centers)
        prober = WriteProber(us, cluster.repository, "applied-all")
        assert prober.write(QUADS.encode()) is not None
        prober.close()
        copy = "INSERT { GRAPH <urn:e2e:copy> { ?s <urn:e2e:copied> ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }"
        for master, text in ((uk, copy), (us, "DELETE DATA { <urn:e2e:a> <urn:e2e:name> 1 }")):
            assert write_one(master, cluster.repository, text, "applied-all")["txlog-durability"] == "applied-all"
        for master in (uk, us):
            assert len(cluster.query(master, "SELECT ?s ?p { ?s ?p ?o }")) > 5
            assert cluster.query(master, "SELECT ?o { <urn:e2e:b> <urn:e2e:when> ?o }")
            graphs = cluster.query(master, "SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }")
            assert "urn:e2e:copy" in str(graphs)
            assert "txlog:system" not in str(graphs)
        # Killed, it may be where it was at its last checkpoint; what is missing is applied again.
        assert cluster.kill("us-worker-1") is not None
        more = "INSERT DATA { <urn:e2e:c> <urn:e2e:name> 2.5 }"
        assert write_one(us, cluster.repository, more, "applied-all")["txlog-durability"] == "applied-all"
        verdict = compare_contents(cluster.masters_by_data_center)
        assert verdict.equal
        assert {each.digest.quads for each in verdict.workers if each.digest} == {8}
        # A backup of one, into the other; and the one again, from the other, which goes on serving.
        backups = tmp_path / "backups"
        backups.mkdir()
        made = json.loads(run_txlog("backup", "create", "--state", tmp_path / "state", "--target", backups, "--json"))
        rebuild = ("worker", "rebuild", "--state", tmp_path / "state", "--yes")
        run_txlog(*rebuild, "us-worker-1", "--from", made["name"], "--target", backups)
        run_txlog(*rebuild, "uk-worker-1", "--live", "--source", "us-worker-1")
        assert write_one(uk, cluster.repository, more.replace("2.5", "2.6"), "applied-all")
        again = compare_contents(cluster.masters_by_data_center)
        assert again.equal
        assert {each.digest.quads for each in again.workers if each.digest} == {9}
