"""Two clusters of real masters, stores and change sets, linked both ways by real processes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from linked_sites import Site, equal, holds, report_link, reported, two_sites
from master_cluster import Cluster, until

from txlog.config.process_config import SiteLinkConfig
from txlog.server.admin.site_reports import SiteReports
from txlog.sites.link_report import LinkReport, LinkState
from txlog.sites.site_link import SiteLink
from txlog.telemetry.event_log import EventLog

VALUES = "/txlog/site/values"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Site, Site]]:
    async with two_sites(tmp_path) as sites:
        yield sites


async def at_rest(lon: Site, nyc: Site) -> set[str]:
    """What both hold when nothing is written any more."""
    seen: list[object] = []

    async def is_quiet() -> set[str] | None:
        found = await equal(lon, nyc)
        seen.append((found, await lon.stable(), await nyc.stable()))
        return found if len(seen) > 40 and all(each == seen[-1] for each in seen[-40:]) else None

    return set(await until(is_quiet))


@pytest.mark.timeout(240)
async def test_both_sites_end_equal_though_links_are_killed(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    lon.start_link(nyc)
    nyc.start_link(lon)
    rng = random.Random(7)
    await lon.write('INSERT DATA { <urn:s0> <urn:p> "lon" . GRAPH <urn:g> { <urn:s0> <urn:p> "lon" } }')
    await until(lambda: holds(nyc, '<urn:s0> <urn:p> "lon"'))
    for number in range(60):
        site = rng.choice(pair)
        subject, graph = f"<urn:s{rng.randrange(4)}>", rng.choice(["", "GRAPH <urn:g> "])
        one, where = f"{subject} <urn:p> ?o", f"{graph}{{ {subject} <urn:p> ?o }}" if graph else f"{subject} <urn:p> ?o"
        new = f'{subject} <urn:p> "{number}"'
        await site.write(
            rng.choice(
                [
                    f"INSERT DATA {{ {graph}{{ {new} }} }}" if graph else f"INSERT DATA {{ {new} }}",
                    f"DELETE {{ {where} }} WHERE {{ {where} }}",
                    f"DELETE {{ {where} }} INSERT {{ {where.replace(one, new)} }} WHERE {{ {where} }}",
                ]
            )
        )
        if number % 15 == 14:
            killed, other = (lon, nyc) if number % 2 else (nyc, lon)
            await killed.end_link(signal.SIGKILL)
            if number % 3 == 2:
                for path in (killed.folder / "link").glob("versions.sqlite*"):
                    path.unlink()
            killed.start_link(other)
    held = await at_rest(lon, nyc)
    await lon.write('INSERT DATA { <urn:last> <urn:p> "lon" }')
    await until(lambda: holds(nyc, '<urn:last> <urn:p> "lon"'))
    await nyc.write("DELETE WHERE { <urn:last> ?p ?o }")
    await until(lambda: equal(lon, nyc))
    assert await at_rest(lon, nyc) == held - {""}, "a delete at the other site counts"
    for site, other in (pair, (nyc, lon)):
        [report] = (await site.cluster.get(0, "/txlog/sites"))["links"]
        assert (report["site"], report["other"], report["state"]) == (site.name, other.name, "Online")
        assert (report["keysWaiting"], report["correctionsWaiting"]) == (0, 0)
        assert report["cursor"] > 0
        assert await site.end_link(signal.SIGTERM) == 0
        assert not [each for each in site.events() if each["event"] == "LinkStopped"]


@pytest.mark.timeout(120)
async def test_a_value_is_read_at_a_final_position_and_what_is_wrong_is_refused(pair: tuple[Site, Site]) -> None:
    lon, _ = pair
    await lon.write('INSERT DATA { <urn:a> <urn:p> "1" , "2" }')
    await lon.write('DELETE DATA { <urn:a> <urn:p> "1" }')
    await lon.capturing.captured(2)
    body = {"index": 1, "kind": "property", "keys": ["<urn:a> <urn:p>", "<urn:b> <urn:p>"]}
    found = await lon.cluster.post(0, VALUES, json.dumps(body), 200)
    assert found == {"values": [['<urn:a> <urn:p> "1" .', '<urn:a> <urn:p> "2" .'], []]}
    cluster = (await lon.cluster.get(0, "/txlog/status"))["clusterId"]
    assert await lon.cluster.post(0, VALUES, json.dumps(body | {"cluster": cluster}), 200) == found
    for change, status, reason in (
        ({"index": 9}, 409, "Ahead"),
        ({"hash": "00" * 16}, 409, "Diverged"),
        ({"cluster": "00" * 16}, 409, "Diverged"),
        ({"kind": "graph"}, 400, ""),
        ({"keys": ["<urn:a>"]}, 400, ""),
    ):
        refused = await lon.cluster.post(0, VALUES, json.dumps(body | change), status)
        assert reason in json.dumps(refused)


@pytest.mark.timeout(120)
async def test_a_site_without_its_first_change_sets_needs_a_copy(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await lon.capturing.stop()
    shutil.rmtree(lon.folder / "changesets")
    await lon.write('INSERT DATA { <urn:a> <urn:p> "1" }')
    await until(lambda: holds(lon, '<urn:a> <urn:p> "1"'))
    lon.capturing.start(replay_max=0)  # it begins with a copy of the store
    nyc.start_link(lon)
    await until(lambda: [e for e in nyc.events() if e["event"] == "LinkStopped" and "NeedsState" in json.dumps(e)])
    [report] = (await nyc.cluster.get(0, "/txlog/sites"))["links"]
    assert (report["state"], report["cursor"]) == ("NeedsState", 0)
    assert nyc.link is not None
    assert nyc.link.poll() is None


@pytest.mark.timeout(120)
async def test_what_a_link_cannot_go_on_with_is_named(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await lon.write('INSERT DATA { <urn:a> <urn:p> "1" . <urn:b> <urn:p> "1" }')
    nyc.start_link(nyc)
    await until(lambda: reported(nyc, "OtherCluster"))
    assert await nyc.end_link(signal.SIGTERM) == 0
    nyc.start_link(lon)
    await until(lambda: reported(nyc, "Starting", "does not report its link"))
    await until(lambda: has_read(nyc, 1, 0))
    await nyc.write('INSERT DATA { <urn:own> <urn:p> "1" }')
    await until(lambda: has_read(nyc, 1, 1))
    assert await nyc.stable() == 1, "only the client has written"
    for changes, state, error in (
        ({"other": "new-york"}, "NamesDiffer", "nyc lists lon"),
        ({"key": "quad"}, "KeysDiffer", "key is property at nyc"),
        ({"otherCluster": "00" * 16}, "OtherCluster", "lon reports a link between the clusters"),
    ):
        assert await nyc.end_link(signal.SIGTERM) == 0
        await report_link(lon, nyc, **changes)
        nyc.start_link(lon)
        await until(partial(reported, nyc, state, error))
    assert await nyc.quads() == {'<urn:own> <urn:p> "1"'}


async def has_read(site: Site, other: int, own: int) -> bool:
    links = (await site.cluster.get(0, "/txlog/sites"))["links"]
    return any(each["read"] >= other and each["ownRead"] >= own for each in links if each["other"] == "lon")


@pytest.mark.timeout(120)
async def test_a_record_of_a_client_is_in_the_way_until_it_is_dropped(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await report_link(lon, nyc)
    ahead_s = [0.0]
    async with running_link(nyc, lon, lambda: time.monotonic() + ahead_s[0]) as link:
        await lon.write('INSERT DATA { <urn:a> <urn:p> "1" }')
        await until(lambda: holds(nyc, '<urn:a> <urn:p> "1"'))
        await be_in_the_way(lon, nyc, link, ahead_s)


@contextlib.asynccontextmanager
async def running_link(site: Site, other: Site, clock: Callable[[], float]) -> AsyncIterator[SiteLink]:
    """The link of a site in this process."""
    stop = threading.Event()
    link = SiteLink(
        SiteLinkConfig.model_validate(site.link_config(other)), EventLog(site.name, io.StringIO()), clock=clock
    )
    running = asyncio.create_task(asyncio.to_thread(link.run, stop))
    try:
        yield link
    finally:
        stop.set()
        await running


async def be_in_the_way(lon: Site, nyc: Site, link: SiteLink, ahead_s: list[float]) -> None:
    forged = '<urn:txlog:site:from:lon> <urn:txlog:site:record> "9.x" ; <urn:txlog:site:contents> "AAAA"'
    await nyc.write(f"INSERT DATA {{ GRAPH <urn:txlog:sites> {{ {forged} }} }}")
    await until(lambda: link.report.ignored)  # A batch that was decided before would still replace the record.
    await lon.write('INSERT DATA { <urn:b> <urn:p> "1" }')
    await until(lambda: link.report.state == "Refused" and "DROP GRAPH <urn:txlog:sites>" in link.report.error)
    before = await nyc.stable()
    assert '<urn:b> <urn:p> "1"' not in await nyc.quads()
    ahead_s[0] = 100.0  # pauses between entries without effect are over
    for number in (1, 2):
        await nyc.write(f"INSERT DATA {{ <urn:c> <urn:p> {number} }}")
        await until(lambda number=number: link.report.own_read >= before + number)
    assert await nyc.stable() == before + 2, "no more entries are written"
    await nyc.write("DROP GRAPH <urn:txlog:sites>")
    await until(lambda: holds(nyc, '<urn:b> <urn:p> "1"'))
    await until(lambda: link.report.state == "Online")


@pytest.mark.timeout(120)
async def test_a_site_whose_clock_is_ahead_is_waited_for(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await lon.write('INSERT DATA { <urn:a> <urn:p> "1" }')
    await report_link(lon, nyc)
    behind_ms, stop = [100_000], threading.Event()
    config = SiteLinkConfig.model_validate(nyc.link_config(lon))
    link = SiteLink(config, EventLog("nyc", io.StringIO()), now_ms=lambda: time.time_ns() // 1_000_000 - behind_ms[0])
    running = asyncio.create_task(asyncio.to_thread(link.run, stop))
    try:
        await until(lambda: link.report.state == LinkState.CLOCK_SKEW)
        assert not await nyc.quads()
        behind_ms[0] = 0
        await until(lambda: holds(nyc, '<urn:a> <urn:p> "1"'))
    finally:
        stop.set()
        await running


@pytest.mark.timeout(120)
async def test_entries_are_as_small_as_the_masters_take_them(tmp_path: Path) -> None:
    lon, nyc = Site("lon", tmp_path / "lon"), Site("nyc", tmp_path / "nyc", limits={"body_bytes": 4096})
    for each in (lon, nyc):
        await each.start()
    try:
        for number in range(60):
            await lon.write(f'INSERT DATA {{ <urn:s{number}> <urn:p> "{"x" * 90}{number}" }}')
        await report_link(lon, nyc)
        nyc.start_link(lon)
        await until(lambda: equal(lon, nyc))
        assert len(await nyc.quads()) == 60
        await lon.write(f'INSERT DATA {{ <urn:large> <urn:p> "{"x" * 6000}" }}')
        await until(lambda: [e for e in nyc.events() if e["event"] == "LinkStopped" and e["state"] == "NeedsState"])
    finally:
        for each in (lon, nyc):
            await each.close()


@pytest.mark.timeout(120)
async def test_an_idle_link_is_online_again_when_the_other_site_answers(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    await report_link(lon, nyc)
    nyc.start_link(lon)
    await until(lambda: reported(nyc, "Online"))
    await lon.cluster.stop(0)
    await until(lambda: reported(nyc, "Unreachable"))
    await lon.cluster.start(0)
    await until(lambda: reported(nyc, "Online"))


@pytest.mark.timeout(120)
async def test_changes_that_were_read_are_imported_before_more_are_read(pair: tuple[Site, Site]) -> None:
    lon, nyc = pair
    for number in range(40):
        await lon.write(f'INSERT DATA {{ <urn:s{number}> <urn:p> "{number}" }}')
    await report_link(lon, nyc)
    nyc.start_link(lon, rows_max=10, keys_max=5)
    await until(lambda: equal(lon, nyc))
    assert len(await nyc.quads()) == 40
    await until(lambda: reported(nyc, "NeedsState", "wait for the other site"))


async def test_a_report_of_a_link_is_taken_and_what_is_none_is_refused(one: Cluster) -> None:
    report = {"site": "lon", "other": "nyc", "state": "Online", "cursor": 7}
    assert await one.post(0, "/txlog/sites", json.dumps(report), 200) == {"known": 1}
    [found] = (await one.get(0, "/txlog/sites"))["links"]
    assert (found["state"], found["cursor"], found["error"]) == ("Online", 7, "")
    for wrong in ("{", json.dumps(report | {"cursor": "x"}), json.dumps({"site": "lon"})):
        await one.post(0, "/txlog/sites", wrong, 400)


def test_a_link_that_reports_nothing_more_is_silent() -> None:
    now = [0.0]
    reports = SiteReports(lambda: now[0])
    reports.take(LinkReport("lon", "nyc", LinkState.ONLINE, cursor=7, lag_seconds=2.0))
    for seconds, state, lag_s in ((9.0, "Online", 2.0), (29.0, "Online", 31.0), (31.0, "Silent", 33.0)):
        now[0] = seconds
        [found] = reports.describe()
        assert (found["state"], found["cursor"], found["reportedSecondsAgo"]) == (state, 7, seconds)
        assert found["lagSeconds"] == lag_s, "nothing may be imported meanwhile"
