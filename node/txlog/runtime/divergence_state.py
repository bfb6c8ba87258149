"""The digests that pipelines report of the content of workers, and the findings of their comparison."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from txlog.divergence.detector import DivergenceDetector, ObservedWorker, append_digest
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.errors import BadInput
from txlog.model.graph_digests import GRAPHS_MAX, KINDS, GraphDigests
from txlog.runtime.worker_state import KnownWorkers, RegisteredWorker
from txlog.wire.divergence_report import DivergenceFinding

DivergenceListener = Callable[[str, DivergenceFinding | None], None]
"""Called for each finding (``data centre/worker``) that is new or has changed; with None when it is lifted."""

_digest_decoder = msgspec.json.Decoder(GraphDigests)


class DivergenceState:
    """This master's own judgement of all workers that it knows of."""

    def __init__(self, workers: KnownWorkers, listener: DivergenceListener) -> None:
        self._workers = workers
        self._listener = listener
        self._detector = DivergenceDetector()

    def add_digests(self, worker: RegisteredWorker, body: bytes) -> bool:
        """Take the digests of a worker's content at one position. Returns whether they are new.
        :class:`BadInput` for malformed ones."""
        try:
            digests = _digest_decoder.decode(body)
        except DECODE_ERRORS as wrong:
            raise BadInput(f"a look at a worker: {wrong}") from None
        if digests.kind not in KINDS:
            raise BadInput(f"kind {digests.kind[:40]!r}: one of {', '.join(KINDS)}")
        if digests.graphs is not None and len(digests.graphs) > GRAPHS_MAX:
            raise BadInput(f"{len(digests.graphs)} graphs: at most {GRAPHS_MAX}, else none")
        known = append_digest(worker.looks, digests)
        if known == worker.looks:
            return False
        worker.looks = known
        return True

    def detect(self) -> None:
        """Compare the digests of all workers, and notify the listener of each finding that is new or lifted."""
        known = list(self._workers.all())
        new, lifted = self._detector.judge(
            [
                ObservedWorker(
                    name,
                    worker.engine,
                    [] if worker.is_unordered else worker.looks,
                    worker.txid if worker.state == "Blocked" else None,
                    worker.index,
                )
                for name, worker in known
            ]
        )
        for name, worker in known:
            worker.divergence = self._detector.finding_of(name)
        for name, finding in new:
            self._listener(name, finding)
        for name in lifted:
            self._listener(name, None)
