"""Deletes a quad of a throw-away store, as a store that loses data would."""

from __future__ import annotations

import time

from txlog.backup.dataset_load import LOCK_TIMEOUT_S, RestoreTarget
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.worker_lock import WorkerLock
from txlog.model.entry import KIND_QUADS
from txlog.rehearsal.verdict import PlacedDigest
from txlog.workers.adapter import ApplyResult, LockAction, StoreOperation, UnexpectedAnswer
from txlog.workers.digest import digest_worker, stream_statements


def delete_one_quad(store: RestoreTarget, found: PlacedDigest) -> PlacedDigest:
    """What the store holds afterwards. A store without quads stays as it is."""
    quad = _first_quad(store)
    if not quad:
        return found
    adapter, transport = store.adapter, store.transport
    (marker,) = read_system_graphs(adapter, transport).markers
    token, lock = 0, LockAction.NONE
    if not adapter.capabilities.serial_updates:
        token, lock = WorkerLock(store, time.monotonic() + LOCK_TIMEOUT_S).claim(), LockAction.CONFIRM
    moved = marker._replace(fence=marker.fence + 1)
    operation = StoreOperation(KIND_QUADS, b"D " + quad + b"\n")
    answer = transport.send(adapter.apply([operation], marker, moved, lock=lock, token=token))
    if adapter.parse_apply_result(answer) is not ApplyResult.APPLIED:
        raise UnexpectedAnswer("deleting a quad", answer)
    return found._replace(digest=digest_worker(adapter, transport))


def _first_quad(store: RestoreTarget) -> bytes:
    """A line of N-Quads without its newline; empty for a store without quads of its own."""
    rest = b""
    with stream_statements(store.adapter, store.transport) as chunks:
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line and b"<urn:txlog:system" not in line:
                    return line
    return b""
