"""`txlog backup`, `txlog restore`, `txlog worker rebuild` as people use them, on a whole local cluster."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from socket import socket
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from typer.testing import CliRunner

from txlog.backup.backup_manifest import ManifestPosition, decode_manifest, encode_manifest
from txlog.cli.main import app, handle_errors
from txlog.local.supervisor_main import obtain_oxigraph

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
DEADLINE = 120.0
LOADED, ADOPTED = 3000, 5
QUADS = LOADED + ADOPTED

MANIFEST = """\
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {{name: catalogue}}
spec:
  dataCenter: uk
  peers:
  - {{name: uk, masters: 1, address: uk.example.net}}
  workers: {{replicas: 2}}
  backup:
    target: {{folder: {{path: "{target}"}}}}
    schedule: "@every 4s"
    keep: 2
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.state, self.target = folder / "state", folder / "backups"
        self.target.mkdir()
        self.manifest = folder / "uk.yaml"
        self.manifest.write_text(MANIFEST.format(target=self.target))

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "txlog.cli.main", *arguments, "--state", str(self.state)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """What a command prints with ``--json``, asked in this process: the start of another costs more than most
        commands, and some are polled."""
        with patch.dict(os.environ):  # a command with --state sets the file of the token, for its own process
            found = CliRunner().invoke(app, [*arguments, "--json", "--state", str(self.state)])
        assert found.exit_code == code, (found.output, found.exception)
        return json.loads(found.stdout)

    def up(self) -> None:
        found = self("up", "-f", str(self.manifest), "--detach", "--wait", "240")
        assert found.returncode == 0, (found.stdout, found.stderr)

    def refused(self, *arguments: str) -> str:
        """What the command line says where it refuses."""
        words = [*arguments, "--state", str(self.state)]
        with (
            patch.dict(os.environ),
            redirect_stdout(StringIO()),
            redirect_stderr(StringIO()) as errors,
            pytest.raises(SystemExit) as end,
        ):
            handle_errors(partial(app, words))  # raises what a person would see as a traceback
        assert end.value.code == 1, errors.getvalue()
        return errors.getvalue()

    def workers(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.json("worker", "list")}

    def update(self, worker: str, text: str) -> None:
        """Past the log, as nobody should."""
        headers = {"Content-Type": "application/sparql-update"}
        url = self.workers()[worker]["url"]
        urllib.request.urlopen(urllib.request.Request(f"{url}/update", text.encode(), headers)).close()


