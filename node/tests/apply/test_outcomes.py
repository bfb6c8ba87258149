"""What an application comes to, and what a worker shows of it."""

from __future__ import annotations

import pytest
from log_in_memory import COUNT, ManualClock, MemoryLog
from oxigraph_process import ADAPTER, OxigraphProcess

from txlog.apply import MasterLog, WorkerState, apply_up_to
from txlog.client import MasterClient
from txlog.model.entry import KIND_CONFIG, LogEntry, Position
from txlog.wire.log_page import LogPage, make_page
from txlog.workers.adapter import MarkerPosition


def numbered(log: MemoryLog, first: int, last: int) -> None:
    for n in range(first, last + 1):
        log.add(f"<urn:s:{n}> <urn:p> <urn:o> <urn:g> .")


def test_a_poison_transaction_in_the_middle_of_a_merged_batch(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 7)
    poison = log.update("CREATE GRAPH <urn:g>")
    numbered(log, 9, 12)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 12)
    assert (outcome.state, outcome.applied) == (WorkerState.BLOCKED, 7)
    assert outcome.position == MarkerPosition(log.position(7), 0)
    assert outcome.refused is not None
    assert (outcome.refused.index, outcome.refused.txid, outcome.refused.status) == (8, poison.txid, 500)
    assert "already exists" in outcome.refused.body
    assert outcome.error is not None
    assert str(poison.txid) in outcome.error
    assert len(worker.quads()) == 7
    assert worker.system().markers == (outcome.position,)
    assert not worker.system().claims

    again = apply_up_to(ADAPTER, worker.transport, log, 12, cached=outcome.position)
    assert (again.state, again.applied, again.refused) == (WorkerState.BLOCKED, 0, outcome.refused)

    # The skip is a later entry; pages then mark the poison as one to pass over.
    log.entries[7] = LogEntry(8, poison.hash, poison.txid, poison.stamp, poison.kind, poison.payload, "skip")
    log.skip(poison.txid)
    after = apply_up_to(ADAPTER, worker.transport, log, 13, cached=again.position)
    assert (after.state, after.applied) == (WorkerState.WORKING, 6)
    assert len(worker.quads()) == 11


@pytest.mark.parametrize("place", [1, 2, 5])
def test_poison_is_found_wherever_it_stands(worker: OxigraphProcess, place: int) -> None:
    log = MemoryLog()
    for n in range(1, 6):
        if n == place:
            log.update("DROP GRAPH <urn:missing>")
        else:
            numbered(log, n, n)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 5)
    assert outcome.refused is not None
    assert (outcome.state, outcome.refused.index, len(worker.quads())) == (WorkerState.BLOCKED, place, place - 1)
    assert not worker.system().claims


def test_text_that_is_no_sparql_blocks_too(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 1)
    log.update("INSERT NONSENSE")
    outcome = apply_up_to(ADAPTER, worker.transport, log, 2)
    assert outcome.refused is not None
    assert (outcome.state, outcome.refused.index, outcome.refused.status) == (WorkerState.BLOCKED, 2, 400)


@pytest.mark.parametrize("wipe", ["DROP ALL", "CLEAR ALL", "DROP NAMED", "CLEAR NAMED", "clear /* */ silent ALL"])
@pytest.mark.parametrize("merged", [1, 3, 100])
def test_a_client_may_wipe_everything_but_the_marker(worker: OxigraphProcess, wipe: str, merged: int) -> None:
    log = MemoryLog()
    numbered(log, 1, 4)
    log.update(wipe.replace("/* */ ", ""))
    numbered(log, 6, 8)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 8, merge_max_transactions=merged)
    assert (outcome.state, outcome.applied) == (WorkerState.WORKING, 8)
    assert len(worker.quads()) == 3
    assert worker.system().markers == (MarkerPosition(log.position(8), 0),)
    assert not worker.system().claims


@pytest.mark.parametrize("merged", [1, 100])
@pytest.mark.parametrize(
    ("text", "quads"),
    [
        ("COPY DEFAULT TO <urn:copy>", 3),
        ("MOVE <urn:g> TO <urn:moved>", 2),
        ("ADD <urn:g> TO DEFAULT", 2),
        ("INSERT { GRAPH <urn:seen> { <urn:x> <urn:saw> ?g } } WHERE { GRAPH ?g { } }", 3),
        ("INSERT { GRAPH <urn:seen> { <urn:x> <urn:saw> ?g } } WHERE { graph$g{ OPTIONAL { ?s ?p ?o } } }", 3),
        ("DELETE { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } }", 1),
        ("DELETE WHERE { GRAPH ?g { ?s ?p ?o } }", 1),
    ],
)
def test_no_update_sees_copies_or_moves_anything_of_ours(
    worker: OxigraphProcess, merged: int, text: str, quads: int
) -> None:
    log = MemoryLog()
    log.add("<urn:s> <urn:p> <urn:o> .")
    log.add("<urn:s> <urn:p> <urn:o> <urn:g> .")
    log.update(text)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 3, merge_max_transactions=merged)
    assert outcome.state is WorkerState.WORKING
    assert len(worker.quads()) == quads
    assert "txlog" not in "".join(worker.quads())
    assert worker.system().markers == (MarkerPosition(log.position(3), 0),)


