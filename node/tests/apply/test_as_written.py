"""A real RDF4J server that holds literals as they were sent (the engine ``rdf4j-as-written``)."""

from __future__ import annotations

import io

import pytest
from engines import AS_SENT, stores_of
from forms_as_sent import FORMS_AS_SENT, XSD
from log_in_memory import MemoryLog
from rdf4j_process import AsWrittenProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.config.units import AS_WRITTEN
from txlog.evaluation.dataset_copy import DatasetCopy, load_copy
from txlog.evaluation.read_operations import match_quads, serialise_quads
from txlog.model.entry import Position
from txlog.pipeline.batch.net_effect import merge_pieces, split_into_buckets
from txlog.sparql import DataFingerprint, EvaluatedUpdate, build_effect, fingerprint_query
from txlog.workers import ADAPTERS
from txlog.workers.adapter import StoreOperation, fingerprint_family

pytestmark = pytest.mark.spark
running, worker = stores_of(AS_SENT)


def _line(literal: str) -> str:
    return f"<urn:s> <urn:p> {literal} <urn:g> ."


def _apply(worker: AsWrittenProcess, log: MemoryLog, merged: int) -> None:
    done = apply_up_to(worker.adapter, worker.transport, log, log.end, budget_s=60, merge_max_transactions=merged)
    assert (done.state, done.error) == (WorkerState.WORKING, None)


def _content(worker: AsWrittenProcess) -> list[str]:
    body = worker.send(worker.adapter.snapshot()).body
    return sorted(b"".join(worker.adapter.clean_snapshot([body])).decode().splitlines())


@pytest.mark.parametrize("merged", [1, 200])
def test_each_form_is_a_quad_of_its_own(worker: AsWrittenProcess, merged: int) -> None:
    log = MemoryLog()
    log.add(*map(_line, FORMS_AS_SENT))
    log.delete(_line(f'"01"^^<{XSD}integer>'))
    log.update(f'DELETE DATA {{ GRAPH <urn:g> {{ <urn:s> <urn:p> "1.10"^^<{XSD}decimal> }} }}')
    log.update("INSERT { GRAPH <urn:h> { ?s ?p ?o } } WHERE { GRAPH <urn:g> { ?s ?p ?o FILTER(?o = +1) } }")
    _apply(worker, log, merged)
    kept = [each for each in FORMS_AS_SENT if each not in (f'"01"^^<{XSD}integer>', f'"1.10"^^<{XSD}decimal>')]
    found = _content(worker)
    assert [line for line in found if line.endswith("<urn:g> .")] == sorted(map(_line, kept))
    assert _line(f'"+1"^^<{XSD}integer>').replace("<urn:g>", "<urn:h>") in found


@pytest.mark.parametrize("merged", [1, 200])
def test_a_tag_has_one_spelling_whatever_the_store_has_met(worker: AsWrittenProcess, merged: int) -> None:
    """RDF4J gives the spelling back that it met first, long after that quad is gone."""
    assert worker.update('INSERT DATA { <urn:old> <urn:p> "x"@en-US , "y"@en-US , "z"@en-US }').status == 204
    assert worker.update("DELETE WHERE { <urn:old> ?p ?o }").status == 204
    log = MemoryLog()
    log.add(_line('"x"@EN-us'))
    log.delete(_line('"x"@En-us'))
    log.update('INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> "y"@eN-Us , "@EN"@fr } }')
    log.update("INSERT { GRAPH <urn:g> { <urn:s> <urn:p> ?z } } WHERE { BIND(STRLANG('z', 'EN-US') AS ?z) }")
    _apply(worker, log, merged)
    assert _content(worker) == sorted(map(_line, ['"y"@en-us', '"z"@en-us', '"@EN"@fr']))


def test_a_bulk_load_gives_the_same_digest(worker: AsWrittenProcess) -> None:
    payloads = [
        "".join(f"A {_line(each)}\n" for each in FORMS_AS_SENT).encode(),
        f"D {_line(FORMS_AS_SENT[1])}\n".encode(),
    ]
    pieces = split_into_buckets(1, payloads, 1, as_written=True)
    made = merge_pieces([piece for _, piece in pieces])
    assert worker.send(worker.adapter.load(b"".join(made.adds))).ok
    loaded = worker.digest()
    worker.clear()
    log = MemoryLog()
    log.add(*map(_line, FORMS_AS_SENT))
    log.delete(_line(FORMS_AS_SENT[1]))
    _apply(worker, log, 1)
    assert worker.digest().graphs == loaded.graphs
    assert worker.digest().quads == len(FORMS_AS_SENT) - 1