@contextmanager
def store(folder: Path) -> Iterator[str]:
    """An Oxigraph that the cluster knows nothing of."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [obtain_oxigraph(), "serve", "-l", str(folder), "-b", url.removeprefix("http://")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(url))
        yield url
    finally:
        process.kill()
        process.wait()


@contextmanager
def store_of_others(folder: Path) -> Iterator[str]:
    with store(folder) as url:
        text = (
            "INSERT DATA { _:a <http://e/knows> _:b . _:b <http://e/knows> _:a . <http://e/x> <http://e/p> 1 , 2 , 3 }"
        )
        headers = {"Content-Type": "application/sparql-update"}
        urllib.request.urlopen(urllib.request.Request(f"{url}/update", text.encode(), headers)).close()
        yield url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    found = Cluster(folder)
    try:
        found.up()
        with store_of_others(folder / "others") as url:
            told = found.json("backup", "adopt", url, "--restore", "--name", "beginning")
            assert (told["quads"], told["position"]["index"], told["restored"]) == (
                ADOPTED,
                0,
                ["uk-worker-1", "uk-worker-2"],
            )
        file = folder / "a.nq"
        file.write_text("".join(f'<http://e/s{n}> <http://e/p> "{n}" <http://e/g{n % 5}> .\n' for n in range(LOADED)))
        found.json("load", str(file), "--batch", "50", "--durability", "applied")
        eventually(lambda: all(w["position"]["index"] == 60 for w in found.workers().values()))
        yield found
    finally:
        found("down", "--purge")


def eventually(true: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


def is_equal(cluster: Cluster) -> bool:
    found = cluster.json("verify", "--wait", "120")
    assert [worker["quads"] for worker in found["workers"]] == [QUADS, QUADS]
    return bool(found["equal"])


def test_by_hand_from_create_to_delete(cluster: Cluster) -> None:
    made = cluster.json("backup", "create", "--name", "mine", "--held")
    assert (made["name"], made["quads"], made["position"]["index"], made["retention"]) == ("mine", QUADS, 60, "held")
    assert made["registered"] is True
    listed = {each["name"]: each for each in cluster.json("backup", "list")}
    assert listed["mine"]["state"] == "complete"
    assert listed["mine"]["held"] is True
    assert cluster.json("backup", "verify", "mine")[0]["sound"] is True
    assert "mine" in cluster("backup", "list").stdout

    part = cluster.target / "mine" / "part-00001.nq.zst"
    whole = part.read_bytes()
    part.write_bytes(whole[:50] + bytes([whole[50] ^ 4]) + whole[51:])
    (found,) = cluster.json("backup", "verify", "mine", code=1)
    assert (found["sound"], found["error"]) == (False, "PartDamaged")
    assert "PartDamaged" in cluster("backup", "verify", "mine").stdout
    before = cluster.workers()["uk-worker-2"]["position"]
    assert "another checksum" in cluster.refused("worker", "rebuild", "uk-worker-2", "--from", "mine", "--yes")
    assert cluster.workers()["uk-worker-2"]["position"] == before
    part.write_bytes(whole)

    assert "is held" in cluster.refused("backup", "delete", "mine")
    assert cluster.json("backup", "delete", "mine", "--release") == {"deleted": ["mine"]}
    assert cluster.json("backup", "verify", "mine", code=1)[0]["error"] == "NoSuchBackup"
    assert "expected names, or --incomplete" in cluster.refused("backup", "delete")


def test_the_schedule_is_performed_and_the_newest_stay(cluster: Cluster) -> None:
    def names() -> set[str]:
        """One that is being made or retired has no manifest."""
        made = [each for each in cluster.json("backup", "list") if each["manifest"] is not None]
        return {each["name"] for each in made if each["manifest"]["why"] == "schedule"}

    def last() -> dict[str, Any]:
        (told,) = cluster.json("status")["supervisor"]["backups"]
        found: dict[str, Any] = told.get("last", {})
        return found

    eventually(lambda: last().get("retired"))
    assert last()["exitCode"] == 0
    assert last()["quads"] == QUADS
    first = names()
    eventually(lambda: not names() & first)
    eventually(lambda: len(names()) == 2)  # between two of them there are three for a moment
    assert "@every 4s" in cluster("status").stdout


@pytest.mark.parametrize("way", [[], ["--live"], ["--wipe"], ["--wipe", "--live", "--source", "uk-worker-1"]])
def test_a_worker_that_was_written_to_is_rebuilt(cluster: Cluster, way: list[str]) -> None:
    cluster.update("uk-worker-2", "INSERT DATA { <http://e/wrong> <http://e/p> 1 }")
    told = cluster.json("worker", "rebuild", "uk-worker-2", "--yes", *way)
    assert (told["worker"], told["quads"]) == ("uk-worker-2", QUADS)
    assert told["position"].split(":")[1] == "60"
    assert is_equal(cluster)


def test_a_backup_is_restored_into_an_empty_store_and_only_there(cluster: Cluster, tmp_path: Path) -> None:
    name = cluster.json("backup", "create")["name"]
    assert "only an empty worker is restored into" in cluster.refused("restore", name, "--into", "uk-worker-2")
    with store(tmp_path / "store") as url:
        refused = cluster.refused("restore", name, "--into", url, "--engine", "fuseki")
        assert "is oxigraph, not fuseki" in refused
        told = cluster.json("restore", name, "--into", url)
        assert (told["quads"], told["from"]) == (QUADS, name)
        with urllib.request.urlopen(f"{url}/store") as answer:
            assert len(answer.read().splitlines()) == QUADS
        assert "is at index 60" in cluster.refused("restore", name, "--into", url)


def test_what_was_adopted_is_under_what_was_written(cluster: Cluster, tmp_path: Path) -> None:
    assert is_equal(cluster)
    with store_of_others(tmp_path / "others") as url:
        assert "has written 60 entries already" in cluster.refused("backup", "adopt", url)
    told = cluster.json("worker", "rebuild", "uk-worker-2", "--from", "beginning", "--yes")
    assert (told["quads"], told["position"].split(":")[1]) == (ADOPTED, "0")
    assert is_equal(cluster)  # the pipeline has replayed all of the log upon it


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url).close()
    except OSError:
        return False
    return True


def test_a_position_off_the_log_is_refused_before_anything_is_touched(cluster: Cluster) -> None:
    cluster.json("backup", "create", "--name", "forged")
    file = cluster.target / "forged" / "manifest.json"
    made = decode_manifest("forged", file.read_bytes())
    there = made.place
    before = cluster.workers()["uk-worker-2"]["position"]
    for forged, said in (
        ({"place": ManifestPosition(1, there.index, "ab" * 16)}, "another branch"),
        ({"place": ManifestPosition(1, there.index + 1, there.hash)}, "above this master's stable index"),
        ({"cluster": "cd" * 16}, "take a backup of this cluster"),
    ):
        file.write_bytes(encode_manifest(msgspec.structs.replace(made, **forged)))
        assert said in cluster.refused("worker", "rebuild", "uk-worker-2", "--from", "forged", "--yes")
        assert cluster.workers()["uk-worker-2"]["position"] == before
    assert is_equal(cluster)
    cluster.json("backup", "delete", "forged")


def test_what_is_wrong_is_said_in_words(cluster: Cluster, tmp_path: Path) -> None:
    assert "expected a folder or s3://" in cluster.refused("backup", "list", "--target", "ftp://x")
    assert "no folder; make it" in cluster.refused("backup", "create", "--target", str(tmp_path / "none"))
    assert "no worker is called x" in cluster.refused("backup", "create", "--worker", "x")
    assert "is at 60 already" in cluster.refused("backup", "create", "--at", "3")
    assert "did not come to 61" in cluster.refused("backup", "create", "--at", "61", "--wait", "1")
    assert "no worker is called x" in cluster.refused("worker", "rebuild", "x", "--live", "--yes")
    assert "not both" in cluster.refused("worker", "rebuild", "uk-worker-2", "--live", "--from", "y", "--yes")
    assert "is not on" in cluster.refused("restore", "none", "--into", "uk-worker-2")
    assert "expected oxigraph, fuseki, rdf4j" in cluster.refused("restore", "x", "--into", "http://a", "--engine", "y")
    named = ("restore", "x", "--into", "uk-worker-2", "--engine", "oxigraph")
    assert "with the URL of a store" in cluster.refused(*named)
    master = cluster.json("status")["masters"][0]["url"]
    assert "does not say which engine it is" in cluster.refused("restore", "x", "--into", master)
    assert all(worker["hold"] is None for worker in cluster.workers().values())
