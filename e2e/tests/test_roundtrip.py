"""What ``make roundtrip`` rests on: a quick part of it, and that a change is seen."""

from __future__ import annotations

from pathlib import Path

import pyoxigraph as ox
import pytest

from e2e.conformance.roundtrip.run import (
    N_QUADS,
    SPARQL,
    UPLOADS,
    RoundTrip,
    n_triples,
    read_document,
    run_engine,
    write_document,
)
from e2e.conformance.roundtrip.values import XSD, odd_terms

TERMS = list(dict.fromkeys(odd_terms()))


def test_there_are_enough_values_of_each_kind() -> None:
    kinds = [sum(isinstance(term, kind) for term in TERMS) for kind in (ox.Literal, ox.NamedNode, ox.BlankNode)]
    assert len(TERMS) >= 200
    assert min(kinds) >= 10


def test_a_document_holds_its_values() -> None:
    numbered = [(n, term) for n, term in enumerate(TERMS) if isinstance(term, ox.Literal)]
    for media in UPLOADS:
        if media != SPARQL:
            found = dict(read_document(media, write_document(media, numbered)))
            assert [found[n].lower() for n, _ in numbered] == [n_triples(term).lower() for _, term in numbered], media


@pytest.mark.parametrize(
    ("sent", "back", "form", "fine"),
    [
        ("01", "01", "", True),
        ("01", "1", "oxigraph", True),
        ("01", "1", "", False),
        ("01", "2", "oxigraph", False),
        ("01", "01 ", "oxigraph", False),
    ],
)
def test_what_is_changed_and_not_named_is_seen(sent: str, back: str, form: str, fine: bool) -> None:
    integer = ox.NamedNode(f"{XSD}integer")
    trip = RoundTrip(None, "oxigraph", [ox.Literal(sent, datatype=integer)])  # type: ignore[arg-type]
    trip.compare(N_QUADS, N_QUADS, {0: str(ox.Literal(back, datatype=integer))}, form)
    assert (not trip.changed) == fine


def test_a_value_that_is_lost_is_seen() -> None:
    trip = RoundTrip(None, "oxigraph", [ox.Literal("x")])  # type: ignore[arg-type]
    trip.compare(N_QUADS, N_QUADS, {}, "oxigraph")
    assert trip.changed


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_nothing_is_changed_in_three_formats(tmp_path: Path) -> None:
    trip = run_engine("oxigraph", TERMS, (N_QUADS, "application/rdf+xml", SPARQL), tmp_path / "trip")
    assert not trip.changed
    assert trip.named[N_QUADS]
    assert sum(trip.kept.values()) > 1000
