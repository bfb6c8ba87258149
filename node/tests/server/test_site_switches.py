"""Links that are taken offline and brought online: real masters, stores and link processes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from linked_sites import Site, equal, holds, report_link, two_sites
from master_cluster import Cluster, until
from typer.testing import CliRunner

from txlog.cli.main import app

FIRST, HERE, THERE = (f'<urn:{each}> <urn:p> "1"' for each in ("first", "here", "there"))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Site, Site]]:
    async with two_sites(tmp_path) as sites:
        yield sites


async def link_of(site: Site) -> dict[str, Any]:
    """The last report of the link to a site; empty before the first one."""
    links = (await site.cluster.get(0, "/txlog/sites"))["links"]
    return dict(links[0]) if links else {}


async def is_offline_by(site: Site, by: str) -> bool:
    link = await link_of(site)
    return (link.get("state"), link.get("offlineBy")) == ("Offline", by)


async def is_online(site: Site) -> bool:
    link = await link_of(site)
    return (link["state"], link["offlineBy"]) == ("Online", "")


async def waits_for(site: Site, entries: int) -> bool:
    link = await link_of(site)
    return bool(link["lagEntries"] >= entries and link["lagSeconds"] > 0)


async def command(site: Site, *arguments: str) -> tuple[int, dict[str, Any]]:
    """A command's exit code, and what it prints as JSON."""
    words = ["site", *arguments, "--master", site.cluster.url(0), "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    return result.exit_code, json.loads(result.stdout or "{}")


async def metric(site: Site, name: str, label: str = "") -> float:
    """The only sample of a metric with this name and this label."""
    text = await site.cluster.get(0, "/metrics")
    [line] = [line for line in text.splitlines() if line.startswith(f"{name}{{") and label in line]
    return float(line.rsplit(" ", 1)[1])


async def has_lag_metric(site: Site, entries: int) -> bool:
    return await metric(site, "txlog_site_lag_entries") == entries


@pytest.mark.timeout(240)
async def test_nothing_is_imported_while_a_site_is_offline_and_nothing_is_lost(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    lon.start_link(nyc)
    nyc.start_link(lon)
    await lon.write(f"INSERT DATA {{ {FIRST} }}")
    await until(lambda: holds(nyc, FIRST))
    await until(lambda: is_online(lon))
    code, found = await command(lon, "offline", "nyc")
    assert (code, found["link"]["state"], found["link"]["offlineBy"]) == (0, "Offline", "lon")
    await until(lambda: is_offline_by(nyc, "lon"))

    before = await nyc.stable()
    for number in range(5):
        await lon.write(f"DELETE WHERE {{ <urn:both> <urn:p> ?o }} ; INSERT DATA {{ <urn:both> <urn:p> {number} }}")
    await lon.write(f"INSERT DATA {{ {HERE} }}")
    await nyc.write(f"INSERT DATA {{ {THERE} . <urn:both> <urn:p> 99 }}")
    await until(lambda: waits_for(nyc, 6))
    await until(lambda: waits_for(lon, 1))
    assert await metric(nyc, "txlog_site_lag_entries", 'other="lon"') >= 6
    assert await metric(nyc, "txlog_site_state", 'state="Offline"') == 1
    assert await nyc.stable() == before + 1, "only the client has written"
    assert not await holds(nyc, HERE)
    assert not await holds(lon, THERE)
    assert (await command(lon, "status"))[0] == 1

    assert await nyc.end_link(signal.SIGKILL) is not None
    nyc.start_link(lon)
    await until(lambda: waits_for(nyc, 6))
    await until(lambda: is_offline_by(nyc, "lon"))
    assert not await holds(nyc, HERE)

    code, found = await command(lon, "online", "nyc")
    assert (code, found["link"]["offlineBy"]) == (0, "")
    await until(lambda: holds(nyc, HERE))
    await until(lambda: holds(lon, THERE))
    await until(lambda: equal(lon, nyc))
    for site in pair:
        await until(partial(is_online, site))
        await until(partial(has_lag_metric, site, 0))


@pytest.mark.timeout(240)
async def test_the_manifest_counts_when_it_changes(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await report_link(lon, nyc)
    await lon.write(f"INSERT DATA {{ {HERE} }}")
    nyc.start_link(lon, offline=True)
    await until(lambda: is_offline_by(nyc, "nyc"))
    assert not await holds(nyc, HERE)
    assert (await command(nyc, "online", "lon"))[0] == 0
    await until(lambda: holds(nyc, HERE))
    assert await nyc.end_link(signal.SIGTERM) == 0
    nyc.start_link(lon, offline=True)
    await lon.write(f"INSERT DATA {{ {THERE} }}")
    await until(lambda: holds(nyc, THERE))  # the manifest is as before, and the command was later
    assert await nyc.end_link(signal.SIGTERM) == 0
    nyc.start_link(lon, offline=False)
    await until(lambda: is_recorded(nyc, manifest_offline=False))
    assert await nyc.end_link(signal.SIGTERM) == 0
    nyc.start_link(lon, offline=True)
    await until(lambda: is_offline_by(nyc, "nyc"))


async def is_recorded(site: Site, *, manifest_offline: bool) -> bool:
    [switch] = (await site.cluster.get(0, "/txlog/sites"))["switches"]
    return bool(switch["manifestOffline"] is manifest_offline)


async def test_a_switch_is_an_entry_of_the_log_and_what_is_wrong_is_refused(one: Cluster) -> None:
    async def change(name: str, body: str, status: int) -> Any:
        url = one.url(0, f"/txlog/sites/{name}")
        async with one.session.request("PATCH", url, data=body) as answer:
            assert answer.status == status, await answer.text()
            return json.loads(await answer.text())

    report = {"site": "lon", "other": "nyc", "state": "Online"}
    await one.post(0, "/txlog/sites", json.dumps(report), 200)
    for body in ("{", "{}", '{"offline": "yes"}', '{"offline": true, "for": 7}'):
        assert "offline" in json.dumps(await change("nyc", body, 400))
    assert "known: nyc" in json.dumps(await change("par", '{"offline": true}', 404))
    assert "no name of a site" in json.dumps(await change("New%20York", '{"offline": true, "byManifest": true}', 400))

    assert (await change("nyc", '{"offline": false}', 200))["index"] == 0, "it is online from the beginning"
    made = await change("nyc", '{"offline": true}', 200)
    assert made == {"site": "nyc", "offline": True, "index": 1, "takeAt": 0}
    assert await change("nyc", '{"offline": true}', 200) == made, "it is offline already"
    await one.crash(0)
    await one.start(0)
    found = await one.get(0, "/txlog/sites")
    assert found["switches"] == [made | {"manifestOffline": False}]
    await one.post(0, "/txlog/sites", json.dumps(report), 200)
    assert (await change("nyc", '{"offline": false}', 200))["index"] == 2
    assert (await change("nyc", '{"offline": true, "byManifest": true}', 200))["index"] == 3
    [switch] = (await one.get(0, "/txlog/sites"))["switches"]
    assert switch == {"site": "nyc", "offline": True, "index": 3, "manifestOffline": True, "takeAt": 0}
