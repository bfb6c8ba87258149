"""What a survivor of a lost cluster holds beyond the archive's end is given again to the cluster's successor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apart import insert
from archiver_runs import folder
from master_cluster import Cluster
from test_founded_masters import WRITES, Lost, joined, log_of_after
from typer.testing import CliRunner

from txlog.archive.stream import find_streams
from txlog.backup.folder_target import FolderTarget
from txlog.cli.main import app

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
    assert find_streams(survived.target)[0].read_rescued(found["cluster"]) == {
        each["transaction"]: each["new"] for each in found["transactions"]
    }
    again = await survived.rescue(str(survived.journal))
    assert (again["counts"]["present"], again["counts"]["given"]) == (len(lost), 0)
    assert [each["new"] for each in again["transactions"]] == [each["new"] for each in found["transactions"]]
    assert await survived.log() == log


def payload_of(number: int) -> bytes:
    return b"A " + insert(number).removeprefix("INSERT DATA { ").removesuffix(" }").encode() + b" .\n"
