"""Proves that the entries of a page are those of the log: their hashes are computed again. Pure."""

from __future__ import annotations

from txlog.archive.archive_errors import OlderMaster
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.backup.backup_errors import OtherCluster
from txlog.model.entry_effects import NOOP_ROLLED_BACK
from txlog.model.errors import PeerFault
from txlog.model.hashes import chain_hash, content_hash, origin_tag
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    SYNCHRONOUS_AND_DECISION,
    SYNCHRONOUS_KINDS,
    DecisionKind,
    decode_decision,
    key_error,
)
from txlog.wire.log_page import LogPage, PageEntry

NOOP_BY_KEY = "key "
"""Prefix of the reason of an entry whose key another transaction has. A skip is an entry of its own."""


def prove_page(master: str, page: LogPage, after: Node, cluster: bytes) -> list[ArchivedEntry]:
    """The entries of a page with keys that follow ``after``. :class:`PeerFault` names ``master`` when the chain of the
    entries is not the one that it says, or an entry is not stable. Also raises :class:`OlderMaster` and
    :class:`OtherCluster`."""
    if not page.has_keys:
        raise OlderMaster(f"{master} serves no keys of entries; update this master")
    if page.cluster != cluster:
        raise OtherCluster(f"{master} belongs to cluster {page.cluster.hex()}, the archive to {cluster.hex()}")
    if (page.after.index, page.after.hash) != (after.index, after.hash):
        raise PeerFault(master, "ChainBroken", f"a page after {page.after.index}, not after {after}")
    if page.entries and page.entries[-1].index > page.stable_index:
        raise PeerFault(
            master, "NotStable", f"index {page.entries[-1].index} is above the stable index {page.stable_index}"
        )
    made: list[ArchivedEntry] = []
    value, origin, tag = after.hash, Origin("", 0), b""
    for e in page.entries:
        if e.birth != origin.birth or e.node != origin.node:
            origin = Origin(e.node, e.birth)
            tag = origin_tag(origin)
        value = chain_hash(value, e.stamp, tag, e.seq, content_hash(e.kind, e.key, e.payload))
        if value != e.hash:
            raise PeerFault(master, "ChainBroken", f"the entry at index {e.index} is not the one that its hash names")
        is_noop = e.noop.startswith(NOOP_BY_KEY)
        passed_over, verdict = _read_effects(master, e) if e.kind in SYNCHRONOUS_AND_DECISION else ((), "")
        made.append(
            ArchivedEntry(
                *(e.index, value, origin, e.seq, e.stamp, e.first_stamp, e.kind, is_noop, e.key, e.payload),
                passed_over,
                verdict,
            )
        )
    return made


def _read_effects(master: str, entry: PageEntry) -> tuple[tuple[Txid, ...], str]:
    """``passed_over`` and ``verdict`` of a synchronous transaction or a decision."""
    wrong = key_error(entry.kind, entry.key)
    if wrong:
        raise PeerFault(master, "Malformed", f"the entry at index {entry.index}: {wrong}")
    if entry.kind in SYNCHRONOUS_KINDS:
        if entry.effects or entry.noop.startswith(NOOP_BY_KEY):
            return (), DecisionKind.COMMIT.value
        return (), DecisionKind.ROLLBACK.value if entry.noop == NOOP_ROLLED_BACK else ""
    assert entry.kind == KIND_DECISION, entry.kind
    decision = decode_decision(entry.key)
    if decision.verdict is DecisionKind.ROLLBACK:
        return (), ""
    effects = {effect.txid for effect in entry.effects}
    return tuple(txid for txid in decision.names() if txid not in effects), ""
