"""An update that is evaluated once: the quads that it may read, and its effect as an update. Every worker executes that
effect with the same result, or none does.

The effect is a difference of quads, computed on a copy of the data at one position of the log. The log entry has a
*condition*: all quads that the update may have read are still as they were there. The condition is SPARQL itself: a
count and two sums of hashes over the quads with those predicates. So each worker decides it at the effect's own index
in the log, and all decide the same. Where it holds, the update evaluated at that index could have had exactly this
effect (docs/decisions/0011-effects-behind-a-condition.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import split_graph
from txlog.sparql.terms import DEFAULT_PREFIXES
from txlog.sparql.transaction_body import TransactionBody

PREDICATES_MAX: Final = 64
"""An update with more predicates counts as one that reads everything."""
_INTEGER: Final = f"<{DEFAULT_PREFIXES['xsd']}integer>"

_FLOATS: Final = f"<{DEFAULT_PREFIXES['xsd']}double>,<{DEFAULT_PREFIXES['xsd']}float>"
_VALUE: Final = (
    # Engines write `1` and `1.0`, `0.0025` and `0.0025e0`; all of them must give the same sums. A double counts by its
    # billionths, from a million on by its whole part, from 10^15 on by its sign. Comparisons with NaN differ.
    # In Oxigraph the cast of a whole double is sometimes one too small, so the cast adds half a step first.
    f"IF(!isNumeric(?o),STR(?o),IF(DATATYPE(?o) IN ({_FLOATS}),"
    f'IF(STR(?o)="NaN","NaN",IF(ABS(?o)<1000000,STR({_INTEGER}(FLOOR(?o*1000000000)+0.5e0)),'
    f'IF(ABS(?o)<1000000000000000,STR({_INTEGER}(FLOOR(?o)+0.5e0)),IF(?o>0,"+","-")))),'
    'REPLACE(STR(?o),"[.]0$","")))'
)

TRIPLE_DEPTH_MAX: Final = 4
"""Triple terms inside one another in the quads that an update reads, where it is evaluated once."""
_NESTED: Final = ("?o", *(f"?o{level}" for level in range(1, TRIPLE_DEPTH_MAX + 1)))
# The object of each triple, unbound where there is no triple, and the innermost one. Engines write a triple term as a
# text in different ways, or not at all.
_INNERMOST: Final = (
    "".join(f" BIND(IF(isTRIPLE({outer}),OBJECT({outer}),1/0) AS {inner})" for outer, inner in pairwise(_NESTED))
    + f" BIND(COALESCE({','.join(reversed(_NESTED))}) AS ?v)"
)
_AROUND: Final = ",".join(
    f'IF(isTRIPLE({term}),CONCAT(STR(SUBJECT({term}))," ",STR(PREDICATE({term}))," "),"")' for term in _NESTED[:1]
) + "".join(
    f',COALESCE(IF(isTRIPLE({term}),CONCAT(STR(SUBJECT({term}))," ",STR(PREDICATE({term}))," "),""),"")'
    for term in _NESTED[1:-1]
)


class EvaluatedOperation(msgspec.Struct, frozen=True):
    """One operation. ``output_graphs``: the operation works on the union of all graphs, and writes its effect to graphs
    with these names. The first receives the quads to delete from all graphs. Each of the others receives the quads to
    insert into the graph beside it (``<iri>``, "" for the default graph). Empty: the operation is executed as it is."""

    text: str
    output_graphs: tuple[tuple[str, str], ...] = ()


class EvaluatedUpdate(msgspec.Struct, frozen=True):
    """An update to be evaluated once. ``text``: normalised as for workers. ``read_predicates``: the predicates
    (``<iri>``) of all quads that it may read or write; None: any. ``operations``: its operations, where some are on the
    union of all graphs."""

    text: str
    read_predicates: tuple[str, ...] | None
    operations: tuple[EvaluatedOperation, ...] = ()


_SUMS: Final = "SELECT (COUNT(*) AS ?n) (SUM(?x) AS ?a) (SUM(?y) AS ?b)"
EFFECT_CONDITION: Final = f"WHERE {{ {{ {_SUMS} WHERE {{ "
"""The text of every effect holds this; of other updates only one that copies it does."""


_FORM: Final = 'BIND("{}" AS ?form)'
_FORM_AT: Final = 100
"""How many characters before its end a text names the form at most."""


class DataFingerprint(msgspec.Struct, frozen=True):
    """The values that a condition compares: the number of quads, and two sums of 40 bits of each quad's hash.
    ``with_triples``: the quads held triple terms, and the query for them was used."""

    count: int
    first_sum: int
    second_sum: int
    with_triples: bool = False


def fingerprint_query(looks_at: Sequence[str] | None, *, with_triples: bool = False) -> str:
    """A SELECT of ``?n ?a ?b``: the :class:`DataFingerprint` of the quads with these predicates, or of all. Where one
    holds a triple term, only the query ``with_triples`` gives sums; stores of RDF 1.1 cannot read that query. Neither
    gives sums for triples more than :data:`TRIPLE_DEPTH_MAX` inside one another."""
    if looks_at is None:
        quads = "{ ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } }"
    else:
        quads = " UNION ".join(
            f"{{ ?s {p} ?o BIND({p} AS ?p) }} UNION {{ GRAPH ?g {{ ?s {p} ?o }} BIND({p} AS ?p) }}" for p in looks_at
        )
    # No IRI and no language tag contains a space, and none comes before the object: different quads give other texts.
    text = (
        'CONCAT(STR(?s)," ",STR(?p)," ",COALESCE(STR(?g),"")," ",COALESCE(STR(DATATYPE(?o)),"")," ",'
        f'COALESCE(LCASE(LANG(?o)),"")," ",{_VALUE})'
    )
    if with_triples:
        quads += _INNERMOST
        text = f"IF(isTRIPLE(?v),1/0,CONCAT({_AROUND},{text.replace('?o', '?v')}))"
    # SPARQL reads no hexadecimal: the decimal digits among a hash's 64 are as random as the hash.
    digits = f'REPLACE(SHA256({text}),"[a-f]","")'
    return (
        f"{_SUMS} WHERE {{ "
        f"{quads} BIND({digits} AS ?d) "
        # Not a cast: RDF4J's cast has 32 bits only.
        f'BIND(STRDT(CONCAT("1",SUBSTR(?d,1,12)),{_INTEGER}) AS ?x) '
        f'BIND(STRDT(CONCAT("1",SUBSTR(?d,13,12)),{_INTEGER}) AS ?y) }}'
    )


def build_effect(
    deletes: Sequence[bytes],
    adds: Sequence[bytes],
    looks_at: Sequence[str] | None,
    sums: DataFingerprint,
    *,
    literals: str = "",
) -> TransactionBody:
    """The transaction that deletes and adds these quads (lines of N-Quads without blank nodes, none in both) if the
    fingerprint of the quads that the update read is ``sums``; otherwise it does nothing. Without quads it is empty.
    ``literals``: the engine in whose form it was computed, where that is not the canonical one; the text names it
    (:func:`names_form`)."""
    if not deletes and not adds:
        return TransactionBody(KIND_QUADS, b"", 0)
    clauses = [
        f"{verb} {{ {_quad_template(lines)} }}" for verb, lines in (("DELETE", deletes), ("INSERT", adds)) if lines
    ]
    condition = f"?n = {sums.count} && ?a = {sums.first_sum} && ?b = {sums.second_sum}"
    fingerprint = fingerprint_query(looks_at, with_triples=sums.with_triples)
    named = literals and f" {_FORM.format(literals)}"
    text = f"{' '.join(clauses)} WHERE {{ {{ {fingerprint} }} FILTER({condition}){named} }}"
    return TransactionBody(KIND_UPDATE, text.encode(), len(deletes) + len(adds))


def names_form(text: str, engine: str) -> bool:
    """Whether the text of an effect says that it was computed on literals in the form of this engine."""
    return _FORM.format(engine) in text[-_FORM_AT:]


def _quad_template(lines: Sequence[bytes]) -> str:
    graphs: dict[bytes, list[bytes]] = {}
    for line in lines:
        triple, graph = split_graph(line)
        graphs.setdefault(graph, []).append(triple)
    blocks = [b" .\n".join(graphs.pop(b""))] if b"" in graphs else []
    blocks += [b"GRAPH %s { %s }" % (graph, b" .\n".join(triples)) for graph, triples in graphs.items()]
    # Triples of the default graph come first: after a GRAPH they would need no dot, before one they may have one.
    return b" .\n".join(blocks[:1]).decode() + (" " + b"\n".join(blocks[1:]).decode() if blocks[1:] else "")
