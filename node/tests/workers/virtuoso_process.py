"""A real Virtuoso, with its database on disk, that a test can kill and start again."""

from __future__ import annotations

import time

import pyoxigraph
from server_process import START_S, StoreProcess

from txlog.local.engines.virtuoso_server import READY_PATH, obtain_virtuoso, prepare_virtuoso, virtuoso_command
from txlog.model.entry import KIND_UPDATE
from txlog.workers.adapter import MarkerPosition, StoreOperation, WorkerRequest, WorkerResponse
from txlog.workers.marker_names import marker_name
from txlog.workers.virtuoso import ProcedureStep, VirtuosoAdapter, encode_steps, steps_for_operations

ADAPTER = VirtuosoAdapter()


class VirtuosoProcess(StoreProcess):
    adapter = ADAPTER
    query_path = ADAPTER.query_path
    update_path = ADAPTER.update_path
    data_path = ADAPTER.data_path
    keeps_all = False

    def told(self) -> list[str]:
        prepare_virtuoso(self.folder, self.port, buffers=4_000)
        return list(virtuoso_command(obtain_virtuoso(), self.folder))

    def start(self) -> None:
        super().start()
        deadline = time.monotonic() + START_S
        while True:
            # It listens before it has read the procedures.
            if self.transport.send(WorkerRequest("GET", READY_PATH)).ok:
                return
            assert time.monotonic() < deadline, "the procedures are not there"
            time.sleep(0.02)

    def update(self, text: str) -> WorkerResponse:
        return self.send(encode_steps(steps_for_operations([StoreOperation(KIND_UPDATE, text.encode())])))

    def ask(self, text: str, accept: str = "application/sparql-results+xml") -> WorkerResponse:
        return self.send(ADAPTER.query(text, accept))

    def select(self, text: str) -> list[str]:
        """As the others' lines of CSV."""
        answer = self.ask(text)
        assert answer.ok, answer.text
        found = pyoxigraph.parse_query_results(answer.body, pyoxigraph.QueryResultsFormat.XML)
        assert isinstance(found, pyoxigraph.QuerySolutions)
        return sorted(",".join("" if term is None else term.value for term in row) for row in found)

    def plant(self, marker: MarkerPosition) -> WorkerResponse:
        return self.send(encode_steps([ProcedureStep("enter", marker_name(marker))]))

    def settle(self) -> None:
        assert self.send(ADAPTER.checkpoint()).ok

    def clear(self) -> None:
        assert self.send(ADAPTER.clear()).ok
        self.settle()
