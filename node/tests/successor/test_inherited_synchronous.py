"""A new cluster from an archive with synchronous transactions: what was undecided is rolled back in it, and a key is
taken from where its transaction took effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from archived_history import UK, Step, chain
from archiver_runs import Runner, folder, stable
from log_pieces import START
from lost_cluster import inherit
from master_cluster import Cluster, until
from synchronous_cluster import RULES, decides, insert, post
from synchronous_history import SynchronousHistory, decision_key, synchronous_key

from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest
from txlog.archive.restore_plan import EMPTY_BASE
from txlog.archive.stream import find_streams
from txlog.archive.stream_reader import StreamReader
from txlog.backup.folder_target import FolderTarget
from txlog.config.process_config import NodeConfig
from txlog.model.entry import KIND_QUADS, Span
from txlog.model.ids import Txid
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_QUADS, DecisionKind
from txlog.successor.succession import SuccessionRequest, found_successor

COMMIT, ROLLBACK = DecisionKind.COMMIT, DecisionKind.ROLLBACK
LINE = b"A <urn:s> <urn:p> <urn:o> .\n"


def history_of(path: Path, rows: Sequence[tuple[int, str]], start: int = 0) -> SynchronousHistory:
    steps = [
        Step(Txid(UK, at), 1_700_000_000_000 + at, kind, b"" if kind == KIND_DECISION else LINE, key)
        for at, (kind, key) in enumerate(rows, 1)
    ]
    return SynchronousHistory(path, chain(steps, START), start)


def sync(client_key: str = "") -> tuple[int, str]:
    return KIND_SYNCHRONOUS_QUADS, synchronous_key(client_key)


def decision(verdict: DecisionKind, *seqs: int) -> tuple[int, str]:
    return KIND_DECISION, decision_key(verdict, [Txid(UK, seq) for seq in seqs])


ROWS = [
    sync("a"),
    sync("b"),
    (KIND_QUADS, "c"),
    sync("d"),
    decision(COMMIT, 2),
    decision(ROLLBACK, 4),
    sync("g"),
    decision(ROLLBACK, 7),
    decision(COMMIT, 1),
]


def test_what_was_undecided_is_lost_and_rolled_back(tmp_path: Path) -> None:
    history = history_of(tmp_path, ROWS)
    _, found = inherit(history, history.position(6))
    assert found.undecided == [Txid(UK, 1)]
    assert found.rolled_back == [Txid(UK, 1), Txid(UK, 4)]
    assert found.lost == [Span(*UK, 1, 1)], "7 is rolled back later, so it was never there"
    _, end = inherit(history)
    assert (end.undecided, end.lost, end.rolled_back) == ([], [], [Txid(UK, 4), Txid(UK, 7)])


def test_a_key_counts_from_the_effect(tmp_path: Path) -> None:
    history = history_of(tmp_path, ROWS)
    _, found = inherit(history, history.position(6))
    assert [(key, use.txid.seq) for key, use in found.keys] == [("c", 3), ("b", 2)]
    stamps = {key: use.stamp for key, use in found.keys}
    assert stamps["b"] == history.entries[4].stamp, "the COMMIT is later"
    _, end = inherit(history)
    assert [key for key, _ in end.keys] == ["c", "b", "a"]


async def test_a_founded_cluster_answers_that_it_is_rolled_back(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    """The archive is restored to a place between a transaction and its COMMIT."""
    target = FolderTarget(folder(tmp_path / "target"))
    cluster = clusters(1, graphs=RULES)
    await cluster.start()
    await until(lambda: decides(cluster, 0))
    written = []
    for what in ("a", "b"):
        status, headers = await post(cluster, 0, insert(what), Idempotency_Key=what)
        assert status == 204, headers
        written.append(headers)
    kept, lost = (headers["TxLog-Transaction"] for headers in written)
    page = await cluster.get(0, "/txlog/log?keys=1", headers={"Accept": "application/json"})
    own = next(entry for entry in page["entries"] if entry["txid"] == lost)
    archiver = Runner(cluster, target)
    await archiver.start()
    await archiver.reach(await stable(cluster, 0, int(written[1]["TxLog-Position"].split(":")[1])))
    archiver.close()
    await cluster.crash(0)
    await asyncio.to_thread(Path(cluster.configs[0]["journal_folder"]).rename, tmp_path / "given-up")

    moment = parse_moment(f"position:{own['index']}:{own['hash']}")
    reader = StreamReader(find_streams(target)[0])
    request = SuccessionRequest(
        NodeConfig.model_validate(cluster.configs[0]), target, reader, MomentRequest(moment, target, EMPTY_BASE)
    )
    founded = await asyncio.to_thread(found_successor, request)
    assert founded.inherited is not None
    assert [str(txid) for txid in founded.inherited.undecided] == [lost]
    await cluster.start(ready=False)
    await until(lambda: decides(cluster, 0))
    found = await cluster.get(0, f"/txlog/transactions/{lost}")
    assert found["synchronous"]["state"] == "rolled-back"
    status, again = await post(cluster, 0, insert("a"), Idempotency_Key="a")
    assert (status, again["TxLog-Transaction"]) == (204, kept), "it took effect before"
    status, again = await post(cluster, 0, insert("b"), Idempotency_Key="b")
    assert (status, again["TxLog-Synchronous"]) == (204, "committed")
    assert again["TxLog-Transaction"] != lost, "its key is free"
    assert [rule["match"] for rule in (await cluster.get(0, "/txlog/configuration"))["graphs"]] == [RULES[0]["match"]]
