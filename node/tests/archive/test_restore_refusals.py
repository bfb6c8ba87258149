"""Every damaged byte, every forged entry and every moment that cannot be reached is refused by name; the store is as it
was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from archived_history import COUNTER, FIRST_VIEW, UK, Branch, History, Step, chain, quad
from log_pieces import CLUSTER, START
from oxigraph_process import ADAPTER, OxigraphProcess
from restored_store import restore
from restored_store import store as store

from txlog.archive.archive_errors import (
    AmbiguousTimeline,
    ArchiveGap,
    BeforeWindow,
    BeyondArchive,
    EntryRefused,
    FileDamaged,
    FileMissing,
    NoArchive,
    NoBase,
    StreamTaken,
)
from txlog.archive.file_name import FileName, Node
from txlog.archive.format import FileMeta, encode_file
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, plan_restore, restore_to_moment
from txlog.archive.restore_plan import RestorePlan
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_reader import StreamReader
from txlog.backup.backup_errors import BackupFault, OtherCluster, WorkerLoading, WorkerNotEmpty
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.folder_target import FolderTarget
from txlog.model.bulk_entry import BulkReference, encode_bulk_load
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, TxLogError
from txlog.model.ids import Txid

REFUSALS = (BackupFault, FileDamaged, FileMissing, StreamTaken, NoArchive, NoBase)


class Planted:
    """A stream of files with one entry each, and a base before the first one."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.target = FolderTarget(path)
        self.stream = Stream(self.target, StreamId(CLUSTER, "uk"))
        self.stream.create(START)
        self.end = START

    def add(
        self,
        payload: str,
        kind: int = KIND_QUADS,
        after: Node | None = None,
        view: tuple[int, int, str] = FIRST_VIEW,
        settled: int | None = None,
    ) -> Node:
        """``settled``: None for a final entry."""
        place = after or self.end
        seq = place.index + 1
        entries = chain([Step(Txid(UK, seq), seq * 1000, kind, payload.encode())], place)
        final = seq if settled is None else settled
        made = encode_file(entries, place.hash, FileMeta(CLUSTER, "uk", view=view), settled=final, writer=1)
        self.stream.create_file(made.name, made.data)
        self.end = made.name.end
        return self.end

    def add_quads(self, *numbers: int) -> Node:
        for number in numbers:
            self.add(f"A {quad(number)}\n")
        return self.end

    def plan(self, moment: str, base: str | None = "empty", timeline: str | None = None) -> RestorePlan:
        request = MomentRequest(parse_moment(moment), self.target, base, timeline)
        return plan_restore(StreamReader(self.stream), request)

    def restore(self, store: OxigraphProcess, moment: str = "latest", base: str | None = "empty") -> None:
        request = MomentRequest(parse_moment(moment), self.target, base)
        restore_to_moment(StreamReader(self.stream), request, RestoreTarget("it", ADAPTER, store.transport))


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path / "target")


@pytest.fixture
def untouched(store: OxigraphProcess) -> Iterator[OxigraphProcess]:
    assert store.update("DROP ALL").ok
    yield store
    assert (store.quads(), store.graphs()) == ([], [])


def test_every_byte_that_is_flipped_or_cut_off_is_refused(untouched: OxigraphProcess, tmp_path: Path) -> None:
    history = History(tmp_path / "target", 3, length=2)
    made = history.back_up(history.final, 2)
    sound = history.final.replay(len(history.final.entries))
    request = MomentRequest(parse_moment("latest"), history.target, made.name)
    into = RestoreTarget(untouched.url, ADAPTER, untouched.transport)
    flipped = 0
    paths = sorted((tmp_path / "target").rglob("*.*"))
    files = [path for path in paths if path.suffix == ".txl"]
    for path in paths:
        data = path.read_bytes()
        # Every byte of one file; test_archive_format.py has every byte of each sort of entry.
        for at in range(0, len(data), 1 if path == files[0] else 5):
            flipped_byte = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
            for spoilt in (flipped_byte, data[:at]) if at % 10 == 0 else (flipped_byte,):
                path.write_bytes(spoilt)
                flipped += 1
                done = None
                with suppress(*REFUSALS):  # a store that was touched refuses every later restore by another name
                    done = restore_to_moment(StreamReader(history.stream), request, into)
                if done is None:
                    continue
                assert untouched.quads() == sorted(sound), (path, at)
                assert done.plan.place == history.final.end
                assert not any(path.name == str(file.name) for file in done.plan.files), (path, at)
                assert untouched.update("DROP ALL").ok
        path.write_bytes(data)
    assert flipped > 500


