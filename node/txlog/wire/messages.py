"""What masters say to each other: MessagePack behind one byte of format version.

==============  ===================  =========================================================================
message         sender → receiver    meaning
==============  ===================  =========================================================================
``Who``         starting → all       what have you heard of me? (protocol section 1, rule 2)
``Known``       any → starting       the births of your node id that I have heard, and my own
``Propose``     first → all          this is view 1 (founding)
``Accepted``    member → first       durable here
``Install``     first → all          everybody has accepted it
``Post``        member → member      one snapshot (rule 7), the sender's new transactions in front of it
``FetchRuns``   any → holder         send me transactions that I miss
``Runs``        holder → any         here they are; checked by content hash before use (rule 18)
``FetchOrder``  repairing → any      the order of the log between two indexes (rule 28)
``Order``       any → repairing      the answer; checked by chain hash before use
``Notice``      any → any            opaque to the protocol: what the masters' shells tell each other
==============  ===================  =========================================================================

Posts name members by their place in the view (*slot*), so that a vector is a list of numbers.
"""

from __future__ import annotations

import msgspec

from txlog.model.entry import Run, Span
from txlog.model.errors import PeerFault
from txlog.model.view import View

FORMAT = 1
"""On the wire. A message of another format is refused by name, never guessed at."""


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """One master's state in one instant (rule 7), as itself or a relay tells it.

    ``number`` counts posts since ``start``. ``counter`` is a promise: no transaction of this master will ever
    have a stamp at or below it, except those up to ``own_seq``. ``held[slot]``: it holds every transaction of
    that member up to this seq, with payload, or has it in its log. ``heard``: bit per slot, the members that it
    has heard within its round time-out. ``full``: it cannot store."""

    slot: int
    birth: int
    start: int
    number: int
    log_index: int
    log_hash: bytes
    counter: int
    own_seq: int
    held: list[int]
    heard: int
    full: bool


class Who(msgspec.Struct, array_like=True, frozen=True, tag="who"):
    """``members`` is the configured list (node, data centre, weight), the same everywhere or refused by name."""

    node: str
    birth: int
    start: int
    members: list[tuple[str, str, int]]


class KnownBirth(msgspec.Struct, array_like=True, frozen=True):
    birth: int
    start: int
    seq: int
    counter: int


class Known(msgspec.Struct, array_like=True, frozen=True, tag="known"):
    """``of_you``: what the sender has heard of the asker. ``accepted``/``installed``: the sender's own view."""

    node: str
    birth: int
    start: int
    members: list[tuple[str, str, int]]
    of_you: list[KnownBirth]
    accepted: View | None
    installed: bool


class Propose(msgspec.Struct, array_like=True, frozen=True, tag="propose"):
    view: View


class Accepted(msgspec.Struct, array_like=True, frozen=True, tag="accepted"):
    node: str
    birth: int
    view: View


class Install(msgspec.Struct, array_like=True, frozen=True, tag="install"):
    view: View


class Post(msgspec.Struct, array_like=True, frozen=True, tag="post"):
    """``ask``: answer with a post of your own. ``answers``: number of the post that this answers, else 0.
    ``order`` is the sender's log behind ``order_after``, the slot of each entry in one byte, ``order_hash`` the chain
    hash at its end: what a master that is behind needs in order to follow (it is sent only what it lacks)."""

    cluster: bytes
    epoch: int
    ballot: int
    coordinator: str
    claim: Claim
    relays: list[Claim]
    ask: bool
    answers: int
    order_after: int
    order: bytes
    order_hash: bytes
    runs: list[Run]


class FetchRuns(msgspec.Struct, array_like=True, frozen=True, tag="fetch-runs"):
    span: Span


class Runs(msgspec.Struct, array_like=True, frozen=True, tag="runs"):
    runs: list[Run]


class FetchOrder(msgspec.Struct, array_like=True, frozen=True, tag="fetch-order"):
    after: int
    upto: int


class Order(msgspec.Struct, array_like=True, frozen=True, tag="order"):
    after: int
    spans: list[Span]
    hash: bytes


class Notice(msgspec.Struct, array_like=True, frozen=True, tag="notice"):
    topic: str
    body: bytes


Message = Who | Known | Propose | Accepted | Install | Post | FetchRuns | Runs | FetchOrder | Order | Notice

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_VERSION = bytes([FORMAT])


def encode(message: Message) -> bytes:
    """One message to bytes."""
    return _VERSION + _encoder.encode(message)


def decode(peer: str, data: bytes) -> Message:
    """Bytes to a message; :class:`PeerFault` names ``peer`` and whether the format is unknown or broken."""
    if data[:1] != _VERSION:
        raise PeerFault(
            peer, "UnknownFormat", f"message format {data[:1].hex() or 'empty'}, this master speaks {FORMAT}"
        )
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise PeerFault(peer, "Malformed", f"{wrong}") from None
