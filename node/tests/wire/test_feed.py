"""Feeds as text: what is written is read again, and RDF Patch is what its readers expect."""

from __future__ import annotations

import json

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.cli.log_commands import describe_inexpressible
from txlog.model.entry import KIND_CONFIG, KIND_QUADS, KIND_SKIP, KIND_UPDATE
from txlog.model.entry_effects import NOOP_ROLLED_BACK, NOOP_SYNCHRONOUS, EntryEffect
from txlog.model.errors import BadInput, PeerFault
from txlog.model.ids import Origin, Txid
from txlog.model.namespaces import NamespaceChange, encode_namespace_change
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_QUADS,
    DecisionKind,
    decide,
    encode_decision,
)
from txlog.wire.change_feed import (
    HEARTBEAT,
    NDJSON_MEDIA_TYPE,
    RDF_PATCH_MEDIA_TYPE,
    ROLLED_BACK,
    SSE_MEDIA_TYPE,
    UNDECIDED,
    FeedEvent,
    entry_event,
    is_inexpressible_in_patch,
    parse_event_line,
    parse_feed_position,
    render_event,
)
from txlog.wire.log_page import PageEntry

HASH = bytes(range(16))
BEFORE = bytes(16)
ID = f"7:{HASH.hex()}"


def entry(kind: int, payload: bytes, noop: str = "", key: str = "", settled: bool = True) -> FeedEvent:
    made = PageEntry(7, HASH, "uk-1", 0xC0FFEE, 3, 5 << 16, kind, payload, noop)
    return entry_event(made, BEFORE, key, settled)


def rows(event: FeedEvent) -> list[str]:
    text = render_event(event, RDF_PATCH_MEDIA_TYPE).decode()
    assert text.endswith("\n\n")
    return text[:-2].split("\n")


@pytest.mark.parametrize(
    ("text", "index", "value"),
    [("0", 0, None), ("17", 17, None), (ID, 7, HASH), (f"3:{ID}", 7, HASH), (ID.upper(), 7, HASH)],
)
def test_a_place_has_three_ways_to_be_named(text: str, index: int, value: bytes | None) -> None:
    found = parse_feed_position(text, "from")
    assert (found.index, found.hash) == (index, value)


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "1.5", "7:", f"7:{HASH.hex()[:-1]}", f"1:2:3:{HASH.hex()}", "9" * 19, " 7", "7\n", "٣", "7:zz"],
)
def test_what_names_no_place_is_said(text: str) -> None:
    with pytest.raises(BadInput, match="Last-Event-ID="):
        parse_feed_position(text, "Last-Event-ID")


def test_an_event_is_one_event_for_browsers() -> None:
    event = entry(KIND_QUADS, b'A <urn:s> <urn:p> "two\\nlines" .\n')
    head, data = render_event(event, SSE_MEDIA_TYPE).decode().split("data: ")
    assert head == f"id: {ID}\nevent: entry\n"
    assert data.endswith("\n\n")
    assert json.loads(data) == {
        "event": "entry",
        "id": ID,
        "previous": f"6:{BEFORE.hex()}",
        "index": 7,
        "txid": "uk-1.0000000000c0ffee.3",
        "stamp": 5 << 16,
        "kind": "quads",
        "payload": 'A <urn:s> <urn:p> "two\\nlines" .\n',
    }
    assert render_event(FeedEvent(event="position", id=ID), SSE_MEDIA_TYPE) == f"id: {ID}\n\n".encode(), (
        "remembered, nobody is called"
    )


@given(st.text(), st.text(), st.booleans(), st.sampled_from(["entry", "rewound", "gone"]))
def test_lines_are_read_as_they_were_written(payload: str, key: str, settled: bool, name: str) -> None:
    event = FeedEvent(event=name, id=ID, payload=payload, key=key, settled=settled, kind="skip")
    line = render_event(event, NDJSON_MEDIA_TYPE)
    assert line.count(b"\n") == 1
    assert parse_event_line("m", line) == event


def test_lines_that_are_none_are_named() -> None:
    assert parse_event_line("m", HEARTBEAT[NDJSON_MEDIA_TYPE]) is None
    for broken in (b"{", b"[]", b'{"event": 1, "id": "x"}', b'{"id": "1"}'):
        with pytest.raises(PeerFault, match="feed"):
            parse_event_line("m", broken)


