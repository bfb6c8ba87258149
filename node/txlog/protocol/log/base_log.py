"""The log of the next view beside this master's log: what is missing for it, its hashes, its stamps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_leaf, chain_next
from txlog.model.ids import Origin, Txid
from txlog.model.records import AbandonedBranch, ReassignedStamps
from txlog.model.synchronous_entry import KINDS_WITH_OWN_KEYS
from txlog.model.view import View
from txlog.protocol.log.incoming_queue import OriginQueue
from txlog.protocol.log.log_index import LogIndex

Queues = Mapping[Origin, OriginQueue]
"""The queue of each origin."""


def last_seqs(spans: list[Span], waiting: list[ReassignedStamps]) -> dict[Origin, int]:
    """The last seq of each origin in these spans."""
    needed: dict[Origin, int] = {}
    for one in spans:
        origin = Origin(one.node, one.birth)
        needed[origin] = max(needed.get(origin, 0), one.first_seq + one.count - 1)
    for several in waiting:
        origin = Origin(several.node, several.birth)
        needed[origin] = max(needed.get(origin, 0), several.first_seq + len(several.stamps) - 1)
    return needed


def missing_spans(queues: Queues, needed: Mapping[Origin, int]) -> list[Span]:
    """The transactions up to these seqs that are not persisted here yet."""
    found: list[Span] = []
    for origin, last in sorted(needed.items()):
        queue = queues.get(origin)
        held = queue.held if queue is not None else 0
        if held < last:
            found.append(Span(origin.node, origin.birth, held + 1, last - held))
    return found


def base_fits(
    queues: Queues, history: LogIndex, view: View, cut: int, spans: list[Span], waiting: list[ReassignedStamps]
) -> bool:
    """Whether the base and the queue of a view continue every origin of this log without a gap after ``cut``, and the
    view has a slot for each. Checked before any of it is used (rule 32).

    The view gives no stamp to what a member's queue holds beyond them: it came after this master's report. Its stamps
    have to lie above those of the view, or it could enter the log behind greater ones (rule 13)."""
    reached = {origin: history.seq_within(slot, cut) for slot, origin in enumerate(history.origins)}
    parts = [(span.node, span.birth, span.first_seq, span.count) for span in spans]
    parts += [(several.node, several.birth, several.first_seq, len(several.stamps)) for several in waiting]
    for node, birth, first_seq, count in parts:
        origin = Origin(node, birth)
        if first_seq != reached.get(origin, 0) + 1:
            return False
        reached[origin] = first_seq + count - 1
    members = {m.origin for m in view.members}
    origins = [Origin(*one) for one in view.origins]
    known = dict(zip(origins, view.known_seqs, strict=False))
    if any(seq != reached.get(origin, 0) for origin, seq in known.items() if origin not in members):
        return False
    floors = {Origin(w.node, w.birth): max(view.floor, max(w.stamps)) for w in waiting if w.stamps}
    for one in members & queues.keys():
        if not _grows_above(floors.get(one, view.floor), queues[one], reached.get(one, 0) + 1):
            return False
    return {origin for origin, seq in reached.items() if seq} <= set(origins)


def _grows_above(floor: int, queue: OriginQueue, first_seq: int) -> bool:
    """Whether the stamps from ``first_seq`` on lie above ``floor``, each above the one before it."""
    stamps = queue.stamps(first_seq, queue.held) if queue.held >= first_seq else []
    return all(before < stamp for before, stamp in pairwise([floor, *stamps]))


def base_chain_hashes(queues: Queues, value: bytes, spans: list[Span], stamps: list[int]) -> bytes | None:
    """The chain hashes of entries with these stamps after an entry with chain hash ``value``, concatenated; None when
    their keys do not grow (rule 13)."""
    cells: list[bytes] = []
    at = 0
    last: tuple[int, Origin] = (0, Origin("", 0))
    for span in spans:
        origin = Origin(span.node, span.birth)
        queue = queues[origin]
        for seq in range(span.first_seq, span.first_seq + span.count):
            if (stamps[at], origin) <= last:
                return None
            last = (stamps[at], origin)
            value = chain_next(value, chain_leaf(stamps[at], queue.tag, seq, queue.content(seq)))
            cells.append(value)
            at += 1
    return b"".join(cells)


def common_prefix_end(history: LogIndex, cut: int, hashes: bytes) -> int:
    """The last index at which the log has the chain hashes of a base after ``cut``. No later hash is equal."""
    low, high = cut, min(history.length, cut + len(hashes) // HASH_BYTES)
    while low < high:
        middle = (low + high + 1) // 2
        end = (middle - cut) * HASH_BYTES
        if history.hash_at(middle) == hashes[end - HASH_BYTES : end]:
            low = middle
        else:
            high = middle - 1
    return low


def stamps_of(queues: Queues, spans: list[Span]) -> list[int]:
    """The stamps that these transactions have now."""
    stamps: list[int] = []
    for span in spans:
        queue = queues[Origin(span.node, span.birth)]
        stamps += queue.stamps(span.first_seq, span.first_seq + span.count - 1)
    return stamps


def restamp(queues: Queues, spans: list[Span], stamps: list[int]) -> list[ReassignedStamps]:
    """Give the entries of a base their stamps. Returns the entries whose stamps changed."""
    changed: list[ReassignedStamps] = []
    at = 0
    for span in spans:
        queue = queues[Origin(span.node, span.birth)]
        new = stamps[at : at + span.count]
        at += span.count
        if queue.stamps(span.first_seq, span.first_seq + span.count - 1) != new:
            queue.restamp(span.first_seq, new)
            changed.append(ReassignedStamps(span.node, span.birth, span.first_seq, new))
    return changed


def keys_in_log_after(queues: Queues, history: LogIndex, index: int) -> list[tuple[str, Txid]]:
    """The idempotency keys of the entries after ``index``, in the order of the log. No such entry is final."""
    rows: list[tuple[int, str, Txid]] = []
    for queue in queues.values():
        for seq in queue.keyed_in_log():
            at = history.index_of(queue.origin, seq)
            if at > index and queue.kind(seq) not in KINDS_WITH_OWN_KEYS:
                rows.append((at, queue.key(seq), Txid(queue.origin, seq)))
    return [(key, txid) for _, key, txid in sorted(rows)]


def abandoned_after(history: LogIndex, index: int, keys: list[tuple[str, Txid]], end: int) -> AbandonedBranch:
    """The entries of a log after ``index`` up to ``end``, as a branch. ``keys``: their idempotency keys."""
    value = history.hash_at(index) if index else b""
    return AbandonedBranch(index, value, history.spans(index, end), history.hashes(index, end), keys)
