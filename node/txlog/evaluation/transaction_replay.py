"""An open transaction, carried out again on other data: it would have been the same there if its digest is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyoxigraph as ox

from txlog.evaluation.dataset_copy import DatasetCopy
from txlog.evaluation.literal_forms import decode_text
from txlog.evaluation.pipe_protocol import CountRequest, MatchRequest, QueryRequest, TransactionStep
from txlog.evaluation.read_operations import match_quads, start_query
from txlog.workers.adapter import StoreOperation

_TERMS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|<[^<>]*>|_:[^\s.]+')


def replay_steps(copy: DatasetCopy, steps: Sequence[TransactionStep]) -> bytes:
    """A digest of all that the steps read and change, in their order; ``copy`` has their changes afterwards. The order
    of rows does not count, nor do the names of blank nodes. A change that reads nothing counts nothing: it is the same
    everywhere."""
    digest = hashlib.sha256()
    for step in steps:
        for line in _outcome(copy, step):
            digest.update(line.encode() + b"\n")
        digest.update(b"\n")
    return digest.digest()


def _outcome(copy: DatasetCopy, step: TransactionStep) -> Iterable[str]:
    if step.read is not None:
        return sorted(_unlabelled(line) for line in _read(copy, step.read))
    if step.update is None:
        copy.apply_operations((StoreOperation(step.kind, step.change),), None)
        return ()
    deleted, added = copy.execute_with_changes(step.update)
    return [
        *sorted(f"D {_unlabelled(str(quad))}" for quad in deleted),
        *sorted(f"A {_unlabelled(str(quad))}" for quad in added),
    ]


def _read(copy: DatasetCopy, read: QueryRequest | MatchRequest | CountRequest) -> Iterator[str]:
    if isinstance(read, MatchRequest):
        yield from map(str, match_quads(copy, read.terms, read.graphs))
    elif isinstance(read, CountRequest):
        yield str(sum(1 for _ in match_quads(copy, (None, None, None), read.graphs)))
    else:
        found = start_query(copy, read)
        if isinstance(found, ox.QueryBoolean):
            yield str(bool(found))
        elif isinstance(found, ox.QuerySolutions):
            for row in found:
                yield " ".join("-" if term is None else str(term) for term in row)
        else:
            yield from map(str, found)


def _unlabelled(line: str) -> str:
    line = decode_text(line)
    return _TERMS.sub(lambda term: "_:" if term[0].startswith("_:") else term[0], line) if "_:" in line else line
