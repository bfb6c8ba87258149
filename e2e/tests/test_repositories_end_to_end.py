"""Several repositories as a user has them: `spec.repositories`, `txlog up`, `txlog repository list | remove`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from e2e.lib.load.requests import csv_rows, http_get, write_one
from e2e.lib.report import CannotMeasure
from e2e.lib.wait import wait_until
from txlog.client import MasterClient, MasterUnreachable
from txlog.local.state_folder import StateFolder
from txlog.model.durability import Durability
from txlog.model.errors import NotFound, Unavailable
from txlog.model.master_state import MasterState

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]
HEAD = """
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: catalogue}
spec:
"""
ONE = """
  dataCenter: uk
  peers: [{name: uk, masters: 2, address: "uk-{index}"}]
"""
TWO = """
  dataCenter: %s
  peers: [{name: uk, masters: 1, address: uk}, {name: us, masters: 1, address: us}]
  maxPeerLag: 4s
"""
STOCK = """
  repositories: [{name: stock, workers: {replicas: 1}}]
"""
SUBJECTS = "SELECT ?s WHERE { ?s <urn:p> ?o } ORDER BY ?s"
SERVED_S = 60.0
"""From the end of `txlog up` until every repository has its stores."""


class Catalogue:
    """Two masters, and in each data centre one store for each repository."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._manifests = folder / "state", folder / "manifests"
        self._manifests.mkdir()

    def run(self, *words: str) -> str:
        command = [sys.executable, "-m", "txlog.cli.main", *words, "--state", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up(self, *specs: str) -> None:
        for at, spec in enumerate(specs):
            (self._manifests / f"{at}.yaml").write_text(HEAD + spec)
        self.run("up", "-f", str(self._manifests), "--detach")

    @property
    def state(self) -> StateFolder:
        return StateFolder(self.folder)

    @property
    def masters(self) -> list[str]:
        return [each.url for each in self.state.topology().masters]

    def listed(self, master: str) -> dict[str, Any]:
        found = json.loads(http_get(master, "/txlog/repositories", "application/json", 10.0))
        return {each["name"]: each for each in found["repositories"]}

    def serves(self, *names: str) -> bool:
        """Whether each master serves these repositories, and no other ones, with a working store each."""
        for master in self.masters:
            listed = self.listed(master)
            working = [each["workers"] == {"working": 1, "of": 1} for each in listed.values()]
            states = [each["state"] == "Joined" for each in listed.values()]
            if sorted(listed) != sorted(names) or not all(working + states):
                return False
        return True

    def wait_served(self, *names: str) -> float:
        """How long it took, in seconds."""
        began = time.monotonic()
        try:
            wait_until(f"{names} have their stores", SERVED_S, partial(self.serves, *names))
        except CannotMeasure as late:
            lists = [self.listed(master) for master in self.masters]
            raise CannotMeasure(f"{late}; {lists}; {self.status()['repositories']}") from None
        return time.monotonic() - began

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json"))["supervisor"]
        return found

    def write(self, at: int, repository: str, subject: str) -> None:
        write_one(self.masters[at], repository, f"INSERT DATA {{ <{subject}> <urn:p> 1 }}", Durability.APPLIED)

    def store(self, repository: str, data_center: str = "uk") -> list[str]:
        """What the store of this repository holds, as it says itself. The first repository: an empty text."""
        topology = self.state.topology()
        places = [*topology.workers, *topology.repository_workers]
        [url] = [each.url for each in places if (each.repository, each.data_center) == (repository, data_center)]
        rows = csv_rows(http_get(url, f"/query?{urlencode({'query': SUBJECTS})}", "text/csv", 10.0))
        return [row[0] for row in rows]

    def read(self, repository: str) -> list[str]:
        """What a master answers."""
        path = f"/repositories/{repository}?{urlencode({'query': SUBJECTS})}"
        return [row[0] for row in csv_rows(http_get(self.masters[1], path, "text/csv", 10.0))]

    def wanted_by(self, repository: str) -> list[str]:
        found: list[str] = self.listed(self.masters[0])[repository]["wantedBy"]
        return found


@pytest.mark.long
def test_repositories_of_a_manifest_have_their_own_data_until_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXLOG_PREVIEWS", "repositories")
    cluster = Catalogue(tmp_path)
    try:
        cluster.up(ONE + STOCK)
        print("served after", cluster.wait_served("catalogue", "stock"))
        roles = [each["role"] for each in cluster.status()["processes"]]
        assert (roles.count("pipeline"), roles.count("worker")) == (1, 2)
        cluster.write(0, "catalogue", "urn:c1")
        cluster.write(1, "stock", "urn:s1")
        assert (cluster.store(""), cluster.store("stock")) == (["urn:c1"], ["urn:s1"])
        stop_store(cluster, "uk-stock-worker-1")
        cluster.write(0, "catalogue", "urn:c2")
        assert cluster.store("") == ["urn:c1", "urn:c2"], "a store that is gone delays its own repository"

        cluster.run("down")
        cluster.up(ONE + STOCK)
        print("served after", cluster.wait_served("catalogue", "stock"))
        cluster.write(0, "stock", "urn:s2")
        assert (cluster.store(""), cluster.store("stock")) == (["urn:c1", "urn:c2"], ["urn:s1", "urn:s2"])

        cluster.run("down")
        cluster.up(ONE)
        wait_until("no manifest wants stock", SERVED_S, lambda: cluster.wanted_by("stock") == [])
        print("served after", cluster.wait_served("catalogue", "stock"))
        cluster.write(1, "stock", "urn:s3")
        assert cluster.read("stock") == ["urn:s1", "urn:s2", "urn:s3"], "it stays until it is removed by name"

        cluster.run("repository", "remove", "stock", "--yes")
        kept = cluster.state.worker("uk-stock-worker-1.removed-2")
        wait_until("the stores of stock are set aside", SERVED_S, kept.exists)
        wait_until("stock is forgotten", SERVED_S, lambda: cluster.status()["repositories"] == [])
        cluster.run("down")
        cluster.up(ONE)
        cluster.wait_served("catalogue")
        cluster.write(0, "catalogue", "urn:c3")
        assert cluster.store("") == ["urn:c1", "urn:c2", "urn:c3"]
        with pytest.raises((NotFound, Unavailable, MasterUnreachable)):
            cluster.read("stock")
    finally:
        if cluster.folder.exists():
            cluster.run("down")


@pytest.mark.long
def test_each_repository_of_a_split_cluster_goes_on_and_rejoins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A side goes on with a repository once it has the split backup of that repository's log."""
    monkeypatch.setenv("TXLOG_PREVIEWS", "repositories")
    cluster = Catalogue(tmp_path)
    try:
        cluster.up(TWO % "uk" + STOCK, TWO % "us" + STOCK)
        cluster.wait_served("catalogue", "stock")
        assert cluster.wanted_by("stock") == ["uk", "us"]
        cluster.write(0, "catalogue", "urn:c1")
        cluster.write(1, "stock", "urn:s1")
        cluster.run("link", "cut", "uk", "us")
        wait_until("uk goes on with stock", SERVED_S, partial(is_alone, cluster, 0))
        wait_until("us goes on with stock", SERVED_S, partial(is_alone, cluster, 1))
        cluster.write(0, "stock", "urn:s2")
        cluster.write(1, "stock", "urn:s3")
        assert (cluster.store("stock"), cluster.store("stock", "us")) == (["urn:s1", "urn:s2"], ["urn:s1", "urn:s3"])
        cluster.run("link", "heal")
        whole = ["urn:s1", "urn:s2", "urn:s3"]
        for data_center in ("uk", "us"):
            wait_until(
                f"stock of {data_center} is whole",
                2 * SERVED_S,
                partial(lambda name: cluster.store("stock", name) == whole, data_center),
            )
            assert cluster.store("", data_center) == ["urn:c1"]
        splits = json.loads(cluster.run("split-report", "--json"))["splits"]
        assert [each["restoredWorkers"] for each in splits] == [[]], "the report is about the first repository"
        [restored] = [each for each in cluster.status()["duties"] if each["kind"] == "restore"]
        assert (restored["repository"], restored["worker"]) == ("stock", f"{restored['dataCenter']}-stock-worker-1")
    finally:
        if cluster.folder.exists():
            cluster.run("down")


def is_alone(cluster: Catalogue, at: int) -> bool:
    """Whether this master goes on with stock in a view of its own."""
    with MasterClient(f"{cluster.masters[at]}/txlog/repositories/stock", 5.0) as master:
        return master.status().state == MasterState.ISOLATED


def stop_store(cluster: Catalogue, name: str) -> None:
    """Stops the process of a store, as one that hangs: no request of it is answered."""
    os.kill(int(cluster.state.read("processes.json")[name]["pid"]), signal.SIGSTOP)


def test_each_repository_is_backed_up_and_rebuilt_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLOG_PREVIEWS", "repositories")
    target = tmp_path / "backups"
    target.mkdir()
    policy = f"  backup: {{target: {{folder: {{path: {target}}}}}, schedule: '@every 12s', keep: 2}}\n"
    cluster = Catalogue(tmp_path)

    def backed_up() -> dict[str, str]:
        """By repository, the first one an empty text: the name of the last backup."""
        found = cluster.status()["backups"]
        return {each.get("repository", ""): each["last"]["name"] for each in found if "name" in each.get("last", {})}

    try:
        cluster.up(ONE + STOCK + policy)
        cluster.wait_served("catalogue", "stock")
        cluster.write(0, "catalogue", "urn:c1")
        cluster.write(1, "stock", "urn:s1")
        wait_until("both have backups", SERVED_S, lambda: set(backed_up()) == {"", "stock"})
        made = json.loads(cluster.run("backup", "create", "--repository", "stock", "--name", "mine", "--json"))
        assert (made["target"], made["registered"]) == (f"{target}/_repositories/stock", True)
        listed = json.loads(cluster.run("backup", "list", "--repository", "stock", "--json"))
        assert {each["manifest"]["cluster"] for each in listed if each["manifest"]} == {made["cluster"]}
        first = json.loads(cluster.run("backup", "list", "--json"))
        assert made["cluster"] not in {each["manifest"]["cluster"] for each in first if each["manifest"]}
        cluster.write(0, "stock", "urn:s2")
        words = ("worker", "rebuild", "uk-stock-worker-1", "--repository", "stock", "--from", "mine", "--yes")
        cluster.run(*words)
        wait_until("stock is whole again", SERVED_S, lambda: cluster.store("stock") == ["urn:s1", "urn:s2"])
        assert cluster.store("") == ["urn:c1"]

        stop_store(cluster, "uk-stock-worker-1")
        wait_until("stock has no worker", SERVED_S, lambda: not cluster.serves("catalogue", "stock"))
        assert cluster.listed(cluster.masters[0])["stock"]["workers"] == {"working": 0, "of": 1}
        assert "no worker of stock works" in " ".join(cluster.run("repository", "list").split())
        cluster.write(0, "catalogue", "urn:c2")
        assert cluster.store("") == ["urn:c1", "urn:c2"]
    finally:
        if cluster.folder.exists():
            cluster.run("down")
