from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import decode_quads, encode_quads
from txlog.workers.adapter import StoreOperation
from txlog.workers.update_batches import merge_quad_changes, update_texts

LINES = [b"<urn:%d> <urn:p> <urn:o> ." % n for n in range(5)]
PAYLOADS = st.lists(
    st.builds(
        lambda d, a: encode_quads(sorted(d - a), sorted(a)),
        st.sets(st.sampled_from(LINES)),
        st.sets(st.sampled_from(LINES)),
    ),
    max_size=6,
)


@given(PAYLOADS, st.sets(st.sampled_from(LINES)))
def test_the_last_operation_on_a_quad_wins(payloads: list[bytes], before: set[bytes]) -> None:
    store = set(before)
    came: set[bytes] = set()
    for payload in payloads:
        for is_add, line in decode_quads(payload):
            (store.add if is_add else store.discard)(line)
            if is_add:
                came.add(line)
    deletes, adds, gone = merge_quad_changes(payloads)
    assert (before - set(deletes)) | set(adds) == store
    assert not set(deletes) & set(adds)
    assert len(deletes) + len(adds) == len({*deletes, *adds})
    assert set(gone) == came - store


def quads(*lines: bytes) -> StoreOperation:
    return StoreOperation(KIND_QUADS, b"".join(line + b"\n" for line in lines))


def test_runs_of_quads_become_one_delete_and_one_insert_between_updates() -> None:
    texts = update_texts(
        [
            quads(b"D <urn:a> <urn:p> <urn:o> .", b"A <urn:b> <urn:p> <urn:o> <urn:g> ."),
            quads(b"A <urn:c> <urn:p> <urn:o> <urn:g> .", b"A <urn:d> <urn:p> <urn:o> ."),
            StoreOperation(KIND_UPDATE, b"CLEAR DEFAULT"),
            StoreOperation(KIND_UPDATE, b"  "),
            quads(b"A <urn:e> <urn:p> <urn:o> ."),
        ]
    )
    assert [" ".join(text.split()) for text in texts] == [
        "DELETE DATA {<urn:a> <urn:p> <urn:o> . }",
        "INSERT DATA {GRAPH <urn:g> {<urn:b> <urn:p> <urn:o> . <urn:c> <urn:p> <urn:o>} <urn:d> <urn:p> <urn:o> . }",
        "CLEAR DEFAULT",
        "INSERT DATA {<urn:e> <urn:p> <urn:o> . }",
    ]


def test_a_graph_that_came_and_went_is_still_there_empty() -> None:
    came_and_went = [quads(b"A <urn:a> <urn:p> <urn:o> <urn:g> ."), quads(b"D <urn:a> <urn:p> <urn:o> <urn:g> .")]
    assert update_texts(came_and_went)[-1] == "CREATE SILENT GRAPH <urn:g>"
    in_default = [quads(b"A <urn:a> <urn:p> <urn:o> ."), quads(b"D <urn:a> <urn:p> <urn:o> .")]
    assert len(update_texts(in_default)) == 1
    only_deleted = [quads(b"D <urn:a> <urn:p> <urn:o> <urn:g> .")]
    assert len(update_texts(only_deleted)) == 1


def test_nothing_is_no_text() -> None:
    assert update_texts([]) == []
    assert update_texts([quads()]) == []


def test_one_quad_written_in_two_ways_is_one_quad_also_when_transactions_are_merged() -> None:
    integer = b"^^<http://www.w3.org/2001/XMLSchema#integer> ."
    added, deleted = quads(b'A <urn:a> <urn:p> "01"' + integer), quads(b'D <urn:a> <urn:p> "1"' + integer)
    [text] = update_texts([added, deleted])
    assert text.startswith("DELETE DATA")
