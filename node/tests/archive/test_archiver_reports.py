"""What an archiver reports of itself to real masters, while its target goes away and comes back."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from archiver_runs import folder
from master_cluster import Cluster, until

from txlog.archive.__main__ import _state_of, report_places, run_archiver
from txlog.archive.archive_errors import NoConditionalPut
from txlog.archive.file_name import Node
from txlog.archive.stream_position import verified_places
from txlog.backup.backup_errors import TargetDenied
from txlog.config.process_config import ArchiverConfig
from txlog.model.errors import Unavailable
from txlog.telemetry.event_log import EventLog
from txlog.wire.archive_report import PLACES_REPORTED_MAX, ArchivePlace, ArchiveReport


class ArchiverThread:
    def __init__(self, config: ArchiverConfig) -> None:
        self.output = io.StringIO()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run_archiver, args=(config, EventLog("a", self.output, 0), self._stop))
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60.0)
        assert not self._thread.is_alive()


@pytest.fixture
async def cluster(clusters: Callable[..., Cluster]) -> Cluster:
    cluster = clusters(2, archive={"max_delay_ms": 100})
    await cluster.start()
    return cluster


async def stream(cluster: Cluster, at: int) -> Any:
    return (await cluster.get(at, "/txlog/status"))["archive"]["streams"][0]


async def test_states_follow_the_target(cluster: Cluster, tmp_path: Path) -> None:
    target, away = folder(tmp_path / "target"), tmp_path / "away"
    urls = [cluster.url(at) for at in range(2)]
    config = ArchiverConfig.model_validate(
        {"data_center": "uk", "masters": urls, "target": {"folder": str(target)}, "max_delay_ms": 100}
    )
    archiver = ArchiverThread(config)
    try:
        await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 1 }")

        async def has_all(at: int) -> bool:
            found, index = await stream(cluster, at), (await cluster.get(at, "/txlog/status"))["stable"]["index"]
            places = (found["archived"], found["verified"])
            return found["state"] == "Shipping" and all(each and each["index"] == index for each in places)

        for at in range(2):
            await until(lambda at=at: has_all(at))
        target.rename(away)
        await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 2 }")

        async def is_away(at: int) -> bool:
            found = await stream(cluster, at)
            return bool(found["state"] == "Unreachable" and found["error"] and found["delaySeconds"] > 1.0)

        for at in range(2):
            await until(lambda at=at: is_away(at))
        assert (await stream(cluster, 0))["errors"] >= 1
        away.rename(target)
        for at in range(2):
            await until(lambda at=at: has_all(at))
        assert (await stream(cluster, 0))["delaySeconds"] == 0.0
        await cluster.write(0, "INSERT DATA { <urn:a> <urn:b> 3 }")
        await asyncio.to_thread(archiver.end)  # reads once more, archives it, and reports that
        index = (await cluster.get(0, "/txlog/status"))["stable"]["index"]
        assert (await stream(cluster, 0))["archived"]["index"] == index
    finally:
        await asyncio.to_thread(archiver.end)


def test_an_error_that_needs_a_person_is_a_state() -> None:
    assert _state_of(NoConditionalPut("x")) == "Refused"
    assert _state_of(TargetDenied("x")) == "Denied"
    assert _state_of(Unavailable("NoMaster", "x")) == "Waiting"


def test_a_report_has_the_newest_places() -> None:
    nodes = [Node(index, bytes(16)) for index in range(100, 0, -1)]
    found = report_places(nodes)
    assert [each.index for each in found] == list(range(101 - PLACES_REPORTED_MAX, 101))
    assert report_places(nodes[:1]) == [ArchivePlace(100, "00" * 16)]


def test_a_report_is_what_masters_of_earlier_versions_take_and_archivers_of_earlier_versions_send() -> None:
    place = ArchivePlace(5, "01" * 16)
    report = ArchiveReport([place], [place], "Behind", "e", "/archive", 1, 2, 3, 4, 5)
    body = (
        b'{"archived":[{"index":5,"hash":"%b"}],"verified":[{"index":5,"hash":"%b"}],"state":"Behind","error":"e",'
        b'"stream":"/archive","files":1,"bytes":2,"errors":3,"gaps":4,"losses":5}' % (b"01" * 16, b"01" * 16)
    )
    assert msgspec.json.encode(report) == body
    assert msgspec.json.decode(body, type=ArchiveReport) == report


def test_verified_places_of_a_status() -> None:
    place = {"index": 5, "hash": "01" * 16}
    archive = {"streams": [{"dataCenter": "uk", "verified": place}, {"dataCenter": "us", "verified": None}]}
    assert verified_places(archive, "uk") == [Node(5, b"\x01" * 16)]
    assert verified_places(archive, "us") == verified_places(None, "uk") == []
