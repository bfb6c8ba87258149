"""Random SPARQL 1.1 updates over a small world, so that they meet one another's data. The same seed, the same text.

Every form of the grammar comes: data, templates, all graph patterns, expressions, aggregates, sub-selects, paths,
datasets, graph management, several operations in a request; also what differs each time (``UUID()``, ``LIMIT``, ...),
which a master must refuse or evaluate once; sums and averages of doubles, whose last digit depends on the order of the
members; MIN and MAX over values that are equal and written differently.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from e2e.conformance.determinism.random_expressions import RandomExpressions, constant_iri, literal

VARIABLES: Final = ("?a", "?b", "?c", "?d", "?e")
NODES: Final = tuple(f"<urn:n{n}>" for n in range(7))
PREDICATES: Final = ("<urn:p0>", "<urn:p1>", "ex:p2", "a", "<urn:p3>")
GRAPHS: Final = tuple(f"<urn:g{n}>" for n in range(4))
PROLOGUE: Final = "PREFIX ex: <urn:> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
ELEMENTS: Final = (
    *("OPTIONAL", "OPTIONAL", "UNION", "MINUS", "FILTER", "FILTER", "FILTER", "BIND", "BIND", "BIND", "VALUES"),
    *("GRAPH", "GRAPH", "SELECT", "SELECT", "triples"),
)
MANAGED: Final = ("CLEAR", "DROP")
MOVED: Final = ("COPY", "MOVE", "ADD")


class RandomUpdates:
    """``chance``: where everything random comes from. ``drawn``: how often, of 1, an update uses what differs each
    time. ``triple_terms``: how often a term is one of RDF 1.2, for stores that have them."""

    def __init__(self, chance: random.Random, drawn: float = 0.2, triple_terms: float = 0.0) -> None:
        self._chance = chance
        self._triple_terms = triple_terms
        self._drawn_share = drawn
        self._drawn = False
        self._depth = 0
        self._made: list[str] = []
        self._labels = 0
        self.used: set[str] = set()
        """The forms of the last update, for who counts what was met."""
        self._expressions = RandomExpressions(chance, self._variable, self._exists, self.used, triple_terms)

    def update(self) -> str:
        """One request."""
        self.used.clear()
        self._drawn = self._chance.random() < self._drawn_share
        self._expressions.allows_random = self._drawn
        count = self._chance.choice((1, 1, 1, 1, 2, 2, 3))
        if count > 1:
            self._use("several operations")
        operations = [self._operation() for _ in range(count)]
        text = " ;\n".join(operations) + self._chance.choice(("", "", " ;"))
        return (PROLOGUE if "ex:" in text or "xsd:" in text or self._yes(0.3) else "") + text

    def data_set(self) -> str:
        """The graphs of a request beside its update, as its query string; mostly none."""
        if not self._yes(0.15):
            return ""
        self._use("a data set")
        names = ("null", *(graph[1:-1] for graph in GRAPHS))
        parts = []
        for name, most in (("using-graph-uri", 2), ("remove-graph-uri", 2), ("insert-graph-uri", 1)):
            for _ in range(self._chance.randint(0, most)):
                parts.append(f"{name}={self._pick(names)}")
        if self._yes(0.4):
            parts.append(f"using-named-graph-uri={self._pick(names[1:])}")
        return "?" + "&".join(parts) if parts else ""

    def _use(self, form: str) -> None:
        self.used.add(form)

    def _yes(self, share: float) -> bool:
        return self._chance.random() < share

    def _pick(self, of: Sequence[str]) -> str:
        return self._chance.choice(of)

    # Operations

    def _operation(self) -> str:
        forms: list[tuple[int, Callable[[], str]]] = [
            (26, self._data),
            (46, self._modify),
            (9, self._delete_where),
            (19, self._management),
        ]
        weights = [weight for weight, _ in forms]
        return self._chance.choices([form for _, form in forms], weights)[0]()

    def _data(self) -> str:
        adds = self._yes(0.75)
        # A label is of one operation alone.
        self._labels += 1
        self._use("INSERT DATA" if adds else "DELETE DATA")
        parts: list[str] = []
        for _ in range(self._chance.randint(1, 3)):
            triples = " . ".join(self._ground(adds) for _ in range(self._chance.randint(1, 4)))
            if self._yes(0.45):
                self._use("GRAPH in data")
                parts.append(f"GRAPH {self._pick(GRAPHS)} {{ {triples} }}")
            else:
                parts.append(triples + " .")
        return f"{'INSERT' if adds else 'DELETE'} DATA {{ {' '.join(parts)} }}"

    def _ground(self, blank: bool) -> str:
        subject, value = self._pick(NODES), self._term()
        if blank and self._yes(0.1):
            self._use("blank nodes in data")
            subject = self._pick((f"_:x{self._labels}", f"_:y{self._labels}", "[]"))
        if blank and self._yes(0.06):
            self._use("collections in data")
            value = f"( {self._term()} {self._term()} )"
        tail = f" ; {self._pick(PREDICATES)} {self._term()} , {self._term()}" if self._yes(0.2) else ""
        return f"{subject} {self._pick(PREDICATES)} {value}{tail}"

    def _modify(self) -> str:
        head, uses_with = "", self._yes(0.15)
        if uses_with:
            self._use("WITH")
            head = f"WITH {self._pick(GRAPHS)} "
        deletes, inserts = self._chance.choice(((True, False), (False, True), (False, True), (True, True)))
        self._depth = 0
        self._labels += 1
        self._made.clear()
        where = self._group(self._chance.randint(1, 3))
        if deletes:
            self._use("DELETE WHERE template" if not inserts else "DELETE INSERT")
            head += f"DELETE {{ {self._template(False)} }} "
        if inserts:
            self._use("INSERT template")
            head += f"INSERT {{ {self._template(True)} }} "
        return f"{head}{self._using(uses_with)}WHERE {where}"

    def _using(self, uses_with: bool) -> str:
        if uses_with or not self._yes(0.15):
            return ""
        self._use("USING")
        parts = [f"USING {self._pick(GRAPHS)} " for _ in range(self._chance.randint(1, 2))]
        if self._yes(0.4):
            self._use("USING NAMED")
            parts.append(f"USING NAMED {self._pick(GRAPHS)} ")
        return "".join(parts)

    def _template(self, inserts: bool) -> str:
        parts: list[str] = []
        for _ in range(self._chance.randint(1, 2)):
            subject = self._pick((*VARIABLES, *VARIABLES, *NODES))
            value = self._pick(VARIABLES) if self._yes(0.65) else self._term()
            if self._made and self._yes(0.5):
                value = self._pick(self._made)
            elif self._triple_terms and self._yes(self._triple_terms):
                value = self._triple_pattern()
            verb = self._pick(VARIABLES) if self._yes(0.12) else self._pick(PREDICATES)
            if inserts and self._drawn and self._yes(0.35):
                self._use("blank nodes in a template")
                if self._yes(0.5):
                    subject = self._pick((f"_:t{self._labels}", f"_:u{self._labels}"))
                else:
                    value = self._pick(("[]", f"[ <urn:p1> {value} ]", f"( {value} {self._term()} )"))
            triple = f"{subject} {verb} {value}"
            if self._yes(0.3):
                self._use("GRAPH in a template")
                graph = self._pick(VARIABLES) if self._yes(0.2) else self._pick(GRAPHS)
                parts.append(f"GRAPH {graph} {{ {triple} }}")
            else:
                parts.append(f"{triple} .")
        return " ".join(parts)

    def _delete_where(self) -> str:
        self._use("DELETE WHERE")
        triples = self._connected(self._chance.randint(1, 2), paths=False)
        if self._yes(0.35):
            self._use("GRAPH in DELETE WHERE")
            graph = "?g" if self._yes(0.5) else self._pick(GRAPHS)
            return f"DELETE WHERE {{ GRAPH {graph} {{ {triples} }} }}"
        return f"DELETE WHERE {{ {triples} }}"

    def _management(self) -> str:
        silent = self._pick(("", "", "SILENT "))
        kind = self._pick((*MANAGED, *MOVED, *MOVED, *MOVED, "CREATE"))
        self._use(kind)
        if kind in MANAGED:
            which = [f"GRAPH {graph}" for graph in GRAPHS] * 3 + ["DEFAULT", "DEFAULT", "NAMED", "ALL"]
            return f"{kind} {silent}{self._pick(which)}"
        if kind == "CREATE":
            return f"CREATE {silent}GRAPH {self._pick(GRAPHS)}"
        ends = [*GRAPHS, *(f"GRAPH {graph}" for graph in GRAPHS), "DEFAULT"]
        return f"{kind} {silent}{self._pick(ends)} TO {self._pick(ends)}"

    # Patterns

    def _group(self, size: int) -> str:
        self._depth += 1
        parts = [self._connected(self._chance.randint(1, 2)) + " ."] if self._yes(0.85) else []
        for _ in range(size if self._depth < 4 else 0):
            parts.append(self._element())
        self._depth -= 1
        return "{ " + " ".join(parts) + " }"

    def _element(self) -> str:
        small = max(0, 2 - self._depth)
        kind = self._pick(ELEMENTS)
        self._use(kind)
        match kind:
            case "OPTIONAL" | "MINUS":
                return f"{kind} {self._group(small)}"
            case "UNION":
                return f"{self._group(small)} UNION {self._group(small)}"
            case "FILTER":
                return self._expressions.filter()
            case "BIND":
                return f"BIND({self._expressions.expression()} AS {self._fresh()})"
            case "VALUES":
                return self._values()
            case "GRAPH":
                graph = "?g" if self._yes(0.5) else self._pick(GRAPHS)
                inside = "{}" if self._yes(0.07) else self._group(small)
                return f"GRAPH {graph} {inside}"
            case "SELECT":
                return f"{{ {self._select(small)} }}"
            case _:
                return self._connected(1) + " ."

    def _values(self) -> str:
        if self._yes(0.5):
            rows = " ".join(self._value() for _ in range(self._chance.randint(1, 3)))
            return f"VALUES {self._variable()} {{ {rows} }}"
        rows = " ".join(f"({self._value()} {self._value()})" for _ in range(self._chance.randint(1, 3)))
        first, second = self._chance.sample(VARIABLES, 2)
        return f"VALUES ({first} {second}) {{ {rows} }}"

    def _value(self) -> str:
        term = self._pick(("UNDEF", constant_iri(self._chance), self._term(), self._term()))
        return term if term != "a" else "<urn:n0>"

    def _select(self, small: int) -> str:
        where = self._group(small)
        tail = ""
        if self._yes(0.4):
            self._use("GROUP BY")
            by = self._chance.sample(VARIABLES, self._chance.randint(0, 2))
            columns = [*by, *(f"({self._expressions.aggregate()} AS {self._fresh()})" for _ in range(1))]
            tail = f" GROUP BY {' '.join(by)}" if by else ""
            if by and self._yes(0.3):
                self._use("HAVING")
                tail += f" HAVING (COUNT(*) > {self._chance.randint(0, 2)})"
            head = " ".join(columns)
        else:
            head = self._pick(("*", "DISTINCT *", "DISTINCT ?a ?b", "?a", "?a ?b ?c", "REDUCED ?b"))
            if self._yes(0.25):
                self._use("ORDER BY")
                tail += f" ORDER BY {self._pick(('?a', 'DESC(?b)', 'ASC(?a) ?c'))}"
        if self._drawn and self._yes(0.4):
            self._use("LIMIT")
            tail += self._pick((" LIMIT 2", " LIMIT 1 OFFSET 1", " OFFSET 1"))
        return f"SELECT {head} WHERE {where}{tail}"

    def _exists(self) -> str:
        self._use("EXISTS")
        return "{ " + self._connected(1) + " }"

    def _connected(self, count: int, *, paths: bool = True) -> str:
        """Triples each of which shares a variable with the one before, so that nothing grows without measure."""
        triples: list[str] = []
        last = self._variable()
        for _ in range(count):
            verb = self._path() if paths and self._yes(0.12) else self._pick(PREDICATES)
            if self._yes(0.06):
                verb = self._variable()
            other = self._variable() if self._yes(0.75) else self._term()
            if self._triple_terms and self._yes(self._triple_terms):
                other = self._triple_pattern()
            if other in VARIABLES and self._yes(0.3):
                triples.append(f"{other} {verb} {last}")
            elif self._yes(0.1):
                triples.append(f"{self._pick(NODES)} {verb} {last}")
            else:
                triples.append(f"{last} {verb} {other}")
            last = other if other in VARIABLES else last
        if paths and self._yes(0.04):
            self._use("blank nodes in a pattern")
            triples.append(f"{last} <urn:p0> []")
        return " . ".join(triples)

    def _path(self) -> str:
        self._use("paths")
        step = self._pick(("<urn:p0>", "<urn:p1>", "^<urn:p1>", "(<urn:p0>|<urn:p1>)", "!<urn:p0>", "!(a|^<urn:p3>)"))
        return self._pick((step, f"<urn:p1>/{step}", f"({step})+", f"({step})*", f"({step})?"))

    # Terms

    def _variable(self) -> str:
        return self._chance.choice(VARIABLES)

    def _fresh(self) -> str:
        """A variable that nothing else names; twice in one group would be no SPARQL."""
        self._made.append(f"?f{len(self._made)}")
        return self._made[-1]

    def _triple_pattern(self) -> str:
        """A triple term that may hold variables."""
        self._use("triple terms in a pattern")
        subject = self._pick((*VARIABLES, *NODES))
        value = self._variable() if self._yes(0.6) else self._term()
        if self._yes(0.2):
            self._use("nested triple terms in a pattern")
            value = self._triple_pattern()
        return f"<<( {subject} {self._pick(PREDICATES)} {value} )>>"

    def _term(self) -> str:
        if self._triple_terms and self._yes(self._triple_terms):
            self._use("triple terms")
            return f"<<( {self._pick(NODES)} {self._pick(PREDICATES)} {self._term()} )>>"
        return self._pick(NODES) if self._yes(0.4) else literal(self._chance)
