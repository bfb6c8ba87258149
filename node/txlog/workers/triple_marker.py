"""Engines without empty graphs: the marker is a triple, in the graph whose name says everything.

The triple is ``<urn:txlog:system>`` three times (:mod:`txlog.workers.marker_names` has the name of its graph). It is
taken out first in a request and put in again last, so updates never meet it; reads are kept from it
(``sparql.hide_marker``, :meth:`MarkedAdapter.clean_quads`). The guard is a graph of ours that comes into being where a
condition has a solution (:meth:`MarkedAdapter.fail_if`), and an operation that fails where it is there, which each
engine has to have (``fail``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from txlog.workers.adapter import SYSTEM, LoadMarker, MarkerPosition, SystemGraphs, WorkerRequest
from txlog.workers.canonical_literals import clean_quads
from txlog.workers.marker_names import loading_name, marker_name
from txlog.workers.sparql_http import ALWAYS_TRUE_QUERY, N_QUADS, SparqlAdapter
from txlog.workers.update_batching import group_by_graph

SYSTEM_TERM: Final = f"<{SYSTEM}>"
MARKER_TRIPLE: Final = f"{SYSTEM_TERM} {SYSTEM_TERM} {SYSTEM_TERM}"
GUARD_GRAPH: Final = f"<{SYSTEM}:trip>"
NON_EMPTY_PATTERN: Final = "{ SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } } LIMIT 1 }"
"""A condition that holds unless the store is empty."""
_SYSTEM_LINE: Final = f"{SYSTEM_TERM} ".encode()


def filter_not_exists(name: str) -> str:
    """A condition that holds unless that graph of ours is there."""
    return f"FILTER NOT EXISTS {{ GRAPH <{name}> {{ {MARKER_TRIPLE} }} }}"


def insert_marker(name: str) -> str:
    """Puts that graph of ours there."""
    return f"INSERT DATA {{ GRAPH <{name}> {{ {MARKER_TRIPLE} }} }}"


def delete_marker(name: str) -> str:
    """Takes it away, if it is there."""
    return f"DELETE DATA {{ GRAPH <{name}> {{ {MARKER_TRIPLE} }} }}"


class TripleMarkerAdapter(SparqlAdapter):
    """``fail``: an operation that fails, and with it the request, where the graph :data:`GUARD_GRAPH` is there."""

    fail = ""

    def fail_if(self, condition: str) -> list[str]:
        """Operations that fail, and with them the request, where ``condition`` has a solution."""
        return [
            f"INSERT {{ GRAPH {GUARD_GRAPH} {{ {SYSTEM_TERM} {SYSTEM_TERM} {GUARD_GRAPH} }} }} WHERE {{ {condition} }}",
            self.fail,
        ]

    def delete_or_fail(self, name: str) -> list[str]:
        """Fails unless that graph of ours is there; takes it away."""
        return [*self.fail_if(filter_not_exists(name)), delete_marker(name)]

    def confirm_lock(self, token: int) -> list[str]:
        """Fails unless the lock that stands there is this one and no other; takes it away. Here there is none."""
        return []

    def normalise_quads(self, lines: bytes) -> bytes:
        """Quads as this engine is to have them."""
        raise NotImplementedError

    # -- position

    def read_system(self) -> WorkerRequest:
        return self._select(f"SELECT ?g {{ GRAPH ?g {{ {MARKER_TRIPLE} }} }}")

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        return self._ask(f"ASK {{ GRAPH <{marker_name(marker)}> {{ {MARKER_TRIPLE} }} }}")

    def is_loading(self, loading: LoadMarker) -> WorkerRequest:
        return self._ask(f"ASK {{ GRAPH <{loading_name(loading)}> {{ {MARKER_TRIPLE} }} }}")

    def is_empty(self) -> WorkerRequest:
        return self._ask(f"ASK {{ {self.default_quads} UNION {self.named_quads} }}")

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        return self._update(self.delete_or_fail(marker_name(marker)))

    # -- reading

    def counts(self) -> WorkerRequest:
        return self._select(
            f"SELECT ?g (COUNT(?s) AS ?n) {{ {self.default_quads} UNION {{ GRAPH ?g {{ ?s ?p ?o }} }} }} GROUP BY ?g"
        )

    def dump(self, predicates: Sequence[str] | None = None) -> WorkerRequest:
        # One query sees one moment.
        ours = f"{{ GRAPH ?g {{ {MARKER_TRIPLE} }} }}"
        text = f"SELECT ?g ?s ?p ?o {{ {self.quads_with(predicates)} UNION {ours} }}"
        return self._select(text, self.dump_media_type)

    def clean_snapshot(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return clean_quads(chunks, _SYSTEM_LINE)

    # -- loading

    def begin_loading(self, loading: LoadMarker, token: int) -> WorkerRequest:
        return self._update(
            [*self.confirm_lock(token), *self.fail_if(NON_EMPTY_PATTERN), insert_marker(loading_name(loading))]
        )

    def mark_unusable(self, found: SystemGraphs, loading: LoadMarker, token: int) -> WorkerRequest:
        names = [marker_name(marker) for marker in found.markers] + [loading_name(each) for each in found.loading]
        gone = [text for name in names for text in self.delete_or_fail(name)]
        return self._update([*self.confirm_lock(token), *gone, insert_marker(loading_name(loading))])

    def clear(self) -> WorkerRequest:
        return self._update(["DROP ALL"])

    def load(self, quads: bytes) -> WorkerRequest:
        return WorkerRequest(
            "POST", self.data_path, {"Content-Type": N_QUADS + self.charset}, self.normalise_quads(quads)
        )

    def delete_quads(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        if not quads:
            return self._ask(ALWAYS_TRUE_QUERY)  # graphs without quads do not exist here
        lines = self.normalise_quads(b"\n".join(quads)).split(b"\n")
        return self._update([f"DELETE DATA {{{group_by_graph(lines)}}}"])

    def end_loading(self, loading: LoadMarker, new: MarkerPosition) -> WorkerRequest:
        return self._update([*self.delete_or_fail(loading_name(loading)), insert_marker(marker_name(new))])
