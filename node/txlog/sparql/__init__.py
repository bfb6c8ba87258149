"""What makes an update give the same result everywhere, and a read show nothing of ours. Pure functions."""

from txlog.sparql.effects import Evaluated, Part, Sums, effect_of, sums_query
from txlog.sparql.joined import drop, join, prepare_removal, remove
from txlog.sparql.looks import Everything
from txlog.sparql.marker import hide_marker, uses_graph, with_dataset
from txlog.sparql.partial import needed, on_part
from txlog.sparql.portable import refuse_unportable
from txlog.sparql.prepared import Prepared
from txlog.sparql.query import hide_system_graphs, query_form, query_looks_at, refuse_services
from txlog.sparql.rdf import Draw, Skolem, check_terms, plain_quad, prepare_lines, prepare_rdf, skolemise_lines
from txlog.sparql.terms import DEFAULT_PREFIXES, SYSTEM_GRAPHS
from txlog.sparql.update import (
    Document,
    LoadAsked,
    loads_of,
    parses,
    prepare_evaluated,
    prepare_loaded,
    prepare_update,
)

__all__ = [
    "DEFAULT_PREFIXES",
    "SYSTEM_GRAPHS",
    "Document",
    "Draw",
    "Evaluated",
    "Everything",
    "LoadAsked",
    "Part",
    "Prepared",
    "Skolem",
    "Sums",
    "check_terms",
    "drop",
    "effect_of",
    "hide_marker",
    "hide_system_graphs",
    "join",
    "loads_of",
    "needed",
    "on_part",
    "parses",
    "plain_quad",
    "prepare_evaluated",
    "prepare_lines",
    "prepare_loaded",
    "prepare_rdf",
    "prepare_removal",
    "prepare_update",
    "query_form",
    "query_looks_at",
    "refuse_services",
    "refuse_unportable",
    "remove",
    "skolemise_lines",
    "sums_query",
    "uses_graph",
    "with_dataset",
]
