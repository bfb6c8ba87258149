"""Variables that a triple has twice, in updates of an RDF4J.

RDF4J up to 4.2 compares two terms of a triple only while their variable is unbound. Where its plan binds ``?x`` before
it comes to ``?x ?p ?x``, every triple of the subject matches; the graph counts as a term, too. The plan follows from
statistics, so the same update inserts other quads in a store with the same data. The fault: `Query reusing graph clause
variable in statement pattern <https://github.com/eclipse-rdf4j/rdf4j/issues/4659>`_.

The second place gets a variable of its own, which a filter compares:
``?x ?p ?g1 FILTER(isIRI(?g1)&&STR(?x)=STR(?g1))``. A variable in two places of a quad is an IRI in each solution, for
only one of them may hold a literal. ``sameTerm`` would not do: RDF4J's optimiser writes it as one variable again. A
path of any length that ends where it begins stays: RDF4J follows it step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txlog.sparql.rewrite.triple_reader import PathTriple
from txlog.sparql.tokens import Edit, Token
from txlog.workers.pattern_scan import HAS_VARIABLE, PatternScan, ScannedGroup, find_where, rewrite_operations


def separate_repeats(text: str) -> str:
    """Rewrite an update of the log so that no triple of its patterns has a variable twice. A text that does not
    parse stays."""
    return rewrite_operations(text, _separate_in_operation) if HAS_VARIABLE.search(text) else text


def _separate_in_operation(toks: Sequence[Token]) -> Iterator[Edit]:
    where = find_where(toks)
    if where >= 0:
        scan = PatternScan(toks)
        scan.read_group(where)
        for group in scan.groups:
            yield from _separate(group, toks, scan)


def _separate(group: ScannedGroup, toks: Sequence[Token], scan: PatternScan) -> Iterator[Edit]:
    renamed: dict[int, tuple[str, str]] = {}
    for triple in group.triples:
        seen = {group.graph[1:]} if group.graph[:1] in ("?", "$") else set[str]()
        for place in _compared_places(triple, toks):
            name = toks[place].text[1:]
            if name in seen and place not in renamed:
                renamed[place] = toks[place].text, scan.fresh.draw()
            seen.add(name)
    for place, (_, fresh) in renamed.items():
        yield toks[place].start, toks[place].end, fresh
    if renamed:
        tests = "".join(f" FILTER(isIRI({mine})&&STR({name})=STR({mine}))" for name, mine in renamed.values())
        yield group.end, group.end, f"{tests} "


def _compared_places(triple: PathTriple, toks: Sequence[Token]) -> list[int]:
    """The places of a triple's variables, in its order."""
    subject, path, value = triple
    terms = [subject, path.text if path.kind == "step" else "", value]
    places = [place for place in map(PatternScan.place, terms) if place >= 0]
    ends = {toks[PatternScan.place(term)].text[1:] for term in (subject, value) if PatternScan.place(term) >= 0}
    is_loop = len(ends) == 1 and len(places) > 1 and path.has_kind("any")
    return [] if is_loop else places
