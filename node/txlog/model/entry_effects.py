"""What workers execute at one index of the log.

An ordinary transaction takes effect at its own place. A synchronous one takes effect at the COMMIT that names it, and
several may take effect at one COMMIT. Such an entry has kind ``KIND_DECISION`` in a page for workers, and its payload
lists them: MessagePack ``[[node, birth, seq, kind, payload], …]``, in their order. A transaction that the log skips has
kind ``KIND_SKIP`` there, without a payload: a load that broke off may have executed it before.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from txlog.model.bounds import Birth, Kind, NodeId, Seq
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import CONTROL_KINDS, KIND_QUADS, KIND_SKIP, KIND_UPDATE, LogEntry
from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import KIND_DECISION, KIND_SYNCHRONOUS_QUADS, KIND_SYNCHRONOUS_UPDATE

EXECUTED_KINDS = {
    KIND_UPDATE: KIND_UPDATE,
    KIND_QUADS: KIND_QUADS,
    KIND_SYNCHRONOUS_UPDATE: KIND_UPDATE,
    KIND_SYNCHRONOUS_QUADS: KIND_QUADS,
}
"""The kind by which a worker executes a transaction, by the kind in the log."""
NOOP_SKIP = "skip"
"""``LogEntry.noop``: a stable skip names the transaction."""
NOOP_SYNCHRONOUS = "synchronous"
"""``LogEntry.noop``: a synchronous transaction that takes no effect at its own place, or a decision without effect."""
NOOP_ROLLED_BACK = "rolled-back"
"""In pages with keys: a synchronous transaction whose ROLLBACK precedes it."""
KIND_NAME_ONLY = 0
"""``EntryEffect.kind`` where a reader has asked for the names of the transactions alone."""


class EntryEffect(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A transaction that takes effect. ``kind``: ``KIND_UPDATE`` or ``KIND_QUADS``, with a payload of that kind;
    ``KIND_SKIP``: it would take effect, and is skipped. ``KIND_NAME_ONLY``: the reader has asked for no more."""

    node: NodeId
    birth: Birth
    seq: Seq
    kind: Kind
    payload: bytes

    @property
    def txid(self) -> Txid:
        """The id of the transaction."""
        return Txid(Origin(self.node, self.birth), self.seq)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[EntryEffect])


def encode_effects(effects: Sequence[EntryEffect]) -> bytes:
    """The payload of an entry at which these take effect."""
    return _encoder.encode(effects)


def decode_effects(payload: bytes) -> list[EntryEffect]:
    """The inverse of :func:`encode_effects`. :class:`BadInput` for other bytes."""
    try:
        found = _decoder.decode(payload)
    except DECODE_ERRORS as wrong:
        raise BadInput(f"not the effects of a decision: {wrong}") from None
    if any(effect.kind not in (KIND_UPDATE, KIND_QUADS, KIND_SKIP) for effect in found):
        raise BadInput("not the effects of a decision: a kind that is no update, no quads and no skip")
    return found


def find_effects(entry: LogEntry) -> list[EntryEffect]:
    """What a worker executes at this entry of a page, in order. Empty: it only moves its position."""
    if entry.noop or entry.kind in CONTROL_KINDS:
        return []
    if entry.kind == KIND_DECISION:
        found = decode_effects(entry.payload) if entry.payload else []
        return [effect for effect in found if effect.kind != KIND_SKIP]
    origin = entry.txid.origin
    return [EntryEffect(origin.node, origin.birth, entry.txid.seq, entry.kind, entry.payload)]


def skips_effect(entry: LogEntry) -> bool:
    """Whether the log skips a transaction that would take effect at this entry."""
    if entry.kind in CONTROL_KINDS:
        return False
    if entry.noop or entry.kind != KIND_DECISION or not entry.payload:
        return entry.noop == NOOP_SKIP
    return any(effect.kind == KIND_SKIP for effect in decode_effects(entry.payload))
