"""Which transactions have reached which durability level, as it is reported to clients (rule 16)."""

from __future__ import annotations

from collections.abc import Sequence

from txlog.model.ids import Txid
from txlog.protocol.events import ConfiguredMember, DurabilityMarks
from txlog.protocol.log.log_state import LogState
from txlog.protocol.replication.peer_progress import PeerProgress


def compute_marks(
    last: DurabilityMarks,
    agreement: LogState,
    peers: list[PeerProgress],
    node: str,
    configured: tuple[ConfiguredMember, ...],
) -> DurabilityMarks:
    """The marks of this instant; ``last`` itself when nothing has changed."""
    own, synced, stable = agreement.last_own_seq, agreement.own_synced, agreement.stable
    if not agreement.view.epoch:  # a snapshot, of which the first view has to show that it is of this log
        stable = 0
    quorum_index = min(last.quorum_index, stable)
    if not agreement.installed:
        quorum = last.quorum
    elif own == synced and _view_is_complete(peers, node, configured):
        quorum, quorum_index = own, stable
    else:  # what is stable in a smaller view may be at less than half of what is configured
        quorum = max(_quorum_seq(agreement, peers, node, configured), last.quorum)
        if quorum_index < stable and _is_quorum({node, *(peer.node for peer in peers)}, configured):
            quorum_index = stable
    log = agreement.log_index.length if agreement.installed else stable  # no use of a base before its install
    if (own, quorum, synced, log, stable, quorum_index) == last:
        return last
    return DurabilityMarks(own, quorum, synced, log, stable, quorum_index)


def is_held_by_quorum(
    agreement: LogState, peers: Sequence[PeerProgress], node: str, configured: Sequence[ConfiguredMember], txid: Txid
) -> bool:
    """Whether a transaction of any master is persisted on more than half of all configured weight: by this master,
    which the caller has verified, and by members of its view that report it. What a master outside once held does not
    count."""
    slot = agreement.slots.get(txid.origin)
    holders = {node}
    if slot is not None and agreement.installed:
        holders |= {p.node for p in peers if p.fault is None and p.held_seq(slot) >= txid.seq}
    return _is_quorum(holders, configured)


def _is_quorum(nodes: set[str], configured: Sequence[ConfiguredMember]) -> bool:
    """Whether these masters have more than half of all configured weight."""
    return 2 * sum([m.weight for m in configured if m.node in nodes]) > sum([m.weight for m in configured])


def _view_is_complete(peers: list[PeerProgress], node: str, configured: tuple[ConfiguredMember, ...]) -> bool:
    """Whether all configured masters are in the view. Equal counts do not prove it: a master that removes itself is in
    its view, and is not configured any more."""
    if len(peers) + 1 != len(configured):
        return False
    here = {peer.node for peer in peers}
    return all(member.node == node or member.node in here for member in configured)


def _quorum_seq(
    agreement: LogState, peers: list[PeerProgress], node: str, configured: tuple[ConfiguredMember, ...]
) -> int:
    """The last own seq persisted on more than half of all configured weight."""
    slot = agreement.slots[agreement.own.origin]
    weight_of = {m.node: m.weight for m in configured}
    total, mine = sum(weight_of.values()), weight_of.get(node, 0)
    weights = [(agreement.last_own_seq, mine)]
    weights += [(max(p.held_seq(slot), p.held_of_mine), weight_of.get(p.node, 0)) for p in peers]
    most = 0
    for seq, _ in weights:
        if seq > most and 2 * sum(weight for held, weight in weights if held >= seq) > total:
            most = seq
    return most
