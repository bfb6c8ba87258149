"""Bytes made from others: the same chance, the same bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

LENGTH_MAX: Final = 1 << 16
"""Of an input. What is quadratic shows at this length already."""
REPEATED: Final = (
    b"(",
    b"{",
    b"[",
    b"<",
    b"<<(",
    b'"',
    b"'",
    b"\\",
    b"a:",
    b"_:",
    b"/",
    b"!",
    b"^",
    b";",
    b"\xff",
    b"\0",
)
_ODD: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x0D, 0x22, 0x3C, 0x3E, 0x5C, 0xC0, 0xED, 0xF4)
_NUMBERS: Final = (
    b"0",
    b"-1",
    b"9" * 20,
    b"9" * 5000,
    b"1e999",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
)


def mutate(chance: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One of ``seeds``, changed up to some ten times; ``words``: what stands in such inputs."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 10))):
        _mutate_once(chance, data, seeds, words)
        if len(data) > LENGTH_MAX:
            del data[LENGTH_MAX:]
    return bytes(data)


def word_soup(chance: random.Random, words: Sequence[bytes]) -> bytes:
    """Words in any order."""
    gaps = (b"", b" ", b" ", b"\n")
    return b"".join(chance.choice(words) + chance.choice(gaps) for _ in range(chance.randrange(1, 60)))


def _mutate_once(chance: random.Random, data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 2, 4, 8, 40, 400)))
    match chance.randrange(12):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.choice(_ODD)
        case 2:
            del data[at:end]
        case 3:
            del data[at:]
        case 4:
            data[at:at] = data[at:end]
        case 5:
            data[at:at] = chance.choice(words)
        case 6:
            data[at:end] = chance.choice(words)
        case 7:
            other = chance.choice(seeds)
            begin = chance.randrange(len(other) + 1)
            data[at:] = other[begin:]
        case 8:
            data[at:at] = chance.choice(_NUMBERS)
        case 9:
            data[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
        case 10:
            data[at:at] = chance.choice((*REPEATED, chance.choice(words))) * chance.choice((2, 20, 200, 3000))
        case _:
            piece = bytes(data[at:end]) or b"x"
            data[at:at] = piece * chance.choice((2, 10, 100, 1000))
