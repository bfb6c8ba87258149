"""Engines without empty graphs: the marker is a triple, in the graph whose name says everything.

The triple is ``<urn:txlog:system>`` three times (:mod:`txlog.workers.naming` has the name of its graph). It is taken
out first in a request and put in again last, so updates never meet it; reads are kept from it (``sparql.hide_marker``,
:meth:`MarkedAdapter.cleaned`). The guard is a graph of ours that comes into being where a condition has a solution
(:meth:`MarkedAdapter.trip`), and an operation that fails where it is there, which each engine has to have (``fail``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from txlog.workers.base import SYSTEM, Loading, MarkerPosition, SystemGraphs, WorkerRequest
from txlog.workers.canonical import cleaned
from txlog.workers.naming import loading_name, marker_name
from txlog.workers.netting import grouped
from txlog.workers.protocol import N_QUADS, TRUE, SparqlAdapter

TERM: Final = f"<{SYSTEM}>"
TRIPLE: Final = f"{TERM} {TERM} {TERM}"
TRIP: Final = f"<{SYSTEM}:trip>"
ANYTHING: Final = "{ SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } } LIMIT 1 }"
"""A condition that holds unless the store is empty."""
_SYSTEM_LINE: Final = f"{TERM} ".encode()


def absent(name: str) -> str:
    """A condition that holds unless that graph of ours is there."""
    return f"FILTER NOT EXISTS {{ GRAPH <{name}> {{ {TRIPLE} }} }}"


def enter(name: str) -> str:
    """Puts that graph of ours there."""
    return f"INSERT DATA {{ GRAPH <{name}> {{ {TRIPLE} }} }}"


def remove(name: str) -> str:
    """Takes it away, if it is there."""
    return f"DELETE DATA {{ GRAPH <{name}> {{ {TRIPLE} }} }}"


class MarkedAdapter(SparqlAdapter):
    """``fail``: an operation that fails, and with it the request, where the graph :data:`TRIP` is there."""

    fail = ""

    def trip(self, condition: str) -> list[str]:
        """Operations that fail, and with them the request, where ``condition`` has a solution."""
        return [f"INSERT {{ GRAPH {TRIP} {{ {TERM} {TERM} {TRIP} }} }} WHERE {{ {condition} }}", self.fail]

    def leave(self, name: str) -> list[str]:
        """Fails unless that graph of ours is there; takes it away."""
        return [*self.trip(absent(name)), remove(name)]

    def unlock(self, token: int) -> list[str]:
        """Fails unless the lock that stands there is this one and no other; takes it away. Here there is none."""
        return []

    def given(self, lines: bytes) -> bytes:
        """Quads as this engine is to have them."""
        raise NotImplementedError

    # -- position

    def read_system(self) -> WorkerRequest:
        return self._select(f"SELECT ?g {{ GRAPH ?g {{ {TRIPLE} }} }}")

    def is_at(self, marker: MarkerPosition) -> WorkerRequest:
        return self._ask(f"ASK {{ GRAPH <{marker_name(marker)}> {{ {TRIPLE} }} }}")

    def is_loading(self, loading: Loading) -> WorkerRequest:
        return self._ask(f"ASK {{ GRAPH <{loading_name(loading)}> {{ {TRIPLE} }} }}")

    def is_empty(self) -> WorkerRequest:
        return self._ask(f"ASK {{ {self.default_quads} UNION {self.named_quads} }}")

    def drop_marker(self, marker: MarkerPosition) -> WorkerRequest:
        return self._update(self.leave(marker_name(marker)))

    # -- reading

    def counts(self) -> WorkerRequest:
        return self._select(
            f"SELECT ?g (COUNT(?s) AS ?n) {{ {self.default_quads} UNION {{ GRAPH ?g {{ ?s ?p ?o }} }} }} GROUP BY ?g"
        )

    def everything(self, predicates: Sequence[str] | None = None) -> WorkerRequest:
        # One query sees one moment.
        ours = f"{{ GRAPH ?g {{ {TRIPLE} }} }}"
        text = f"SELECT ?g ?s ?p ?o {{ {self.quads_with(predicates)} UNION {ours} }}"
        return self._select(text, self.everything_media)

    def cleaned(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return cleaned(chunks, _SYSTEM_LINE)

    # -- loading

    def begin_loading(self, loading: Loading, token: int) -> WorkerRequest:
        return self._update([*self.unlock(token), *self.trip(ANYTHING), enter(loading_name(loading))])

    def condemn(self, found: SystemGraphs, loading: Loading, token: int) -> WorkerRequest:
        names = [marker_name(marker) for marker in found.markers] + [loading_name(each) for each in found.loading]
        gone = [text for name in names for text in self.leave(name)]
        return self._update([*self.unlock(token), *gone, enter(loading_name(loading))])

    def empty(self) -> WorkerRequest:
        return self._update(["DROP ALL"])

    def load(self, quads: bytes) -> WorkerRequest:
        return WorkerRequest("POST", self.data_path, {"Content-Type": N_QUADS + self.charset}, self.given(quads))

    def erase(self, quads: Sequence[bytes], left: Sequence[bytes]) -> WorkerRequest:
        if not quads:
            return self._ask(TRUE)  # graphs without quads do not exist here
        lines = self.given(b"\n".join(quads)).split(b"\n")
        return self._update([f"DELETE DATA {{{grouped(lines)}}}"])

    def end_loading(self, loading: Loading, new: MarkerPosition) -> WorkerRequest:
        return self._update([*self.leave(loading_name(loading)), enter(marker_name(new))])
