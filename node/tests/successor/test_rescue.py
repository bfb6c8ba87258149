"""What a survivor of a lost cluster holds beyond the archive's end is given again to the cluster's successor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apart import cut, insert
from archived_history import US, History
from archiver_runs import folder
from log_pieces import CLUSTER, META, START
from master_cluster import Cluster
from test_founded_masters import WRITES, Lost, joined, log_of_after
from typer.testing import CliRunner

from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.format import encode_file
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest
from txlog.archive.restore_plan import EMPTY_BASE
from txlog.archive.stream import Stream, StreamId, find_streams
from txlog.archive.stream_reader import StreamReader
from txlog.backup.folder_target import FolderTarget
from txlog.cli.main import app
from txlog.client import MasterClient
from txlog.config.process_config import NodeConfig
from txlog.model.entry import KIND_QUADS, KIND_SKIP
from txlog.successor.rescue import rescue_branches
from txlog.successor.rescue_plan import RescueRow, RescueState
from txlog.successor.succession import SuccessionRequest, found_successor

KEYLESS = 3
"""Transactions of the survivor that have no key, after the one that has."""


class Survived(Lost):
    """A lost cluster whose successor runs as masters 0 and 1. The journal of master 2 survived; nothing starts it."""

    @property
    def journal(self) -> Path:
        return self.folder(2).with_suffix(".lost")

    async def begin(self) -> None:
        cluster = self.cluster
        await self.live()
        for at in (0, 1, 2):
            self.give_up(at)
        await asyncio.to_thread(self.found)
        await cluster.start(0, 1, ready=False)
        await joined(cluster, 0, 1)

    async def _write(self, number: int) -> None:
        await super()._write(number)
        if number == WRITES:  # beyond the archive's end
            for more in range(KEYLESS):
                answer = await self.cluster.write(more % 3, insert(100 + more))
                self.writes[f"no key {more}"] = answer["TxLog-Transaction"]

    async def rescue(self, *words: str, code: int = 0) -> Any:
        masters = [word for at in (0, 1) for word in ("--master", self.cluster.url(at))]
        given = ["archive", "rescue", *words, "--target", self.target.location, *masters, "--json"]
        done = await asyncio.to_thread(CliRunner().invoke, app, given, env={"COLUMNS": "200"})
        assert done.exit_code == code, f"{done.output}{done.exception}"
        return json.loads(done.output) if done.output.startswith("{") else f"{done.output}{done.exception}"

    async def log(self) -> list[tuple[str, bytes]]:
        """Key and payload of each transaction of the new cluster."""
        return [(key, payload) for _, _, _, key, payload in await log_of_after(self.cluster, self.end)]


@pytest.fixture
async def survived(clusters: Callable[..., Cluster], tmp_path: Path) -> Survived:
    lost = Survived(clusters(3), FolderTarget(folder(tmp_path / "target")))
    await lost.begin()
    return lost


async def test_what_a_survivor_holds_is_given_once_in_its_order(survived: Survived) -> None:
    lost = [survived.writes[f"key-{WRITES}"], *(survived.writes[f"no key {each}"] for each in range(KEYLESS))]
    found = await survived.rescue(str(survived.journal), "--dry-run")
    assert found["counts"]["lacking"] == len(lost)
    assert [each["transaction"] for each in found["transactions"]] == lost
    assert await survived.log() == []
    found = await survived.rescue(str(survived.journal))
    assert found["counts"]["given"] == len(lost)
    keys = [f"key-{WRITES}", *(f"rescue.{txid}" for txid in lost[1:])]
    log = await survived.log()
    assert [key for key, _ in log] == keys
    assert [payload for _, payload in log] == [payload_of(WRITES), *(payload_of(100 + n) for n in range(KEYLESS))]
    (record,) = find_streams(survived.target)[0].read_records("rescued")
    assert record["successor"] == found["cluster"]
    assert record["transactions"] == [[each["transaction"], each["new"]] for each in found["transactions"]]
    again = await survived.rescue(str(survived.journal))
    assert (again["counts"]["present"], again["counts"]["given"]) == (len(lost), 0)
    assert [each["new"] for each in again["transactions"]] == [each["new"] for each in found["transactions"]]
    assert await survived.log() == log


def payload_of(number: int) -> bytes:
    return b"A " + insert(number).removeprefix("INSERT DATA { ").removesuffix(" }").encode() + b" .\n"


async def test_what_was_not_ordered_yet_is_given_behind_the_log(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Its master had accepted it, cut off from the others."""
    lost = Survived(clusters(3), FolderTarget(folder(tmp_path / "target")))
    plain = lost._write

    async def write(number: int) -> None:
        await plain(number)
        if number == WRITES:
            cut(lost.cluster)
            await lost.cluster.write(2, insert("alone"), TxLog_Durability="accepted", Idempotency_Key="alone")

    lost._write = write  # type: ignore[method-assign]
    await lost.begin()
    found = await lost.rescue(str(lost.journal))
    assert found["counts"]["given"] == KEYLESS + 2
    assert [key for key, _ in await lost.log()][-1] == "alone"