def test_files_that_are_swapped_are_refused(planted: Planted, untouched: OxigraphProcess) -> None:
    planted.add_quads(1, 2, 3)
    one, other = sorted(planted.path.rglob("*.txl"))[:2]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    with pytest.raises(FileDamaged, match="another file"):
        planted.restore(untouched)


def test_a_damaged_file_is_passed_over_where_another_one_holds_its_entries(
    planted: Planted, store: OxigraphProcess
) -> None:
    assert store.update("DROP ALL").ok
    planted.add_quads(1, 2, 3)
    path = sorted(planted.path.rglob("*.txl"))[1]
    data = path.read_bytes()
    (path.parent / path.name.replace(".txl", ".1.txl")).write_bytes(data)
    path.write_bytes(data[:-9])
    planted.restore(store)
    assert store.quads() == sorted(quad(number) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (KIND_UPDATE, "LOAD <http://127.0.0.1:1/secret>"),
        (KIND_UPDATE, "INSERT DATA { <urn:s> <urn:p> 1 } ; load silent <file:///etc/passwd> INTO GRAPH <urn:g>"),
        (KIND_UPDATE, "INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }"),
        (KIND_UPDATE, "DROP GRAPH <urn:txlog:system:lock:00>"),
        (KIND_UPDATE, "DROP GRAPH <urn:txlog:syste\\u006D:lock:00>"),
        (KIND_UPDATE, "INSERT DATA { <urn:s> <urn:p> }"),
        (KIND_QUADS, "A <urn:s> <urn:p> <urn:o> <urn:txlog:system:x> .\n"),
        (KIND_QUADS, "A <urn:s> <urn:p> _:b .\n"),
        (KIND_QUADS, "A <urn:s> <urn:p> <urn:o> .\nno quad\n"),
        (KIND_QUADS, "A <urn:s> <urn:p> <urn:o> . } ; DROP ALL\n"),
        (6, "what is that"),
    ],
)
def test_a_forged_stream_is_refused_before_the_store_is_touched(
    planted: Planted, untouched: OxigraphProcess, kind: int, payload: str
) -> None:
    planted.add_quads(1)
    planted.add(payload, kind)
    with pytest.raises(EntryRefused, match="no master accepts"):
        planted.restore(untouched)


def test_a_graph_of_ours_that_an_update_computes_is_refused_before_the_marker(
    planted: Planted, store: OxigraphProcess
) -> None:
    assert store.update("DROP ALL").ok
    planted.add_quads(1)
    planted.add(
        'INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { ?s ?p ?o BIND(IRI(CONCAT("urn:txlog:", "system:forged")) AS ?g) } ; '
        "INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?h { ?s ?p ?o } "
        'BIND(IRI(CONCAT("urn:txlog:", "system:forged")) AS ?g) }',
        KIND_UPDATE,
    )
    with pytest.raises(TxLogError, match="system graphs"):
        planted.restore(store)
    assert store.system().markers == ()


def test_moments_that_cannot_be_reached(planted: Planted) -> None:
    planted.add_quads(1, 2, 3)
    digits = "0" * 32
    expected: dict[str, type[TxLogError]] = {
        f"position:4:{digits}": BeyondArchive,
        f"position:2:{digits}": BeyondArchive,
        f"{UK}.9": BeyondArchive,
        "time:1970-01-01T00:00:03.001Z": BeyondArchive,
        "time:1970-01-01T00:00:00.999Z": BeforeWindow,
    }
    for moment, error in expected.items():
        with pytest.raises(error):
            planted.plan(moment)
    assert planted.plan("time:1970-01-01T00:00:03Z").place == planted.end
    assert planted.plan(f"before:{UK}.1").place == START


@pytest.mark.parametrize(
    "text",
    ["", "now", "time:noon", "time:2026-01-31T12:00:00", "position:1", "position:1:abc", "before:latest", "before:"],
)
def test_what_is_no_moment_is_named(text: str) -> None:
    with pytest.raises(BadInput, match=r"expected|time zone"):
        parse_moment(text)


def test_without_a_base_nothing_is_guessed(planted: Planted) -> None:
    planted.add_quads(1, 2)
    with pytest.raises(NoBase, match="--base empty"):
        planted.plan("latest", base=None)
    with pytest.raises(NoBase, match="no complete backup"):
        planted.plan("latest", base="another")
    assert planted.plan("latest").base is None


