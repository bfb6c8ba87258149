"""Why an applier cannot send the next entries to its worker."""

from __future__ import annotations

from txlog.apply.outcome import Refusal
from txlog.apply.suspect import Fault, Suspect
from txlog.model.entry import LogEntry
from txlog.model.ids import Txid
from txlog.workers.adapter import EMPTY_MARKER, LoadMarker, WorkerResponse


class PositionChanged(Exception):
    """The worker is not at the expected marker: read its marker again."""


class LockContended(Exception):
    """Another applier claimed at the same moment, or took the lock away."""


class TransactionRefused(Exception):
    """The worker answers this transaction, sent alone, with an error."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(
            f"refuses {refusal.txid} at index {refusal.index} with {refusal.status}: {refusal.body[:500]}; "
            "mend the worker, or pass the transaction over with `txlog skip`"
        )
        self.refusal = refusal


class StoreUnfit(Exception):
    """The worker refuses what it should execute, and that proves nothing against a transaction: its disk is full, or a
    proxy in between refuses the request."""

    def __init__(self, url: str, response: WorkerResponse) -> None:
        super().__init__(
            f"{url} cannot execute updates: it answers {response.status}: {response.text[:500]}; mend the store or "
            "what is before it (its disk, its memory, a proxy); it goes on by itself"
        )


class TransactionHarmful(Exception):
    """The worker does not survive this transaction."""

    def __init__(self, index: int, txid: Txid, fault: Fault, suspect: Suspect) -> None:
        how = "its process ends" if fault is Fault.ENDED else "it does not answer in time"
        times = f"{max(suspect.ended, suspect.stalled)} times, also with this transaction alone"
        why = f"does not survive {txid} at index {index}: {how}, {times}"
        super().__init__(f"{why}; the log skips it when no worker does, or after `txlog skip`")
        self.refusal = Refusal(index, txid, None, why)


class BatchLoading(Exception):
    """A batch loads the net effect of the log into this worker."""

    def __init__(self, url: str, loading: LoadMarker) -> None:
        super().__init__(
            f"a batch brings {url} up to index {loading.position.index}; wait until it is there, or until another one "
            "repeats it"
        )
        # The marker up to which the worker has certainly executed the log; the log is needed from there.
        self.since = None if loading.since == EMPTY_MARKER else loading.since
        self.loading = loading


class BulkLoadDue(Exception):
    """The next entry is a bulk load. The pipeline puts it into the worker in another way than operations."""

    def __init__(self, entry: LogEntry) -> None:
        super().__init__(f"the bulk load at index {entry.index} is next")
        self.entry = entry
