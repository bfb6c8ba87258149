"""What a broken or lying peer sends: a real message with some values changed."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

NUMBERS: Final = (0, 1, -1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def changed_message(data: bytes, rng: Random) -> bytes | None:
    """The message with one or two changes, of the same kind; None when chance made no message of it."""
    original = msgspec.msgpack.decode(data[1:])
    value = original
    for _ in range(rng.choice((1, 1, 2))):
        value = changed_value(value, rng)
    if not isinstance(value, list) or not value or value[0] != original[0]:
        return None
    try:
        return data[:1] + msgspec.msgpack.encode(value)
    except OverflowError:
        return None  # doubled beyond what MessagePack has


def changed_value(value: Any, rng: Random) -> Any:
    """One change somewhere in a decoded MessagePack value."""
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [*value[:at], changed_value(value[at], rng), *value[at + 1 :]]
    if isinstance(value, list):
        return rng.choice([[], value + value, value[:-1], [*value, value[-1]] if value else [[]]])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*NUMBERS, value + 1, max(0, value - 1), value * 2])
    if isinstance(value, bytes):
        flipped = bytes([value[0] ^ 1]) + value[1:] if value else b"\x01"
        return rng.choice([b"", value[:-1], value + value, bytes(len(value)), flipped])
    if isinstance(value, str):
        return rng.choice(["", "z", "b", value + "x", "\u00fc" * 70_000])
    return rng.choice([None, 0, ""])
