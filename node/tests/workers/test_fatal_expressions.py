"""What ends a request in real stores of an engine: it is known as such, and nothing else of the kind does."""

from __future__ import annotations

from engines import ALL, stores_of
from server_process import StoreProcess

from txlog.model.entry import KIND_UPDATE, Position
from txlog.sparql import prepare_update
from txlog.sparql.analysis.fatal_expressions import find_fatal_expression
from txlog.workers.adapter import ApplyResult, MarkerPosition, StoreOperation

_JAVA = [each for each in ALL if getattr(each, "id", "") in ("fuseki", "rdf4j")]
running, worker = stores_of(_JAVA)

XSD = "http://www.w3.org/2001/XMLSchema#"
VALUES = (
    *("<urn:n>", "'x'", "''", "'x'@en", "1", "1.5", "1e0", "true", f"'z'^^<{XSD}integer>", f"'z'^^<{XSD}dateTime>"),
    *("'('", "'$9'", "-1", f"'2020-01-02T03:04:05Z'^^<{XSD}dateTime>", f"'P1D'^^<{XSD}duration>", "'1'^^<urn:t>"),
)
AT = MarkerPosition(Position(2, 7, bytes([7]) * 16), 0)
FATAL = {
    "fuseki": (
        *("HOURS(COALESCE(?v))", "MINUTES(IF(true, ?v, 1))", "TZ(<urn:n>)"),
        *("REGEX('a', ?v)", "REGEX('a', 'a', ?v)", "STRLANG('x', ?v)"),
    ),
    "rdf4j": (
        *("REGEX('a', ?v)", "REPLACE('a', ?v, 'b')", "ABS(?v)", "SUBSTR('abc', ?v)", "(1 + <urn:n>)", "(1/0)"),
        *("(-(<urn:n>))", "(!(<urn:n>))", "('x' = 1)", "(<urn:n> < 1)", "LANGMATCHES(<urn:n>, 'x')"),
        *("COALESCE(?v, ?v && true)", "(?v IN (false || ?v, 1))"),
    ),
}
ONE = (
    *("STR", "LANG", "DATATYPE", "ABS", "CEIL", "FLOOR", "ROUND", "STRLEN", "UCASE", "LCASE", "ENCODE_FOR_URI", "YEAR"),
    *("MONTH", "DAY", "HOURS", "MINUTES", "SECONDS", "TIMEZONE", "TZ", "MD5", "SHA256", "IRI", "isIRI", "isNUMERIC"),
    *("-", "+", "!", f"<{XSD}integer>", f"<{XSD}decimal>", f"<{XSD}dateTime>", f"<{XSD}boolean>", f"<{XSD}double>"),
)
TWO = (
    *("CONTAINS({}, {})", "STRSTARTS({}, {})", "STRBEFORE({}, {})", "STRAFTER({}, {})", "LANGMATCHES({}, {})"),
    *("REGEX({}, {})", "REPLACE({}, {}, 'b')", "REPLACE('aaa', '(a)', {1})", "SUBSTR({}, {})", "sameTerm({}, {})"),
    *("STRDT({}, {})", "STRLANG({}, {})", "CONCAT({}, {})", "IF({}, {}, 1)", "COALESCE({}, {})", "({} IN ({}))"),
    *(f"({{}} {sign} {{}})" for sign in ("+", "-", "*", "/", "=", "!=", "<", ">=", "&&", "||")),
)
ARGUMENTS = ("?v", "<urn:n>", "'x'", "1", "?none")


def _logged(expression: str) -> str:
    text = f"INSERT {{ GRAPH <urn:out> {{ ?s <urn:x> ?x }} }} WHERE {{ ?s <urn:p> ?v BIND({expression} AS ?x) }}"
    return prepare_update(text, base=None, now="2026-01-01T00:00:00Z", draw=lambda: 7).payload.decode()


def _result(worker: StoreProcess, updates: list[str]) -> ApplyResult:
    """Of one request to a store that has been emptied."""
    data = " . ".join(f"<urn:s{number}> <urn:p> {value}" for number, value in enumerate(VALUES))
    texts = [f"INSERT DATA {{ {data} }}", *updates]
    request = worker.adapter.apply([StoreOperation(KIND_UPDATE, each.encode()) for each in texts], None, AT)
    return worker.adapter.parse_apply_result(worker.send(request))


def test_what_ends_a_request_is_known(worker: StoreProcess) -> None:
    engine = worker.adapter.engine
    for expression in FATAL[engine]:
        text = _logged(expression)
        assert find_fatal_expression(text, [engine]), expression
        assert _result(worker, [text]) is ApplyResult.REFUSED, expression


def test_whatever_else_is_executed(worker: StoreProcess) -> None:
    engine = worker.adapter.engine
    calls = [f"{name}({argument})" for name in ONE for argument in ARGUMENTS if (name, argument) != ("IRI", "'x'")]
    calls += [form.format(first, second) for form in TWO for first in ARGUMENTS for second in ARGUMENTS]
    texts = [text for text in map(_logged, calls) if not find_fatal_expression(text, [engine])]
    assert len(texts) > len(calls) / 2
    refused = _find_refused(worker, texts)
    assert not refused


def _find_refused(worker: StoreProcess, texts: list[str]) -> list[str]:
    worker.clear()
    if _result(worker, texts) is ApplyResult.APPLIED:
        return []
    if len(texts) == 1:
        return texts
    half = len(texts) // 2
    return _find_refused(worker, texts[:half]) or _find_refused(worker, texts[half:])
