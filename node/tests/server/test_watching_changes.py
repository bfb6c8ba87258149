"""``txlog watch --updates quads`` at real masters: what each entry changed, and the way back after a rejoin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pyoxigraph as ox
from apart import go_apart, insert, states
from master_cluster import Cluster, until
from typer.testing import CliRunner
from worker_driver import Served

from txlog.capture.first_data import copy_worker
from txlog.changesets import CaptureStore, follow_step
from txlog.cli.main import app as commands
from txlog.client import MasterClient
from txlog.model.entry import Position
from txlog.model.errors import NotFound
from txlog.model.hashes import chain_start

MODIFY = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o }"


async def watch(cluster: Cluster, folder: Path, *arguments: str) -> tuple[int, str]:
    options = ("--master", cluster.url(0), "--updates", "quads", "--changes", str(folder), *arguments)
    done = await asyncio.to_thread(CliRunner().invoke, commands, ["watch", *options])
    return done.exit_code, done.output + (str(done.exception) if done.exception is not None else "")


async def test_each_entry_comes_as_what_it_changed(one: Cluster, tmp_path: Path) -> None:
    await one.write(0, 'INSERT DATA { <urn:a> <urn:p> "1" , "2" }')
    await one.write(0, 'INSERT DATA { <urn:a> <urn:p> "1" }')
    await one.write(0, MODIFY)
    await one.write(0, "DELETE WHERE { <urn:a> <urn:p> ?o }")
    code, text = await watch(one, tmp_path, "--from", "0", "--until", "now", "--format", "patch")
    assert code == 0, text
    changes = [line for line in text.splitlines() if line[:2] in ("A ", "D ")]
    assert changes == [
        'A <urn:a> <urn:p> "1" .',
        'A <urn:a> <urn:p> "2" .',
        'D <urn:a> <urn:p> "1" .',
        'D <urn:a> <urn:p> "2" .',
        'A <urn:a> <urn:q> "1" .',
        'A <urn:a> <urn:q> "2" .',
    ]
    assert text.count("TC .") == 4
    await one.write(0, "DROP ALL")
    code, text = await watch(one, tmp_path, "--from", "3", "--until", "now", "--format", "json")
    assert code == 0, text
    assert [line.count("D <urn:a>") for line in text.splitlines()] == [0, 0, 2]
    code, text = await watch(one, tmp_path, "--from", f"3:{'0' * 32}", "--until", "now")
    assert code != 0
    assert "another entry at index 3" in text
    assert (await watch(one, tmp_path, "--from", "99", "--until", "now"))[0] != 0


async def test_a_store_begins_with_the_copy_of_a_worker(served: Served, tmp_path: Path) -> None:
    await served.cluster.write(0, 'INSERT DATA { <urn:a> <urn:p> 01 . GRAPH <urn:g> { <urn:b> <urn:p> "x"@en } }')

    def copied() -> tuple[Position, list[ox.Quad]] | None:
        with MasterClient(served.cluster.url(0)) as master:
            try:
                with copy_worker([master], tmp_path) as first:
                    return (first.position, list(first.quads)) if first.position.index == 1 else None
            except NotFound:
                return None  # nothing is reported yet

    position, quads = await until(lambda: asyncio.to_thread(copied))
    store = CaptureStore(tmp_path / "store", position, quads)
    await served.cluster.write(0, MODIFY)
    with MasterClient(served.cluster.url(0)) as master:
        [made] = await until(lambda: asyncio.to_thread(lambda: follow_step(store, master).changes))
    assert (made.entry.index, len(made.change.deletes), len(made.change.adds)) == (2, 2, 2)
    assert sorted(f"{quad} ." for quad in store.quads) == await served.quads()
    store.close()


def _follow(folder: Path, url: str, target: int) -> tuple[list[str], set[str]]:
    """Follow a master to an index. Returns what happened, and the quads then."""
    happened: list[str] = []
    with MasterClient(url) as master:
        cluster_id = bytes.fromhex(master.status().cluster_id or "")
        store = CaptureStore(folder, Position(0, 0, chain_start(cluster_id)))
        while store.end.index < target or not happened:
            step = follow_step(store, master)
            happened += [f"left {step.left.index}"] if step.left is not None else ["+"] * len(step.changes)
        quads = {str(quad) for quad in store.quads}
        store.close()
    return happened, quads


async def test_the_store_goes_back_and_follows_the_merged_log(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = clusters(3, max_peer_lag_ms=3000, round_timeout_ms=800, idle_interval_ms=100)
    await cluster.start()
    await until(lambda: states(cluster) == {"Joined"})
    await cluster.write(0, insert("first"))
    heal = await go_apart(cluster)
    for number, at in enumerate((2, 0, 2, 1, 2)):
        await cluster.write(at, insert(f"alone-{number}"))
    branch = (await cluster.get(2, "/txlog/status"))["stable"]["index"]
    happened, quads = await asyncio.to_thread(_follow, tmp_path / "2", cluster.url(2), branch)
    assert (len(happened), len(quads)) == (branch, branch)
    heal()
    await until(lambda: states(cluster) == {"Joined"})

    async def merged() -> bool:
        return bool((await cluster.get(0, "/txlog/status"))["stable"]["index"] == 9)

    await until(merged)
    happened, quads = await asyncio.to_thread(_follow, tmp_path / "2", cluster.url(0), 9)
    _, all_quads = await asyncio.to_thread(_follow, tmp_path / "0", cluster.url(0), 9)
    assert happened[0] == f"left {branch}"
    assert quads == all_quads
    assert len(quads) == 9
