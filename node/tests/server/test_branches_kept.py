"""An order that was given up can be read afterwards, as it was: real masters that do not hear each other and rejoin."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from apart import go_apart, insert, states
from master_cluster import Cluster, until
from typer.testing import CliRunner

from txlog.cli.main import app
from txlog.model.errors import JournalDamaged
from txlog.server.admin import abandoned_branches as room

ALONE = 2


async def order(cluster: Cluster, at: int) -> list[tuple[int, str]]:
    """What its clients and workers are shown: index and transaction, in the order of the log."""
    end = (await cluster.get(at, "/txlog/status"))["stable"]["index"]
    agreement = cluster.service(at).loop.status.log_state
    assert agreement is not None
    found: list[tuple[int, str]] = []
    for span in agreement.log_index.spans(0, end):
        for seq in range(span.first_seq, span.first_seq + span.count):
            found.append((len(found) + 1, f"{span.node}.{span.birth:016x}.{seq}"))
    return found


async def rejoined(cluster: Cluster) -> dict[int, list[tuple[int, str]]]:
    """By master, what it had shown before it rejoined."""
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    await cluster.write(0, insert("first"))
    heal = await go_apart(cluster)
    for number, at in enumerate((2, 0, 2, 1, 2)):
        await cluster.write(at, insert(f"alone-{number}"))
    shown = {at: await order(cluster, at) for at in range(3)}
    heal()
    await until(lambda: states(cluster) == {"Joined"})

    async def in_order() -> bool:
        orders = [await order(cluster, at) for at in range(3)]
        return orders[0] == orders[1] == orders[2] and len(orders[0]) == 1 + 3 + 5

    await until(in_order)
    return shown


async def test_the_order_of_the_losing_side_is_kept_as_its_clients_saw_it(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    shown = await rejoined(cluster)
    log = dict(await order(cluster, 0))
    for winner in (0, 1):
        assert (await cluster.get(winner, "/txlog/branches"))["branches"] == []
    (branch,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    assert (branch["members"], branch["splitRecovery"]) == (["uk-3"], "Smart")
    assert branch["stable"] == branch["end"] == len(shown[ALONE])
    lines = await cluster.get(ALONE, f"/txlog/branches/{branch['view']}")
    assert [(line["index"], line["id"]) for line in lines] == shown[ALONE][branch["after"] :]
    assert [log[line["now"]] for line in lines] == [line["id"] for line in lines]
    assert lines[-1]["hash"] == branch["hash"]
    assert [log[at] for at in range(1, branch["after"] + 1)] == [txid for _, txid in shown[ALONE][: branch["after"]]]

    second = lines[1]
    path = f"/txlog/branches/{branch['view']}?after={lines[0]['index']}&count=1"
    assert await cluster.get(ALONE, path) == [second]
    await cluster.stop(ALONE)
    await cluster.start(ALONE)
    assert await cluster.get(ALONE, path) == [second], "it outlives the process"

    told = await asyncio.to_thread(command, cluster, "--json")
    assert json.loads(told) == {"uk-1": [], "uk-2": [], "uk-3": [branch]}
    assert branch["view"] in await asyncio.to_thread(command, cluster)
    assert json.loads(await asyncio.to_thread(command, cluster, branch["view"], "--json")) == lines
    assert second["id"] in await asyncio.to_thread(command, cluster, branch["view"], "--after", "1")


async def test_what_was_given_up_is_shown_with_what_it_says(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    await rejoined(cluster)
    (branch,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    path = f"/txlog/branches/{branch['view']}"
    plain = await cluster.get(ALONE, path)
    assert await cluster.get(ALONE, f"{path}?payload=false") == plain
    lines = await cluster.get(ALONE, f"{path}?payload=true")
    assert [{name: line[name] for name in plain[0]} for line in lines] == plain
    said = [line["payload"] for line in lines]
    assert said == [f'A <urn:s:{name}> <urn:p> "o" .\n' for name in ("waits-2", "alone-0", "alone-2", "alone-4")]
    assert {(line["kind"], line["key"], line["missing"]) for line in lines} == {("quads", None, None)}
    assert await cluster.get(ALONE, f"{path}?payload=true&after={lines[0]['index']}&count=1") == [lines[1]]
    for wrong in ("", "1", "yes"):
        told = await cluster.get(ALONE, f"{path}?payload={wrong}", 400)
        assert (told["error"], "true or false" in told["message"]) == ("BadInput", True)

    shown = await asyncio.to_thread(command, cluster, branch["view"], "--full", "--json")
    assert json.loads(shown) == lines
    assert "alone-4" in await asyncio.to_thread(command, cluster, branch["view"], "--full")
    wrong_use = await asyncio.to_thread(CliRunner().invoke, app, ["branches", "--full", "--master", cluster.url(0)])
    assert "expected a VIEW" in str(wrong_use.exception)


async def test_an_answer_with_payloads_ends_behind_some_bytes_and_the_client_goes_on(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    await rejoined(cluster)
    (branch,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    path = f"/txlog/branches/{branch['view']}"
    whole = await cluster.get(ALONE, f"{path}?payload=true")
    monkeypatch.setattr(room, "PAGE_BYTES", 2 * len(json.dumps(whole[0])) - 100)
    assert await cluster.get(ALONE, f"{path}?payload=true") == whole[:2]
    assert len(await cluster.get(ALONE, path)) == len(whole), "without payloads only the count ends it"
    assert json.loads(await asyncio.to_thread(command, cluster, branch["view"], "--full", "--json")) == whole
    shown = await asyncio.to_thread(command, cluster, branch["view"], "--full", "--json", "--limit", "3")
    assert json.loads(shown) == whole[:3]


async def test_what_was_trimmed_or_is_damaged_is_said_by_name(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = clusters(
        3,
        max_peer_lag_ms=5000,
        round_timeout_ms=1500,
        idle_interval_ms=100,
        trim_interval_ms=50,
        segment_bytes=1 << 16,
    )
    await rejoined(cluster)
    (branch,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    path = f"/txlog/branches/{branch['view']}?payload=true"
    with monkeypatch.context() as damaging:

        def read(*_: object) -> None:
            raise JournalDamaged("its checksum is wrong")

        damaging.setattr(cluster.service(ALONE).journal, "read", read)
        told = {(line["payload"], line["missing"]["reason"]) for line in await cluster.get(ALONE, path)}
        assert told == {(None, "Damaged")}
    for number in range(30):
        await cluster.write(0, f'INSERT DATA {{ <urn:s:{number}> <urn:p> "{"x" * 20_000}" }}')
    stable = (await cluster.get(0, "/txlog/status"))["stable"]
    backups = [
        {"name": "elsewhere", "index": stable["index"], "hash": "00" * 16},
        {"name": "nightly", "index": stable["index"], "hash": stable["hash"]},
    ]
    await until(lambda: cluster.service(ALONE).loop.durability.stable.value == stable["index"])
    await cluster.post(ALONE, "/txlog/backups", json.dumps({"backups": backups}), 200)

    async def trimmed() -> bool:
        lines = await cluster.get(ALONE, path)
        return all(line["missing"] is not None for line in lines)

    await until(trimmed)
    lines = await cluster.get(ALONE, path)
    assert {(line["payload"], line["now"]) for line in lines} == {(None, None)}
    assert {(line["missing"]["reason"], line["missing"]["backup"]) for line in lines} == {("Trimmed", "nightly")}
    assert "the backup nightly has its effect" in missing_of(
        await asyncio.to_thread(command, cluster, branch["view"], "--full", "--json")
    )
    cluster.service(ALONE).routes._log_retention._backups.clear()
    (unknown, *_) = await cluster.get(ALONE, path)
    assert (unknown["missing"]["reason"], unknown["missing"]["backup"]) == ("Trimmed", None)


def missing_of(told: str) -> str:
    return str(json.loads(told)[0]["missing"]["text"])


async def test_a_branch_is_on_the_disk_before_it_has_its_name(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        done.append(("fsync", os.readlink(f"/proc/self/fd/{file}")))
        sync(file)

    def replaced(old: str, new: str) -> None:
        done.append(("replace", str(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    await rejoined(cluster)
    (path,) = (cluster.folder / "uk-3" / "branches").iterdir()
    mine = [one for one in done if "/branches" in one[1]]
    assert mine == [("fsync", f"{path}.new"), ("replace", str(path)), ("fsync", str(path.parent))]
    assert ("fsync", str(path.parent.parent)) in done


async def test_where_branches_are_merged_each_side_keeps_its_own(clusters: Callable[..., Cluster]) -> None:
    times = {"max_peer_lag_ms": 5000, "round_timeout_ms": 1500, "idle_interval_ms": 100}
    cluster = clusters(3, split_recovery="Simple", **times)
    shown = await rejoined(cluster)
    log = await order(cluster, 0)
    for at in range(3):
        kept: list[dict[str, Any]] = (await cluster.get(at, "/txlog/branches"))["branches"]
        if shown[at] == log[: len(shown[at])]:
            assert kept == [], "nothing of what it had shown has moved"
            continue
        (branch,) = kept
        lines = await cluster.get(at, f"/txlog/branches/{branch['view']}")
        assert [(line["index"], line["id"]) for line in lines] == shown[at][branch["after"] :]
    assert shown[ALONE] != log[: len(shown[ALONE])] or shown[0] != log[: len(shown[0])]


async def test_bad_questions_and_a_file_that_is_damaged(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    await rejoined(cluster)
    (branch,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    view = branch["view"]
    for unknown in ("9.1.uk-9", "..%2Fsettings", "x%00y", "é" * 90):
        assert "given up no branch" in (await cluster.get(ALONE, f"/txlog/branches/{unknown}", 404))["message"]
    for wrong in ("after=x", "after=-1", "count=0", "count=100001"):
        assert (await cluster.get(ALONE, f"/txlog/branches/{view}?{wrong}", 400))["error"] == "BadInput"
    assert await cluster.get(ALONE, f"/txlog/branches/{view}?after={branch['end']}") == []
    assert CliRunner().invoke(app, ["branches", "x", "--after", "-1"]).exit_code == 2

    (path,) = (cluster.folder / "uk-3" / "branches").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    answer = await cluster.get(ALONE, f"/txlog/branches/{view}", 503)
    assert str(path) in answer["message"]
    (told,) = (await cluster.get(ALONE, "/txlog/branches"))["branches"]
    assert str(path) in told["error"]
    assert str(path) in (await asyncio.to_thread(command, cluster)).replace("\n", "")


async def test_a_branch_that_cannot_be_written_keeps_nobody_from_rejoining(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(3, max_peer_lag_ms=5000, round_timeout_ms=1500, idle_interval_ms=100)
    (cluster.folder / "uk-3").mkdir()
    (cluster.folder / "uk-3" / "branches").write_text("a file is in the way")
    await rejoined(cluster)
    assert "BranchNotKept" in cluster.logged(ALONE)
    assert (await cluster.get(ALONE, "/txlog/branches"))["branches"] == []


def command(cluster: Cluster, *words: str) -> str:
    masters = [word for at in range(3) for word in ("--master", cluster.url(at))]
    done = CliRunner().invoke(app, ["branches", *words, *masters])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.mark.parametrize("view", ["9.1.uk-9", "x"])
async def test_the_command_names_a_branch_that_nobody_has(clusters: Callable[..., Cluster], view: str) -> None:
    cluster = clusters(1)
    await cluster.start()
    done = await asyncio.to_thread(CliRunner().invoke, app, ["branches", view, "--master", cluster.url(0)])
    assert done.exit_code != 0
    assert f"given up no branch '{view}'" in str(done.exception)
