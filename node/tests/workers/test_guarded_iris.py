"""``IRI()`` in an update has no value for a name of TxLog's and for no absolute IRI, in every engine."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from engines import ALL, stores_of
from server_process import StoreProcess

from txlog.sparql import prepare_update

running, worker = stores_of(ALL)
DATA = "INSERT DATA { <urn:a> <urn:p> 'x' . <urn:b> <urn:p> 'urn:ok' . <urn:c> <urn:p> 'urn:txlog:system:x' }"


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("BIND(IRI(?o) AS ?i)", ["urn:b,urn:ok"]),
        ("BIND(COALESCE(IRI(?o), <urn:none>) AS ?i)", ["urn:a,urn:none", "urn:b,urn:ok", "urn:c,urn:none"]),
        ("FILTER(isIRI(IRI(?o))) BIND(<urn:i> AS ?i)", ["urn:b,urn:i"]),
        ("FILTER(BOUND(?o) || isIRI(IRI(?o))) BIND(<urn:i> AS ?i)", ["urn:a,urn:i", "urn:b,urn:i", "urn:c,urn:i"]),
    ],
)
def test_the_others_have_theirs(worker: StoreProcess, pattern: str, rows: list[str]) -> None:
    assert worker.update(DATA).ok
    text = f"INSERT {{ ?s <urn:q> ?i }} WHERE {{ ?s <urn:p> ?o {pattern} }}"
    update = prepare_update(text, base=None, now=datetime(2026, 1, 1, tzinfo=UTC), draw=lambda: 1)
    answer = worker.update(update.payload.decode())
    assert answer.ok, answer.text
    assert sorted(worker.select("SELECT ?s ?i { ?s <urn:q> ?i }")) == rows