def test_a_query_finds_a_form_by_itself(worker: AsWrittenProcess) -> None:
    log = MemoryLog()
    log.add(*map(_line, FORMS_AS_SENT))
    _apply(worker, log, 1)
    for form in FORMS_AS_SENT:
        told = worker.send(worker.adapter.query(f"SELECT (COUNT(*) AS ?n) {{ ?s ?p {form} }}", "text/csv"))
        assert told.body.decode().split() == ["n", "1"], form


def test_an_effect_that_another_master_computed_is_refused_by_name(worker: AsWrittenProcess) -> None:
    log = MemoryLog()
    log.add(_line(FORMS_AS_SENT[1]))
    body = build_effect([], [_line(FORMS_AS_SENT[0]).encode()], ["<urn:p>"], DataFingerprint(1, 2, 3))
    log.append(body.kind, body.payload)
    done = apply_up_to(worker.adapter, worker.transport, log, log.end, budget_s=60)
    assert done.state is WorkerState.BLOCKED
    assert "EffectOfCanonicalLiterals" in str(done.error)
    assert _content(worker) == [_line(FORMS_AS_SENT[1])]


def _copied(worker: AsWrittenProcess) -> tuple[DatasetCopy, Position]:
    """A copy of the worker, as a master fetches it."""
    copy, position = load_copy(worker.adapter, io.BytesIO(worker.send(worker.adapter.dump(None)).body))
    assert position is not None
    return copy, position


def test_a_store_and_its_copy_have_one_fingerprint(worker: AsWrittenProcess) -> None:
    log = MemoryLog()
    log.add(*[f"<urn:s> <urn:p{number}> {form} <urn:g> ." for number, form in enumerate(FORMS_AS_SENT)])
    _apply(worker, log, 1)
    copy, position = _copied(worker)
    assert position.index == log.end
    for number, form in enumerate(FORMS_AS_SENT):
        asked = worker.adapter.query(fingerprint_query([f"<urn:p{number}>"]), "text/csv", union=False)
        row = worker.send(asked).body.decode().split()[1].split(",")
        found = copy.fingerprint([f"<urn:p{number}>"])
        assert [*map(int, row)] == [found.count, found.first_sum, found.second_sum], form


@pytest.mark.parametrize("between", [None, FORMS_AS_SENT[0]])
def test_an_effect_of_the_forms_that_are_there_counts_unless_they_change(
    worker: AsWrittenProcess, between: str | None
) -> None:
    log = MemoryLog()
    log.add(*map(_line, FORMS_AS_SENT[1:]), _line('"x"@en'))
    _apply(worker, log, 1)
    copy, _ = _copied(worker)
    update = EvaluatedUpdate(
        "DELETE { GRAPH ?g { ?s <urn:p> ?o } } INSERT { GRAPH ?g { ?s <urn:q> ?o , 02 } } "
        "WHERE { GRAPH ?g { ?s <urn:p> ?o } FILTER(isNumeric(?o) && ?o < 2) }",
        ("<urn:p>", "<urn:q>"),
    )
    effect = copy.evaluate(update, lambda: 7, 1 << 20)
    if between:
        log.add(_line(between))
    log.append(effect.body.kind, effect.body.payload)
    before = _content(worker)
    _apply(worker, log, 200)
    if between:
        assert _content(worker) == sorted([*before, _line(between)])
        return
    copy.apply_operations([StoreOperation(effect.body.kind, effect.body.payload)], Position(0, log.end, b""))
    quads = match_quads(copy, (None, None, None), None)
    assert _content(worker) == sorted(copy.decode(serialise_quads(quads, False, 1 << 20)).decode().splitlines())
    assert f'<urn:s> <urn:q> "01"^^<{XSD}integer> <urn:g> .' in _content(worker)
    assert _line(f'"01"^^<{XSD}integer>') not in _content(worker)


def test_its_digests_compare_with_its_own_kind_only() -> None:
    families = {name: fingerprint_family(name) for name in ADAPTERS}
    assert [name for name, family in families.items() if family == families[AS_WRITTEN]] == [AS_WRITTEN]