def test_quads_are_a_patch() -> None:
    lines = 'D <urn:s> <urn:p> "a\u2028b\u0085c" <urn:g> .\nA <urn:s> <urn:p> "é"@fr .\n'
    told = rows(entry(KIND_QUADS, lines.encode()))
    assert told == [
        f"H id <urn:txlog:log:{ID}> .",
        f"H prev <urn:txlog:log:6:{BEFORE.hex()}> .",
        'H transaction "uk-1.0000000000c0ffee.3" .',
        "TX .",
        *lines.rstrip("\n").split("\n"),
        "TC .",
    ]
    for row in told[4:-1]:
        assert len(list(pyoxigraph.parse(row[2:], pyoxigraph.RdfFormat.N_QUADS))) == 1


def test_the_first_patch_has_none_before_it() -> None:
    made = PageEntry(1, HASH, "uk-1", 1, 1, 1, KIND_QUADS, b"A <urn:s> <urn:p> <urn:o> .\n", "")
    assert "H prev" not in render_event(entry_event(made, BEFORE, "", True), RDF_PATCH_MEDIA_TYPE).decode()


@pytest.mark.parametrize(
    ("event", "said", "between"),
    [
        (entry(KIND_QUADS, b"A <urn:s> <urn:p> 1 .\n", noop="key x.1.2"), 'H noop "key x.1.2" .', []),
        (entry(KIND_QUADS, b"", settled=False), 'H settled "false" .', []),
        (
            entry(KIND_UPDATE, b'DELETE { ?s ?p "\t" }\nWHERE {}'),
            'H update "DELETE { ?s ?p \\"\\t\\" }\\nWHERE {}" .',
            [],
        ),
        (entry(KIND_SKIP, b"sick", key="uk-1.00.4"), 'H skip "uk-1.00.4" .', []),
        (entry(KIND_CONFIG, b"", key="mute uk-2"), 'H configuration "mute uk-2" .', []),
    ],
)
def test_what_is_no_quads_changes_nothing_and_says_so(event: FeedEvent, said: str, between: list[str]) -> None:
    told = rows(event)
    assert said in told[:-2]
    assert told[told.index("TX .") + 1 : -1] == between


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (NamespaceChange("ex", "urn:x:"), 'PA "ex" <urn:x:> .'),
        (NamespaceChange("ex", None), 'PD "ex" .'),
        (NamespaceChange(None, None), None),
    ],
)
def test_prefixes_are_those_of_a_patch(change: NamespaceChange, row: str | None) -> None:
    event = entry(KIND_SKIP, b"", key=encode_namespace_change(change, "n1"))
    assert event.kind == "namespace"
    told = rows(event)
    assert told[told.index("TX .") + 1 : -1] == ([row] if row is not None else [])


@pytest.mark.parametrize("name", ["rewound", "gone", "diverged", "closing", "not-quads"])
def test_what_is_no_entry_is_a_transaction_that_is_aborted(name: str) -> None:
    previous = f"9:{BEFORE.hex()}" if name == "rewound" else ""
    told = rows(FeedEvent(event=name, id=ID, previous=previous, message="" if previous else 'why "so"'))
    assert told[0] == f"H id <urn:txlog:log:{ID}> ."
    assert told[1] == (f"H rewound <urn:txlog:log:{previous}> ." if previous else f'H {name} "why \\"so\\"" .')
    assert told[2:] == ["TX .", "TA ."]


def test_updates_stop_a_patch_unless_they_do_nothing() -> None:
    assert is_inexpressible_in_patch(entry(KIND_UPDATE, b"CLEAR ALL"))
    assert not is_inexpressible_in_patch(entry(KIND_UPDATE, b"CLEAR ALL", noop="skip"))
    assert not is_inexpressible_in_patch(entry(KIND_QUADS, b""))


COMMIT = encode_decision(decide(DecisionKind.COMMIT, [Txid(Origin("uk-1", 9), seq) for seq in (1, 2)]))
ROLLBACK = encode_decision(decide(DecisionKind.ROLLBACK, [Txid(Origin("uk-1", 9), 1)]))


def decision(key: str, *payloads: tuple[int, bytes]) -> FeedEvent:
    effects = [EntryEffect("uk-1", 9, seq, *one) for seq, one in enumerate(payloads, 1)]
    noop = "" if effects else NOOP_SYNCHRONOUS
    made = PageEntry(7, HASH, "uk-1", 0xC0FFEE, 3, 5 << 16, KIND_DECISION, b"", noop, key, 0, effects)
    return entry_event(made, BEFORE, key, True)


