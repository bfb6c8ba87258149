"""An update as its request states it: the text, and everything beside it that changes its meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypedDict

from txlog.http.router import Request
from txlog.model.errors import BadInput
from txlog.server.frontdoor.request_parameters import draw_blank_node_seed, parse_graph_iri
from txlog.sparql import (
    EvaluatedUpdate,
    LoadedDocument,
    RequestDataset,
    TransactionBody,
    find_created_graphs,
    prepare_evaluated,
    prepare_loaded,
    prepare_update,
)
from txlog.sparql.rewrite.bound_parameters import UpdateGraphs, apply_parameters, parse_binding

UPDATES_WITHOUT_GRAPH_HEADER: Final = "TxLog-Updates-Without-Graph"
_GRAPH_PARAMETERS: Final = ("using-graph-uri", "using-named-graph-uri", "remove-graph-uri", "insert-graph-uri")
Parameters = Sequence[tuple[str, str]]


def now_text() -> str:
    """The current time of this master as ``xsd:dateTime``; the value to which ``NOW()`` is pinned."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _UpdateTerms(TypedDict):
    base: str | None
    now: str
    draw: Callable[[], int]
    all_graphs: bool
    dataset: RequestDataset | None


class UpdateRequest(NamedTuple):
    """``all_graphs``: the graphs are those that RDF4J would choose; otherwise those of SPARQL 1.1. ``dataset``: the
    graphs beside the update, with ``all_graphs`` only: otherwise they are in the text."""

    text: str
    base: str | None
    all_graphs: bool
    dataset: RequestDataset | None = None

    def prepare(self) -> TransactionBody:
        """As :func:`~txlog.sparql.prepare_update`."""
        return prepare_update(self.text, **self._terms())

    def prepare_evaluated(self) -> EvaluatedUpdate:
        """As :func:`~txlog.sparql.prepare_evaluated`."""
        return prepare_evaluated(self.text, **self._terms())

    def prepare_loaded(self, documents: dict[str, LoadedDocument]) -> TransactionBody:
        """As :func:`~txlog.sparql.prepare_loaded`."""
        return prepare_loaded(self.text, documents, **self._terms())

    def _terms(self) -> _UpdateTerms:
        return {
            "base": self.base,
            "now": now_text(),
            "draw": draw_blank_node_seed,
            "all_graphs": self.all_graphs,
            "dataset": self.dataset,
        }

    def created_graphs(self) -> list[str]:
        """The graphs (``<iri>``) of CREATE without SILENT that must not hold a quad before the update. In plain
        SPARQL none: a graph without a quad may exist there, and a store need not know."""
        return find_created_graphs(self.text, base=self.base) if self.all_graphs else []


def means_all_graphs(request: Request, configured: bool) -> bool:
    """Whether an update without a graph means all graphs: the request decides, else the configuration."""
    said = request.headers.get(UPDATES_WITHOUT_GRAPH_HEADER)
    if said is None:
        return configured
    if said.strip().lower() not in ("all", "default"):
        raise BadInput(f"{UPDATES_WITHOUT_GRAPH_HEADER}: {said[:40]!r} is neither all nor default")
    return said.strip().lower() == "all"


def parse_update_request(text: str, parameters: Parameters, all_graphs: bool) -> UpdateRequest:
    """A SPARQL update with the parameters of its request."""
    if not text.strip():
        raise BadInput("Updates must be non-empty")
    if not parameters:
        return UpdateRequest(text, None, all_graphs)
    given = dict(parameters)
    language = given.get("queryLn", "SPARQL")
    if language.upper() != "SPARQL":
        raise BadInput(f"Unknown query language: {language[:40]}; this server speaks SPARQL")
    base = strip_angle_brackets(given.get("baseURI"))
    bindings = {name[1:]: parse_binding(name[1:], value) for name, value in parameters if name[:1] == "$"}
    graphs = [
        [value if value == "null" else parse_graph_iri(value, name) for name, value in parameters if name == wanted]
        for wanted in _GRAPH_PARAMETERS
    ]
    if not bindings and not any(graphs):
        return UpdateRequest(text, base, all_graphs)
    if not all_graphs:
        return UpdateRequest(apply_parameters(text, bindings, UpdateGraphs(*graphs)), base, False)
    dataset = _dataset_of(*graphs) if any(graphs) else None
    return UpdateRequest(apply_parameters(text, bindings, UpdateGraphs()), base, True, dataset)


def _dataset_of(using: list[str], named: list[str], remove: list[str], insert: list[str]) -> RequestDataset:
    if len(insert) > 1:
        raise BadInput("insert-graph-uri: one graph")
    terms = [
        tuple("" if graph == "null" else f"<{graph}>" for graph in each) for each in (using, named, remove, insert)
    ]
    return RequestDataset(terms[0], terms[1], terms[2], terms[3][0] if insert else "")


def strip_angle_brackets(base: str | None) -> str | None:
    """The IRI of a base: RDF4J's Java client writes ``<...>``, other clients the IRI itself."""
    return base[1:-1] if base and base.startswith("<") and base.endswith(">") else base or None
