"""The hashes of transactions: content hash and chain hash (protocol section 1)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from txlog.model.ids import Origin

HASH_BYTES: Final = 16
CLUSTER_ID_BYTES: Final = 16
NO_HASH: Final = bytes(HASH_BYTES)
_LONG: Final = 1 << 16
_BLANK: Final = blake2b(digest_size=HASH_BYTES)
_UNNAMED: Final = tuple(b"%d 0 " % kind for kind in range(8))
"""The hash input before the payload of a transaction without a key, per kind."""


def short_hash(data: bytes) -> bytes:
    """blake2b of 16 bytes. Copying a state costs half as much as making a new one with its keyword."""
    state = _BLANK.copy()
    state.update(data)
    return state.digest()


def content_state(kind: int, key: str) -> blake2b:
    """The state of :func:`content_hash` before the payload, for a payload that arrives in parts."""
    state = _BLANK.copy()
    name = key.encode()
    state.update(b"%d %d %s" % (kind, len(name), name))
    return state


def content_hash(kind: int, key: str, payload: bytes) -> bytes:
    """16 bytes over kind, idempotency key and payload. One txid with two of these is a fatal error (rule 3)."""
    if len(payload) >= _LONG:  # not copied after the other parts
        state = content_state(kind, key)
        state.update(payload)
        return state.digest()
    if not key and 0 <= kind < 8:
        return short_hash(_UNNAMED[kind] + payload)
    name = key.encode()
    return short_hash(b"%d %d %s" % (kind, len(name), name) + payload)


def origin_tag(origin: Origin) -> bytes:
    """The bytes of an origin inside a chain hash: node id, a zero, birth."""
    return origin.node.encode() + b"\0" + origin.birth.to_bytes(8, "big")


def chain_leaf(stamp: int, tag: bytes, seq: int, content: bytes) -> bytes:
    """What one entry adds to the chain: content hash first, then stamp, seq and origin (:func:`origin_tag`)."""
    return content + stamp.to_bytes(8, "big") + seq.to_bytes(8, "big") + tag


def chain_next(previous: bytes, leaf: bytes) -> bytes:
    """The hash of a log whose hash was ``previous``, after one more entry."""
    return short_hash(previous + leaf)


def chain_hash(previous: bytes, stamp: int, tag: bytes, seq: int, content: bytes) -> bytes:
    """:func:`chain_next` of a :func:`chain_leaf`."""
    return chain_next(previous, chain_leaf(stamp, tag, seq, content))


def content_base(cluster_id: bytes, base: bytes, index: int, value: bytes) -> bytes:
    """The name of a store's content at a position of a cluster's log, where it comes before the first entry of another
    log. ``base``: what the store had before the first entry of that earlier log."""
    parts = b"".join(len(part).to_bytes(1, "big") + part for part in (cluster_id, base, value))
    return short_hash(b"base" + parts + b"%d" % index)


def chain_start(cluster_id: bytes) -> bytes:
    """The hash of the empty log of a cluster: the chain begins with the cluster's id."""
    return short_hash(b"txlog" + cluster_id)
