"""Random expressions and terms of SPARQL 1.1, well typed by chance only: errors are part of the language."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

LITERALS: Final = (
    *("'x'", "'y'", "''", '"a b"', "'x'@en", "'x'@EN-us", "'y'@de", "'''a\"b'''", r'"t\tb\nn\"q\\u"', "'é\U0001f600'"),
    *("1", "2", "3", "01", "-1", "+2", "1.0", "1.50", "0.1", "true", "false", "'1'^^xsd:int", "'1'^^<urn:t>"),
    *("'2020-01-02'^^xsd:date", "'2020-01-02T03:04:05Z'^^xsd:dateTime", "'2020-01-02T03:04:05+01:00'^^xsd:dateTime"),
    *("'10'^^xsd:integer", "'z'^^xsd:integer", "'1999'^^xsd:gYear", "'P1D'^^xsd:duration", "'x'^^xsd:string"),
)
DOUBLES: Final = (
    *("1e0", "2.5e-3", "1e16", "-1e16", "0.1e0", "0.2e0", "0.3e0", "1e-9", "'NaN'^^xsd:double", "'INF'^^xsd:double"),
    *("'1'^^xsd:float", "'0.1'^^xsd:float", "16777216e0", "3e0"),
)
"""Sums of them depend on the order of the members; some are equal to literals written otherwise."""
NAMES: Final = ("<urn:n0>", "<urn:n1>", "<urn:g0>", "ex:n2")
NON_DETERMINISTIC_CALLS: Final = ("RAND()", "UUID()", "STRUUID()", "BNODE()", "STR(UUID())", "BNODE('b')")
ONE: Final = (
    *("STR", "LANG", "DATATYPE", "ABS", "CEIL", "FLOOR", "ROUND", "STRLEN", "UCASE", "LCASE", "ENCODE_FOR_URI", "YEAR"),
    *("MONTH", "DAY", "HOURS", "MINUTES", "SECONDS", "TIMEZONE", "TZ", "MD5", "SHA1", "SHA256", "SHA384", "SHA512"),
    *("xsd:integer", "xsd:decimal", "xsd:string", "xsd:boolean", "xsd:dateTime", "IRI", "URI"),
)
TWO: Final = ("CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER", "LANGMATCHES", "REGEX", "sameTerm")
TESTS: Final = ("isIRI", "isURI", "isBLANK", "isLITERAL", "isNUMERIC")
OF_TRIPLE_TERMS: Final = ("SUBJECT", "PREDICATE", "OBJECT", "isTRIPLE")
OPERATORS: Final = ("+", "-", "*", "/", "=", "!=", "<", ">", "<=", ">=", "&&", "||")
AGGREGATES: Final = ("COUNT", "SUM", "MIN", "MAX", "AVG")


def literal(chance: random.Random) -> str:
    """A literal; a double often enough that some meet in one sum."""
    return chance.choice(DOUBLES) if chance.random() < 0.25 else chance.choice(LITERALS)


def constant_iri(chance: random.Random) -> str:
    return chance.choice(NAMES)


class RandomExpressions:
    """``variable`` names one; ``exists`` gives the group of an EXISTS; ``used`` takes the names of forms.
    ``allows_random``: whether what differs each time may come. ``triple_terms``: how often a call is one of RDF 1.2."""

    def __init__(
        self,
        chance: random.Random,
        variable: Callable[[], str],
        exists: Callable[[], str],
        used: set[str],
        triple_terms: float = 0.0,
    ) -> None:
        self._chance = chance
        self._variable = variable
        self._exists = exists
        self._used = used
        self._triple_terms = triple_terms
        self.allows_random = False

    def filter(self) -> str:
        """A FILTER, which lets something through more often than chance would."""
        kind = self._chance.randrange(8)
        a = self._variable()
        match kind:
            case 0:
                return f"FILTER {self._chance.choice(('', 'NOT '))}EXISTS {self._exists()}"
            case 1:
                return f"FILTER({a} != {self._variable()})"
            case 2:
                return f"FILTER(!BOUND({a}))"
            case 3:
                return f"FILTER {self._chance.choice(TESTS)}({a})"
            case 4:
                return f"FILTER REGEX(STR({a}), '[0-3x]', 'i')"
            case 5:
                return f"FILTER(STR({a}) {self._chance.choice(('<', '>', '<=', '!='))} 'urn:n3')"
            case _:
                return f"FILTER({self.expression()})"

    def expression(self, depth: int = 0) -> str:
        """An expression."""
        if depth > 2 or self._chance.random() < 0.25:
            return self._leaf()
        if self._triple_terms and self._chance.random() < self._triple_terms:
            return self._of_triple_terms(depth)
        kind = self._chance.randrange(12)
        match kind:
            case 0 | 1:
                name = self._chance.choice(ONE)
                self._used.add(name)
                return f"{name}({self.expression(depth + 1)})"
            case 2:
                name = self._chance.choice(TWO)
                self._used.add(name)
                return f"{name}({self.expression(depth + 1)}, {self.expression(depth + 1)})"
            case 3 | 4:
                return f"({self.expression(depth + 1)} {self._chance.choice(OPERATORS)} {self.expression(depth + 1)})"
            case 5:
                return f"IF({self.expression(depth + 1)}, {self.expression(depth + 1)}, {self.expression(depth + 1)})"
            case 6:
                return f"COALESCE({self.expression(depth + 1)}, {self.expression(depth + 1)})"
            case 7:
                return f"CONCAT({self.expression(depth + 1)}, STR({self.expression(depth + 1)}))"
            case 8:
                name = self._chance.choice(("STRDT({}, xsd:integer)", "STRLANG({}, 'en')", "SUBSTR({}, 2)", "-({})"))
                return name.format(self.expression(depth + 1))
            case 9:
                return f"REPLACE(STR({self.expression(depth + 1)}), '([a-n])', '$1$1')"
            case 10:
                word = self._chance.choice(("IN", "NOT IN"))
                tried, first, second = (self.expression(depth + 1) for _ in range(3))
                return f"({tried} {word} ({first}, {second}))"
            case _:
                return self._chance.choice(
                    ("IRI(CONCAT('urn:made:', STR({})))", "!({})", f"{self._chance.choice(TESTS)}({{}})")
                ).format(self.expression(depth + 1))

    def _of_triple_terms(self, depth: int) -> str:
        name = self._chance.choice((*OF_TRIPLE_TERMS, "TRIPLE"))
        self._used.add(name)
        if name != "TRIPLE":
            return f"{name}({self.expression(depth + 1)})"
        subject, value = (self.expression(depth + 1) for _ in range(2))
        verb = self._variable() if self._chance.random() < 0.2 else constant_iri(self._chance)
        return f"TRIPLE({subject}, {verb}, {value})"

    def _leaf(self) -> str:
        if self.allows_random and self._chance.random() < 0.25:
            name = self._chance.choice(NON_DETERMINISTIC_CALLS)
            self._used.add(name)
            return name
        kind = self._chance.random()
        if kind < 0.6:
            return self._variable()
        if kind < 0.64:
            self._used.add("NOW()")
            return "NOW()"
        return literal(self._chance) if kind < 0.9 else constant_iri(self._chance)

    def aggregate(self) -> str:
        """COUNT, SUM, MIN, MAX or AVG; what depends on the order of the members only with what differs each time."""
        if self.allows_random and self._chance.random() < 0.4:
            self._used.add("SAMPLE or GROUP_CONCAT")
            return self._chance.choice((f"SAMPLE({self._variable()})", f"GROUP_CONCAT({self._variable()})"))
        name = self._chance.choice(AGGREGATES)
        self._used.add(name)
        distinct = self._chance.choice(("", "", "DISTINCT "))
        if name == "COUNT":
            return f"COUNT({distinct}{self._chance.choice(('*', self._variable()))})"
        if name in ("SUM", "AVG"):
            cast = self._chance.choice(("xsd:decimal", "xsd:double", "xsd:integer", "", "STRLEN"))
            self._used.add(f"{name} of {cast or 'values'}")
            variable = self._variable()
            return f"{name}({distinct}{f'{cast}({variable})' if cast else variable})"
        return f"{name}({distinct}{self._variable()})"
