"""Two sites as a user has them: `spec.sites`, `txlog up` twice, `txlog site status`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.lib.load.requests import write_one
from e2e.lib.wait import wait_until
from txlog.client import MasterClient, MasterUnreachable
from txlog.local.state_folder import StateFolder
from txlog.model.durability import Durability
from txlog.model.errors import Unavailable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
MANIFEST = """
apiVersion: txlog.io/v1alpha1
kind: TxLogCluster
metadata: {{name: catalogue}}
spec:
  dataCenter: {site}-dc
  peers: [{{name: {site}-dc, masters: 1, address: localhost}}]
  site: {site}
  changeSets: {{enabled: true, keep: 1h}}
"""
SITES = """
  sites: [{{name: {other}, urls: ["{url}"], lag: 0s}}]
"""
ASK = "ASK {{ {} }}"


class Site:
    """One cluster of one master and one store."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self._manifest = name, folder / name, folder / f"{name}.yaml"

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        command = [sys.executable, "-m", "txlog.cli.main", *words, "--state", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def up(self, other: Site | None = None) -> None:
        text = MANIFEST.format(site=self.name)
        if other is not None:
            text += SITES.format(other=other.name, url=other.url)
        self._manifest.write_text(text)
        self.run("up", "-f", str(self._manifest), "--detach")

    @property
    def url(self) -> str:
        return StateFolder(self.folder).topology().masters[0].url

    def write(self, text: str) -> None:
        write_one(self.url, StateFolder(self.folder).topology().repository, text, Durability.APPLIED)

    def holds(self, pattern: str) -> bool:
        with MasterClient(self.url) as master:
            try:
                found = master.query(StateFolder(self.folder).topology().repository, ASK.format(pattern), wait_s=10.0)
            except (MasterUnreachable, Unavailable):
                return False
        return bool(json.loads(found.body)["boolean"])

    def links(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("site", "status", "--json", codes=(0, 1)))
        return found

    def kill_link(self) -> None:
        processes = StateFolder(self.folder).read("processes.json")
        [name] = [name for name in processes if "-from-" in name]
        os.kill(int(processes[name]["pid"]), signal.SIGKILL)


@pytest.mark.long
def test_two_sites_that_are_listed_import_from_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLOG_PREVIEWS", "sites")
    lon, nyc = Site("lon", tmp_path), Site("nyc", tmp_path)
    try:
        nyc.up()
        lon.up(nyc)
        nyc.run("down")
        nyc.up(lon)
        lon.write('INSERT DATA { <urn:a> <urn:p> "lon" }')
        wait_until("nyc holds what lon wrote", 90.0, lambda: nyc.holds('<urn:a> <urn:p> "lon"'))
        lon.kill_link()
        nyc.write('DELETE { <urn:a> <urn:p> ?o } INSERT { <urn:a> <urn:p> "nyc" } WHERE { <urn:a> <urn:p> ?o }')
        wait_until("lon holds what nyc wrote", 90.0, lambda: lon.holds('<urn:a> <urn:p> "nyc"'))
        assert not lon.holds('<urn:a> <urn:p> "lon"')

        def at_rest(site: Site) -> bool:
            return [(each["state"], each["keysWaiting"]) for each in site.links()] == [("Online", 0)]

        for site in (lon, nyc):
            wait_until(f"{site.name} waits for nothing", 30.0, partial(at_rest, site))
        assert "Online" in lon.run("site", "status")
    finally:
        for site in (lon, nyc):
            if site.folder.exists():
                site.run("down")
