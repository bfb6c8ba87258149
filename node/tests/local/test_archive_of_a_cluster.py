"""A cluster with ``spec.archive`` as people run it: archiver and masters are killed, and the archive has no hole."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from txlog.local.process_identity import ProcessIdentity

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]
DEADLINE_S = 120.0
MANIFEST = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {{name: demo}}
spec:
  dataCenter: uk
  peers:
    - {{name: uk, masters: 2, address: "uk-{{index}}.example.net"}}
  archive: {{target: {{folder: {{path: {folder}}}}}, maxDelay: 200ms}}
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "state"
        self.archive = folder / "archive"
        self.archive.mkdir()
        self.manifest = folder / "uk.yaml"
        self.manifest.write_text(MANIFEST.format(folder=self.archive))

    def txlog(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "txlog.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def up(self) -> None:
        found = self.txlog("up", "-f", str(self.manifest), "--detach", "--wait", "0", "--state", str(self.folder))
        assert found.returncode == 0, found.stderr

    def urls(self) -> list[str]:
        return [one["url"] for one in json.loads((self.folder / "topology.json").read_text())["masters"]]

    def kill(self, name: str) -> None:
        marks = json.loads((self.folder / "processes.json").read_text())
        os.kill(ProcessIdentity.model_validate(marks[name]).pid, signal.SIGKILL)

    def write(self, count: int, tag: str) -> None:
        for n in range(count):
            eventually(lambda n=n: self._write_once(n, tag))

    def _write_once(self, n: int, tag: str) -> bool:
        for url in self.urls():
            request = urllib.request.Request(
                f"{url}/repositories/demo/statements",
                f"INSERT DATA {{ <urn:{tag}{n}> <urn:p> <urn:o> }}".encode(),
                {
                    "Content-Type": "application/sparql-update",
                    "TxLog-Durability": "synced",
                    "Idempotency-Key": f"{tag}{n}",
                },
            )
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    if answer.status in (200, 204):
                        return True
            except OSError:
                continue
        return False

    def status(self) -> dict[str, Any] | None:
        """Of the first master that answers."""
        for url in self.urls():
            try:
                with urllib.request.urlopen(f"{url}/txlog/status", timeout=5) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except OSError:
                continue
        return None

    def stream(self) -> dict[str, Any] | None:
        found = (self.status() or {}).get("archive")
        stream: dict[str, Any] | None = found["streams"][0] if found else None
        return stream

    def is_archived(self) -> bool:
        """Everything that is stable is archived and was read back."""
        status, stream = self.status(), self.stream()
        if status is None or stream is None or not status["stable"]["index"]:
            return False
        places = (stream["archived"], stream["verified"])
        return all(each and each["index"] == status["stable"]["index"] for each in places)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.txlog("down", "--purge", "--state", str(cluster.folder))


def eventually(true: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


def test_the_archive_of_a_cluster_whose_processes_are_killed(cluster: Cluster) -> None:
    cluster.up()
    cluster.write(5, "a")
    eventually(cluster.is_archived)
    cluster.kill("uk-archiver")
    cluster.write(5, "b")
    eventually(cluster.is_archived)  # it was started again
    for master in ("uk-1", "uk-2"):
        cluster.kill(master)
    cluster.write(5, "c")
    eventually(cluster.is_archived)
    stream = cluster.stream()
    assert stream is not None
    assert (stream["state"], stream["gaps"], stream["losses"]) == ("Shipping", 0, 0)
    assert stream["delaySeconds"] == 0.0
    shown = cluster.txlog("status", "--state", str(cluster.folder)).stdout
    assert "ARCHIVE" in shown
    assert "Shipping" in shown

    cluster.write(1, "d")
    status = cluster.status()
    assert status is not None
    assert cluster.txlog("down", "--state", str(cluster.folder)).returncode == 0
    checked = cluster.txlog("archive", "check", "--target", str(cluster.archive), "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    [found] = json.loads(checked.stdout)
    assert found["state"] == "Continuous"
    # What was written just before ``down`` is archived too.
    assert int(found["heads"][0].split(":")[0]) >= status["stable"]["index"]
