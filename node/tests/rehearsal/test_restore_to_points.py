"""``txlog restore-point``, and a store that is restored to one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from oxigraph_process import OxigraphProcess
from rehearsed_cluster import Rehearsed, insert
from typer.testing import CliRunner, Result

from txlog.cli.main import app


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[OxigraphProcess]:
    store = OxigraphProcess(tmp_path / "restored")
    yield store
    store.kill()


async def command(*words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, list(words))


async def point(rehearsed: Rehearsed, *words: str) -> Any:
    done = await command("restore-point", *words, "--master", rehearsed.cluster.url(0), "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


async def test_a_store_is_restored_to_a_point(rehearsed: Rehearsed, empty: OxigraphProcess, tmp_path: Path) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    await rehearsed.archive(insert("bb"))
    made = await point(rehearsed, "create", "before-the-import")
    await rehearsed.archive(insert("ccc"), "CLEAR ALL")
    assert [each["index"] for each in await point(rehearsed, "list")] == [made["index"]]

    where = ["--target", rehearsed.target.location, "--state", str(tmp_path / "none")]
    done = await command("restore-point", "list", *where, "--json")
    (listed,) = json.loads(done.stdout)
    assert {key: listed[key] for key in made} == made
    assert "before-the-import" in (await command("restore-point", "list", *where)).stdout

    done = await command("restore", "--to", "point:before-the-import", "--into", empty.url, *where, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert (found["position"]["index"], found["position"]["hash"]) == (made["index"], made["hash"])
    assert (found["quads"], len(empty.quads())) == (2, 2)
    # The point's transaction names the same place.
    done = await command("restore", "--to", made["transaction"], "--dry-run", *where, "--json")
    assert json.loads(done.stdout)["position"] == found["position"]


async def test_several_of_one_name_and_none(rehearsed: Rehearsed, tmp_path: Path) -> None:
    await rehearsed.archive(insert("a"))
    await rehearsed.back_up()
    first, second = [await point(rehearsed, "create", "daily") for _ in range(2)]
    await rehearsed.archive(insert("bb"))
    where = ["--dry-run", "--target", rehearsed.target.location, "--state", str(tmp_path / "none")]
    done = await command("restore", "--to", "point:daily", *where)
    assert type(done.exception).__name__ == "AmbiguousPoint"
    for each in (first, second):
        assert f"position:{each['index']}:{each['hash']}" in str(done.exception)
    done = await command("restore", "--to", "point:weekly", *where)
    assert type(done.exception).__name__ == "BeyondArchive"
    assert "the last ones are: daily" in str(done.exception)
    # A recovery is rehearsed over them as over any entry.
    assert (await rehearsed.rehearse()).ok


@pytest.mark.parametrize(
    "words", [["restore-point", "create", "two words"], ["restore", "--to", "point:", "--dry-run"]]
)
async def test_bad_names(words: list[str], tmp_path: Path) -> None:
    done = await command(*words, "--state", str(tmp_path))
    assert "is no name of a restore point" in str(done.exception)
