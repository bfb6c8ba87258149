"""Which expressions an engine ends the request at, by their text; ``node/tests/workers`` has the experiments."""

from __future__ import annotations

import pytest

from txlog.model.errors import NotDeterministic
from txlog.sparql import prepare_update, refuse_fatal
from txlog.sparql.analysis.fatal_expressions import find_fatal_expression

ALL = ("fuseki", "rdf4j")


def _construct(where: str, *engines: str) -> str:
    update = f"INSERT {{ ?s <urn:x> ?x }} WHERE {{ ?s <urn:p> ?v . {where} }}"
    prepared = prepare_update(update, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 1)
    found = find_fatal_expression(prepared.payload.decode(), engines)
    if found:
        with pytest.raises(NotDeterministic) as refused:
            refuse_fatal(prepared, engines)
        assert (refused.value.construct, refused.value.once) == (found, True)
    else:
        assert refuse_fatal(prepared, engines) == prepared
    return found


@pytest.mark.parametrize(
    ("expression", "fuseki", "rdf4j"),
    [
        ("HOURS(IF(?v, ?s, 1))", "HOURS with what may be no literal", ""),
        ("TZ(<urn:a>)", "TZ with what may be no literal", ""),
        ("LANGMATCHES('en', <urn:a>)", "", "LANGMATCHES with constants"),
        ("REGEX(?v, ?v)", *["REGEX with a pattern that may be none"] * 2),
        ("REGEX(?v, '(')", *["REGEX with a pattern that may be none"] * 2),
        ("REGEX(?v, 'a', ?v)", *["REGEX with flags that may be none"] * 2),
        ("REPLACE(?v, '(a)', '$2')", *["REPLACE with a replacement that may be none"] * 2),
        ("REPLACE(?v, ?v, 'a')", *["REPLACE with a pattern that may be none"] * 2),
        ("STRLANG('x', ?v)", "STRLANG with what may be no language tag", ""),
        ("ABS(?v)", "", "ABS with what may be no number"),
        ("SUBSTR('abc', ?v)", "", "SUBSTR with what may be no number"),
        ("(1 + <urn:a>)", "", "the operator + between constants"),
        ("(?v + 1 * 'x')", "", "the operator * between constants"),
        ("(1 / 0)", "", "the operator / between constants"),
        ("('x' < 1)", "", "the operator < between constants"),
        ("(<urn:a> < <urn:b>)", "", "the operator < between constants"),
        ("COALESCE(?v, ?v && true)", "", "the operator && beside a constant"),
        ("(?v IN (false || ?v, 1))", "", "the operator || beside a constant"),
        ("(-('x'))", "", "the operator - between constants"),
        ("COALESCE(?v, STRLEN(STR(<urn:a>)) + 'x')", "", "the operator + between constants"),
    ],
)
def test_named(expression: str, fuseki: str, rdf4j: str) -> None:
    for where in (
        f"BIND({expression} AS ?x)",
        f"FILTER NOT EXISTS {{ ?s ?p ?v FILTER(COALESCE({expression}, 1)) }}",
        f"{{ SELECT ?s (SUM({expression}) AS ?x) {{ ?s ?p ?v }} GROUP BY ?s }}",
        f"{{ SELECT ?s {{ ?s ?p ?v }} GROUP BY ?s HAVING(MIN({expression}) > 2) }}",
    ):
        assert _construct(where, "fuseki") == fuseki, where
        assert _construct(where, "rdf4j") == rdf4j, where
        assert bool(_construct(where, *ALL)) == bool(fuseki or rdf4j)
        assert not _construct(where)


@pytest.mark.parametrize(
    "where",
    [
        "FILTER(HOURS(?v) > 3 && ?v < NOW())",
        "FILTER LANGMATCHES(LANG(?v), ?v)",
        "FILTER REGEX(STR(?v), '^[a-c0-3x]+(d|\\\\.)?$', 'i')",
        "BIND(REPLACE(STR(?v), '([a-n])', '$1$1') AS ?x)",
        "BIND(STRLANG(STR(?v), 'en') AS ?x)",
        "BIND(SUBSTR(STR(?v), 2, STRLEN(?v) - 1) AS ?x)",
        "BIND(ABS(?v - 3) AS ?x)",
        "BIND(IRI(?v) AS ?x) FILTER(isIRI(?x) && !isBLANK(?v))",
        "FILTER(?v = 1 || ?v IN ('a', <urn:b>) || <urn:a> NOT IN (?v) )",
        "FILTER(1 < 2) FILTER('a' = 'b') FILTER(<urn:a> = <urn:b>) FILTER(?v && BOUND(?s) || ?v = 3)",
        "?s (<urn:p>/^<urn:q>)+ ?x . VALUES (?x ?y) { (1 -2) } ?s <urn:list> (1 -2 <urn:a>)",
        "FILTER EXISTS { ?s <urn:q>|!<urn:r> -1 }",
        "BIND(?v * 2 + 1 AS ?x) BIND(IRI(CONCAT('urn:a:', STR(?v))) AS ?y)",
    ],
)
def test_others_travel(where: str) -> None:
    assert not _construct(where, *ALL)
