"""What the fuzzer begins with: values of any type that masters speak, and a small journal."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec
from msgspec import inspect

from txlog.journal import Journal, MemoryVfs
from txlog.model.entry import KIND_UPDATE, RunItem, Span, TransactionRun
from txlog.model.hashes import chain_hash, chain_start, content_hash, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import (
    CounterCeiling,
    LogAppended,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import Member, View

SEGMENT_BYTES: Final = 8192
_CLUSTER: Final = b"fuzz"


def generate_value(chance: random.Random, kind: Any) -> Any:
    """A value of a type of msgspec's: small, any, within the bounds of the type."""
    return _of(chance, inspect.type_info(kind), 0)


def _of(chance: random.Random, kind: inspect.Type, depth: int) -> Any:
    match kind:
        case inspect.IntType():
            least, most = _range(kind)
            some = (0, 1, 2, 7, 255, 1 << 31, (1 << 63) - 1, chance.getrandbits(62), least, most)
            return chance.choice([one for one in some if least <= one <= most])
        case inspect.StrType():
            return chance.choice(("", "uk-1", "us-1", "é", "x" * 40))[: kind.max_length]
        case inspect.BytesType():
            length = max(chance.choice((0, 1, 8, 16, 16, 32)), kind.min_length or 0)
            return chance.randbytes(length if kind.max_length is None else min(length, kind.max_length))
        case inspect.EnumType(cls=cls):
            return chance.choice(list(cls))
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.NoneType():
            return None
        case inspect.ListType(item_type=item):
            return [_of(chance, item, depth + 1) for _ in range(chance.choice((0, 1, 2, 3) if depth < 4 else (0, 1)))]
        case inspect.VarTupleType(item_type=item):
            return tuple(_of(chance, item, depth + 1) for _ in range(chance.choice((0, 1, 2))))
        case inspect.TupleType(item_types=items):
            return tuple(_of(chance, item, depth + 1) for item in items)
        case inspect.DictType(key_type=key, value_type=value):
            return {_of(chance, key, depth + 1): _of(chance, value, depth + 1) for _ in range(chance.choice((0, 1)))}
        case inspect.UnionType(types=types):
            return _of(chance, chance.choice(types), depth)
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{field.name: _of(chance, field.type, depth + 1) for field in fields})
        case inspect.NamedTupleType(cls=cls, fields=fields):
            return cls(*(_of(chance, field.type, depth + 1) for field in fields))
        case _:
            raise AssertionError(f"no example of {kind}")


def _range(kind: inspect.IntType) -> tuple[int, int]:
    """The least and the greatest value of an integer type, within 64 bits."""
    least = kind.ge if kind.ge is not None else kind.gt + 1 if kind.gt is not None else -(1 << 63)
    most = kind.le if kind.le is not None else kind.lt - 1 if kind.lt is not None else (1 << 64) - 1
    return least, most


def encode_msgpack(value: object) -> bytes:
    """A value as MessagePack."""
    return msgspec.msgpack.encode(value)


def sample_journal() -> dict[str, bytes]:
    """The files of a small one, by name: two origins, two segments, a view, a log."""
    births = {"a": 10, "b": 11}
    files = MemoryVfs()
    made, _ = Journal.open(files, node="a", draw_birth=lambda: births["a"], segment_bytes=SEGMENT_BYTES)
    members = [Member(node, birth, 1, "dc-1") for node, birth in births.items()]
    view = View(1, 1, "a", members, _CLUSTER, 0, bytes(16), list(births.items()), [])
    made.append([ViewAccepted(view, 0, [], b"", []), ViewInstalled(1, 1, "a"), CounterCeiling(10**6)])
    chain, index = chain_start(_CLUSTER), 0
    for first in range(1, 40, 4):
        for node, birth in births.items():
            items = [RunItem(seq * 1000 + birth, KIND_UPDATE, f"k{seq}" * (seq % 3), b"%d " % seq * 10)
                     for seq in range(first, first + 4)]  # fmt: skip
            contents = [content_hash(item.kind, item.key, item.payload) for item in items]
            made.append(TransactionsPersisted(TransactionRun(node, birth, first, items), b"".join(contents)))
            hashes = b""
            for seq, item, content in zip(range(first, first + 4), items, contents, strict=True):
                chain = chain_hash(chain, item.stamp, origin_tag(Origin(node, birth)), seq, content)
                hashes += chain
            made.append(LogAppended(index + 1, [Span(node, birth, first, 4)], hashes, index))
            index += 4
        made.append(StableAdvanced(index))
        made.sync()
    assert made.seal()
    return files.dump()
