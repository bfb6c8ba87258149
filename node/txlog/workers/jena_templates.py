"""Templates whose triples would have a triple term or a literal as a subject, in updates of a Fuseki.

SPARQL leaves out a triple of a template that RDF does not allow. Jena leaves out literals as subjects, but it writes a
triple with a triple term as its subject, and a triple term with a literal as its subject. No format of RDF has these,
so such a store could not be copied.

So a variable there gets a value only where it is an IRI: ``INSERT { ?o <p> ?s } WHERE { ?s <q> ?o }`` becomes
``INSERT { ?g1 <p> ?s } WHERE { ?s <q> ?o BIND(IF(isIRI(?o),?o,1/0) AS ?g1) }``. A variable that is the subject of a
triple in the pattern is an IRI in any case, and stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txlog.sparql.tokens import Edit, Token
from txlog.workers.pattern_scan import HAS_VARIABLE, PatternScan, extend_pattern, find_where, rewrite_operations


def guard_templates(text: str) -> str:
    """Rewrite an update of the log so that its INSERT templates make triples of RDF only. A text that does not parse
    stays."""
    return rewrite_operations(text, _guard_operation) if HAS_VARIABLE.search(text) else text


def _guard_operation(toks: Sequence[Token]) -> list[Edit]:
    where = find_where(toks)
    template = next((at + 1 for at, token in enumerate(toks) if token.word == "INSERT"), -1)
    if where < 0 or template < 0:
        return []
    scan = PatternScan(toks)
    triples = scan.read_template(template)
    places = [*map(PatternScan.place, (subject for subject, _, _ in triples)), *scan.term_subjects]
    by_name: dict[str, list[int]] = {}
    for place in dict.fromkeys(places):
        if place >= 0:
            by_name.setdefault(toks[place].text[1:], []).append(place)
    if not by_name:
        return []
    scan.read_group(where)
    certain = set(_certain_subjects(scan, toks))
    edits, bound = list[Edit](), list[str]()
    for name, found in by_name.items():
        if name not in certain:
            fresh = scan.fresh.draw()
            edits += [(toks[place].start, toks[place].end, fresh) for place in found]
            bound.append(f"BIND(IF(isIRI(?{name}),?{name},1/0) AS {fresh})")
    return [*edits, *extend_pattern(toks, " ".join(bound))] if bound else []


def _certain_subjects(scan: PatternScan, toks: Sequence[Token]) -> Iterator[str]:
    """Names of variables that are an IRI in each solution."""
    for group in scan.groups:
        for subject, path, _ in group.triples if group.is_joined else ():
            place = PatternScan.place(subject)
            if place >= 0 and path.kind == "step":
                yield toks[place].text[1:]