def test_another_appliers_claim_is_not_seen_by_an_update_either(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 1)
    log.update("INSERT { <urn:x> <urn:saw> ?g } WHERE { GRAPH ?g { } }")

    class ClaimedMeanwhile(MemoryLog):
        """Between the first page and the second, somebody else claims."""

        def page(self, after: Position | None, upto: int, max_bytes: int, unordered: object = ()) -> list[LogEntry]:
            if after is not None:
                for token in range(1, 1 << 16, 4321):
                    worker.send(ADAPTER.claim(token))
            return log.page(after, upto, max_bytes)

    apply_up_to(ADAPTER, worker.transport, ClaimedMeanwhile(), 2, page_max_bytes=1)
    assert [q for q in worker.quads() if "saw" in q] == ["<urn:x> <urn:saw> <urn:g> ."]


def test_no_ops_and_skips_only_move_the_position(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 2)
    log.update("THIS IS NEVER EXECUTED", noop="key uk-1.0000000000000007.1")
    log.update("NOR THIS", noop="skip")
    numbered(log, 5, 5)
    log.skip(log.entries[3].txid)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 6)
    assert (outcome.state, outcome.applied) == (WorkerState.WORKING, 6)
    assert len(worker.quads()) == 3
    assert outcome.requests == 4  # marker, empty?, claim, everything

    log.skip(log.entries[3].txid)
    only = apply_up_to(ADAPTER, worker.transport, log, 7, cached=outcome.position, audit=0)
    assert (only.applied, only.requests) == (1, 2)
    assert worker.system().markers == (MarkerPosition(log.position(7), 0),)

    log.append(KIND_CONFIG, b"add uk-3")  # the masters' own business
    passed = apply_up_to(ADAPTER, worker.transport, log, 8, cached=only.position, audit=0)
    assert (passed.applied, passed.requests) == (1, 2)
    assert len(worker.quads()) == 3


def test_hold_stops_a_worker_and_lifting_it_lets_it_go_on(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 20)
    held = apply_up_to(ADAPTER, worker.transport, log, 20, hold=8)
    assert held.position is not None
    assert (held.state, held.position.position.index, len(worker.quads())) == (WorkerState.WORKING, 8, 8)
    below = apply_up_to(ADAPTER, worker.transport, log, 20, hold=3)
    assert (below.state, below.position, below.applied) == (WorkerState.WORKING, held.position, 0)
    assert apply_up_to(ADAPTER, worker.transport, log, 20).applied == 12


def test_foreign_data_is_never_written_to(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 1)
    for text in ("INSERT DATA { <urn:a> <urn:b> <urn:c> }", "INSERT DATA { GRAPH <urn:f> { <urn:a> <urn:b> 1 } }"):
        assert worker.update(f"DROP ALL ; {text}").ok
        outcome = apply_up_to(ADAPTER, worker.transport, log, 1)
        assert (outcome.state, outcome.applied, outcome.position) == (WorkerState.REFUSED, 0, None)
        assert outcome.error is not None
        assert outcome.error.startswith("ForeignStore")
        assert len(worker.quads()) == 1
    assert worker.update("DROP ALL ; CREATE GRAPH <urn:empty>").ok
    assert apply_up_to(ADAPTER, worker.transport, log, 1).state is WorkerState.REFUSED


def test_foreign_data_that_appears_at_the_last_moment(worker: OxigraphProcess) -> None:
    class Late(MemoryLog):
        def page(self, after: Position | None, upto: int, max_bytes: int, unordered: object = ()) -> list[LogEntry]:
            assert worker.update("INSERT DATA { <urn:a> <urn:b> <urn:c> }").ok
            return super().page(after, upto, max_bytes)

    log = Late()
    numbered(log, 1, 1)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 1)
    assert (outcome.state, worker.quads()) == (WorkerState.REFUSED, ["<urn:a> <urn:b> <urn:c> ."])