async def test_a_client_that_was_first_is_not_doubled(survived: Survived) -> None:
    """Under its key, before the rescue and after it."""
    key = f"key-{WRITES}"
    own = await survived.cluster.write(0, insert(WRITES), Idempotency_Key=key)
    found = await survived.rescue(str(survived.journal))
    assert (found["counts"]["present"], found["counts"]["given"]) == (1, KEYLESS)
    assert found["transactions"][0]["new"] == own["TxLog-Transaction"]
    answer = await survived.cluster.write(1, insert(WRITES), Idempotency_Key=key)
    assert answer["TxLog-Transaction"] == own["TxLog-Transaction"]
    assert [each for each, _ in await survived.log()].count(key) == 1


async def test_a_client_that_comes_after_the_rescue_finds_its_transaction(survived: Survived) -> None:
    found = await survived.rescue(str(survived.journal))
    answer = await survived.cluster.write(1, insert(WRITES), Idempotency_Key=f"key-{WRITES}")
    assert answer["TxLog-Transaction"] == found["transactions"][0]["new"]


async def test_a_person_chooses(survived: Survived) -> None:
    keyless = [survived.writes[f"no key {each}"] for each in range(KEYLESS)]
    found = await survived.rescue(str(survived.journal), "--only", ",".join(keyless), "--except", keyless[1])
    assert (found["counts"]["given"], found["counts"]["excluded"]) == (KEYLESS - 1, 2)
    said = await survived.rescue(str(survived.journal), "--only", keyless[0], code=1)
    assert "not among the 2 transactions" in said
    for words, why in ((("--only", "uk"), "--only: not a transaction id"), (("--except", "x.y"), "--except: not a")):
        assert why in await survived.rescue(str(survived.journal), *words, code=1)
    found = await survived.rescue(str(survived.journal))
    assert (found["counts"]["present"], found["counts"]["given"]) == (2, 2)


async def test_what_is_no_survivor_is_refused(survived: Survived, tmp_path: Path) -> None:
    assert "no such folder" in await survived.rescue(str(tmp_path / "none"), code=1)
    assert "holds no journal" in await survived.rescue(str(folder(tmp_path / "empty")), code=1)
    assert "end it first" in await survived.rescue(str(survived.folder(0)), code=1)


