"""``txlog backup create`` tells the masters of its backup, if it is on the target that the manifest names."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rehearsed_cluster import Rehearsed, insert
from typer.testing import CliRunner

from txlog.cli.main import app
from txlog.config.process_config import BackupJobConfig, FolderConfig
from txlog.local.state_folder import StateFolder


async def create(rehearsed: Rehearsed, state: Path, *words: str) -> Any:
    given = ["backup", "create", "--master", rehearsed.cluster.url(0), "--state", str(state), "--json", *words]
    done = await asyncio.to_thread(CliRunner().invoke, app, given)
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


async def known(rehearsed: Rehearsed) -> list[str]:
    return [each["name"] for each in (await rehearsed.cluster.get(0, "/txlog/recovery"))["backups"]]


async def test_backups_by_hand_are_registered(rehearsed: Rehearsed, tmp_path: Path) -> None:
    await rehearsed.write(insert("a"))
    state, elsewhere = StateFolder(tmp_path / "state"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    made = await create(rehearsed, state.root, "--target", rehearsed.target.location)
    assert (made["registered"], await known(rehearsed)) == (False, [])  # no manifest is known

    config = BackupJobConfig(
        data_center="uk",
        masters=[rehearsed.cluster.url(0)],
        target=FolderConfig(folder=Path(rehearsed.target.location)),
    )
    state.backup("uk").parent.mkdir(parents=True)
    state.backup("uk").write_text(config.model_dump_json())
    second = await create(rehearsed, state.root)
    assert second["registered"] is True
    names = {made["name"], second["name"]}
    assert set(await known(rehearsed)) == names
    other = await create(rehearsed, state.root, "--target", str(elsewhere))
    assert (other["registered"], set(await known(rehearsed))) == (False, names)
    third = await create(rehearsed, state.root, "--target", rehearsed.target.location, "--name", "mine")
    assert (third["registered"], set(await known(rehearsed))) == (True, {*names, "mine"})
