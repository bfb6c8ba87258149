"""The console as it is served: its files, their policy and types, roles, and the snapshots that it shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from master_cluster import Cluster, until
from people import TOKENS, guarded

from txlog.server.admin import recovery_view
from txlog.server.console import console_files, live_view
from txlog.server.console.console_files import CONTENT_SECURITY_POLICY

PAGE = '<!doctype html><script type="module" src="main-ABCD1234.js"></script>'
LIVE = "/txlog/live"
EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE)
    (folder / "main-ABCD1234.js").write_text("export {};\n" * 200)
    (folder / "main-ABCD1234.css").write_text("body { color: #123 }\n")
    (folder / "notes.txt").write_text("not of the page")
    monkeypatch.setattr(console_files.ConsoleFiles.__init__, "__defaults__", (folder,))
    return folder


async def fetch(cluster: Cluster, path: str, **headers: str) -> tuple[int, Any, bytes]:
    async with cluster.session.get(cluster.url(0, path), headers=headers, allow_redirects=False) as answer:
        return answer.status, answer.headers, await answer.read()


async def test_files_are_served_with_type_policy_and_caching(bundle: Path, one_with_bundle: Cluster) -> None:
    status, headers, body = await fetch(one_with_bundle, "/console/")
    assert (status, body.decode()) == (200, PAGE)
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-cache"
    assert (await fetch(one_with_bundle, "/console/", **{"If-None-Match": headers["ETag"]}))[0] == 304
    for name, content_type in (("main-ABCD1234.js", "text/javascript"), ("main-ABCD1234.css", "text/css")):
        status, headers, body = await fetch(one_with_bundle, f"/console/{name}", **{"Accept-Encoding": "gzip"})
        assert (status, body) == (200, (bundle / name).read_bytes())
        assert headers["Content-Type"] == f"{content_type}; charset=utf-8"
        assert "immutable" in headers["Cache-Control"]
        assert headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    for name in ("notes.txt", "none.js", "..%2Findex.html", "%2e%2e%2fconsole_files.py"):
        assert (await fetch(one_with_bundle, f"/console/{name}"))[0] == 404, name


async def test_the_address_without_a_slash_leads_to_the_page_also_behind_a_proxy(one: Cluster) -> None:
    status, headers, _ = await fetch(one, "/console")
    assert (status, headers["Location"]) == (308, "console/"), "relative: a proxy may have a path in front"


def test_the_policy_permits_nothing_inline_and_no_other_address() -> None:
    rules = dict(part.strip().split(" ", 1) for part in CONTENT_SECURITY_POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert {source for rule in rules.values() for source in rule.split()} == {"'none'", "'self'"}


async def test_without_a_bundle_the_answer_names_the_command(
    clusters: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_files.ConsoleFiles.__init__, "__defaults__", (tmp_path / "missing",))
    cluster = clusters(1)
    await cluster.start()
    for path in ("/console/", "/console/main-ABCD1234.js"):
        status, _, body = await fetch(cluster, path)
        assert (status, b"make console" in body) == (404, True)


async def test_a_new_bundle_is_served_without_a_restart(bundle: Path, one_with_bundle: Cluster) -> None:
    assert (await fetch(one_with_bundle, "/console/"))[2].decode() == PAGE
    (bundle / "index.html").write_text(PAGE.replace("ABCD1234", "ABCD5678"))
    (bundle / "main-ABCD5678.js").write_text("export {};")
    os.utime(bundle / "index.html", ns=(1, 1))
    assert b"ABCD5678" in (await fetch(one_with_bundle, "/console/"))[2]
    assert (await fetch(one_with_bundle, "/console/main-ABCD5678.js"))[0] == 200


@pytest.fixture
async def one_with_bundle(bundle: Path, clusters: Callable[..., Cluster]) -> Cluster:
    cluster = clusters(1)
    await cluster.start()
    return cluster


async def test_the_page_needs_no_credentials_and_its_data_need_a_reader(
    bundle: Path, clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = guarded(clusters, tmp_path)
    await cluster.start()
    assert (await fetch(cluster, "/console/"))[0] == 200
    assert (await fetch(cluster, "/console/main-ABCD1234.js"))[0] == 200
    assert (await fetch(cluster, LIVE))[0] == 401
    assert (await fetch(cluster, LIVE, **EVENTS))[0] == 401
    status, _, body = await fetch(cluster, LIVE, Authorization=f"Bearer {TOKENS['reader']}")
    assert (status, json.loads(body)["node"]) == (200, "uk-1")


async def next_snapshot(lines: asyncio.StreamReader | Any) -> dict[str, Any]:
    async for raw in lines:
        text = raw.decode()
        if text.startswith("data: "):
            told: dict[str, Any] = json.loads(text.removeprefix("data: "))
            return told
    raise AssertionError("the stream has ended")


async def test_a_stream_shows_what_changes_and_only_that(one: Cluster) -> None:
    async with one.session.get(one.url(0, LIVE), headers=EVENTS) as answer:
        assert answer.content_type == "text/event-stream"
        before = await asyncio.wait_for(next_snapshot(answer.content), 20)
        assert before["masters"][0] | {"why": None} == before["masters"][0]
        seen = [before]
        with contextlib.suppress(TimeoutError):  # once nothing happens, nothing is sent
            while len(seen) < 40:
                seen.append(await asyncio.wait_for(next_snapshot(answer.content), 4 * live_view.PERIOD_S))
        pairs = list(pairwise(seen))
        assert len(seen) < 40, json.dumps([[n, seen[-2][n], seen[-1][n]] for n in before if seen[-2][n] != seen[-1][n]])
        assert all({**a, "at": 0} != {**b, "at": 0} for a, b in pairs)
    async with one.session.get(one.url(0, LIVE), headers=EVENTS) as answer:
        await asyncio.wait_for(next_snapshot(answer.content), 20)
        await one.write(0, 'INSERT DATA { <urn:s> <urn:p> "o" }')
        after = await asyncio.wait_for(next_snapshot(answer.content), 20)
        while after["log"]["stable"] <= before["log"]["stable"]:
            after = await asyncio.wait_for(next_snapshot(answer.content), 20)
    assert {o["node"]: o["transactions"] for o in after["origins"]}["uk-1"] >= 1


async def test_all_streams_share_one_snapshot(one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = 0
    real = live_view.LiveViewHandler._snapshot

    def counted(self: live_view.LiveViewHandler) -> dict[str, Any]:
        nonlocal computed
        computed += 1
        return real(self)

    monkeypatch.setattr(live_view.LiveViewHandler, "_snapshot", counted)
    answers = [await one.session.get(one.url(0, LIVE), headers=EVENTS) for _ in range(10)]
    try:
        for answer in answers:
            await asyncio.wait_for(next_snapshot(answer.content), 20)
        began, first = asyncio.get_running_loop().time(), computed
        await until(lambda: computed >= first + 4)
        took = asyncio.get_running_loop().time() - began
        assert computed - first <= took / live_view.PERIOD_S + 2
    finally:
        for answer in answers:
            answer.close()


async def test_streams_are_bounded(one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "STREAMS_MAX", 1)
    async with one.session.get(one.url(0, LIVE), headers=EVENTS) as answer:
        await asyncio.wait_for(next_snapshot(answer.content), 20)
        status, headers, _ = await fetch(one, LIVE, **EVENTS)
        assert (status, headers["TxLog-Error"]) == (503, "TooManyFollowers")
        assert (await fetch(one, LIVE))[0] == 200, "one snapshot is always to be had"


async def test_it_shows_the_others_and_who_receives_from_whom(three: Cluster) -> None:
    async def is_whole() -> bool:
        told = await three.get(0, LIVE)
        return all(len(told["hears"].get(node) or []) == 2 for node in ("uk-1", "uk-2", "uk-3"))

    await until(is_whole)
    told = await three.get(0, LIVE)
    assert [m["node"] for m in told["masters"]] == ["uk-1", "uk-2", "uk-3"]
    assert [m["self"] for m in told["masters"]] == [True, False, False]
    assert all(m["inView"] and m["present"] for m in told["masters"])


async def test_a_transaction_gives_a_latency(one: Cluster) -> None:
    async def is_measured() -> bool:
        await one.write(0, 'INSERT DATA { <urn:s> <urn:p> "o" }')
        return (await one.get(0, LIVE))["latencyMs"]["synced"] is not None

    await until(is_measured)
    assert re.fullmatch(r"\d+(\.\d)?", str((await one.get(0, LIVE))["latencyMs"]["synced"]))


RECOVERY = "/txlog/recovery"


async def test_the_recovery_view_has_times_of_backups_and_of_the_log(one: Cluster) -> None:
    for number in range(150):
        await one.write(0, f'INSERT DATA {{ <urn:s:{number}> <urn:p> "o" }}')
    stable = (await one.get(0, LIVE))["log"]["stable"]
    on_log = (await one.get(0, f"/txlog/branch?at={stable - 3}"))["hash"]
    backups = [
        {"name": "x-manual-20261125t201000z-2e2563", "index": stable - 3, "hash": on_log},
        {"name": "of-an-abandoned-branch", "index": 2, "hash": "ab" * 16, "split": True},
    ]
    await one.post(0, "/txlog/backups", json.dumps({"backups": backups}), 200)
    told = await one.get(0, RECOVERY)
    assert told["streams"] == []
    other, first = told["backups"]
    assert (first["onLog"], first["dataCenter"], first["split"], first["madeAt"]) == (True, "uk", False, 1795637400.0)
    assert told["at"] - 300 < first["at"] <= told["at"]
    assert (other["onLog"], other["at"], other["madeAt"], other["split"]) == (False, None, None, True)
    marks = told["marks"]
    assert 3 <= len(marks) <= recovery_view.MARKS_MAX + 1
    assert [one["at"] for one in marks] == sorted(one["at"] for one in marks)
    assert (marks[0]["index"], marks[-1]["index"]) == (1, stable)


async def test_the_times_of_the_log_are_read_once(one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        await one.write(0, f'INSERT DATA {{ <urn:s:{number}> <urn:p> "o" }}')
    reads: list[int] = []
    real = recovery_view.RecoveryHandler._time_at

    def counted(self: recovery_view.RecoveryHandler, agreement: Any, index: int) -> float | None:
        reads.append(index)
        return real(self, agreement, index)

    monkeypatch.setattr(recovery_view.RecoveryHandler, "_time_at", counted)
    first = await one.get(0, RECOVERY)
    assert len(reads) == len(first["marks"])
    assert (await one.get(0, RECOVERY))["marks"] == first["marks"]
    assert len(reads) == len(first["marks"])


async def test_a_log_without_entries_has_no_times(one: Cluster) -> None:
    told = await one.get(0, RECOVERY)
    assert (told["marks"], told["backups"], len(told["clusterId"])) == ([], [], 32)


@pytest.mark.parametrize(
    ("name", "at"),
    [("1-ab-manual-19700101t000010z-ff", 10.0), ("mine", None), ("1-ab-split-20261399t000010z-ff", None)],
)
def test_the_name_of_a_backup_may_have_its_time(name: str, at: float | None) -> None:
    assert recovery_view.parse_backup_time(name) == at
