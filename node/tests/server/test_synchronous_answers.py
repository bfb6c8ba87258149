"""Synchronous writes: the table of answers, the options of a request, and which writes the door makes synchronous."""

from __future__ import annotations

import threading
from itertools import product

import pytest

from txlog.http.write_options import WriteOptions, parse_synchronous, parse_write_options
from txlog.model.configuration import Configuration, Master
from txlog.model.durability import Durability
from txlog.model.entry import KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.errors import BadInput, CommitPending, OutcomeUndecided, RolledBack
from txlog.model.hashes import content_hash
from txlog.model.quorum import ALL, MAJORITY
from txlog.model.synchronous import NO_REQUEST, GraphRule, SynchronousRequest, parse_rule
from txlog.model.synchronous_entry import KIND_SYNCHRONOUS_QUADS, KIND_SYNCHRONOUS_UPDATE, SynchronousKey
from txlog.model.synchronous_entry import decode_synchronous_key as decode_key
from txlog.protocol.events import Submission
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.server.frontdoor.synchronous_answers import find_reply
from txlog.server.frontdoor.synchronous_door import OFF_LOOP_BYTES, SynchronousDoor, is_synchronous, level_of

QUADS = b"A <urn:s> <urn:p> <urn:o> <http://ex.org/accounts/1> .\n"
ACCOUNTS = parse_rule("http://ex.org/accounts/*", "all", 10_000)
DEFAULT = parse_rule("default")


@pytest.mark.parametrize(
    ("known", "knows_pending", "status", "reason"),
    [
        (SynchronousAnswer.COMMITTED, True, 204, ""),
        (SynchronousAnswer.COMMITTED, False, 204, ""),
        (SynchronousAnswer.PENDING, True, 202, ""),
        (SynchronousAnswer.PENDING, False, 504, "Undecided"),
        (SynchronousAnswer.ROLLED_BACK, True, 409, "RolledBack"),
        (SynchronousAnswer.ROLLED_BACK, False, 409, "RolledBack"),
    ],
)
def test_the_table(known: SynchronousAnswer, knows_pending: bool, status: int, reason: str) -> None:
    found = find_reply(known, Durability.SYNCED, knows_pending=knows_pending)
    assert (found.status, found.reason, found.answer) == (status, reason, known)
    assert found.has_location == (known is SynchronousAnswer.PENDING)
    assert bool(found.text) == (known is not SynchronousAnswer.COMMITTED)


def test_accepted_is_never_told_as_done() -> None:
    for knows_pending, known in product((True, False), SynchronousAnswer):
        found = find_reply(known, Durability.ACCEPTED, knows_pending=knows_pending)
        assert found.status != 204


def test_each_error_has_the_status_of_its_answer() -> None:
    assert (OutcomeUndecided.status, RolledBack.status, CommitPending.status) == (504, 409, 409)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", SynchronousRequest(MAJORITY)),
        ("all", SynchronousRequest(ALL)),
        ("N/2+1; timeout=10s", SynchronousRequest(MAJORITY, 10_000)),
        (" all ;timeout = 0", SynchronousRequest(ALL, 0)),
        ("; timeout=1m", SynchronousRequest(None, 60_000)),
        ("false", SynchronousRequest(declined=True)),
    ],
)
def test_what_a_request_asks_for(text: str, expected: SynchronousRequest) -> None:
    assert parse_synchronous(text, "TxLog-Synchronous") == expected


@pytest.mark.parametrize(
    "text",
    ["", ";", "maybe", "N/2", "all; timeout", "all; timeout=1s; timeout=1s", "true; x=1", "0", "all; timeout=25h"],
)
def test_bad_requests_name_the_header(text: str) -> None:
    with pytest.raises(BadInput, match=r"^TxLog-Synchronous: "):
        parse_synchronous(text, "TxLog-Synchronous")


@pytest.mark.parametrize(
    ("durability", "prefer", "names_level", "knows_pending"),
    [
        (None, None, False, False),
        (None, "wait=1", False, False),
        ("synced", None, True, True),
        (None, "respond-async", False, True),
        (None, "wait=1, respond-async", False, True),
        (None, "no-respond-async", False, False),
    ],
)
def test_who_shows_that_it_knows_202(
    durability: str | None, prefer: str | None, names_level: bool, knows_pending: bool
) -> None:
    found = parse_write_options(durability, prefer, None, Durability.APPLIED, 30.0)
    assert (found.names_level, found.knows_pending) == (names_level, knows_pending)


def test_a_default_of_accepted_counts_as_quorum() -> None:
    assert level_of(WriteOptions(Durability.ACCEPTED, 1.0, "")) is Durability.QUORUM
    assert level_of(WriteOptions(Durability.ACCEPTED, 1.0, "", names_level=True)) is Durability.ACCEPTED
    assert level_of(WriteOptions(Durability.SYNCED, 1.0, "")) is Durability.SYNCED


def door(*rules: GraphRule) -> SynchronousDoor:
    masters = [Master("uk-1", "uk", 1)]
    return SynchronousDoor(lambda: Configuration(masters, False, 1000, graphs=list(rules)))


def submission(payload: bytes = QUADS, kind: int = KIND_QUADS, key: str = "") -> Submission:
    return Submission(kind, key, payload, content_hash(kind, key, payload))


def test_a_write_of_a_graph_with_a_rule() -> None:
    found = door(ACCOUNTS, DEFAULT).convert(submission(key="once"), NO_REQUEST)
    assert found.kind == KIND_SYNCHRONOUS_QUADS
    assert is_synchronous(found)
    assert decode_key(found.key) == SynchronousKey(ALL, 10_000, "once")
    assert found.content == content_hash(found.kind, found.key, QUADS)
    update = submission(b"CLEAR ALL", KIND_UPDATE)
    assert door(ACCOUNTS).convert(update, NO_REQUEST).kind == KIND_SYNCHRONOUS_UPDATE


def test_other_writes_are_as_they_were() -> None:
    one, skip = submission(b"A <urn:s> <urn:p> <urn:o> <x:g> .\n"), submission(b"", KIND_SKIP, "namespace x")
    for each in (one, skip):
        assert door(ACCOUNTS, DEFAULT).convert(each, NO_REQUEST) is each
    assert SynchronousDoor(lambda: None).convert(one, NO_REQUEST) is one
    assert door().convert(one, SynchronousRequest(declined=True)) is one


def test_a_request_for_any_graph() -> None:
    found = door().convert(submission(), SynchronousRequest(ALL, 500))
    assert decode_key(found.key) == SynchronousKey(ALL, 500, "")


async def test_a_long_payload_is_read_in_a_thread() -> None:
    """The loop serves other requests meanwhile, and the other masters hear of this one."""
    threads = set[threading.Thread]()

    def configuration() -> Configuration:
        threads.add(threading.current_thread())
        return Configuration([Master("uk-1", "uk", 1)], False, 1000, graphs=[ACCOUNTS])

    found = SynchronousDoor(configuration)
    short = await found.convert_off_loop(submission(), NO_REQUEST)
    assert threads == {threading.current_thread()}
    payload = QUADS * (OFF_LOOP_BYTES // len(QUADS) + 1)
    long = await found.convert_off_loop(submission(payload), NO_REQUEST)
    assert len(threads) == 2
    assert short.kind == long.kind == KIND_SYNCHRONOUS_QUADS
    assert long.content == content_hash(long.kind, long.key, payload)
