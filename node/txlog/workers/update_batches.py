"""Several transactions as one SPARQL update with the same result, for every engine with SPARQL 1.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.quads import split_graph
from txlog.workers.adapter import StoreOperation
from txlog.workers.canonical_literals import canonical_lines

OPERATION_SEPARATOR = " ;\n"


def merge_quad_changes(payloads: Sequence[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Merge consecutive KIND_QUADS payloads to ``(deletes, adds, gone)``: N-Quads lines in the order of first mention.
    The last operation on a quad wins. ``gone``: lines that were added and then deleted again."""
    last: dict[bytes, bool] = {}
    added: set[bytes] = set()
    for payload in payloads:
        for line in payload.split(b"\n"):
            if line:
                quad = line[2:]
                if line[0] == 65:  # A
                    last[quad] = True
                    added.add(quad)
                else:
                    last[quad] = False
    deletes = [quad for quad, add in last.items() if not add]
    adds = [quad for quad, add in last.items() if add]
    return deletes, adds, [quad for quad in deletes if quad in added]


def _canonicalise_if_merged(payloads: Sequence[bytes]) -> Sequence[bytes]:
    """The payloads with canonical literals, if there are several. A delete of `1` deletes the `01` of an earlier
    transaction: to a store they are one quad. Within one transaction the server has done it already."""
    if len(payloads) > 1 and any(payload.startswith(b"D ") or b"\nD " in payload for payload in payloads):
        return [canonical_lines(payload) for payload in payloads]
    return payloads


def update_texts(
    operations: Sequence[StoreOperation],
    form: Callable[[bytes], bytes] | None = None,
    rewrite: Callable[[str], str] = lambda text: text,
) -> list[str]:
    """The operations as SPARQL updates, to be joined with :data:`OPERATION_SEPARATOR`; may be empty. Consecutive quad
    changes become one delete and one insert; updates stay in their order. ``form``: converts payloads of quads to the
    form of this engine, with one form for each quad. ``rewrite``: does so with updates."""
    texts: list[str] = []
    run: list[bytes] = []
    for operation in operations:
        if operation.kind == KIND_QUADS:
            run.append(operation.payload)
            continue
        assert operation.kind == KIND_UPDATE, operation.kind
        if run:
            texts += _quads_texts(run, form)
            run = []
        text = rewrite(operation.payload.decode())
        if text.strip():
            texts.append(text)
    if run:
        texts += _quads_texts(run, form)
    return texts


def _quads_texts(payloads: list[bytes], form: Callable[[bytes], bytes] | None) -> list[str]:
    deletes, adds, gone = merge_quad_changes(
        [form(payload) for payload in payloads] if form else _canonicalise_if_merged(payloads)
    )
    texts: list[str] = []
    if deletes:
        texts.append(f"DELETE DATA {{{_group_with_graphs(deletes)[0]}}}")
    grouped, graphs = _group_with_graphs(adds)
    if adds:
        texts.append(f"INSERT DATA {{{grouped}}}")
    # Where an engine keeps empty graphs, a quad that was added and deleted leaves its graph empty. Whether the graph
    # exists must not depend on which transactions were merged: CREATE and DROP of a later one would show it.
    if gone:
        left = {split_graph(quad)[1] for quad in gone} - graphs - {b""}
        texts += [f"CREATE SILENT GRAPH {graph.decode()}" for graph in sorted(left)]
    return texts


def group_by_graph(lines: Sequence[bytes]) -> str:
    """N-Quads lines as the inside of ``DELETE DATA { }``."""
    return _group_with_graphs(lines)[0]


def _group_with_graphs(lines: Sequence[bytes]) -> tuple[str, set[bytes]]:
    """N-Quads lines as the inside of ``INSERT DATA { }``, and the named graphs that occur."""
    graphs: dict[bytes, list[bytes]] = {}
    for line in lines:
        triple, graph = split_graph(line)
        if graph in graphs:
            graphs[graph].append(triple)
        else:
            graphs[graph] = [triple]
    pieces = [
        b"GRAPH %s {%s}" % (graph, b" .\n".join(triples)) if graph else b" .\n".join(triples) + b" .\n"
        for graph, triples in graphs.items()
    ]
    return b"\n".join(pieces).decode(), graphs.keys() - {b""}
