"""``GET /txlog/view-report`` holds no turn of the loop, and says what would be reported in one."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from master_cluster import Cluster

from txlog.server.admin import view_report
from txlog.wire.messages import Checkpoint, ProposeView, ViewReport, decode

PATH = "/txlog/view-report?checkpoints="


async def written(clusters: Callable[..., Cluster], count: int) -> Cluster:
    """Entries of two origins, in turn."""
    cluster = clusters(2)
    await cluster.start()
    for at in range(count):
        await cluster.write(at % 2, f'INSERT DATA {{ <urn:s:{at}> <urn:p> "o" }}')
    return cluster


def in_one_turn(cluster: Cluster, given: list[Checkpoint]) -> ViewReport:
    status = cluster.service(0).loop.status
    view = status.view
    assert view is not None
    report = status.view_report(ProposeView(view.number, view.cluster_id, [], view.number, [], given))
    return without_time(report)


def report_of(answer: dict[str, Any]) -> ViewReport:
    found = decode("uk-1", base64.b64decode(answer["report"]))
    assert isinstance(found, ViewReport)
    return without_time(found)


def without_time(report: ViewReport) -> ViewReport:
    """Idle rounds raise the counter, and may make an entry final between two reports."""
    return msgspec.structs.replace(report, counter=0, pending=[], stable=0)


@pytest.mark.parametrize("in_a_turn", [1, 4, 1000])
async def test_the_pieces_are_the_report(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, in_a_turn: int
) -> None:
    monkeypatch.setattr(view_report, "TAIL_ENTRIES_IN_A_TURN", in_a_turn)
    cluster = await written(clusters, 9)
    assert report_of(await cluster.get(0, PATH)) == in_one_turn(cluster, [])
    log = cluster.service(0).loop.status.log_state
    assert log is not None
    for index in (0, 4, 8, log.log_index.length):
        value = log.log_index.hash_at(index)
        found = report_of(await cluster.get(0, f"{PATH}{index}:{value.hex()}"))
        assert found == in_one_turn(cluster, [Checkpoint(index, value)])
        assert found.shared.index == index


async def test_others_get_turns_and_what_they_write_is_in_it(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_report, "TAIL_ENTRIES_IN_A_TURN", 1)
    cluster = await written(clusters, 12)
    log, turns, real = cluster.service(0).loop.status.log_state, 0, asyncio.sleep
    assert log is not None
    before = log.log_index.length

    async def sleep(seconds: float) -> None:
        nonlocal turns
        if seconds == 0 and log.log_index.length < before + 3:
            turns += 1
            await cluster.write(1, f'INSERT DATA {{ <urn:more:{turns}> <urn:p> "o" }}')
        await real(seconds)

    monkeypatch.setattr(view_report.asyncio, "sleep", sleep)
    found = report_of(await cluster.get(0, PATH))
    monkeypatch.undo()
    assert turns >= 3
    assert found.log.index >= before + 3
    assert found.tail == in_one_turn(cluster, []).tail
    assert found.hashes == in_one_turn(cluster, []).hashes


async def test_after_another_view_it_is_read_again(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_report, "TAIL_ENTRIES_IN_A_TURN", 1)
    cluster = await written(clusters, 6)
    views, turns = cluster.service(0).context.status._core.views, 0
    newer = msgspec.structs.replace(views.accepted, epoch=2, ancestors=[views.accepted.number])

    async def sleep(seconds: float) -> None:
        nonlocal turns
        turns += 1
        views.accepted = newer
        await asyncio.sleep(seconds)

    monkeypatch.setattr(view_report, "asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
    found = report_of(await cluster.get(0, PATH))
    assert found.view == newer
    assert sum(span.count for span in found.tail) == found.log.index == 6
    assert turns == 1 + 5, "what was read in the first view does not count"


async def test_a_report_of_five_thousand_views_holds_no_turn(clusters: Callable[..., Cluster]) -> None:
    cluster = await written(clusters, 2)
    core = cluster.service(0).context.status._core
    ancestors = [(at, 1, "uk-1") for at in range(1, 5001)]
    core.views.accepted = msgspec.structs.replace(core.views.accepted, ancestors=ancestors)
    handler = next(
        each for each in cluster.service(0).routes._handlers if isinstance(each, view_report.ViewReportHandler)
    )
    began = time.thread_time()
    report = await handler._report([])
    view_report.encode(report)
    assert report.view is not None
    assert len(report.view.ancestors) == 5000
    assert time.thread_time() - began < 0.05
    assert len(report_of(await cluster.get(0, PATH)).view.ancestors) == 5000  # type: ignore[union-attr]
