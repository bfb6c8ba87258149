"""Change sets as a user has them: `spec.changeSets`, `txlog up`, `txlog watch --updates quads`, `txlog status`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.lib.load.requests import write_one
from e2e.lib.wait import wait_until
from txlog.client import MasterClient
from txlog.local.state_folder import StateFolder
from txlog.model.durability import Durability

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
MANIFEST = """
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {name: catalogue}
spec:
  dataCenter: uk
  peers: [{name: uk, masters: 1, address: localhost}]
  changeSets: {enabled: true, keep: 1h}
"""
MODIFY = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }"


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "txlog.cli.main", *words, "--state", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_update_is_watched_as_quads_and_a_killed_process_goes_on(tmp_path: Path) -> None:
    folder, manifest = tmp_path / "state", tmp_path / "catalogue.yaml"
    manifest.write_text(MANIFEST)
    run(folder, "up", "-f", str(manifest), "--detach")
    try:
        state = StateFolder(folder)
        url = state.topology().masters[0].url

        def write(text: str) -> None:
            write_one(url, state.topology().repository, text, Durability.APPLIED)

        def watched(start: str) -> list[str]:
            words = ("watch", "--updates", "quads", "--format", "patch", "--from", start, "--until", "now")
            return [line for line in run(folder, *words).splitlines() if re.match("[AD] |H id", line)]

        write('INSERT DATA { <urn:a> <urn:p> "1" , "2" }')
        write(MODIFY)
        found = watched("0")
        assert [line for line in found if line[0] != "H"] == [
            'A <urn:a> <urn:p> "1" .',
            'A <urn:a> <urn:p> "2" .',
            'D <urn:a> <urn:p> "1" .',
            'D <urn:a> <urn:p> "2" .',
            'A <urn:a> <urn:q> "1" .',
            'A <urn:a> <urn:q> "2" .',
        ]
        place = re.search("urn:txlog:log:([^>]*)", [line for line in found if line[0] == "H"][-1])
        assert place is not None
        os.kill(int(state.read("processes.json")["uk-changesets"]["pid"]), signal.SIGKILL)
        write("DELETE WHERE { ?s <urn:q> ?o }")

        def is_up_to_date() -> bool:
            with MasterClient(url) as master:
                [seen] = master.status().change_sets or [{}]
            return bool(seen["state"] == "Following" and seen["entriesBehind"] == 0)

        wait_until("the change sets are at the end of the log", 60.0, is_up_to_date)
        assert [line for line in watched(place[1]) if line[0] != "H"] == [
            'D <urn:a> <urn:q> "1" .',
            'D <urn:a> <urn:q> "2" .',
        ]
        shown: dict[str, Any] = json.loads(run(folder, "status", "--json"))
        assert [each["name"] for each in shown["supervisor"]["processes"] if each["role"] == "changesets"]
        assert "CHANGE SETS" in run(folder, "status")
    finally:
        run(folder, "down")
