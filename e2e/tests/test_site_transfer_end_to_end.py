"""A site takes the state of the other one, as a user does it: `txlog up` twice, `txlog site take-state`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from e2e.lib.wait import wait_until
from e2e.tests.test_sites_end_to_end import Site

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]
FILLED = 40


def state_of(site: Site) -> str:
    links = site.links()
    return str(links[0]["state"]) if links else ""


def is_online(site: Site) -> bool:
    return state_of(site) == "Online"


def test_a_site_takes_the_state_and_both_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXLOG_PREVIEWS", "sites")
    lon, nyc = Site("lon", tmp_path), Site("nyc", tmp_path)
    try:
        nyc.up()
        lon.up(nyc)
        for number in range(FILLED):
            lon.write(f'INSERT DATA {{ <urn:s{number}> <urn:p> "{number}" }}')
        nyc.run("down")
        nyc.up(lon)
        wait_until("the sites are linked", 90.0, lambda: {state_of(lon), state_of(nyc)} == {"Online"})
        nyc.run("site", "take-state", "lon", "--yes", "--wait", "180")
        [link] = nyc.links()
        assert link["anchor"] > 0, link
        for quad in ('<urn:s0> <urn:p> "0"', f'<urn:s{FILLED - 1}> <urn:p> "{FILLED - 1}"'):
            wait_until(f"nyc holds {quad}", 60.0, partial(nyc.holds, quad))
        nyc.write('DELETE { <urn:s2> ?p ?o } INSERT { <urn:s2> <urn:p> "nyc" } WHERE { <urn:s2> ?p ?o }')
        wait_until("lon holds what nyc wrote", 90.0, lambda: lon.holds('<urn:s2> <urn:p> "nyc"'))
        lon.write('INSERT DATA { <urn:s3> <urn:q> "lon" }')
        wait_until("nyc holds what lon wrote", 90.0, lambda: nyc.holds('<urn:s3> <urn:q> "lon"'))
        for site in (lon, nyc):
            wait_until(f"{site.name} is online", 60.0, partial(is_online, site))
    finally:
        for site in (lon, nyc):
            if site.folder.exists():
                site.run("down")
