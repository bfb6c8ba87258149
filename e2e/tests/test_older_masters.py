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
import importlib, json, sys, typing, msgspec
from txlog.wire import messages

def shape(kind):
    kind = kind.__origin__ if hasattr(kind, "__metadata__") else kind  # bounds of a value: the same on the wire
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        fields = [[each.encode_name, each.required, shape(each.type)] for each in msgspec.structs.fields(kind)]
        return {"tag": config.tag, "array_like": config.array_like, "fields": fields}
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return {"of": "tuple", "parts": [shape(each) for each in typing.get_type_hints(kind).values()]}
    if hasattr(kind, "__metadata__"):  # a range of numbers: they are sent as before
        return shape(kind.__origin__)
    parts = [shape(each) for each in typing.get_args(kind)]
    return {"of": getattr(typing.get_origin(kind) or kind, "__name__", str(kind)), "parts": parts}

module, notice, version = sys.argv[1:]
sent = [each for each in vars(messages).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]
found = {each.__struct_config__.tag: shape(each) for each in sent if each.__struct_config__.tag is not None}
found["workers"] = shape(getattr(importlib.import_module(module), notice))
print(json.dumps({"file": messages.__file__, "version": getattr(messages, version), "messages": found}))
"""
"""The shape of every message between masters, with what is nested in it, as the program that runs it has it. Names that
are not sent (those of structs, and of the fields of arrays) are the program's own."""
NAMES_OLDER = ("txlog.runtime.registry", "Told", "FORMAT")
NAMES_NOW = ("txlog.runtime.worker_notices", "WorkerNotice", "MESSAGE_FORMAT")
WRITES = 50


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("older"))


def described(program: Path | None, names: tuple[str, str, str]) -> dict[str, Any]:
    environment = dict(os.environ) | ({} if program is None else {"PYTHONPATH": str(program)})
    command = [sys.executable, "-P", "-c", DESCRIBE, *names]
    ran = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def added_fields(was: dict[str, Any], now: dict[str, Any], where: str) -> int:
    """How many fields the newer shape has more. Both programs must read what the other one sends."""
    if "fields" not in was:
        assert was["of"] == now["of"], where
        assert len(was["parts"]) == len(now["parts"]), where
        return sum(added_fields(*pair, where) for pair in zip(was["parts"], now["parts"], strict=True))
    assert (now["tag"], now["array_like"]) == (was["tag"], was["array_like"]), where
    if was["array_like"]:
        pairs = list(zip(was["fields"], now["fields"], strict=False))
        added = now["fields"][len(was["fields"]) :]
    else:
        by_name = {field[0]: field for field in now["fields"]}
        pairs = [(field, by_name.pop(field[0])) for field in was["fields"]]
        added = list(by_name.values())
    assert len(pairs) == len(was["fields"]), f"{where}: a field is gone"
    for name, required, _ in added:
        assert not required, f"{where}.{name}: an older master does not send it"
    return len(added) + sum(added_fields(one[2], other[2], f"{where}.{other[0]}") for one, other in pairs)


def test_messages_have_grown_at_their_ends_only(older: Path) -> None:
    before, now = described(older, NAMES_OLDER), described(None, NAMES_NOW)
    assert before["file"].startswith(str(older))
    assert before["version"] == now["version"]
    grown = {tag for tag, was in before["messages"].items() if added_fields(was, now["messages"][tag], tag)}
    assert {"runs", "known", "who"} <= grown, "the package is as new as this program: nothing is tried with it"


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
