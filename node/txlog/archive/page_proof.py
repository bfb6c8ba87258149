"""Proves that the entries of a page are those of the log: their hashes are computed again. Pure."""

from __future__ import annotations

from txlog.archive.archive_errors import OlderMaster
from txlog.archive.block_codec import ArchivedEntry
from txlog.archive.file_name import Node
from txlog.backup.backup_errors import OtherCluster
from txlog.model.errors import PeerFault
from txlog.model.hashes import chain_hash, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.wire.log_page import LogPage

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
        made.append(
            ArchivedEntry(e.index, value, origin, e.seq, e.stamp, e.first_stamp, e.kind, is_noop, e.key, e.payload)
        )
    return made
