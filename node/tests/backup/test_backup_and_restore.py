"""From a worker to a target and into another worker; each target is a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oxigraph_process import ADAPTER, OxigraphProcess
from pen import CLUSTER, apply, back_up, filled_log, folder_target, order, put_back, s3_target, source

from e2e.lib.seaweedfs import ACCESS, SECRET, SeaweedProcess
from txlog.backup import BackupTarget, catalogue, check_backup, take_backup
from txlog.backup.backup_errors import NameTaken, NotCanonical, NothingToBackUp, WorkerMoved
from txlog.backup.backup_manifest import MANIFEST_NAME
from txlog.model.errors import BadInput
from txlog.workers.digest import digest_worker


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackupTarget]:
    if request.param == "folder":
        yield folder_target(tmp_path / "backups")
        return
    seaweed: SeaweedProcess = request.getfixturevalue("seaweed")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "AWS_ACCESS_KEY_ID").write_text(ACCESS + "\n")
    (credentials / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)
    yield s3_target(seaweed.url, tmp_path.name, credentials)


def test_a_restored_worker_is_the_same_and_the_log_goes_on(
    worker: OxigraphProcess, empty: OxigraphProcess, target: BackupTarget
) -> None:
    log = filled_log(30)
    apply(worker, log, 20)
    made = back_up(worker, target)
    assert (made.position.index, made.position.hash, made.position.epoch) == (20, log.hashes[20], 1)
    assert (made.quads, made.cluster, made.engine, made.why) == (200, CLUSTER, "oxigraph", "manual")
    assert len(made.parts) == 3
    assert all(part.plain <= 4000 for part in made.parts)
    assert check_backup(target, made.name) == made

    restored = put_back(target, made.name, empty, log)
    assert empty.quads() == worker.quads()
    assert empty.system().markers == (restored.marker,)
    assert empty.system().claims == frozenset()
    assert restored.marker.position == made.position

    apply(worker, log)
    apply(empty, log)  # picks up from the marker: entry 21 needs it to be exactly there
    assert empty.quads() == worker.quads()
    assert len(empty.quads()) == 300
    assert digest_worker(ADAPTER, empty.transport) == digest_worker(ADAPTER, worker.transport)


def test_triple_terms_come_back(worker: OxigraphProcess, empty: OxigraphProcess, target: BackupTarget) -> None:
    log = filled_log(1)
    inside = '<<( <urn:s> <urn:q> "x \\")>> ."@en )>>'
    quads = [f"<urn:s> <urn:p> {inside} <urn:g> .", f"<urn:s> <urn:p> <<( <urn:s> <urn:q> {inside} )>> ."]
    log.add(*quads, f"<urn:t> <urn:p> {inside} .")
    log.delete(f"<urn:t> <urn:p> {inside} .")
    apply(worker, log)
    made = back_up(worker, target)
    put_back(target, made.name, empty, log)
    log.add(f"<urn:later> <urn:p> {inside} .")
    for each in (worker, empty):
        apply(each, log)
    assert empty.quads() == worker.quads()
    assert len(empty.quads()) == 13
    assert digest_worker(ADAPTER, empty.transport) == digest_worker(ADAPTER, worker.transport)


def test_the_catalogue_is_ordered_by_position(worker: OxigraphProcess, target: BackupTarget) -> None:
    log = filled_log(12, 2)
    made = []
    for index in (1, 9, 12):
        apply(worker, log, index)
        made.append(back_up(worker, target))
    target.write("leftover/part-00001.nq.zst", b"x")
    found = catalogue(target)
    assert [(each.state, each.manifest) for each in found] == [
        ("incomplete", None),
        *(("complete", manifest) for manifest in made),
    ]
    assert [each.bytes > 0 for each in found] == [True] * 4


def test_a_name_is_never_used_twice(worker: OxigraphProcess, target: BackupTarget) -> None:
    apply(worker, filled_log(1))
    made = back_up(worker, target, name="mine")
    raw = target.read(f"mine/{MANIFEST_NAME}", 1 << 20)
    with pytest.raises(NameTaken):
        back_up(worker, target, name="mine")
    with pytest.raises(NameTaken):
        target.write(f"mine/{MANIFEST_NAME}", b"other")
    assert target.read(f"mine/{MANIFEST_NAME}", 1 << 20) == raw
    assert check_backup(target, "mine") == made
    for bad in ("", "../x", "a/b", "A", "x" * 121):
        with pytest.raises(BadInput, match="lower-case"):
            take_backup(source(worker), target, order(name=bad or "/"))


def test_an_empty_worker_at_a_position_is_restored_as_such(
    worker: OxigraphProcess, empty: OxigraphProcess, target: BackupTarget
) -> None:
    log = filled_log(1, 2)
    log.delete(*(line for line in worker_lines(log)))
    apply(worker, log)
    assert worker.quads() == []
    made = back_up(worker, target)
    assert (made.quads, made.parts) == (0, [])
    put_back(target, made.name, empty, log)
    assert empty.system().markers[0].position == made.position


def worker_lines(log: object) -> list[str]:
    from log_in_memory import MemoryLog

    assert isinstance(log, MemoryLog)
    return [line[2:] for line in log.entries[0].payload.decode().splitlines()]


def test_a_worker_without_a_position_is_not_backed_up(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    with pytest.raises(NothingToBackUp):
        back_up(worker, target)
    worker.update("INSERT DATA { <urn:s> <urn:p> 1 }")
    with pytest.raises(NothingToBackUp):
        back_up(worker, target)
    assert list(target.list_objects()) == []


def test_blank_nodes_are_named_and_nothing_is_left(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    apply(worker, filled_log(3))
    back_up(worker, target)  # a literal that only looks like one is none
    for where in ("_:b <urn:p> 1", "<urn:s> <urn:p> _:b", "GRAPH <urn:g> { <urn:s> <urn:p> _:b }"):
        worker.update(f"INSERT DATA {{ {where} }}")
        with pytest.raises(NotCanonical, match="blank node"):
            back_up(worker, target, name="none")
        worker.update("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(isBlank(?s) || isBlank(?o)) }")
        worker.update("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o FILTER(isBlank(?o)) } }")
    assert list(target.list_objects("none/")) == []
    back_up(worker, target)


def test_exactly_the_index_that_was_asked_for(worker: OxigraphProcess, tmp_path: Path) -> None:
    target = folder_target(tmp_path / "backups")
    apply(worker, filled_log(3))
    assert back_up(worker, target, at=3).position.index == 3
    with pytest.raises(WorkerMoved, match="is at 3 already"):
        back_up(worker, target, at=2)
    with pytest.raises(WorkerMoved, match="did not come to 4"):
        back_up(worker, target, at=4, deadline_s=0.2)
