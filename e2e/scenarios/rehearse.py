"""``python -m e2e.scenarios.rehearse``: a recovery is rehearsed beside a running cluster.

A cluster with an archive is under load. A scheduled rehearsal, one by hand, and twelve with planted faults run beside
it. The good ones compare every graph with a live worker, each fault is named, and the masters report the last good one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from e2e.lib.cluster.local import LocalCluster, cluster_up, empty_folder, run_txlog
from e2e.lib.load.requests import write_one
from e2e.lib.report import BenchReport, CannotMeasure, console
from e2e.lib.wait import NotYet, wait_until
from txlog.client import MasterClient

STATE: Final = Path(".txlog-rehearsal")
READY_S: Final = 1200.0
WRITES: Final = 60
GRAPHS: Final = 5
SCHEDULE: Final = "@every 20s"
MANIFEST: Final = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {{name: demo}}
spec:
  repository: demo
  dataCenter: uk
  peers: [{{name: uk, masters: 1, address: "uk-{{index}}.example.net"}}]
  workers: {{replicas: 1}}
  backup: {{target: {{folder: {{path: {target}}}}}}}
  archive:
    maxDelay: 300ms
    rehearsal: {{schedule: "{schedule}", maxRpo: 1h}}
"""


def write_some(cluster: LocalCluster, first: int, count: int) -> None:
    """Additions, and updates whose result depends on what is there."""
    for number in range(first, first + count):
        graph = f"<urn:graph:{number % GRAPHS}>"
        update = f'INSERT DATA {{ GRAPH {graph} {{ <urn:thing:{number}> <urn:p> "{number}" }} }}'
        if number % 7 == 0:
            update = f"INSERT {{ GRAPH {graph} {{ ?s <urn:q> ?o }} }} WHERE {{ GRAPH {graph} {{ ?s <urn:p> ?o }} }}"
        write_one(cluster.masters[0], cluster.repository, update, "synced")


def archived_index(cluster: LocalCluster) -> tuple[int, int]:
    """The archived and the stable index."""
    with MasterClient(cluster.masters[0], 30.0) as master:
        status = master.status()
    streams = (status.archive or {}).get("streams", [])
    return max((each["archived"]["index"] for each in streams if each["archived"]), default=0), status.stable.index


def wait_archived(cluster: LocalCluster) -> None:
    def probe() -> bool:
        archived, stable = archived_index(cluster)
        if archived < stable:
            raise NotYet(f"archived up to {archived} of {stable}")
        return True

    wait_until("everything is archived", READY_S, probe, pause_s=0.3)


def wait_scheduled(cluster: LocalCluster) -> dict[str, Any]:
    """The report of a rehearsal that the schedule has begun, as a master shows it."""

    def probe() -> dict[str, Any]:
        with MasterClient(cluster.masters[0], 30.0) as master:
            found = ((master.status().archive or {}).get("rehearsals") or [{"last": None}])[0]
        if not found["last"] or not found["last"]["ok"]:
            raise NotYet(f"no good one yet: {found['last']}")
        return dict(found)

    return wait_until("a scheduled rehearsal", READY_S, probe, pause_s=1.0)


def rehearse(state: Path, *words: str) -> dict[str, Any]:
    """``txlog rehearse``, which ends with 1 for one that is not good."""
    program = str(Path(sys.executable).with_name("txlog"))
    done = subprocess.run(
        [program, "rehearse", "--json", "--state", str(state), *words],
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )
    if not done.stdout.strip():
        raise CannotMeasure(f"txlog rehearse ended with {done.returncode}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run(folder: Path, report: BenchReport) -> None:
    """The whole story in one folder."""
    state, target, manifest = folder / "state", folder / "target", folder / "uk.yaml"
    target.mkdir()
    manifest.write_text(MANIFEST.format(target=target, schedule=SCHEDULE))
    with cluster_up(state, (manifest,), wait_s=READY_S) as cluster:
        cluster.wait_applying(READY_S)
        write_some(cluster, 1, WRITES // 2)
        run_txlog("backup", "create", "--state", state, timeout_s=READY_S)
        write_some(cluster, 1 + WRITES // 2, WRITES // 2)
        wait_archived(cluster)
        write_some(cluster, 1 + WRITES, 1)  # in a file of its own
        cluster.wait_converged(READY_S)
        found = rehearse(state)
        if not found["ok"]:
            console.print(f"[red]{found['error']}: {found['message']}[/red]", highlight=False)
        report.equal("ok", found["ok"], True)
        report.require("graphs", found["graphs"] >= GRAPHS, found["graphs"])
        report.equal("differ", found["differing"], 0)
        for key in ("rpo", "rto_writes", "rto_reads"):
            name = "".join([key.partition("_")[0], *(part.title() for part in key.split("_")[1:]), "Seconds"])
            report.figure(f"{key}_s", found[name] or 0.0, 3)
        report.figure("phases", len(found["phases"]))
        planted = rehearse(state, "--planted")
        for each in planted["faults"]:
            if not each["named"]:
                console.print(f"[red]{each['name']}: {each['error']}: {each['message']}[/red]", highlight=False)
        report.equal("named", planted["named"], 12)
        before = time.time()
        scheduled = wait_scheduled(cluster)
        report.require("scheduled", scheduled["lastGoodAt"] <= before + READY_S, scheduled["last"]["index"])
        report.require("due", scheduled["dueAt"] > scheduled["lastGoodAt"], scheduled["dueAt"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.rehearse", description="a rehearsed recovery beside a running cluster"
    )
    parser.add_argument("--state", type=Path, default=STATE, help="a folder that is deleted first")
    options = parser.parse_args(arguments)
    report = BenchReport("make rehearse")
    with report.part("rehearsals of a recovery", OSError):
        run(empty_folder(options.state.absolute()), report)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
