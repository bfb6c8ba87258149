"""Makes an update give the same result on every worker, and hides system graphs from reads. Pure functions."""

from txlog.sparql.analysis.graph_creation import existing_graph
from txlog.sparql.analysis.partial_copy import required_predicates, restrict_to_predicates
from txlog.sparql.analysis.portability import (
    refuse_base_direction,
    refuse_fatal,
    refuse_terms_jena_changes,
    refuse_unportable,
)
from txlog.sparql.analysis.predicates import UnknownPredicates
from txlog.sparql.analysis.written_graphs import find_written_graphs
from txlog.sparql.load_operation import LoadedDocument, LoadRequest
from txlog.sparql.rdf_upload import (
    RandomBits,
    Skolemiser,
    check_supported_terms,
    parse_plain_quad,
    prepare_lines,
    prepare_rdf,
    skolemise_lines,
)
from txlog.sparql.rewrite.marker_filter import hide_marker, uses_graph_clause, with_dataset
from txlog.sparql.rewrite.read_query import hide_system_graphs, query_form, query_predicates, refuse_services
from txlog.sparql.rewrite.update_dataset import RequestDataset
from txlog.sparql.transaction_body import TransactionBody
from txlog.sparql.transaction_builder import concatenate, delete_matching, drop_graphs, prepare_removal
from txlog.sparql.update_effect import (
    EFFECT_CONDITION,
    DataFingerprint,
    EvaluatedOperation,
    EvaluatedUpdate,
    build_effect,
    fingerprint_query,
    names_form,
)
from txlog.sparql.update_normaliser import (
    find_created_graphs,
    find_loads,
    is_valid_update,
    prepare_evaluated,
    prepare_loaded,
    prepare_update,
)

__all__ = [
    "EFFECT_CONDITION",
    "DataFingerprint",
    "EvaluatedOperation",
    "EvaluatedUpdate",
    "LoadRequest",
    "LoadedDocument",
    "RandomBits",
    "RequestDataset",
    "Skolemiser",
    "TransactionBody",
    "UnknownPredicates",
    "build_effect",
    "check_supported_terms",
    "concatenate",
    "delete_matching",
    "drop_graphs",
    "existing_graph",
    "find_created_graphs",
    "find_loads",
    "find_written_graphs",
    "fingerprint_query",
    "hide_marker",
    "hide_system_graphs",
    "is_valid_update",
    "names_form",
    "parse_plain_quad",
    "prepare_evaluated",
    "prepare_lines",
    "prepare_loaded",
    "prepare_rdf",
    "prepare_removal",
    "prepare_update",
    "query_form",
    "query_predicates",
    "refuse_base_direction",
    "refuse_fatal",
    "refuse_services",
    "refuse_terms_jena_changes",
    "refuse_unportable",
    "required_predicates",
    "restrict_to_predicates",
    "skolemise_lines",
    "uses_graph_clause",
    "with_dataset",
]
