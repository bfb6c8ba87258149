"""A load on a target: its parts are what was written, its decision is one, and a copy is complete or none."""

from __future__ import annotations

import threading
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from txlog.backup.backup_errors import NotCanonical
from txlog.backup.folder_target import FolderTarget
from txlog.bulk.bulk_errors import BulkPartDamaged, NoSuchLoad
from txlog.bulk.load_files import LoadFolder, LoadIntent, LoadManifest, LoadSource, list_loads
from txlog.bulk.load_writer import build_manifest, read_quads, stage_load, write_parts
from txlog.model.bulk_entry import BulkReference, decode_bulk_load, encode_bulk_load, find_bulk_load
from txlog.model.entry import KIND_QUADS, KIND_UPDATE, LogEntry
from txlog.model.errors import SystemGraphNamed
from txlog.model.ids import Origin, Txid

LOAD, OTHER = "01" * 16, "02" * 16
CLUSTER = "0a" * 16


def line(number: int) -> bytes:
    return b"<urn:s:%d> <urn:p> <urn:o> .\n" % number


def folder(path: Path, load: str = LOAD) -> LoadFolder:
    path.mkdir(exist_ok=True)
    return LoadFolder(FolderTarget(path), CLUSTER, load)


def written(at: LoadFolder, lines: bytes, part_bytes: int = 100) -> BulkReference:
    request = LoadIntent(at.load, CLUSTER, [LoadSource("a.nt", len(lines), "00" * 16)])
    at.create_request(request)
    pieces = iter(lines.splitlines(keepends=True))
    return at.write_manifest(build_manifest(request, write_parts(at, pieces, lambda _: None, part_bytes)))


class FaultyTarget(FolderTarget):
    """A disk that keeps something else than it was given."""

    def create(self, key: str, data: bytes) -> bool:
        return super().create(key, data[:-1] if key.endswith(".zst") else data)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    lines = b"".join(map(line, range(20)))
    at = folder(tmp_path)
    reference = written(at, lines)
    assert reference.quads == 20
    assert b"".join(read_quads(at, reference)) == lines
    manifest = at.read_manifest(reference)
    assert len(manifest.parts) > 1
    assert (manifest.quads, manifest.plain) == (20, len(lines))
    assert written(at, lines) == reference, "an attempt that broke off is continued"
    assert [each.load for each in list_loads(at.target, CLUSTER)] == [LOAD]
    assert list_loads(at.target, "0b" * 16) == []


def test_a_folder_without_its_request_is_no_load(tmp_path: Path) -> None:
    """Such as what is left where objects were deleted by hand."""
    written(folder(tmp_path), line(1))
    rest = folder(tmp_path, OTHER)
    rest.write_part(line(2))
    assert [each.load for each in list_loads(rest.target, CLUSTER)] == [LOAD]


def test_no_backup_is_called_like_this(tmp_path: Path) -> None:
    at = folder(tmp_path)
    written(at, line(1))
    assert list(at.target.list_objects()) == []


