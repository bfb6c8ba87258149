"""Masters of an older program beside today's: they are understood, and replaced while clients write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.golden import unpack
from e2e.lib.cluster.supervised import SupervisedCluster, supervised_up
from e2e.scenarios.rolling_restart import RollingLoad, check_logs

DESCRIBE = """
import json, typing, msgspec
from txlog.runtime import registry
from txlog.wire import messages

def structs(kind):
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in typing.get_args(kind):
        yield from structs(part)

found, left = {}, [registry.Told, *structs(typing.Union[tuple(k for k in vars(messages).values() if list(structs(k)))])]
while left:
    kind = left.pop()
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name not in found:
        fields = msgspec.structs.fields(kind)
        found[name] = {
            "tag": kind.__struct_config__.tag,
            "array_like": kind.__struct_config__.array_like,
            "fields": {field.name: str(field.type) for field in fields},
            "needed": [field.name for field in fields if field.required],
        }
        for field in fields:
            left += structs(field.type)
print(json.dumps({"file": messages.__file__, "format": messages.FORMAT, "structs": found}))
"""
"""Everything that masters say to each other, with what is nested in it, as the program that runs it has it."""
WRITES = 50


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("older"))


def described(program: Path | None) -> dict[str, Any]:
    environment = dict(os.environ) | ({} if program is None else {"PYTHONPATH": str(program)})
    command = [sys.executable, "-P", "-c", DESCRIBE]
    ran = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def test_what_masters_say_has_grown_at_its_ends_only(older: Path) -> None:
    before, now = described(older), described(None)
    assert before["file"].startswith(str(older))
    assert before["format"] == now["format"]
    grown = []
    for name, was in before["structs"].items():
        found = now["structs"][name]
        assert (found["tag"], found["array_like"]) == (was["tag"], was["array_like"]), name
        fields = list(found["fields"].items())
        if was["array_like"]:
            assert fields[: len(was["fields"])] == list(was["fields"].items()), name
        assert dict(fields).items() >= was["fields"].items(), name
        added = set(found["fields"]) - set(was["fields"])
        assert not added & set(found["needed"]), f"{name}: an older master does not say it"
        if added:
            grown.append(name.rpartition(".")[2])
    assert {"Runs", "Known", "Who"} <= set(grown), "the package is as new as this program: nothing is tried with it"


def revisions(masters: SupervisedCluster) -> dict[str, bool]:
    """By master: whether its process runs the older program."""
    found = {}
    for node, pid in masters.pids().items():
        if node in masters.nodes:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found[node] = any(each.startswith(b"TXLOG_OLDER=") for each in environment)
    return found


def written(load: RollingLoad, more: int) -> None:
    """Patient clients were answered so many times more, and nobody failed."""
    before, until = len(load.waits), time.monotonic() + 60
    while len(load.waits) < before + more:
        assert not load.failed, load.failed
        assert time.monotonic() < until, "nothing is written any more"
        time.sleep(0.02)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_older_masters_are_replaced_one_after_the_other_while_clients_write(older: Path, tmp_path: Path) -> None:
    with supervised_up(tmp_path / "state", older=older) as masters:
        assert revisions(masters) == dict.fromkeys(masters.nodes, True)
        load = RollingLoad(masters)
        load.start()
        try:
            written(load, WRITES)
            for number, node in enumerate(masters.nodes, 1):
                masters.control.stop(node)
                masters.upgrade_on_restart(node)
                masters.control.start(node)
                masters.wait_joined()
                assert sum(revisions(masters).values()) == len(masters.nodes) - number
                written(load, WRITES)
        finally:
            load.stop()
        assert not load.failed
        assert not set(load.plain) - {"204", "503 with Retry-After"}
        verdict = check_logs(masters, load)
        assert verdict.is_clean, verdict
        assert verdict.acknowledged > WRITES * len(masters.nodes)
