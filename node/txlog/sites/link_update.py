"""An entry of a link as a SPARQL update, which takes effect only where the record before it is the expected one.

Every worker decides the condition at the entry's own index in the log, and all decide the same. So a batch counts
once, however often it is submitted, and however late (docs/decisions/0124-links-between-two-sites.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from txlog.model.quads import split_graph
from txlog.sites.decisions import LinkEntry
from txlog.sites.keys import SITES_GRAPH
from txlog.sites.link_record import CONTENTS_PREDICATE, NAME_PREDICATE, encode_record, record_subject


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
    changes = f"DELETE {{ {there} {_quads(entry.deletes)} }} INSERT {{ {made} {_quads(entry.adds)} }}"
    return f"{changes} WHERE {{ {there} }}"


def _record(subject: str, name: str, contents: str) -> str:
    return f"GRAPH <{SITES_GRAPH}> {{ {subject} <{NAME_PREDICATE}> {name} ; <{CONTENTS_PREDICATE}> {contents} }}"


def _quads(lines: Iterable[bytes]) -> str:
    return " ".join(_graphs(lines))


def _graphs(lines: Iterable[bytes]) -> Iterator[str]:
    found = sorted((graph, triple) for triple, graph in map(split_graph, lines))
    for graph, each in groupby(found, key=lambda one: one[0]):
        triples = " . ".join(triple.decode() for _, triple in each)
        yield f"GRAPH {graph.decode()} {{ {triples} }}" if graph else f"{triples} ."
