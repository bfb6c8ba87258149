"""A literal with a base direction (RDF 1.2) is logged only where every store of the cluster can keep it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from master_cluster import Cluster

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, NotDeterministic, Unavailable
from txlog.protocol.peer_levels import PeerLevels
from txlog.server.frontdoor.portability_rule import PortabilityRule
from txlog.sparql import EFFECT_CONDITION, prepare_update
from txlog.wire.protocol_level import LEVEL_TRIPLE_TERMS, PROTOCOL_LEVEL

STATEMENTS = "/repositories/demo/statements"
DIRECTED = '<urn:a> <urn:d> "shalom"@he--rtl .'
PLAIN = '<urn:a> <urn:d> "\\"@he--rtl ." .'
REQUESTS = [
    ("application/n-triples", DIRECTED),
    ("application/n-quads", f"{DIRECTED[:-1]} <urn:g> ."),
    ("text/turtle", DIRECTED),
    ("application/ld+json", '{"@id":"urn:a","urn:d":{"@value":"shalom","@language":"he","@direction":"rtl"}}'),
    ("application/sparql-update", f"INSERT DATA {{ {DIRECTED} }}"),
    ("application/sparql-update", "INSERT { ?s <urn:d> 'shalom'@he--rtl } WHERE { ?s <urn:k> ?o }"),
    ("application/sparql-update", "DELETE WHERE { ?s <urn:d> 'shalom'@he--rtl }"),
]


def _workers(engine: str) -> list[dict[str, str]]:
    return [{"name": "w-1", "url": "http://127.0.0.1:1", "engine": engine}]


async def _post(cluster: Cluster, media_type: str, body: str) -> tuple[int, str]:
    headers = {"Content-Type": media_type, "TxLog-Durability": "synced"}
    async with cluster.session.post(cluster.url(0, STATEMENTS), data=body, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("changes", [{"workers": _workers("rdf4j")}, {"mixed_engines": True}])
async def test_it_is_refused_by_name_where_a_store_cannot_keep_it(
    clusters: Callable[..., Cluster], changes: dict[str, Any]
) -> None:
    cluster = clusters(1, **changes)
    await cluster.start()
    for media_type, body in REQUESTS:
        status, text = await _post(cluster, media_type, body)
        if media_type != "application/ld+json" or status == 400:
            assert status == 400, (body, text)
            assert "base direction (RDF 1.2), @he--rtl" in text
    lines = json.dumps({"quads": DIRECTED}) + "\n" + json.dumps({"update": REQUESTS[4][1]}) + "\n"
    async with cluster.session.post(cluster.url(0, "/txlog/transactions"), data=lines) as answer:
        told = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [line.get("error") for line in told] == ["BadInput", "BadInput"]
    async with cluster.session.delete(cluster.url(0, STATEMENTS), params={"obj": '"shalom"@he--rtl'}) as answer:
        assert answer.status == 400
    assert (await _post(cluster, "application/n-triples", PLAIN))[0] == 204


async def test_stores_that_keep_it_get_it(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=_workers("oxigraph"))
    await cluster.start()
    for media_type, body in REQUESTS:
        assert (await _post(cluster, media_type, body))[0] == 204, body


LONG, SHORT = "2020-01-02T03:04:05.12345678901Z", "2020-01-02T03:04:05.1234567890Z"
DATE_TIME = "<http://www.w3.org/2001/XMLSchema#dateTime>"


@pytest.mark.parametrize("changes", [{"workers": _workers("fuseki")}, {"mixed_engines": True}])
async def test_seconds_at_which_a_store_would_fail_are_refused_by_name(
    clusters: Callable[..., Cluster], changes: dict[str, Any]
) -> None:
    cluster = clusters(1, **changes)
    await cluster.start()
    for value, status in ((LONG, 400), (SHORT, 204)):
        for media_type, body in (
            ("application/n-triples", f'<urn:a> <urn:d> "{value}"^^{DATE_TIME} .'),
            ("text/turtle", f"<urn:a> <urn:d> '{value}'^^{DATE_TIME} ."),
            ("application/sparql-update", f"INSERT DATA {{ <urn:a> <urn:d> '{value}'^^{DATE_TIME} }}"),
            ("application/sparql-update", f"DELETE WHERE {{ ?s <urn:d> '{value}'^^{DATE_TIME} }}"),
        ):
            if value == SHORT and body.startswith("DELETE"):
                continue  # where engines are mixed, the datatype makes it an update that is evaluated once
            found, text = await _post(cluster, media_type, body)
            assert found == status, (body, text)
            assert status == 204 or "seconds with more than 10 decimals" in text, text


@pytest.mark.parametrize(
    ("quad", "why"),
    [
        ('<urn:a> <urn:d> " 1"^^<http://www.w3.org/2001/XMLSchema#integer> .', "a value with spaces around it"),
        ('<urn:a> <urn:d> "1\\n"^^<http://www.w3.org/2001/XMLSchema#int> .', "a value with spaces around it"),
        ("<urn:a> <urn:d> <http://example.org/a/../b> .", "an IRI with the segment . or .."),
        ("<http://example.org/./a> <urn:d> 1 .", "an IRI with the segment . or .."),
        ('<urn:a> <urn:d> " 1" , "see <http://example.org/a/../b>" , <http://example.org/..a> .', ""),
        ('<urn:a> <urn:d> " 1"^^<http://www.w3.org/2001/XMLSchema#token> .', ""),
    ],
)
async def test_what_jena_would_store_as_another_term_is_refused_beside_it(
    clusters: Callable[..., Cluster], quad: str, why: str
) -> None:
    cluster = clusters(1, workers=_workers("fuseki"))
    await cluster.start()
    # N-Quads first: a new connection takes one of them by a short way.
    forms = [("text/turtle", quad), ("application/sparql-update", f"INSERT DATA {{ {quad} }}")]
    if "," not in quad and " 1 ." not in quad:
        forms.insert(0, ("application/n-quads", quad))
    for media_type, body in forms:
        status, text = await _post(cluster, media_type, body)
        assert (status, why in text) == (400 if why else 204, True), text


async def test_other_stores_get_seconds_of_any_length(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, workers=_workers("oxigraph"))
    await cluster.start()
    assert (await _post(cluster, "application/n-triples", f'<urn:a> <urn:d> "{LONG}"^^{DATE_TIME} .'))[0] == 204


TRIPLE = b"A <urn:a> <urn:p> <<( <urn:s> <urn:q> <urn:o> )>> .\n"


def _rule(engines: list[str], levels: dict[str, int], *, mixed: bool = False) -> PortabilityRule:
    peers = PeerLevels()
    for node, level in levels.items():
        peers.on_level(node, level)
    site: Any = SimpleNamespace(
        config=SimpleNamespace(mixed_engines=mixed),
        registry=SimpleNamespace(known=SimpleNamespace(engines=lambda: tuple(engines))),
        other_nodes=list(levels),
        literals=SimpleNamespace(contradicts_cluster=False),
        status=SimpleNamespace(older_masters=lambda level: peers.older(level, ["never heard", *levels])),
    )
    return PortabilityRule(site)


@pytest.mark.parametrize(
    ("engines", "levels", "mixed", "error"),
    [
        (["oxigraph"], {"b": PROTOCOL_LEVEL}, False, None),
        (["", "fuseki"], {}, True, None),
        (["oxigraph"], {"b": PROTOCOL_LEVEL}, True, BadInput),
        ([], {}, True, BadInput),
        (["oxigraph", "rdf4j"], {}, False, BadInput),
        (["virtuoso"], {}, False, BadInput),
        (["oxigraph"], {"b": PROTOCOL_LEVEL, "c": LEVEL_TRIPLE_TERMS - 1}, False, Unavailable),
    ],
)
def test_a_triple_term_is_taken_where_every_engine_and_every_pipeline_reads_it(
    engines: list[str], levels: dict[str, int], mixed: bool, error: type[Exception] | None
) -> None:
    rule = _rule(engines, levels, mixed=mixed)
    rule.check_terms(KIND_QUADS, TRIPLE.replace(b"<<( ", b'"<<( ').replace(b" )>>", b'"'))
    if error is None:
        rule.check_terms(KIND_QUADS, TRIPLE)
        return
    with pytest.raises(error, match=r"RDF 1\.2"):
        rule.check_terms(KIND_QUADS, TRIPLE)


def test_an_update_that_an_as_written_store_would_take_for_an_effect_is_refused() -> None:
    update = f'INSERT {{ ?s <urn:p> "{EFFECT_CONDITION}" }} WHERE {{ ?s <urn:q> ?o }}'.encode()
    _rule(["rdf4j"], {}).check_terms(KIND_UPDATE, update)
    with pytest.raises(BadInput, match="another master has evaluated"):
        _rule(["rdf4j-as-written"], {}).check_terms(KIND_UPDATE, update)
    _rule(["rdf4j-as-written"], {}).check_terms(KIND_UPDATE, update.replace(b"(COUNT", b"( COUNT"))


@pytest.mark.parametrize(
    ("engines", "where", "refused"),
    [
        (["oxigraph"], "?s ?p ?o FILTER REGEX('a', ?o)", False),
        (["oxigraph", "fuseki"], "?s ?p ?o FILTER REGEX('a', ?o)", True),
        (["fuseki"], "?s ?p ?o FILTER(1/0)", False),
        (["rdf4j"], "?s ?p ?o FILTER(1/0)", True),
        (["rdf4j-as-written"], "?s ?p ?o FILTER(1/0)", True),
    ],
)
def test_what_ends_a_request_in_an_engine_of_the_cluster_is_evaluated_once(
    engines: list[str], where: str, refused: bool
) -> None:
    text = f"INSERT {{ ?s <urn:x> 1 }} WHERE {{ {where} }}"
    prepared = prepare_update(text, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 1)
    if not refused:
        assert _rule(engines, {}).check(prepared) == prepared
        return
    with pytest.raises(NotDeterministic) as found:
        _rule(engines, {}).check(prepared)
    assert found.value.once
