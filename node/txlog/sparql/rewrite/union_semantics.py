"""Updates with RDF4J's semantics: without ``GRAPH``, ``WITH`` and ``USING`` a pattern matches all graphs, a deletion
deletes from all of them, and an insertion inserts into the default graph.

SPARQL 1.1 cannot express that, and the stores execute SPARQL 1.1. A deletion of data, and one of a single pattern, is
written twice, for the default graph and for the others. Any other such operation is evaluated once
(:mod:`txlog.sparql.update_effect`), on the union of all graphs. It writes what it deletes and inserts there to separate
graphs with random names, from which the effect is read (``docs/decisions/0015-updates-without-a-graph.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from txlog.sparql.tokens import Token, closing_index, malformed_query, word_at

_TERMS: Final = ("VARIABLE", "IRI", "PNAME", "BLANK", "STRING", "NUMBER")
_PLAIN: Final = ("VARIABLE", "IRI", "PNAME", "NUMBER")


class ModifyOperation(NamedTuple):
    """The tokens inside the braces of a template, with those of its pattern. ``delete``, ``insert``: None without such
    a clause. ``same``: it is ``DELETE WHERE``, whose template is its pattern."""

    delete: list[Token] | None
    insert: list[Token] | None
    where: list[Token]
    same: bool


class GraphTemplate(NamedTuple):
    """A template. ``plain``: the tokens outside of GRAPH; ``graphs``: name and contents of each GRAPH."""

    plain: list[Token]
    graphs: list[tuple[Token, list[Token]]]


def parse_modify(toks: Sequence[Token]) -> ModifyOperation | None:
    """An operation of ``DELETE`` or ``INSERT`` without ``WITH`` and ``USING``; None for any other, and for a malformed
    one, which the parser reports."""
    at = 0
    clauses: dict[str, list[Token]] = {}
    for word in ("DELETE", "INSERT"):
        if word_at(toks, at) == word:
            if word == "DELETE" and word_at(toks, at + 1) == "WHERE":
                inside, end = _group(toks, at + 2)
                return (
                    ModifyOperation(inside, None, inside, same=True)
                    if inside is not None and end == len(toks)
                    else None
                )
            inside, end = _group(toks, at + 1)
            if inside is None:
                return None
            clauses[word], at = inside, end
    if not clauses or word_at(toks, at) != "WHERE":
        return None
    where, end = _group(toks, at + 1)
    if where is None or end != len(toks):
        return None
    return ModifyOperation(clauses.get("DELETE"), clauses.get("INSERT"), where, same=False)


def uses_all_graphs(found: ModifyOperation) -> bool:
    """Whether a part of the operation works on all graphs. (A false ``True`` is possible; it costs only time.)"""
    return has_term_outside_graph(found.where) or has_term_outside_graph(found.delete or [])


def has_term_outside_graph(toks: Sequence[Token]) -> bool:
    """Whether there is a term outside of GRAPH and of expressions."""
    at = 0
    while at < len(toks):
        token = toks[at]
        if word_at(toks, at) == "GRAPH":
            inside, end = _group(toks, at + 2)
            if inside is None:
                return True
            at = end
        elif token.text == "(" and token.kind == "MARK":
            end = closing_index(toks, at, "(", ")") + 1
            if any(each.text == "{" for each in toks[at:end]):
                return True
            at = end
        elif token.kind in _TERMS or (token.kind == "WORD" and token.text == "a"):
            return True
        else:
            at += 1
    return False


def single_pattern(found: ModifyOperation) -> list[Token] | None:
    """The three terms of a ``DELETE WHERE`` of one plain pattern of triples."""
    toks = [token for token in found.where if token.text != "."] if found.same else []
    plain = all(token.kind in _PLAIN or (token.kind == "WORD" and token.text == "a") for token in toks)
    return toks if len(toks) == 3 and plain and len(found.where) - len(toks) <= 1 else None


def match_any_named_graph(pattern: Sequence[Token]) -> list[Token]:
    """``DELETE WHERE`` of that pattern in any named graph."""
    variable = "?graph"
    while any(token.text[1:] == variable[1:] for token in pattern if token.kind == "VARIABLE"):
        variable += "_"
    at = pattern[0].start
    before = ("DELETE", "WHERE", "{", "GRAPH", variable, "{")
    kinds = {"{": "MARK", variable: "VARIABLE"}
    return [
        *(Token(kinds.get(text, "WORD"), text, at) for text in before),
        *pattern,
        *(Token("MARK", "}", pattern[-1].end) for _ in range(2)),
    ]


def rewrite_for_union(
    source: str, found: ModifyOperation, drawn: int
) -> tuple[list[Token], list[tuple[str, Token | None]]]:
    """Rewrite the operation for a store whose default graph is the union of all graphs. Returns its tokens, and pairs
    of a random graph name and the graph into which it inserts (None: the default graph). The quads that it deletes from
    all graphs go to the first random name. Raises ``BadInput`` for an operation without a meaning, or one that would
    need more than this."""
    deletes, inserts = _template(found.delete or []), _template(found.insert or [])
    at = found.where[0].start if found.where else 0
    for token in deletes.plain:
        if token.kind == "BLANK" or token.text in ("[", "("):
            raise malformed_query(source, token.start, "a blank node deletes nothing; use a variable")
    shown: list[tuple[str, Token | None]] = []
    blocks: list[Token] = []

    def show(inside: Sequence[Token], graph: Token | None) -> None:
        name = f"urn:txlog:drawn:{drawn:032x}:{len(shown)}"
        shown.append((name, graph))
        blocks.extend([Token("WORD", "GRAPH", at), Token("IRI", f"<{name}>", at), *_braced(inside, at)])

    show(deletes.plain, None)
    show(inserts.plain, None)
    for graph, inside in inserts.graphs:
        if graph.kind != "VARIABLE":
            show(inside, graph)
        elif deletes.plain:
            said = "INSERT into GRAPH ?variable beside a DELETE from all graphs: write GRAPH in both, or two operations"
            raise malformed_query(source, graph.start, said)
        else:
            blocks.extend([Token("WORD", "GRAPH", graph.start), graph, *_braced(inside, at)])
    kept: list[Token] = []
    for graph, inside in deletes.graphs:
        kept.extend([Token("WORD", "GRAPH", graph.start), graph, *_braced(inside, at)])
    toks = [Token("WORD", "DELETE", at), *_braced(kept, at)] if kept else []
    toks += [Token("WORD", "INSERT", at), *_braced(blocks, at), Token("WORD", "WHERE", at)]
    return [*toks, *_braced(found.where, at)], shown


def _braced(inside: Sequence[Token], at: int) -> list[Token]:
    end = inside[-1].end if inside else at
    return [Token("MARK", "{", at), *inside, Token("MARK", "}", end)]


def _template(toks: Sequence[Token]) -> GraphTemplate:
    plain: list[Token] = []
    graphs: list[tuple[Token, list[Token]]] = []
    at = 0
    while at < len(toks):
        inside, end = _group(toks, at + 2) if word_at(toks, at) == "GRAPH" else (None, at)
        if inside is None:
            plain.append(toks[at])
            at += 1
            continue
        graphs.append((toks[at + 1], inside))
        at = end + 1 if end < len(toks) and toks[end].text == "." else end
        if plain and plain[-1].text != "." and at < len(toks):
            plain.append(Token("MARK", ".", toks[at].start))
    return GraphTemplate(plain, graphs)


def _group(toks: Sequence[Token], at: int) -> tuple[list[Token] | None, int]:
    """The tokens in the braces that open at ``at``, and the index after them; None where there are none."""
    if at >= len(toks) or toks[at].text != "{":
        return None, at
    end = closing_index(toks, at)
    return (list(toks[at + 1 : end]), end + 1) if end < len(toks) else (None, at)
