"""What follows when an entry of a link was written."""

from __future__ import annotations

from txlog.model.errors import (
    BadInput,
    Conflict,
    Forbidden,
    LogAhead,
    PeerFault,
    TxLogError,
    Unauthorized,
    Unavailable,
)
from txlog.sites.link_errors import KeysDiffer, NamesDiffer, OtherLink
from txlog.sites.link_record import LaterRecord
from txlog.sites.site_book import NeedsState
from txlog.sites.site_link import state_of
from txlog.sites.submitted_entry import EntryOutcome, SubmittedEntry, VoidEntries


def test_an_entry_is_open_until_it_was_read_back_or_its_time_is_over() -> None:
    entry = SubmittedEntry(b"text", "key", b"1.a")
    entry.index, entry.until = 7, 10.0
    assert entry.outcome(b"1.a", 6, 9.0) is EntryOutcome.OPEN
    assert entry.outcome(b"1.a", 6, 10.0) is EntryOutcome.UNSEEN
    assert entry.outcome(b"1.a", 7, 10.0) is EntryOutcome.VOID
    for record in (b"2.b", None):
        assert entry.outcome(record, 7, 9.0) is EntryOutcome.OVER
    entry.index = None
    assert entry.outcome(b"1.a", 99, 9.0) is EntryOutcome.OPEN


def test_two_entries_without_effect_are_the_last_until_the_record_changes() -> None:
    voids = VoidEntries()
    assert not voids.is_blocked(0)
    assert voids.add(3) == 1
    assert not voids.is_blocked(3)
    assert voids.add(3) == 2
    assert voids.is_blocked(3)
    assert not voids.is_blocked(4)
    assert voids.add(4) == 1
    assert not voids.is_blocked(4)


def test_only_what_passes_by_itself_is_unreachable() -> None:
    expected: list[tuple[TxLogError, str]] = [
        (Unavailable("Full", "x"), "Unreachable"),
        (LogAhead("x"), "Unreachable"),
        (BadInput("x"), "Refused"),
        (Conflict("x"), "Refused"),
        (Forbidden("x"), "Refused"),
        (Unauthorized("x"), "Refused"),
        (PeerFault("nyc", "Malformed", "x"), "Refused"),
        (LaterRecord("x"), "Refused"),
        (NamesDiffer("x"), "NamesDiffer"),
        (KeysDiffer("x"), "KeysDiffer"),
        (OtherLink("x"), "OtherCluster"),
        (NeedsState("x"), "NeedsState"),
    ]
    for error, state in expected:
        assert state_of(error) == state, error
