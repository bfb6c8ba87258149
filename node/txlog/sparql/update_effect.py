"""An update that is evaluated once: what it may look at, and its effect as an update that every worker carries out
alike, or not at all.

The effect is a difference of quads, found on a copy of the data at one position of the log. It is logged behind a
*condition*: that everything the update may have looked at is still as it was there. The condition is SPARQL itself, a
count and two sums of hashes over the quads with those predicates, so that each worker decides it in the effect's own
place in the log, and all decide the same. Where it holds, the update evaluated in that place would have been free to
have this very effect (docs/decisions/0011-effects-behind-a-condition.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import split_graph
from txlog.sparql.terms import DEFAULT_PREFIXES
from txlog.sparql.transaction_body import TransactionBody

PREDICATES_MAX: Final = 64
"""An update with more of them looks at everything."""
_INTEGER: Final = f"<{DEFAULT_PREFIXES['xsd']}integer>"

_FLOATS: Final = f"<{DEFAULT_PREFIXES['xsd']}double>,<{DEFAULT_PREFIXES['xsd']}float>"
_VALUE: Final = (
    # Engines write `1` and `1.0`, `0.0025` and `0.0025e0`; all of them must come to the same sums. Of a double its
    # billionths count, from a million on its whole part, from 10^15 on its sign. What NaN compares to is not the same.
    # A cast of a whole double is one less in an Oxigraph, now and then, so it is done half a step above.
    f"IF(!isNumeric(?o),STR(?o),IF(DATATYPE(?o) IN ({_FLOATS}),"
    f'IF(STR(?o)="NaN","NaN",IF(ABS(?o)<1000000,STR({_INTEGER}(FLOOR(?o*1000000000)+0.5e0)),'
    f'IF(ABS(?o)<1000000000000000,STR({_INTEGER}(FLOOR(?o)+0.5e0)),IF(?o>0,"+","-")))),'
    'REPLACE(STR(?o),"[.]0$","")))'
)


class EvaluatedOperation(msgspec.Struct, frozen=True):
    """One operation. ``output_graphs``: it is one on the union of all graphs, and writes what it does to graphs of
    these names: to the first what goes from all graphs, to each of the others what comes into the graph beside it
    (``<iri>``, "" for the default graph). Empty: it is carried out as it is."""

    text: str
    output_graphs: tuple[tuple[str, str], ...] = ()


class EvaluatedUpdate(msgspec.Struct, frozen=True):
    """An update to be evaluated once. ``text``: normalised as for workers. ``read_predicates``: the predicates
    (``<iri>``) of all quads that it may read or write; None: any. ``operations``: its operations, where some are on the
    union of all graphs."""

    text: str
    read_predicates: tuple[str, ...] | None
    operations: tuple[EvaluatedOperation, ...] = ()


class DataFingerprint(msgspec.Struct, frozen=True):
    """What a condition compares: how many quads there are, and two sums of 40 bits of each one's hash."""

    count: int
    first_sum: int
    second_sum: int


def fingerprint_query(looks_at: Sequence[str] | None) -> str:
    """A SELECT of ``?n ?a ?b``: the :class:`DataFingerprint` of the quads with these predicates, or of all."""
    if looks_at is None:
        quads = "{ ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } }"
    else:
        quads = " UNION ".join(
            f"{{ ?s {p} ?o BIND({p} AS ?p) }} UNION {{ GRAPH ?g {{ ?s {p} ?o }} BIND({p} AS ?p) }}" for p in looks_at
        )
    # No space stands in an IRI, a language or before the object, so no two quads give one text.
    text = (
        'CONCAT(STR(?s)," ",STR(?p)," ",COALESCE(STR(?g),"")," ",COALESCE(STR(DATATYPE(?o)),"")," ",'
        f'COALESCE(LCASE(LANG(?o)),"")," ",{_VALUE})'
    )
    # SPARQL reads no hexadecimal: the decimal digits among a hash's 64 are as random as the hash.
    digits = f'REPLACE(SHA256({text}),"[a-f]","")'
    return (
        "SELECT (COUNT(*) AS ?n) (SUM(?x) AS ?a) (SUM(?y) AS ?b) WHERE { "
        f"{quads} BIND({digits} AS ?d) "
        # Not a cast, which RDF4J has for 32 bits only.
        f'BIND(STRDT(CONCAT("1",SUBSTR(?d,1,12)),{_INTEGER}) AS ?x) '
        f'BIND(STRDT(CONCAT("1",SUBSTR(?d,13,12)),{_INTEGER}) AS ?y) }}'
    )


def build_effect(
    deletes: Sequence[bytes], adds: Sequence[bytes], looks_at: Sequence[str] | None, sums: DataFingerprint
) -> TransactionBody:
    """The transaction: these quads (lines of N-Quads without blank nodes, none in both) go and come if what the update
    looked at sums up to ``sums``; else nothing happens. Without quads there is nothing to carry out."""
    if not deletes and not adds:
        return TransactionBody(KIND_QUADS, b"", 0)
    clauses = [
        f"{verb} {{ {_quad_template(lines)} }}" for verb, lines in (("DELETE", deletes), ("INSERT", adds)) if lines
    ]
    condition = f"?n = {sums.count} && ?a = {sums.first_sum} && ?b = {sums.second_sum}"
    text = f"{' '.join(clauses)} WHERE {{ {{ {fingerprint_query(looks_at)} }} FILTER({condition}) }}"
    return TransactionBody(KIND_UPDATE, text.encode(), len(deletes) + len(adds))


def _quad_template(lines: Sequence[bytes]) -> str:
    graphs: dict[bytes, list[bytes]] = {}
    for line in lines:
        triple, graph = split_graph(line)
        graphs.setdefault(graph, []).append(triple)
    blocks = [b" .\n".join(graphs.pop(b""))] if b"" in graphs else []
    blocks += [b"GRAPH %s { %s }" % (graph, b" .\n".join(triples)) for graph, triples in graphs.items()]
    # Triples of the default graph come first: behind a GRAPH they would need no dot, before one they may have one.
    return b" .\n".join(blocks[:1]).decode() + (" " + b"\n".join(blocks[1:]).decode() if blocks[1:] else "")