async def test_a_journal_of_this_cluster_is_none_of_a_survivor(survived: Survived) -> None:
    await survived.cluster.stop(1)
    masters = ["--master", survived.cluster.url(0), "--target", survived.target.location]
    given = ["archive", "rescue", str(survived.folder(1)), *masters]
    done = await asyncio.to_thread(CliRunner().invoke, app, given, env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "of this very cluster" in str(done.exception)


async def test_without_a_claim_nothing_is_given(survived: Survived, tmp_path: Path) -> None:
    """A copy, or the wrong target."""
    survived.target = FolderTarget(folder(tmp_path / "other"))
    assert "has taken another one's place" in await survived.rescue(str(survived.journal), code=1)


async def test_an_update_is_given_byte_for_byte(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    """A front door would guard it once more."""
    lost = Survived(clusters(3), FolderTarget(folder(tmp_path / "target")))
    text = 'DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?new } WHERE { ?s <urn:p> ?o BIND(IRI("urn:x") AS ?new) }'
    plain = lost._write

    async def write(number: int) -> None:
        await plain(number)
        if number == WRITES:
            await lost.cluster.write(0, text, Idempotency_Key="update")

    lost._write = write  # type: ignore[method-assign]
    await lost.begin()
    found = await lost.rescue(str(lost.journal))
    assert found["counts"]["given"] == KEYLESS + 2
    answer = await lost.cluster.write(1, text, Idempotency_Key="update")
    assert answer["TxLog-Transaction"] == found["transactions"][-1]["new"], "the same content: no KeyTaken"


@pytest.mark.parametrize(
    ("kind", "body", "status", "named"),
    [
        ("update", "LOAD <http://example.org/>", 400, "LOAD reads another address"),
        ("update", "LOAD <urn:txlog:bulk:" + "0" * 32 + ":" + "1" * 64 + ":9>", 400, "bulk load"),
        ("update", "INSERT DATA { GRAPH <urn:txlog:system:a> { <urn:a> <urn:b> 1 } }", 400, "urn:txlog:system"),
        ("update", "INSERT", 400, "no SPARQL update"),
        ("quads", "A <urn:a> <urn:b>", 400, "no list of quads"),
        ("quads", "A _:a <urn:b> <urn:c> .\n", 400, "no list of quads"),
        ("", "", 400, "TxLog-Kind"),
        ("skip", "", 400, "TxLog-Kind"),
    ],
)
async def test_what_no_front_door_takes_is_not_taken_here(
    survived: Survived, kind: str, body: str, status: int, named: str
) -> None:
    path = "/txlog/rescued/uk-9.0000000000000001.1"
    found = await survived.cluster.post(0, path, body, status, headers={"TxLog-Kind": kind} if kind else {})
    assert named in found["message"]
    assert await survived.log() == []


async def test_what_the_log_has_is_not_given_again(survived: Survived) -> None:
    path = f"/txlog/rescued/{survived.writes['key-0']}"
    found = await survived.cluster.post(0, path, payload_of(0), 409, headers={"TxLog-Kind": "quads"})
    assert "is in this log" in found["message"]
    found = await survived.cluster.post(0, "/txlog/rescued/uk", b"", 400, headers={"TxLog-Kind": "quads"})
    assert "not a transaction id" in found["message"]


class Branched:
    """A cluster of one master, founded from an archive of which another data centre's stream has a longer branch."""

    def __init__(self, cluster: Cluster, folder_: Path, seed: int) -> None:
        self.cluster = cluster
        self.history = History(folder_, seed, updates=False)
        self.longer = self.history._extend(self.history.losing.entries, US, 12)
        stream = Stream(self.history.target, StreamId(CLUSTER, "us"))
        stream.create(START)
        made = encode_file(self.longer, START.hash, META, settled=self.history.common, writer=1)
        stream.create_file(made.name, made.data)

    @property
    def beyond(self) -> list[ArchivedEntry]:
        return self.longer[len(self.history.losing.entries) :]

    async def begin(self, moment: str = "latest") -> None:
        reader = StreamReader(self.history.stream)
        request = MomentRequest(parse_moment(moment), self.history.target, EMPTY_BASE)
        config = NodeConfig.model_validate(self.cluster.configs[0])
        await asyncio.to_thread(found_successor, SuccessionRequest(config, self.history.target, reader, request))
        await self.cluster.start(0)

    async def rescue(self) -> list[RescueRow]:
        def run() -> list[RescueRow]:
            with MasterClient(self.cluster.url(0)) as master:
                return rescue_branches(self.history.target, [master], lambda *_: None)

        return await asyncio.to_thread(run)

    async def log(self) -> list[tuple[str, bytes]]:
        entries = await log_of_after(self.cluster, self.history.final.end)
        return [(key, payload) for _, _, _, key, payload in entries]


@pytest.mark.parametrize("seed", [1, 4])
async def test_a_recovery_to_latest_gives_other_branches_again(
    clusters: Callable[..., Cluster], tmp_path: Path, seed: int
) -> None:
    """What was answered as ``archived`` may be in any of them."""
    branched = Branched(clusters(1), tmp_path / "target", seed)
    await branched.begin()
    rows = {row.candidate.txid: row for row in await branched.rescue()}
    skipped = {each.key for each in branched.longer if each.kind == KIND_SKIP}
    skipped |= branched.history.final.skips.keys()
    wanted = [
        each
        for each in branched.beyond
        if each.kind == KIND_QUADS and not each.is_noop and str(each.txid) not in skipped
    ]
    assert wanted
    assert {txid for txid, row in rows.items() if row.state is RescueState.GIVEN} == {each.txid for each in wanted}
    assert await branched.log() == [(each.key or f"rescue.{each.txid}", each.payload) for each in wanted]
    again = await branched.rescue()
    assert {row.candidate.txid for row in again if row.state is RescueState.PRESENT} >= {one.txid for one in wanted}
    assert len(await branched.log()) == len(wanted)


async def test_a_recovery_to_a_chosen_moment_gives_nothing_by_itself(
    clusters: Callable[..., Cluster], tmp_path: Path
) -> None:
    branched = Branched(clusters(1), tmp_path / "target", 1)
    end = branched.history.final.end
    await branched.begin(f"position:{end.index}:{end.hash.hex()}")
    assert await branched.rescue() == []
    assert await branched.log() == []


async def test_people_see_a_table_and_are_asked(survived: Survived) -> None:
    words = ["archive", "rescue", str(survived.journal), "--target", survived.target.location]
    words += [word for at in (0, 1) for word in ("--master", survived.cluster.url(at))]

    def run(*more: str, answer: str = "") -> tuple[int, str]:
        done = CliRunner().invoke(app, [*words, *more], input=answer, env={"COLUMNS": "250"})
        return done.exit_code, f"{done.output}{done.exception or ''}"

    code, said = await asyncio.to_thread(run, "--dry-run")
    assert code == 0, said
    for text in ("TRANSACTION", "STATE", "NOTE", f"key-{WRITES}", "quads", f"{KEYLESS + 1} lacking"):
        assert text in said
    code, said = await asyncio.to_thread(run, answer="n\n")
    assert (code, await survived.log()) == (1, [])
    assert f"{KEYLESS + 1} transactions are given again" in said
    code, said = await asyncio.to_thread(run, "--yes")
    assert code == 0, said
    assert f"{KEYLESS + 1} given" in said
    assert len(await survived.log()) == KEYLESS + 1
