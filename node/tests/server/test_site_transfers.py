"""A site takes the state of another one: two clusters of real masters, stores and change sets, with real links."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from linked_sites import Site, equal, holds, report_link, reported, two_sites
from master_cluster import Cluster, until
from test_site_switches import command, link_of

from txlog.sites.state_lines import STATE_MEDIA_TYPE

FILLED = 30
STATE = "/txlog/site/state"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Site, Site]]:
    async with two_sites(tmp_path) as sites:
        yield sites


async def fill(site: Site) -> None:
    for number in range(FILLED):
        await site.write(
            f'INSERT DATA {{ <urn:s{number}> <urn:p> "{number}" . GRAPH <urn:g> {{ <urn:s> <urn:q> 1 }} }}'
        )


async def forget_changes(site: Site) -> None:
    """The change sets begin with a copy of the store: those before are gone."""
    last = await site.stable()
    await site.capturing.captured(last)
    await site.capturing.stop()
    shutil.rmtree(site.folder / "changesets")
    site.capturing.start(replay_max=0)


async def is_taken(site: Site) -> bool:
    link = await link_of(site)
    return link.get("state") == "Online" and link["anchor"] > 0


@pytest.mark.timeout(240)
async def test_a_new_site_takes_the_state_of_a_filled_one_under_writes(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await fill(lon)
    await forget_changes(lon)
    await nyc.write('INSERT DATA { <urn:s1> <urn:p> "nyc" . <urn:own> <urn:p> "nyc" }')
    lon.start_link(nyc)
    nyc.start_link(lon, keys_max=7)
    await until(lambda: reported(nyc, "NeedsState"))

    ordered = asyncio.create_task(command(nyc, "take-state", "lon", "--yes", "--wait", "100"))
    written = 0
    while not ordered.done():
        written += 1
        await lon.write(f"DELETE WHERE {{ <urn:s2> <urn:p> ?o }} ; INSERT DATA {{ <urn:s2> <urn:p> {written} }}")
        await nyc.write(f"INSERT DATA {{ <urn:during> <urn:p> {written} }}")
    code, found = await ordered
    assert (code, found["link"]["state"]) == (0, "Online"), found

    await lon.write("DELETE WHERE { <urn:s3> ?p ?o }")
    await nyc.write('INSERT DATA { <urn:after> <urn:p> "nyc" }')
    await until(lambda: holds(lon, '<urn:after> <urn:p> "nyc"'))
    held = await until(lambda: equal(lon, nyc))
    assert '<urn:own> <urn:p> "nyc"' not in held, "no site had imported it"
    assert '<urn:s1> <urn:p> "1"' in held
    assert not [quad for quad in held if "<urn:s3>" in quad]
    assert [quad for quad in held if "<urn:during>" in quad], "what is written meanwhile stays"
    for site in pair:
        assert not (site.folder / "link" / "state.sqlite").exists()


@pytest.mark.timeout(240)
async def test_a_site_that_was_away_takes_the_state_though_its_link_is_killed(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    lon.start_link(nyc)
    nyc.start_link(lon)
    await nyc.write('INSERT DATA { <urn:both> <urn:p> "before" }')
    await until(lambda: holds(lon, '<urn:both> <urn:p> "before"'))
    assert await nyc.end_link(signal.SIGTERM) == 0
    await fill(lon)
    await forget_changes(lon)
    await forget_changes(nyc)
    for path in (nyc.folder / "link").glob("versions.sqlite*"):
        path.unlink()
    nyc.start_link(lon, keys_max=3)
    await until(lambda: reported(nyc, "NeedsState"))
    assert await lon.end_link(signal.SIGTERM) == 0
    code, found = await command(nyc, "take-state", "lon", "--yes", "--wait", "0")
    assert (code, found["order"]["takeAt"] > 0) == (1, True), "it waits for the other site"
    await until(lambda: reported(nyc, "Transferring"))
    lon.start_link(nyc)
    for _ in range(3):
        before = await nyc.stable()
        await until(lambda before=before: has_grown(nyc, before))
        await nyc.end_link(signal.SIGKILL)
        nyc.start_link(lon, keys_max=3)
    await until(lambda: is_taken(nyc))
    await nyc.write("DELETE WHERE { <urn:s5> ?p ?o }")
    await lon.write('INSERT DATA { <urn:last> <urn:p> "lon" }')
    await until(lambda: holds(nyc, '<urn:last> <urn:p> "lon"'))
    held = await until(lambda: equal(lon, nyc))
    assert '<urn:both> <urn:p> "before"' in held

    # Without its table, the link begins again where the transfer began.
    assert await nyc.end_link(signal.SIGTERM) == 0
    for path in (nyc.folder / "link").glob("versions.sqlite*"):
        path.unlink()
    nyc.start_link(lon)
    await lon.write('INSERT DATA { <urn:more> <urn:p> "lon" }')
    await until(lambda: holds(nyc, '<urn:more> <urn:p> "lon"'))
    assert await until(lambda: equal(lon, nyc))


async def has_grown(site: Site, before: int) -> bool:
    return await site.stable() > before or await is_taken(site)


@pytest.mark.timeout(120)
async def test_an_order_is_taken_back_and_what_is_wrong_is_refused(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await fill(lon)
    await forget_changes(lon)
    await report_link(lon, nyc)
    nyc.start_link(lon)
    await until(lambda: reported(nyc, "NeedsState"))
    code, _ = await command(nyc, "take-state", "lon", "--yes", "--wait", "0")
    assert code == 1
    await until(lambda: reported(nyc, "Transferring"))
    code, found = await command(nyc, "take-state", "lon", "--cancel")
    assert (code, found["order"]["takeAt"]) == (0, 0)
    await until(lambda: reported(nyc, "NeedsState", "take-state"))
    assert not [quad for quad in await nyc.quads() if "<urn:s1>" in quad]
    for body in (
        "{}",
        '{"takeState": 1}',
        '{"takeState": true, "offline": true}',
        '{"takeState": true, "byManifest": true}',
    ):
        await change(nyc, "lon", body, 400)
    assert "known: lon" in json.dumps(await change(nyc, "par", '{"takeState": true}', 404))


async def change(site: Site, name: str, body: str, status: int) -> Any:
    url = site.cluster.url(0, f"/txlog/sites/{name}")
    async with site.cluster.session.request("PATCH", url, data=body) as answer:
        assert answer.status == status, await answer.text()
        return json.loads(await answer.text())


@pytest.mark.timeout(120)
async def test_a_state_is_of_one_final_position_and_what_is_wrong_is_refused(pair: tuple[Site, Site]) -> None:
    lon, _ = pair
    await lon.write('INSERT DATA { <urn:a> <urn:p> "1" , "2" }')
    await lon.write("INSERT DATA { GRAPH <urn:txlog:sites> { <urn:a> <urn:p> 3 } }")
    await lon.capturing.captured(2)
    status = await lon.cluster.get(0, "/txlog/status")
    async with lon.cluster.session.get(lon.cluster.url(0, f"{STATE}?cluster={status['clusterId']}&after=2")) as answer:
        assert (answer.status, answer.content_type) == (200, STATE_MEDIA_TYPE)
        head, *quads, end = (await answer.text()).splitlines()
    assert json.loads(head) == {"version": 1, "index": 2, "hash": status["stable"]["hash"]}
    assert sorted(quads) == ['<urn:a> <urn:p> "1" .', '<urn:a> <urn:p> "2" .']
    assert json.loads(end) == {"quads": 2}
    for query, code in (("after=9", 409), ("after=-1", 400), ("after=x", 400), (f"cluster={'00' * 16}", 409)):
        async with lon.cluster.session.get(lon.cluster.url(0, f"{STATE}?{query}")) as answer:
            assert answer.status == code, await answer.text()


async def test_without_change_sets_there_is_no_state(one: Cluster) -> None:
    async with one.session.get(one.url(0, STATE)) as answer:
        assert "NoChangeSets" in await answer.text()
