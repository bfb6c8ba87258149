"""What a front door refuses is refused again: the chain of an archive is no signature, so a forger could write one."""

from __future__ import annotations

from txlog.archive.archive_errors import EntryRefused
from txlog.archive.block_codec import ArchivedEntry
from txlog.model.bulk_entry import decode_bulk_load
from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput
from txlog.sparql.logged_payload import check_logged_payload


def refuse_foreign(entry: ArchivedEntry) -> None:
    """:class:`EntryRefused` for an entry that no master has accepted: an update that reads other addresses, names of
    TxLog's own, payloads that are none. Also for a bulk load, whose data no archive has."""
    load = decode_bulk_load(entry.payload) if entry.kind == KIND_UPDATE else None
    if load is not None:
        raise EntryRefused(
            f"the entry {entry.index} ({entry.txid}) is the bulk load {load.id} of {load.quads:,} quads, which are in "
            "no archive; restore from a backup that was taken behind it, or to a moment before it"
        )
    try:
        check_logged_payload(entry.kind, entry.payload)
    except BadInput as wrong:
        raise EntryRefused(
            f"the entry {entry.index} ({entry.txid}) holds what no master accepts: {wrong}; compare the archive with "
            "another copy, and find out who wrote it"
        ) from None
