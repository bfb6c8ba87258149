"""A store that TxLog did not write, as what the log begins with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_in_memory import MemoryLog
from oxigraph_process import OxigraphProcess
from pen import CLUSTER, apply, everything, filled_log, folder_target, put_back, source

from txlog.backup import BackupRequest, adopt, catalogue, check_backup
from txlog.backup.backup_errors import AlreadyAWorker
from txlog.model.entry import Position
from txlog.model.errors import SystemGraphNamed
from txlog.sparql import skolemise_lines

ORDER = BackupRequest(CLUSTER, "uk", part_bytes=2000)


def beginning(log: MemoryLog) -> Position:
    return Position(1, 0, log.hashes[0])


def test_an_adopted_store_is_what_the_log_begins_with(
    worker: OxigraphProcess, empty: OxigraphProcess, tmp_path: Path
) -> None:
    target = folder_target(tmp_path / "backups")
    shape = " ".join(f'_:a{n} <urn:p> _:a{(n + 1) % 50} ; <urn:name> "_:a{n} <b>" .' for n in range(50))
    worker.update(f"INSERT DATA {{ {shape} GRAPH <urn:g> {{ <urn:s> <urn:p> _:b , 1 }} }}")
    before = everything(worker)
    log = filled_log(3)
    made = adopt(source(worker), target, ORDER, beginning(log))
    assert (made.position, made.quads, made.why) == (beginning(log), 102, "adopt")
    assert everything(worker) == before
    assert check_backup(target, made.name) == made

    put_back(target, made.name, empty, log)
    assert empty.system().markers[0].position == beginning(log)
    assert len(empty.quads()) == 102
    assert not [line for line in empty.quads() if line.startswith("_:") or " _:a" in line.partition('"')[0]]
    # still one ring of fifty
    steps = "/".join(["<urn:p>"] * 50)
    assert empty.select(f"SELECT (COUNT(*) AS ?n) {{ ?s {steps} ?s }}") == ["50"]
    apply(empty, log)
    assert len(empty.quads()) == 102 + 30


def test_a_worker_is_not_adopted_and_terms_of_ours_are_refused(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    log = filled_log(1)
    worker.update("INSERT DATA { <urn:s> <urn:p> <urn:txlog:system:x> }")
    with pytest.raises(SystemGraphNamed):
        adopt(source(worker), target, ORDER, beginning(log))
    worker.update("DROP ALL")
    worker.update("INSERT DATA { <urn:s> <urn:p> <<( <urn:s> <urn:p> <urn:txlog:system:x> )>> }")
    with pytest.raises(SystemGraphNamed):
        adopt(source(worker), target, ORDER, beginning(log))
    worker.update("DROP ALL")
    apply(worker, log)
    with pytest.raises(AlreadyAWorker):
        adopt(source(worker), target, ORDER, beginning(log))
    assert catalogue(target) == []


LABELS = st.text("abcXYZ019-_.é", min_size=1, max_size=6).filter(
    lambda label: label[0] not in "-." and label[-1] != "."
)


@given(st.lists(LABELS, min_size=1, max_size=8, unique=True))
def test_labels_stay_apart_wherever_the_body_is_cut(labels: list[str]) -> None:
    stem = b"0" * 32
    lines = [f'_:{label} <urn:p> "_:{label} \\" _:x" .\n'.encode() for label in labels]
    text = b"".join(lines)
    whole = skolemise_lines(text, stem)
    assert whole == b"".join(skolemise_lines(line, stem) for line in lines)
    subjects = [line.split(b" ")[0] for line in whole.splitlines()]
    assert len(set(subjects)) == len(labels)
    assert all(s.startswith(b"<urn:txlog:bnode:" + stem + b":") and s.endswith(b">") for s in subjects)
    assert [line.partition(b'"')[2] for line in whole.splitlines()] == [
        line.partition(b'"')[2] for line in text.splitlines()
    ]
