"""A backup names the synchronous transactions that are undecided at its position, and a restore lists them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from master_cluster import Cluster, until
from master_cluster import clusters as clusters
from oxigraph_process import ADAPTER, OxigraphProcess
from synchronous_cluster import RULES, decides, insert, post

from txlog.apply import MasterLog, WorkerState, apply_up_to
from txlog.backup import BackupRequest, RestoreTarget, SourceWorker, restore_backup, take_backup
from txlog.backup.backup_manifest import decode_manifest, encode_manifest
from txlog.backup.chain_check import make_chain_check, read_undecided
from txlog.backup.folder_target import FolderTarget
from txlog.cli.main import app
from txlog.client import MasterClient
from txlog.model.entry import Position
from txlog.model.errors import LogAhead, LogDiverged

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_manifests_of_every_format_are_read_and_written_as_they_were(number: int) -> None:
    """Those of formats 1 and 2 were written by a program that knew no other."""
    raw = (GOLDEN / f"manifest-{number}.json").read_bytes()
    name = json.loads(raw)["name"]
    found = decode_manifest(name, raw)
    assert encode_manifest(found) == raw
    undecided = ["uk-1.00c0ffee00c0ffee.7", "us-1.00c0ffee00c0ffee.9"]
    assert found.undecided_transactions == (undecided if number >= 3 else [])
    assert found.chain_number == (3 if number == 4 else 0)


class Pending:
    """One master and a store. ``txid`` is at ``places[own]`` of the log, alone with epoch 1; its COMMIT follows."""

    def __init__(self, cluster: Cluster, store: OxigraphProcess, txid: str, places: list[Position]) -> None:
        self.cluster, self.store, self.txid, self.places = cluster, store, txid, places
        self.own = next(at for at, place in enumerate(places) if place.epoch)

    def execute(self, index: int) -> None:
        with MasterClient(self.cluster.url(0)) as master:
            identity = bytes.fromhex(master.status().cluster_id)
            done = apply_up_to(
                ADAPTER, self.store.transport, MasterLog(master), index, cluster=lambda: identity, budget_s=60
            )
        assert (done.state, done.error) == (WorkerState.WORKING, None)

    def ask(self, position: Position) -> list[str]:
        with MasterClient(self.cluster.url(0)) as master:
            return read_undecided([master], position, 0.0)


@pytest.fixture
async def pending(tmp_path: Path, clusters: Callable[..., Cluster]) -> AsyncIterator[Pending]:
    store = OxigraphProcess(tmp_path / "worker")
    cluster = clusters(1, graphs=RULES, workers=[{"name": "w-1", "url": store.url}])
    await cluster.start()
    await until(lambda: decides(cluster, 0))
    status, headers = await post(cluster, 0, insert("a"), TxLog_Durability="synced")
    assert status == 204, headers
    page = await cluster.get(0, "/txlog/log?keys=1", headers={"Accept": "application/json"})
    txid = headers["TxLog-Transaction"]
    places = [
        Position(int(entry["txid"] == txid), entry["index"], bytes.fromhex(entry["hash"])) for entry in page["entries"]
    ]
    yield Pending(cluster, store, txid, places)
    store.kill()


async def test_masters_tell_what_was_undecided_at_a_position(pending: Pending) -> None:
    own = pending.own
    found = [await asyncio.to_thread(pending.ask, place) for place in pending.places]
    assert found == [[] for _ in range(own)] + [[pending.txid]] + [[] for _ in pending.places[own + 1 :]]
    wrong = pending.places[own]
    with pytest.raises(LogDiverged):
        await asyncio.to_thread(pending.ask, Position(1, wrong.index, bytes(16)))
    with pytest.raises(LogAhead):
        await asyncio.to_thread(pending.ask, Position(1, wrong.index + 100, bytes(16)))
    refused = await pending.cluster.get(0, "/txlog/synchro?at=here", 400)
    assert "at='here'" in refused["message"]


async def test_a_backup_before_a_commit_names_it(pending: Pending, tmp_path: Path) -> None:
    place = pending.places[pending.own]
    target = FolderTarget(tmp_path / "target")
    (tmp_path / "target").mkdir()

    def back_up(index: int) -> Any:
        pending.execute(index)
        with MasterClient(pending.cluster.url(0)) as master:
            identity = master.status().cluster_id
            source = SourceWorker("w-1", ADAPTER, pending.store.transport, [master])
            return take_backup(source, target, BackupRequest(identity, "uk"))

    made = await asyncio.to_thread(back_up, place.index)
    assert (made.format, made.undecided_transactions, made.quads) == (3, [pending.txid], 0)
    later = await asyncio.to_thread(back_up, pending.places[-1].index)
    assert (later.format, later.undecided_transactions, later.quads) == (1, [], 1)

    listed = CliRunner().invoke(app, ["backup", "list", "--target", target.location, "--json"])
    assert listed.exit_code == 0, listed.output
    by_name = {each["name"]: each["manifest"] for each in json.loads(listed.stdout)}
    assert by_name[made.name]["undecided"] == [pending.txid]
    assert "undecided" not in by_name[later.name]

    def restore() -> tuple[str, ...]:
        """Restore and replay need nothing else: the page of the COMMIT has the payload."""
        assert pending.store.update("DROP ALL").ok
        with MasterClient(pending.cluster.url(0)) as master:
            into = RestoreTarget("w-1", ADAPTER, pending.store.transport)
            done = restore_backup(target, made.name, into, made.cluster, make_chain_check([master]))
        pending.execute(pending.places[-1].index)
        return done.undecided

    assert await asyncio.to_thread(restore) == (pending.txid,)
    assert len(pending.store.quads()) == 1