def test_two_branches_are_ambiguous_until_one_is_named(planted: Planted) -> None:
    common = planted.add_quads(1, 2)
    one = planted.add(f"A {quad(3)}\n", view=(2, 1, "uk-1"), settled=2)
    other = planted.add(f"A {quad(4)}\n", after=common, view=(2, 1, "us-1"), settled=2)
    for moment in ("latest", "time:1970-01-01T00:00:03Z", f"{UK}.3"):
        with pytest.raises(AmbiguousTimeline, match="--timeline"):
            planted.plan(moment)
    assert planted.plan(f"{UK}.2").place == common
    assert planted.plan("latest", timeline="2.1.us-1").place == other
    assert planted.plan("latest", timeline=str(one)).place == one
    assert planted.plan("latest", timeline=f"{common}").place == common
    with pytest.raises(BadInput, match="expected one of"):
        planted.plan("latest", timeline="9.1.us-1")


def test_final_entries_behind_the_fork_supersede_the_other_branch(planted: Planted) -> None:
    common = planted.add_quads(1, 2)
    one = planted.add(f"A {quad(3)}\n", view=(2, 1, "uk-1"), settled=2)
    planted.add(f"A {quad(4)}\n", after=common, view=(2, 1, "us-1"), settled=2)
    end = planted.add(f"A {quad(5)}\n", view=(3, 1, "us-1"))
    assert planted.plan("latest").place == end
    assert planted.plan("latest", timeline="2.1.uk-1").place == one
    assert planted.plan(f"position:{one.index}:{one.hash.hex()[:8]}").place == one


def test_a_log_that_lost_what_was_final_supersedes_nothing(planted: Planted) -> None:
    common = planted.add_quads(1, 2)
    planted.add(f"A {quad(3)}\n", view=(2, 1, "us-1"))
    planted.add(f"A {quad(4)}\n", after=common, view=(3, 1, "uk-1"))
    with pytest.raises(AmbiguousTimeline):
        planted.plan("latest")


def test_a_gap_and_missing_files_are_named(planted: Planted) -> None:
    end = planted.add_quads(1, 2)
    begin = Node(10, b"b" * 16)
    planted.stream.record_gap(end, begin, "http://uk-1")
    planted.end = begin
    planted.add_quads(3, 4, 5)
    with pytest.raises(NoBase, match="empty store is no base"):
        planted.plan("latest")
    with pytest.raises(ArchiveGap, match=r"0:.* and 10:"):
        planted.plan(f"position:5:{'0' * 32}")
    with pytest.raises(ArchiveGap):
        planted.plan("time:1970-01-01T00:00:05Z")
    with pytest.raises(ArchiveGap):  # another entry of that millisecond may be in the gap
        planted.plan("time:1970-01-01T00:00:02Z")
    assert planted.plan("time:1970-01-01T00:00:01Z").place.index == 1
    sorted(planted.path.rglob("*.txl"))[-2].unlink()
    with pytest.raises(FileMissing, match="12:"):
        planted.plan("latest")


def test_a_base_before_a_gap_is_none_after_it(tmp_path: Path) -> None:
    history = History(tmp_path / "target", 5, updates=False)
    history.back_up(history.final, 3)
    end = history.final.end
    begin = Node(end.index + 5, b"b" * 16)
    history.stream.record_gap(end, begin, "http://uk-1")
    entries = chain([Step(Txid(UK, 900), 1 << 41, KIND_QUADS, b"")], begin)
    made = encode_file(entries, begin.hash, FileMeta(CLUSTER, "uk", view=(3, 1, "uk-1")), settled=0, writer=1)
    history.stream.create_file(made.name, made.data)
    request = MomentRequest(parse_moment("latest"), history.target)
    with pytest.raises(ArchiveGap, match="a gap lies between"):
        plan_restore(StreamReader(history.stream), request)


def test_a_file_of_another_cluster_is_refused(planted: Planted, untouched: OxigraphProcess) -> None:
    planted.add_quads(1)
    entries = chain([Step(Txid(UK, 2), 2000, KIND_QUADS, b"")], planted.end)
    made = encode_file(entries, planted.end.hash, FileMeta(b"c" * 16, "uk", view=FIRST_VIEW), settled=0, writer=1)
    planted.stream.create_file(made.name, made.data)
    with pytest.raises((OtherCluster, FileDamaged), match="cluster"):
        planted.restore(untouched)


def test_a_store_that_holds_something_is_refused(planted: Planted, store: OxigraphProcess) -> None:
    planted.add_quads(1)
    assert store.update("DROP ALL ; INSERT DATA { <urn:a> <urn:b> <urn:c> }").ok
    with pytest.raises(WorkerNotEmpty):
        planted.restore(store)
    assert store.quads() == ["<urn:a> <urn:b> <urn:c> ."]


