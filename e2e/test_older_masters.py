"""Masters of an older program beside today's: they are understood, and replaced while clients write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from e2e.golden import unpack
from e2e.masters_alone import Masters, masters_up
from e2e.rolling import Load, check
from txlog.wire import messages

LIST_FIELDS = """
import json, msgspec
from txlog.wire import messages
print(json.dumps({
    name: list(kind.__struct_fields__)
    for name, kind in vars(messages).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == messages.__name__
} | {"FORMAT": messages.FORMAT}))
"""
WRITES = 50


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("older"))


@pytest.fixture(scope="module")
def fields(older: Path) -> dict[str, Any]:
    """Of the older program's messages, in their order."""
    ran = subprocess.run(
        [sys.executable, "-c", LIST_FIELDS],
        env=os.environ | {"PYTHONPATH": str(older)},
        capture_output=True,
        check=True,
        text=True,
    )
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def test_messages_have_grown_at_their_ends_only(fields: dict[str, Any]) -> None:
    assert fields.pop("FORMAT") == messages.FORMAT
    grown = {}
    for name, before in fields.items():
        kind: type[msgspec.Struct] = getattr(messages, name)
        now = kind.__struct_fields__
        assert list(now[: len(before)]) == before, name
        added = msgspec.structs.fields(kind)[len(before) :]
        for field in added:
            has_default = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
            assert has_default, f"{name}.{field.name}: an older master does not say it"
        if added:
            grown[name] = [field.name for field in added]
    assert grown, "the package is as new as this program: nothing is tried with it"


def revisions(masters: Masters) -> dict[str, bool]:
    """By master: whether its process runs the older program."""
    found = {}
    for node, pid in masters.pids().items():
        if node in masters.nodes:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found[node] = any(each.startswith(b"TXLOG_OLDER=") for each in environment)
    return found


def written(load: Load, more: int) -> None:
    """Patient clients were answered so many times more, and nobody failed."""
    before, until = len(load.waits), time.monotonic() + 60
    while len(load.waits) < before + more:
        assert not load.failed, load.failed
        assert time.monotonic() < until, "nothing is written any more"
        time.sleep(0.02)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_older_masters_are_replaced_one_after_the_other_while_clients_write(older: Path, tmp_path: Path) -> None:
    with masters_up(tmp_path / "state", older=older) as masters:
        assert revisions(masters) == dict.fromkeys(masters.nodes, True)
        load = Load(masters)
        load.begin()
        written(load, WRITES)
        for number, node in enumerate(masters.nodes, 1):
            masters.control.stop(node)
            masters.renew(node)
            masters.control.start(node)
            masters.wait_joined()
            assert sum(revisions(masters).values()) == len(masters.nodes) - number
            written(load, WRITES)
        load.end()
        assert not load.failed
        assert not set(load.plain) - {"204", "503 with Retry-After"}
        verdict = check(masters, load)
        assert verdict.clean, verdict
        assert verdict.acknowledged > WRITES * len(masters.nodes)
