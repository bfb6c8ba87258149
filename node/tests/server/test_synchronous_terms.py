"""The door keeps the terms of usual writes, and not of those that name many graphs."""

from __future__ import annotations

import tracemalloc

from txlog.model.configuration import Configuration, Master
from txlog.model.entry import KIND_QUADS
from txlog.model.hashes import content_hash
from txlog.model.quads import encode_quads
from txlog.model.synchronous import NO_REQUEST, GraphRule
from txlog.model.synchronous_entry import KIND_SYNCHRONOUS_QUADS
from txlog.protocol.events import Submission
from txlog.server.frontdoor.synchronous_door import SynchronousDoor

_WRITES = 60
_GRAPHS = 200


def write(number: int, graphs: int) -> Submission:
    lines = [f"<http://e/s> <http://e/p> <http://e/o> <http://e/accounts/{number}-{at}>" for at in range(graphs)]
    payload = encode_quads([], [f"{line} .".encode() for line in lines])
    return Submission(KIND_QUADS, "", payload, content_hash(KIND_QUADS, "", payload))


def test_writes_of_many_graphs_leave_nothing_behind() -> None:
    rules = [GraphRule("http://e/accounts/*")]
    configuration = Configuration([Master("uk-1", "uk", 1)], False, 1000, graphs=rules)
    door = SynchronousDoor(lambda: configuration)
    writes = [write(number, _GRAPHS) for number in range(_WRITES)]
    assert door.convert(writes[0], NO_REQUEST).kind == KIND_SYNCHRONOUS_QUADS
    tracemalloc.start()
    try:
        for one in writes:
            assert door.convert(one, NO_REQUEST).kind == KIND_SYNCHRONOUS_QUADS
        assert tracemalloc.get_traced_memory()[0] < 64 * _WRITES * _GRAPHS // 10
    finally:
        tracemalloc.stop()