def test_the_log_says_that_it_does_not_continue_here(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 5)
    at = apply_up_to(ADAPTER, worker.transport, log, 5).position
    quads = worker.quads()

    other = MemoryLog(b"another branch")
    numbered(other, 1, 9)
    shorter = MemoryLog()
    numbered(shorter, 1, 3)
    trimmed = MemoryLog()
    numbered(trimmed, 1, 9)
    trimmed.kept_from = 7
    for source, upto, state in (
        (other, 9, WorkerState.DIVERGED),
        (other, 5, WorkerState.DIVERGED),  # also with nothing behind it
        (shorter, 3, WorkerState.AHEAD),
        (trimmed, 9, WorkerState.NEEDS_RESTORE),
    ):
        for cached in (None, at):
            outcome = apply_up_to(ADAPTER, worker.transport, source, upto, cached=cached)
            assert (outcome.state, outcome.applied, outcome.position) == (state, 0, at)
            assert outcome.error
    assert worker.quads() == quads
    assert worker.system().markers == (at,)


def test_two_markers_are_named_and_nothing_is_applied(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 5)
    apply_up_to(ADAPTER, worker.transport, log, 3)
    second = ADAPTER.drop_marker(MarkerPosition(log.position(2), 0)).body.decode().replace("DROP", "CREATE")
    assert worker.update(second).ok
    outcome = apply_up_to(ADAPTER, worker.transport, log, 5)
    assert (outcome.state, outcome.applied, outcome.position) == (WorkerState.DIVERGED, 0, None)
    assert outcome.error is not None
    assert "rebuild" in outcome.error
    assert len(worker.quads()) == 3


def test_a_raised_fence_keeps_out_who_does_not_know_it(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    log.add('<urn:counter> <urn:value> "0"^^<http://www.w3.org/2001/XMLSchema#integer> .')
    log.update(COUNT)
    at = apply_up_to(ADAPTER, worker.transport, log, 1).position
    assert at is not None
    assert worker.send(ADAPTER.take_over(at, 1)).ok
    assert worker.send(ADAPTER.release_claim(1)).ok
    raised = MarkerPosition(at.position, at.fence + 1)
    assert worker.system().markers == (raised,)
    assert worker.send(ADAPTER.apply([], at, MarkerPosition(log.position(2), 0))).status == 500
    # An applier that finds out reads it anew; it is the duty that holds whoever must not go on.
    outcome = apply_up_to(ADAPTER, worker.transport, log, 2, cached=at)
    assert outcome.position == MarkerPosition(log.position(2), 1)


def test_the_budget_ends_a_call_and_the_lock_goes_with_it(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 300)

    class Ticking(ManualClock):
        def now(self) -> float:
            self.time += 0.1
            return self.time

    outcome = apply_up_to(ADAPTER, worker.transport, log, 300, clock=Ticking(), budget_s=1.0, merge_max_transactions=10)
    assert outcome.state is WorkerState.WORKING
    assert 0 < outcome.applied < 300
    assert not worker.system().claims
    assert len(worker.quads()) == outcome.applied


def test_a_large_transaction_goes_alone(worker: OxigraphProcess) -> None:
    log = MemoryLog()
    numbered(log, 1, 3)
    log.add(*(f"<urn:big:{n}> <urn:p> <urn:o> ." for n in range(2000)))
    numbered(log, 5, 6)
    outcome = apply_up_to(ADAPTER, worker.transport, log, 6, merge_max_bytes=1000)
    assert (outcome.applied, outcome.requests) == (6, 6)
    assert len(worker.quads()) == 2005


def test_the_log_of_a_master(worker: OxigraphProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog()
    numbered(log, 1, 9)
    asked: list[tuple[int, bytes | None]] = []

    def log_page(
        self: MasterClient, after: int, at_hash: bytes | None, upto: int, max_bytes: int, unordered: object = ()
    ) -> LogPage:
        asked.append((after, at_hash))
        entries = log.page(log.position(after) if at_hash else None, upto, max_bytes)
        return make_page(log.position(after), entries, log.position(log.end))

    monkeypatch.setattr(MasterClient, "log_page", log_page)
    with MasterClient("http://127.0.0.1:1") as client:
        apply_up_to(ADAPTER, worker.transport, MasterLog(client), 4)
        outcome = apply_up_to(ADAPTER, worker.transport, MasterLog(client), 9)
    assert (outcome.state, outcome.applied, len(worker.quads())) == (WorkerState.WORKING, 5, 9)
    assert asked == [(0, None), (4, log.hashes[4])]
