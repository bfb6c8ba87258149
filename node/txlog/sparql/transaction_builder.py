"""Builds one transaction from several changes, and from the removals that RDF4J's protocol has beside SPARQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import decode_quads, split_graph
from txlog.sparql.data_blocks import format_data_update
from txlog.sparql.rdf_upload import build_quads_body, split_lines, to_nquads
from txlog.sparql.skolem_iris import skolemise_kept_lines
from txlog.sparql.transaction_body import TransactionBody

OPERATION_SEPARATOR = " ;\n"


def concatenate(parts: Sequence[TransactionBody]) -> TransactionBody:
    """All parts, in order, as one transaction: ``KIND_QUADS`` where quads keep the order of the changes.

    A delete after an insert makes it a ``KIND_UPDATE``: the two quads may differ only in the form of a literal."""
    parts = [part for part in parts if part.payload]
    if len(parts) == 1:
        return parts[0]
    if any(part.kind != KIND_QUADS for part in parts):
        return _concatenate_as_update(parts)
    effect: dict[bytes, bool] = {}
    added = False
    for part in parts:
        lines = list(decode_quads(part.payload))
        if added and any(not adds for adds, _ in lines):
            return _concatenate_as_update(parts)
        for adds, line in lines:
            effect[line] = adds
            added = added or adds
    return build_quads_body((q for q, adds in effect.items() if not adds), (q for q, adds in effect.items() if adds))


def _concatenate_as_update(parts: Sequence[TransactionBody]) -> TransactionBody:
    texts: list[str] = []
    run: list[bytes] = []
    adding = False

    def flush() -> None:
        if run:
            texts.append(format_data_update(adding, list(dict.fromkeys(run))))
            run.clear()

    for part in parts:
        if part.kind == KIND_QUADS:
            for adds, line in decode_quads(part.payload):
                if adds != adding:
                    flush()
                    adding = adds
                run.append(line)
        else:
            flush()
            texts.append(part.payload.decode())
    flush()
    return TransactionBody(
        KIND_UPDATE, OPERATION_SEPARATOR.join(texts).encode(), sum(part.change_count for part in parts)
    )


def _update_of(texts: Sequence[str]) -> TransactionBody:
    return TransactionBody(KIND_UPDATE, OPERATION_SEPARATOR.join(texts).encode(), len(texts))


def drop_graphs(graphs: Sequence[str] | None) -> TransactionBody:
    """A transaction that deletes everything in these graphs (``<iri>``, "" for the default graph); None: all data."""
    if graphs is None:
        return _update_of(["DROP SILENT ALL"])
    return _update_of([f"DROP SILENT GRAPH {graph}" if graph else "DROP SILENT DEFAULT" for graph in graphs])


def delete_matching(
    subject: str | None, predicate: str | None, value: str | None, graphs: Sequence[str] | None = None
) -> TransactionBody:
    """A transaction that deletes the quads that match these terms (canonical N-Triples, None for any), from these
    graphs or from all."""
    terms = (subject, predicate, value)
    if not any(terms):
        return drop_graphs(graphs)
    triple = " ".join(term or variable for term, variable in zip(terms, ("?s", "?p", "?o"), strict=True))
    if graphs is not None and all(terms):
        lines = [f"{triple} {graph} ." if graph else f"{triple} ." for graph in graphs]
        return build_quads_body((line.encode() for line in lines), ())
    if graphs is None:
        return _update_of([f"DELETE WHERE {{ {triple} }}", f"DELETE WHERE {{ GRAPH ?g {{ {triple} }} }}"])
    return _update_of(
        [
            f"DELETE WHERE {{ GRAPH {graph} {{ {triple} }} }}" if graph else f"DELETE WHERE {{ {triple} }}"
            for graph in graphs
        ]
    )


_WILDCARD = "<http://www.openrdf.org/schema/sesame#wildcard>"
_DEFAULT_GRAPH = "<http://rdf4j.org/schema/rdf4j#nil>"
"""In a removal, this names the default graph: RDF4J's client writes it for a context of null. An addition, in RDF4J as
here, takes it as the name of a graph."""
_TRIPLE = re.compile(rb'(<[^>]*>) (<[^>]*>) (<[^>]*>|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^>]*>)?|<<\( .* \)>>)')


def prepare_removal(body: bytes, media_type: str, *, base: str | None, graphs: Sequence[str] | None) -> TransactionBody:
    """A transaction that deletes the statements of an RDF body. Each is deleted from ``graphs`` (``<iri>``, "" for the
    default graph). Without graphs it is deleted from the graph that it names, or from all when it names none. The graph
    ``rdf4j:nil`` is the default graph, ``sesame:wildcard`` matches any term, and a blank node is the one that its label
    names, as in RDF4J. Raises as :func:`prepare_rdf`."""
    nquads = skolemise_kept_lines(to_nquads(body, media_type, base))
    parts: list[TransactionBody] = []
    for line in split_lines(nquads):
        triple, graph = split_graph(line)
        found = _TRIPLE.fullmatch(triple.rstrip())
        assert found is not None, line[:200]
        subject, predicate, value = (None if t == _WILDCARD else t for t in (term.decode() for term in found.groups()))
        named = graph.decode().replace(_DEFAULT_GRAPH, "")
        parts.append(delete_matching(subject, predicate, value, graphs or ([named] if graph else None)))
    return concatenate(parts)
