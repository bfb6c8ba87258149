"""What was proved of a worker is forgotten with it: a later one of the same name is another store."""

from __future__ import annotations

import msgspec
from test_a_log_that_is_cut import END, Split, split

from txlog.runtime.worker_notices import WorkerNotice
from txlog.runtime.worker_state import RegisteredWorker, WorkerMarker

__all__ = ["split"]


async def test_names_of_removed_workers_of_another_data_centre_do_not_pile_up(split: Split) -> None:
    place = split.durability.position_at(END)
    marker = WorkerMarker(place.epoch, END, place.hash.hex())
    for at in range(100):
        worker = RegisteredWorker(f"w-{at}", position=marker, state="Working", reported_at=1.0)
        split.registry.on_notice(msgspec.json.encode(WorkerNotice("us", [worker])), "us-1")
        assert set(split.registry._proved) == {"w-1", f"us/w-{at}"}
    split.registry.on_notice(msgspec.json.encode(WorkerNotice("us", [])), "us-1")
    assert set(split.registry._proved) == {"w-1"}
    split.registry.remove("w-1")
    assert not split.registry._proved
