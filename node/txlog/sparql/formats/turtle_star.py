"""RDF4J's Turtle-star and TriG-star (``text/x-turtlestar``, ``application/x-trigstar``): written.

A line for each statement, with full IRIs; triple terms are RDF-star's quoted triples, ``<<s p o>>``. They are read as
Turtle and TriG (``triple_terms.py``). Source: RDF-star and SPARQL-star, W3C community group report, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import pyoxigraph as ox

from txlog.sparql.triple_terms import star_text


def write_turtle_star(quads: Iterable[ox.Quad], out: IO[bytes]) -> None:
    """Write all quads without their graphs."""
    for quad in quads:
        out.write(_line(quad))


def write_trig_star(quads: Iterable[ox.Quad], out: IO[bytes]) -> None:
    """Write all quads; consecutive quads of one graph share its braces."""
    graph: object = ox.DefaultGraph()
    for quad in quads:
        if quad.graph_name != graph:
            out.write(b"" if isinstance(graph, ox.DefaultGraph) else b"}\n")
            graph = quad.graph_name
            out.write(b"" if isinstance(graph, ox.DefaultGraph) else f"{graph} {{\n".encode())
        out.write(_line(quad))
    out.write(b"" if isinstance(graph, ox.DefaultGraph) else b"}\n")


def _line(quad: ox.Quad) -> bytes:
    return f"{quad.subject} {quad.predicate} {star_text(quad.object)} .\n".encode()
