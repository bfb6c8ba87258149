"""What makes an update give the same result everywhere, and a read show nothing of ours. Pure functions."""

from txlog.sparql.joined import drop, join, prepare_removal, remove
from txlog.sparql.prepared import Prepared
from txlog.sparql.query import hide_system_graphs, query_form, refuse_services
from txlog.sparql.rdf import check_terms, plain_quad, prepare_lines, prepare_rdf, skolemise_lines
from txlog.sparql.terms import DEFAULT_PREFIXES, SYSTEM_GRAPHS
from txlog.sparql.update import prepare_update

__all__ = [
    "DEFAULT_PREFIXES",
    "SYSTEM_GRAPHS",
    "Prepared",
    "check_terms",
    "drop",
    "hide_system_graphs",
    "join",
    "plain_quad",
    "prepare_lines",
    "prepare_rdf",
    "prepare_removal",
    "prepare_update",
    "query_form",
    "refuse_services",
    "remove",
    "skolemise_lines",
]
