"""Which solutions a pattern of an update has in a store, seen from what it inserts."""

from __future__ import annotations

import json
from typing import Final

from server_process import StoreProcess

from txlog.model.entry import KIND_UPDATE, Position
from txlog.workers.adapter import ApplyResult, MarkerPosition, StoreOperation

_AT: Final = MarkerPosition(Position(2, 7, bytes([7]) * 16), 0)


def mark_subjects(worker: StoreProcess, data: str, pattern: str) -> str:
    """Insert ``data`` into an empty store, then a quad for each ``?x`` of ``pattern``, as an applier does. The last
    letters of their IRIs, sorted."""
    texts = (f"INSERT DATA {{ {data} }}", f"INSERT {{ ?x <urn:new> <urn:new> }} WHERE {{ {pattern} }}")
    operations = [StoreOperation(KIND_UPDATE, text.encode()) for text in texts]
    applied = worker.send(worker.adapter.apply(operations, None, _AT))
    assert worker.adapter.parse_apply_result(applied) is ApplyResult.APPLIED, applied.text
    query = "SELECT DISTINCT ?x { ?x <urn:new> ?y }"
    answer = worker.send(worker.adapter.query(query, "application/sparql-results+json", union=False))
    rows = json.loads(answer.body)["results"]["bindings"]
    return "".join(sorted(row["x"]["value"][-1] for row in rows))
