"""What an engine answers when it is asked for the quads with some predicates: those, and where it stands."""

from __future__ import annotations

import io

import pyoxigraph as ox
import pytest
from engines import LOCKING, MARKED, stores_of
from server_process import StoreProcess

from txlog.evaluation.dataset_copy import load_copy
from txlog.model.entry import KIND_UPDATE, Position
from txlog.workers.adapter import ApplyResult, MarkerPosition, StoreOperation

DATA = """INSERT DATA { <urn:a> <urn:p> 1 , "x"@en . <urn:b> <urn:q> <urn:c> . <urn:b> <urn:r> 2 .
GRAPH <urn:g> { <urn:a> <urn:p> 1 . <urn:d> <urn:q> "two\\nlines" . <urn:d> <urn:r> true } }"""
AT = MarkerPosition(Position(2, 7, bytes([7]) * 16), 0)

running, worker = stores_of([*{str(each): each for each in (*LOCKING, *MARKED)}.values()])


@pytest.mark.parametrize(
    "predicates", [None, ("<urn:p>",), ("<urn:q>", "<urn:p>"), ("<urn:none>",), ()], ids=lambda each: str(each)
)
def test_a_part_is_what_has_these_predicates_and_where_it_stands(
    worker: StoreProcess, predicates: tuple[str, ...] | None
) -> None:
    adapter = worker.adapter
    assert adapter.capabilities.parts
    applied = worker.send(adapter.apply([StoreOperation(KIND_UPDATE, DATA.encode())], None, AT))
    assert adapter.parse_apply_result(applied) is ApplyResult.APPLIED
    answer = worker.send(adapter.dump(predicates))
    assert answer.ok, answer.body[:500]
    copy, position = load_copy(adapter, io.BytesIO(answer.body))
    assert position == AT.position, answer.body
    wanted = None if predicates is None else {each[1:-1] for each in predicates}
    found = sorted(str(quad) for quad in copy.store)
    whole = ox.Store()
    whole.update(DATA)
    assert found == sorted(str(quad) for quad in whole if wanted is None or quad.predicate.value in wanted)
