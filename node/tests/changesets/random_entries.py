"""Random entries of the log, and what is wrong with the change sets of a capture store that executes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyoxigraph as ox

from e2e.conformance.determinism.random_updates import RandomUpdates
from txlog.changesets import ChangeSet, apply_change, apply_entry
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput, Refused
from txlog.sparql import prepare_update
from txlog.workers.adapter import StoreOperation
from txlog.workers.update_batches import OPERATION_SEPARATOR, update_texts

NOW = "2026-01-01T00:00:00Z"
QUADS_MAX = 150
Apply = Callable[[ox.Store, StoreOperation], ChangeSet]


DIRECTED = (
    "INSERT DATA { <x:a> <x:p> 1 , 2.50 }",
    "DELETE { ?s ?p ?o } INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "DELETE { <x:a> <x:p> 2.5 } INSERT { <x:a> <x:q> 2.500 } WHERE { }",
    "DELETE WHERE { <x:a> ?p ?o }",
)
"""Updates that few random ones are like."""


def random_entries(seed: int, count: int) -> Iterator[StoreOperation]:
    """Entries that a master would accept: the directed ones, then random ones."""
    for text in DIRECTED:
        yield StoreOperation(KIND_UPDATE, text.encode())
    chance = random.Random(seed)
    updates = RandomUpdates(chance, drawn=0.0, triple_terms=0.05)
    while count:
        try:
            body = prepare_update(
                updates.update(), base=None, now=NOW, draw=lambda: chance.getrandbits(128), all_graphs=True
            )
        except (BadInput, Refused):
            continue
        yield StoreOperation(body.kind, body.payload)
        count -= 1


def execute_as_worker(store: ox.Store, entry: StoreOperation) -> None:
    """Execute the text that a worker gets."""
    store.update(OPERATION_SEPARATOR.join(update_texts([entry])))


def held(store: ox.Store) -> frozenset[bytes]:
    """The lines of all quads."""
    return frozenset(f"{quad} .".encode() for quad in store)


def wrong_entries(seed: int, count: int, apply: Apply = apply_entry) -> list[str]:
    """What is wrong: the text of each entry whose change set, state or inverse is not that of a worker."""
    worker, capture = ox.Store(), ox.Store()
    wrong: list[str] = []
    for entry in random_entries(seed, count):
        before = held(worker)
        execute_as_worker(worker, entry)
        after = held(worker)
        change = apply(capture, entry)
        is_right = (set(change.deletes), set(change.adds)) == (before - after, after - before)
        if is_right and held(capture) == after:
            apply_change(capture, change.inverse())
            is_right = held(capture) == before
            apply_change(capture, change)
        else:
            is_right = False
        if not is_right:
            wrong.append(entry.payload.decode())
        if not is_right or len(after) > QUADS_MAX:
            worker, capture = ox.Store(), ox.Store()
    return wrong
