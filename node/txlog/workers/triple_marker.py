"""Engines without empty graphs: the marker is a triple, in the graph whose name encodes the marker.

The triple is ``<urn:txlog:system>`` three times (:mod:`txlog.workers.marker_names` defines the name of its graph). A
request deletes it first and inserts it last, so updates never match it. Reads hide it (``sparql.hide_marker``,
:meth:`TripleMarkerAdapter.clean_snapshot`). The guard is a system graph that a request creates where a condition has a
solution (:meth:`TripleMarkerAdapter.fail_if`), and an operation that fails where that graph exists. Each engine has to
provide that operation (``fail``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from txlog.workers.adapter import SYSTEM, LoadMarker, MarkerPosition, ProbeStep, SystemGraphs, WorkerRequest
from txlog.workers.canonical_literals import clean_quads
from txlog.workers.marker_names import loading_name, marker_name
from txlog.workers.sparql_http import ALWAYS_TRUE_QUERY, N_QUADS, NOT_ATOMIC, SparqlAdapter
from txlog.workers.update_batches import group_by_graph

SYSTEM_TERM: Final = f"<{SYSTEM}>"
MARKER_TRIPLE: Final = f"{SYSTEM_TERM} {SYSTEM_TERM} {SYSTEM_TERM}"
GUARD_GRAPH: Final = f"<{SYSTEM}:trip>"
NON_EMPTY_PATTERN: Final = "{ SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } } LIMIT 1 }"
"""A condition that holds unless the store is empty."""
SYSTEM_LINE: Final = f"{SYSTEM_TERM} ".encode()
PROBE_NAME: Final = f"{SYSTEM}:probe"
"""The system graph in which a probe writes."""


def filter_not_exists(name: str) -> str:
    """A condition that holds unless this system graph exists."""
    return f"FILTER NOT EXISTS {{ GRAPH <{name}> {{ {MARKER_TRIPLE} }} }}"


def insert_marker(name: str) -> str:
    """The operation that inserts this system graph's triple."""
    return f"INSERT DATA {{ GRAPH <{name}> {{ {MARKER_TRIPLE} }} }}"


def delete_marker(name: str) -> str:
    """The operation that deletes this system graph's triple, if it exists."""
    return f"DELETE DATA {{ GRAPH <{name}> {{ {MARKER_TRIPLE} }} }}"


class TripleMarkerAdapter(SparqlAdapter):
    """The common part of these engines. ``fail``: an operation that fails, and with it the request, where the graph
    :data:`GUARD_GRAPH` exists."""

    fail = ""
    system_names = f"{{ GRAPH ?s {{ {MARKER_TRIPLE} }} }}"

    def fail_if(self, condition: str) -> list[str]:
        """Operations that fail, and with them the request, where ``condition`` has a solution."""
        return [
            f"INSERT {{ GRAPH {GUARD_GRAPH} {{ {SYSTEM_TERM} {SYSTEM_TERM} {GUARD_GRAPH} }} }} WHERE {{ {condition} }}",
            self.fail,
        ]

    def delete_or_fail(self, name: str) -> list[str]:
        """Operations that fail unless this system graph exists; they delete it."""
        return [*self.fail_if(filter_not_exists(name)), delete_marker(name)]

    def confirm_lock(self, token: int) -> list[str]:
        """Operations that fail unless this lock, and no other, is in the store; they delete it. Here there is no
        lock; an engine that needs one overrides this."""
        return []

    def normalise_quads(self, lines: bytes) -> bytes:
        """Convert quads to the form of this engine."""
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
        # One query reads one snapshot.
        ours = f"{{ GRAPH ?g {{ {MARKER_TRIPLE} }} }}"
        text = f"SELECT ?g ?s ?p ?o {{ {self.quads_with(predicates)} UNION {ours} }}"
        return self._select(text, self.dump_media_type)

    def clean_snapshot(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return clean_quads(chunks, SYSTEM_LINE)

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

    # -- registration

    def probe_guard(
        self,
        triple: str,
        done: tuple[int, ...],
        refusal: bytes,
        scope: ProbeStep,
        *,
        answer: bytes = b"",
        no_queries: str,
        no_updates: str,
        never_fails: str,
        always_fails: str,
    ) -> tuple[ProbeStep, ...]:
        """The steps of a probe that writes ``triple``. ``done``: the statuses of an update; ``refusal``: a part of the
        answer where the guard fails; ``answer``: of that to a query. ``scope``: tests how patterns match, while the
        triple is there. The others: the messages."""
        insert = f"INSERT DATA {{ GRAPH <{PROBE_NAME}> {{ {triple} }} }}"
        clear = self._update([f"DROP SILENT GRAPH <{PROBE_NAME}>"])
        nothing_left = self._select(f"SELECT ?s {{ GRAPH <{PROBE_NAME}> {{ ?s ?p ?o }} }}")
        failing = self._update([insert, *self.delete_or_fail(f"{PROBE_NAME}:absent")])
        passing = self._update([*self.fail_if("FILTER(false)"), insert])
        return (
            ProbeStep(self._ask(ALWAYS_TRUE_QUERY), (200,), "NotAWorker", no_queries, holds=answer),
            ProbeStep(clear, done, "NotAWorker", no_updates),
            ProbeStep(failing, (500,), "NoGuard", never_fails, holds=refusal),
            ProbeStep(nothing_left, (200,), "NotAtomic", NOT_ATOMIC, empty=True),
            ProbeStep(passing, done, "NoGuard", always_fails),
            scope,
            ProbeStep(clear, done, "NotAWorker", "it cannot remove the probe's graph"),
        )