def test_a_synchronous_transaction_without_effect_at_its_own_place() -> None:
    event = entry(KIND_SYNCHRONOUS_QUADS, b"A <urn:s> <urn:p> <urn:o> .\n", NOOP_SYNCHRONOUS)
    assert (event.kind, event.synchronous, event.payload) == ("synchronous-quads", UNDECIDED, "")
    assert [row for row in rows(event) if row.startswith(("A ", "H syn"))] == ['H synchronous "undecided" .']
    assert not is_inexpressible_in_patch(event)


def test_one_whose_commit_precedes_it() -> None:
    effect = EntryEffect("uk-1", 0xC0FFEE, 3, KIND_QUADS, b"A <urn:s> <urn:p> <urn:o> .\n")
    made = PageEntry(7, HASH, "uk-1", 0xC0FFEE, 3, 5, KIND_SYNCHRONOUS_QUADS, effect.payload, "", "", 0, [effect])
    event = entry_event(made, BEFORE, "", True)
    assert (event.kind, event.synchronous, event.commits, event.payload) == ("quads", "", [], effect.payload.decode())


def test_a_commit_is_one_transaction_of_all_that_takes_effect() -> None:
    event = decision(COMMIT, (KIND_QUADS, b"A <urn:s> <urn:p> <urn:o> .\n"), (KIND_QUADS, b"D <urn:x> <urn:p> 1 .\n"))
    assert [each.kind for each in event.commits] == ["quads", "quads"]
    assert parse_event_line("m", render_event(event, NDJSON_MEDIA_TYPE)) == event
    shown = json.loads(render_event(event, NDJSON_MEDIA_TYPE))
    assert [each["txid"] for each in shown["commits"]] == [str(Txid(Origin("uk-1", 9), seq)) for seq in (1, 2)]
    assert "rollsBack" not in shown
    found = rows(event)
    assert [row for row in found if row[:2] in ("TX", "A ", "D ", "TC")] == [
        "TX .",
        "A <urn:s> <urn:p> <urn:o> .",
        "D <urn:x> <urn:p> 1 .",
        "TC .",
    ]


def test_what_is_skipped_inside_a_commit_is_no_part_of_the_patch() -> None:
    event = decision(COMMIT, (KIND_QUADS, b"A <urn:s> <urn:p> <urn:o> .\n"), (KIND_SKIP, b""))
    assert [each.kind for each in event.commits] == ["quads", "skip"]
    found = rows(event)
    assert [row for row in found if row.startswith(("H commits", "H skip"))] == [
        'H commits "uk-1.0000000000000009.1" .',
        'H skip "uk-1.0000000000000009.2" .',
    ]
    assert [row for row in found if row.startswith("A ")] == ["A <urn:s> <urn:p> <urn:o> ."]


def test_one_that_is_rolled_back_before_it_is_there_says_so() -> None:
    event = entry(KIND_SYNCHRONOUS_QUADS, b"A <urn:s> <urn:p> <urn:o> .\n", NOOP_ROLLED_BACK)
    assert (event.noop, event.synchronous, event.payload) == (NOOP_ROLLED_BACK, ROLLED_BACK, "")
    assert 'H synchronous "rolled-back" .' in rows(event)


def test_the_reason_why_a_patch_ends_names_several_transactions() -> None:
    alone = decision(COMMIT, (KIND_UPDATE, b"CLEAR ALL"))
    several = decision(COMMIT, (KIND_UPDATE, b"CLEAR ALL"), (KIND_QUADS, b""))
    assert "--updates header" in describe_inexpressible(alone)
    assert "commits several transactions" in describe_inexpressible(several)
    assert "--updates header" not in describe_inexpressible(several)


def test_a_rollback_names_what_never_takes_effect() -> None:
    event = decision(ROLLBACK)
    assert (event.kind, event.noop, event.rolls_back) == ("decision", NOOP_SYNCHRONOUS, ["uk-1.0000000000000009.1"])
    assert json.loads(render_event(event, NDJSON_MEDIA_TYPE))["rollsBack"] == event.rolls_back
    assert 'H rolled-back "uk-1.0000000000000009.1" .' in rows(event)


def test_updates_of_a_commit_in_a_patch() -> None:
    alone = decision(COMMIT, (KIND_UPDATE, b"CLEAR ALL"))
    several = decision(COMMIT, (KIND_UPDATE, b"CLEAR ALL"), (KIND_QUADS, b""))
    assert 'H update "CLEAR ALL" .' in rows(alone)
    assert [is_inexpressible_in_patch(alone, reads_updates=reads) for reads in (False, True)] == [True, False]
    assert [is_inexpressible_in_patch(several, reads_updates=reads) for reads in (False, True)] == [True, True]
