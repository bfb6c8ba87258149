"""A master that is called lost while it lives, cut off, with what its clients were told is accepted: before it ends by
name it leaves that to people in a file, and says where."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apart import back_up as told_backup
from apart import cut, insert, states
from master_cluster import Cluster, until

from txlog.model.errors import Fatal, JournalDamaged

TIMES = {"max_peer_lag_ms": 5000, "round_timeout_ms": 1500, "idle_interval_ms": 100}
LOST = 2


async def removed(cluster: Cluster, accepted: int) -> Fatal:
    """uk-3 takes so many transactions while nobody hears it, is taken out as lost, and hears of that."""
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    await cluster.write(LOST, insert("everywhere"))
    heal = cut(cluster)
    for number in range(accepted):
        key = {"Idempotency_Key": "retried"} if number == 1 else {}
        await cluster.write(LOST, insert(f"only-there-{number}"), TxLog_Durability="accepted", **key)

    async def others_go_on() -> bool:
        for at in (0, 1):
            await told_backup(cluster, at)
        return cluster.service(0).loop.executor.core.state == cluster.service(1).loop.executor.core.state == "Isolated"

    await until(others_go_on)
    assert cluster.service(LOST).loop.executor.core.state == "Suspected", (
        "no other master backs up its data centre's store"
    )
    url = cluster.url(0, "/txlog/peers/uk-3?lost=true")
    async with cluster.session.delete(url) as answer:
        assert answer.status == 200, await answer.text()
    heal()
    (ended,) = await until(lambda: cluster.ended)
    assert isinstance(ended, Fatal)
    assert ended.reason == "Removed"
    return ended


def file_of(cluster: Cluster) -> Path:
    birth = cluster.service(LOST).loop.executor.core.views.origin.birth
    return cluster.folder / "uk-3" / f"removed-{birth:016x}.jsonl"


def lines_of(cluster: Cluster) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file_of(cluster).read_text().splitlines()]


async def test_what_only_it_had_is_in_a_file_and_its_last_word_says_where(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **TIMES)
    ended = await removed(cluster, 3)
    assert f"3 transactions were accepted here that its log does not have; they are in {file_of(cluster)}" in str(ended)
    assert str(ended).startswith("Removed: uk-")
    lines = lines_of(cluster)
    assert [line["payload"] for line in lines] == [f'A <urn:s:only-there-{n}> <urn:p> "o" .\n' for n in range(3)]
    assert [line["key"] for line in lines] == [None, "retried", None]
    assert {line["kind"] for line in lines} == {"quads"}
    for line in lines:
        told = await cluster.get(0, f"/txlog/transactions/{line['txid']}", 404)
        assert line["txid"] in told["message"], "and nobody else has it"
    page = await cluster.get(0, "/txlog/log?after=0", headers={"Accept": "application/json"})
    assert not {line["txid"] for line in lines} & {entry["txid"] for entry in page["entries"]}


async def test_where_the_log_has_everything_there_is_no_file(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, **TIMES)
    ended = await removed(cluster, 0)
    assert "accepted" not in str(ended)
    assert list((cluster.folder / "uk-3").glob("removed-*")) == []


async def test_what_cannot_be_read_or_written_is_said(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(3, **TIMES)
    real = os.replace

    def refuse(old: str | Path, new: str | Path) -> None:
        if "removed-" in str(new):
            raise OSError(28, "No space left on device")
        real(old, new)

    with monkeypatch.context() as full:
        full.setattr(os, "replace", refuse)
        ended = await removed(cluster, 2)
    assert "2 transactions were accepted here" in str(ended)
    assert "could not be written" in str(ended)
    assert "No space left" in str(ended)
    assert f"txlog journal show {cluster.folder / 'uk-3'}" in str(ended)

    app = cluster.service(LOST)
    whole = app.journal.read

    def read(node: str, birth: int, seq: int, *more: int) -> Any:
        if seq == 2:
            raise JournalDamaged("its checksum is wrong")
        return whole(node, birth, seq, *more)

    monkeypatch.setattr(app.journal, "read", read)
    app.on_ended(Fatal("Removed", "again"))
    assert [sorted(line) for line in lines_of(cluster)] == [["error", "txid"], ["key", "kind", "payload", "txid"]]
    app.on_ended(Fatal("Forked", "something else"))
    assert str(cluster.ended[-1]) == "Forked: something else", "only who is taken out leaves a file"
