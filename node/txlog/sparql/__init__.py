"""What makes an update give the same result everywhere, and a read show nothing of ours. Pure functions."""

from txlog.sparql.prepared import Prepared
from txlog.sparql.query import hide_system_graphs
from txlog.sparql.rdf import check_terms, plain_quad, prepare_lines, prepare_rdf, skolemise_lines
from txlog.sparql.terms import DEFAULT_PREFIXES, SYSTEM_GRAPHS
from txlog.sparql.update import prepare_update

__all__ = [
    "DEFAULT_PREFIXES",
    "SYSTEM_GRAPHS",
    "Prepared",
    "check_terms",
    "hide_system_graphs",
    "plain_quad",
    "prepare_lines",
    "prepare_rdf",
    "prepare_update",
    "skolemise_lines",
]