def test_a_bulk_load_is_refused_by_name(planted: Planted, untouched: OxigraphProcess) -> None:
    planted.add_quads(1)
    planted.add(encode_bulk_load(BulkReference("01" * 16, "ab" * 32, 7)).decode(), KIND_UPDATE)
    with pytest.raises(EntryRefused, match=rf"the entry 2 .* is the bulk load {'01' * 16} of 7 quads.* backup"):
        planted.restore(untouched)


def test_an_interrupted_restore_is_repeated_with_again(planted: Planted, store: OxigraphProcess) -> None:
    assert store.update("DROP ALL").ok
    planted.add_quads(1)
    planted.add("INSERT DATA { <urn:a> <urn:b> <urn:c> } ; CREATE GRAPH <urn:new>", KIND_UPDATE)
    planted.add("CREATE GRAPH <urn:new>", KIND_UPDATE)
    with pytest.raises(EntryRefused, match=f"before:{UK}.3"):
        planted.restore(store)
    assert store.system().claims == frozenset()
    with pytest.raises(WorkerLoading):
        planted.restore(store)
    request = MomentRequest(parse_moment(f"before:{UK}.3"), planted.target, "empty")
    into = RestoreTarget("it", ADAPTER, store.transport)
    done = restore_to_moment(StreamReader(planted.stream), request, into, again=True)
    assert (done.executed, store.system().markers) == (1, (done.marker,))
    assert store.quads() == sorted([quad(1), "<urn:a> <urn:b> <urn:c> ."])


PLANTED_FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def fault(plant: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    PLANTED_FAULTS[plant.__name__] = plant
    return plant


@fault
def skips_up_to_the_place_alone(patch: pytest.MonkeyPatch) -> None:
    make = RestorePlan.is_executed

    def is_executed(self: RestorePlan, entry: object) -> bool:
        early = {txid for txid, at in self.timeline.skips().items() if at <= self.place.index}
        return make(self._replace(skipped=frozenset(early)), entry)  # type: ignore[arg-type]

    patch.setattr(RestorePlan, "is_executed", is_executed)


@fault
def a_base_that_may_hold_what_is_skipped_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("txlog.archive.restore_plan.may_hold_skipped", lambda *_: False)


@fault
def repeated_keys_are_executed(patch: pytest.MonkeyPatch) -> None:
    import msgspec

    make = RestorePlan.is_executed
    patch.setattr(
        RestorePlan,
        "is_executed",
        lambda self, entry: make(self, msgspec.structs.replace(entry, is_noop=False)),
    )


@fault
def the_entry_of_the_place_is_left_out(patch: pytest.MonkeyPatch) -> None:
    make = RestorePlan.is_executed
    patch.setattr(RestorePlan, "is_executed", lambda self, entry: entry.index < self.place.index and make(self, entry))


@fault
def the_entry_of_the_base_is_executed_again(patch: pytest.MonkeyPatch) -> None:
    make = RestorePlan.is_executed
    patch.setattr(
        RestorePlan,
        "is_executed",
        lambda self, entry: make(self._replace(after=Node(self.after.index - 1, b"")), entry),
    )


@fault
def updates_are_executed_after_all_quads(patch: pytest.MonkeyPatch) -> None:
    from txlog.archive.spooled_entries import SpooledEntries

    patch.setattr(SpooledEntries, "entries", property(lambda _: 0, lambda *_: None), raising=False)


@pytest.mark.parametrize("name", sorted(PLANTED_FAULTS))
def test_planted_faults_are_noticed(
    store: OxigraphProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Without these a test of random moments would prove nothing."""
    PLANTED_FAULTS[name](monkeypatch)
    for seed in range(1, 40):
        history = History(tmp_path / f"target-{seed}", seed)
        counted = [entry.index for entry in history.final.entries if entry.payload == COUNTER.encode()]
        for index in (0, *history.random.sample(counted, min(3, len(counted)))):
            history.back_up(history.final, index)
        for moment, branch, index in history.moments(8):
            try:
                restore(history, store, moment)
            except TxLogError:
                return
            if store.quads() != sorted(branch.replay(index)):
                return
    pytest.fail(f"nothing showed that {name}")


def test_one_name_is_one_file() -> None:
    assert FileName(1, 2, b"a" * 16, b"b" * 16) != FileName(1, 2, b"a" * 16, b"b" * 16, 1)
    assert Branch(chain([Step(Txid(UK, 1), 1, KIND_QUADS, b"")], START)).end.index == 1
