"""An entry of a link as a SPARQL update, which takes effect only where the record before it is the expected one.

Every worker decides the condition at the entry's own index in the log, and all decide the same. So a batch counts
once, however often it is submitted, and however late (docs/decisions/0124-links-between-two-sites.md).

A store plans one operation at a time, so an entry with many graphs has several; the last one replaces the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from txlog.model.quads import split_graph
from txlog.sites.decisions import LinkEntry
from txlog.sites.keys import SITES_GRAPH
from txlog.sites.link_record import CONTENTS_PREDICATE, NAME_PREDICATE, encode_record, record_subject

GRAPHS_MAX: Final = 100
"""Of one operation."""


def build_update(entry: LinkEntry, nonce: str) -> str:
    """The text of an entry. ``nonce``: hexadecimal digits that no other entry has. It has SPARQL's meaning: a deletion
    without GRAPH is from the default graph alone."""
    name, contents = (text.decode() for text in encode_record(entry.record, nonce))
    subject = f"<{record_subject(entry.record.site)}>"
    made = _record(subject, f'"{name}"', f'"{contents}"')
    if entry.expected is None:
        before = f"GRAPH <{SITES_GRAPH}> {{ {subject} ?before ?was }}"
        absent = f"FILTER NOT EXISTS {{ GRAPH <{SITES_GRAPH}> {{ {subject} <{NAME_PREDICATE}> ?name }} }}"
        return f"DELETE {{ {before} }} INSERT {{ {made} }} WHERE {{ OPTIONAL {{ {before} }} {absent} }}"
    there = _record(subject, f'"{entry.expected.decode()}"', "?contents")
    changes = [f"{each} WHERE {{ {there} }}" for each in _changes(entry.deletes, entry.adds)]
    return " ;\n".join([*changes, f"DELETE {{ {there} }} INSERT {{ {made} }} WHERE {{ {there} }}"])


def _record(subject: str, name: str, contents: str) -> str:
    return f"GRAPH <{SITES_GRAPH}> {{ {subject} <{NAME_PREDICATE}> {name} ; <{CONTENTS_PREDICATE}> {contents} }}"


def _changes(deletes: Iterable[bytes], adds: Iterable[bytes]) -> Iterator[str]:
    """The templates of each operation."""
    by_graph: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    for at, lines in enumerate((deletes, adds)):
        for line in lines:
            triple, graph = split_graph(line)
            by_graph.setdefault(graph, ([], []))[at].append(triple)
    graphs = sorted(by_graph)  # the default graph is the first
    for begin in range(0, len(graphs), GRAPHS_MAX):
        part = graphs[begin : begin + GRAPHS_MAX]
        gone, new = (" ".join(_quads(graph, by_graph[graph][at]) for graph in part) for at in (0, 1))
        delete, insert = f"DELETE {{ {gone} }}" if gone.strip() else "", f"INSERT {{ {new} }}" if new.strip() else ""
        yield f"{delete} {insert}".strip()


def _quads(graph: bytes, triples: Sequence[bytes]) -> str:
    if not triples:
        return ""
    text = " . ".join(triple.decode() for triple in triples)
    return f"GRAPH {graph.decode()} {{ {text} }}" if graph else f"{text} ."
