"""Appends an entry that no worker executes: its name is all that it says, such as a restore point."""

from __future__ import annotations

from txlog.model.durability import Durability
from txlog.model.entry import KIND_SKIP
from txlog.model.errors import Refused
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.protocol.events import Submission
from txlog.runtime.master_context import MasterContext


async def append_skipped_entry(context: MasterContext, name: str) -> Txid | None:
    """Appends it, and waits until it is stable, but no longer than the write time-out: it may become so later. Returns
    its transaction, None where it has none yet. Raises the refusal of the log."""
    submission = Submission(KIND_SKIP, name, b"", content_hash(KIND_SKIP, name, b""))
    write = context.loop.write([submission], Durability.SYNCED)
    await context.durability.wait_for(write.reached, context.config.write_timeout_s)
    answer = write.answers[0] if write.answers else None
    if isinstance(answer, Refused):
        raise answer
    return None if answer is None else answer.txid