@pytest.mark.parametrize("wanted", ["commit", "abort"])
def test_the_first_decision_stands(tmp_path: Path, wanted: str) -> None:
    at = folder(tmp_path)
    assert at.read_decision() is None
    found: list[str] = []

    def decide(each: str) -> None:
        found.append(folder(tmp_path).decide(each, 1.0).decision)  # type: ignore[arg-type]

    decide(wanted)
    threads = [threading.Thread(target=decide, args=(each,)) for each in ("commit", "abort") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {wanted}


def test_a_part_that_is_not_what_was_written(tmp_path: Path) -> None:
    at = folder(tmp_path)
    reference = written(at, b"".join(map(line, range(20))))
    first = at.read_manifest(reference).parts[0]
    path = tmp_path / at.part_key(first)
    whole = path.read_bytes()
    for wrong in (whole[:-1], whole + b"x", bytes([whole[0] ^ 1]) + whole[1:]):
        path.write_bytes(wrong)
        with pytest.raises(BulkPartDamaged, match=first.sha256) as raised:
            list(read_quads(at, reference))
        assert raised.value.name == "PartDamaged"
    path.unlink()
    with pytest.raises(BulkPartDamaged, match="it is not there"):
        list(read_quads(at, reference))


def test_a_manifest_that_is_not_the_one_of_the_entry(tmp_path: Path) -> None:
    at = folder(tmp_path)
    reference = written(at, line(1))
    with pytest.raises(BulkPartDamaged, match="SHA-256"):
        at.read_manifest(reference._replace(manifest="0" * 64))
    with pytest.raises(BulkPartDamaged, match="it is not there"):
        folder(tmp_path, OTHER).read_manifest(reference)
    with pytest.raises(NoSuchLoad, match=OTHER):
        folder(tmp_path, OTHER).read_request()


@pytest.mark.parametrize("change", [{"id": OTHER}, {"cluster": "0b" * 16}, {"format": 2}, {"quads": 7}])
def test_a_manifest_of_something_else(tmp_path: Path, change: dict[str, object]) -> None:
    at = folder(tmp_path)
    manifest = at.read_manifest(written(at, line(1)))
    wrong = msgspec.json.encode(msgspec.structs.replace(manifest, **change))
    (tmp_path / at.key("manifest.json")).write_bytes(wrong)
    with pytest.raises(BulkPartDamaged, match=r"manifest\.json"):
        at.read_manifest(BulkReference(LOAD, sha256(wrong).hexdigest(), 1))


def test_a_copy_is_read_back_before_it_is_complete(tmp_path: Path) -> None:
    home, there = folder(tmp_path / "uk"), folder(tmp_path / "us")
    lines = b"".join(map(line, range(20)))
    reference = written(home, lines)
    faulty = LoadFolder(FaultyTarget(tmp_path / "us"), CLUSTER, LOAD)
    with pytest.raises(BulkPartDamaged, match=r"us"):
        stage_load(home, faulty, reference, lambda _: None)
    assert there.find_reference() is None, "what is not complete has no manifest"
    stage_load(home, there, reference, lambda _: None)
    assert there.find_reference() == reference
    assert b"".join(read_quads(there, reference)) == lines


def test_a_damaged_copy_is_made_again(tmp_path: Path) -> None:
    home, there = folder(tmp_path / "uk"), folder(tmp_path / "us")
    lines = b"".join(map(line, range(20)))
    reference = written(home, lines)
    part = stage_load(home, there, reference, lambda _: None).parts[-1]
    copy = tmp_path / "us" / there.part_key(part)
    inode = copy.stat().st_ino
    stage_load(home, there, reference, lambda _: None)
    assert copy.stat().st_ino == inode, "a sound one stays"
    copy.write_bytes(b"other")
    stage_load(home, there, reference, lambda _: None)
    assert b"".join(read_quads(there, reference)) == lines


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"<urn:a> <urn:p> <urn:b> <urn:txlog:system:1> .\n", SystemGraphNamed),
        (b"_:a <urn:p> <urn:b> .\n", NotCanonical),
        (b"<urn:a>  <urn:p> <urn:b> .\n", BulkPartDamaged),
        (b"<urn:a> <urn:p> .\n", BulkPartDamaged),
    ],
)
def test_what_no_worker_may_hold_is_found_again(tmp_path: Path, bad: bytes, error: type[Exception]) -> None:
    home, there = folder(tmp_path / "uk"), folder(tmp_path / "us")
    reference = written(home, line(1) + bad)
    for to in (home, there):
        with pytest.raises(error):
            stage_load(home, to, reference, lambda _: None)


def test_an_aborted_load_keeps_its_decision(tmp_path: Path) -> None:
    at = folder(tmp_path)
    written(at, b"".join(map(line, range(20))))
    at.decide("abort", 1.0)
    assert at.delete_parts() > 2
    left = {found.key.rpartition("/")[2] for found in at.target.list_nested(at.key("")[:-1])}
    assert left == {"request.json", "decision.json"}


def test_the_entry_names_the_load(tmp_path: Path) -> None:
    load = BulkReference(LOAD, "ab" * 32, 123)
    payload = encode_bulk_load(load)
    entry = LogEntry(1, b"", Txid(Origin("uk-1", 1), 1), 1, KIND_UPDATE, payload, "")
    assert decode_bulk_load(payload) == find_bulk_load(entry) == load
    for other in (b"INSERT DATA {}", b"LOAD <urn:other>", payload + b" ; CLEAR ALL", payload[:-2] + b">", payload[:-1]):
        found = decode_bulk_load(other)
        assert found is None or found != load
    assert find_bulk_load(LogEntry(1, b"", entry.txid, 1, KIND_QUADS, payload, "")) is None
    assert find_bulk_load(LogEntry(1, b"", entry.txid, 1, KIND_UPDATE, payload, "skip")) is None


def test_another_manifest_of_one_load_is_refused(tmp_path: Path) -> None:
    at = folder(tmp_path)
    reference = written(at, line(1))
    manifest: LoadManifest = at.read_manifest(reference)
    with pytest.raises(BulkPartDamaged, match="another manifest"):
        at.write_manifest(msgspec.structs.replace(manifest, graph="urn:g"))
