"""A store that executes nothing proves nothing against a transaction (decision 113): on real stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from log_in_memory import ManualClock, MemoryLog
from oxigraph_process import ADAPTER, BINARY, OxigraphProcess

from txlog.apply import WorkerState, apply_up_to
from txlog.model.entry import KIND_QUADS
from txlog.model.entry_effects import EntryEffect, encode_effects
from txlog.model.synchronous_entry import KIND_DECISION
from txlog.workers.adapter import WorkerRequest, WorkerResponse
from txlog.workers.http_transport import HttpTransport

FILE_BLOCKS = 4096
"""Blocks of 512 bytes that one file of the store may have."""


class FullDisk(OxigraphProcess):
    """Its files cannot grow beyond :data:`FILE_BLOCKS`: a write fails as on a full disk, and a read does not."""

    def told(self) -> list[str]:
        serve = f"{BINARY} serve -l {self.folder} -b 127.0.0.1:{self.port}"
        return ["/bin/sh", "-c", f"trap '' XFSZ; ulimit -f {FILE_BLOCKS}; exec {serve}"]


class Gateway:
    """A proxy that refuses the updates with this text in them, and lets everything else pass."""

    def __init__(self, url: str, text: bytes, status: int) -> None:
        self._http, self._text, self._status = HttpTransport(url), text, status
        self.url = url

    def send(self, request: WorkerRequest) -> WorkerResponse:
        if request.path == "/update" and self._text in request.body:
            return WorkerResponse(self._status, {}, b"refused by the gateway")
        return self._http.send(request)

    def settled(self) -> bool:
        return True


@pytest.fixture
def full(tmp_path: Path) -> Iterator[FullDisk]:
    process = FullDisk(tmp_path / "full")
    yield process
    process.kill()


def large(log: MemoryLog, count: int) -> None:
    """One transaction that does not fit into the files of the store."""
    log.add(*(f'<urn:s:{n}> <urn:p> "{"x" * 200}" <urn:g> .' for n in range(count)))


@pytest.mark.parametrize("commit", [False, True])
def test_a_full_disk_blames_no_transaction(full: FullDisk, commit: bool) -> None:
    log = MemoryLog()
    log.add("<urn:s> <urn:p> <urn:o> <urn:g> .")
    at = apply_up_to(ADAPTER, full.transport, log, 1).position
    large(log, 15_000)
    if commit:
        payload = log.entries.pop().payload
        log.hashes.pop()
        several = [
            EntryEffect("us-1", 9, 1, KIND_QUADS, payload),
            EntryEffect("us-1", 9, 2, KIND_QUADS, b"A <urn:b> <urn:p> <urn:o> .\n"),
        ]
        log.append(KIND_DECISION, encode_effects(several))
    held = None
    for _ in range(3):
        found = apply_up_to(ADAPTER, full.transport, log, 2, budget_s=0.5, held=held)
        held = found.foreign_lock
        assert (found.state, found.refused, found.position) == (WorkerState.BLOCKED, None, at)
        assert found.error is not None
        assert "cannot execute updates" in found.error


@pytest.mark.parametrize("status", [401, 403, 404, 413, 429, 507])
def test_what_a_proxy_refuses_blames_no_transaction(worker: OxigraphProcess, status: int) -> None:
    log = MemoryLog()
    log.add("<urn:s> <urn:p> <urn:o> <urn:g> .")
    at = apply_up_to(ADAPTER, worker.transport, log, 1).position
    log.add("<urn:s> <urn:p> <urn:large> <urn:g> .")
    gateway = Gateway(worker.url, b"<urn:large>", status)
    found = apply_up_to(ADAPTER, gateway, log, 2, clock=ManualClock())
    assert (found.state, found.refused, found.position) == (WorkerState.BLOCKED, None, at)
    assert not worker.system().claims
    assert apply_up_to(ADAPTER, worker.transport, log, 2).state is WorkerState.WORKING


@pytest.mark.parametrize(
    "text",
    [
        b"CREATE GRAPH <urn:txlog:system:2:",  # whatever would take effect: a trial of the same operations passes
        b"DROP GRAPH <urn:txlog:system:1:",  # whatever moves the position, trials and empty requests, too
    ],
)
def test_a_store_that_executes_nothing_at_all_blames_no_transaction(worker: OxigraphProcess, text: bytes) -> None:
    log = MemoryLog()
    log.add("<urn:s> <urn:p> <urn:o> <urn:g> .")
    apply_up_to(ADAPTER, worker.transport, log, 1)
    log.add("<urn:s> <urn:p> <urn:two> <urn:g> .")
    found = apply_up_to(ADAPTER, Gateway(worker.url, text, 500), log, 2, budget_s=0.1)
    assert (found.state, found.refused) == (WorkerState.BLOCKED, None)
    assert found.error is not None
    assert "it goes on by itself" in found.error
