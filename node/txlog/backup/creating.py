"""A backup: snapshot → parts → read back → manifest, last."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from txlog.backup.checking import compare, contents
from txlog.backup.faults import ManifestDamaged, NameTaken
from txlog.backup.manifest import (
    MANIFEST,
    MANIFEST_BYTES_MAX,
    NAME,
    Manifest,
    Retention,
    Why,
    encode_manifest,
    place_of,
)
from txlog.backup.parts import PART_BYTES, PartWriter, canonical, gathered
from txlog.backup.progress import Progress, Told, counted, nobody
from txlog.backup.standing import DEADLINE_S, Source, snapshot
from txlog.backup.target import Target
from txlog.model.entry import Position
from txlog.model.errors import BadInput, TxLogError
from txlog.workers.digest import digest

VERSION: Final = "0.1.0"


class Order(NamedTuple):
    """What is wanted. ``name``: drawn from position, reason and time unless given. ``at``: exactly this index."""

    cluster: str
    data_center: str
    why: Why = "manual"
    retention: Retention = "normal"
    name: str | None = None
    at: int | None = None
    deadline_s: float = DEADLINE_S
    part_bytes: int = PART_BYTES


def create(source: Source, target: Target, order: Order, told: Told = nobody) -> Manifest:
    """It counts when this returns. Whatever goes wrong before leaves at most parts without a manifest, which are taken
    away as far as the target lets.

    Raises the faults of the worker, of the masters, of the target (:mod:`txlog.backup.faults`),
    :class:`~txlog.backup.faults.NotCanonical`, :class:`~txlog.backup.faults.NameTaken`."""
    told(Progress("holding", 0, None, source.name))
    size = source.adapter.size_in(source.transport.send(source.adapter.size()))
    said: Callable[[str], None] = lambda text: told(Progress("holding", 0, None, text))  # noqa: E731
    with snapshot(source, order.at, order.deadline_s, said) as (marker, chunks):
        pieces = canonical(gathered(chunks), source.name)
        return write(pieces, marker.position, source.name, source.adapter.engine, target, order, told, size)


def write(
    pieces: Iterator[bytes],
    position: Position,
    worker: str,
    engine: str,
    target: Target,
    order: Order,
    told: Told = nobody,
    quads_about: int | None = None,
) -> Manifest:
    """Canonical N-Quads in ``pieces`` as the backup at ``position``."""
    started = time.time()
    name = order.name or draw_name(position, order.why, started)
    if not NAME.match(name):
        raise BadInput(f"the name {name[:80]!r}: expected lower-case letters, digits, - and ., at most 120")
    if any(True for _ in target.objects(f"{name}/")):
        raise NameTaken(f"{name} is on {target.where} already; choose another name")
    writer = PartWriter(lambda part, data: target.write(f"{name}/{part}", data), order.part_bytes)
    try:
        found = digest(_fed(counted("copying", quads_about, told, pieces), writer))
        manifest = Manifest(
            name=name,
            cluster=order.cluster,
            data_center=order.data_center,
            worker=worker,
            engine=engine,
            place=place_of(position),
            quads=found.quads,
            graphs=sum(1 for graph in found.graphs if graph),
            digest=f"{found.total:032x}",
            parts=writer.end(),
            started=started,
            finished=time.time(),
            why=order.why,
            retention=order.retention,
            version=VERSION,
        )
        compare(manifest, digest(counted("reading back", found.quads, told, contents(target, manifest))))
        raw = encode_manifest(manifest)
        target.write(f"{name}/{MANIFEST}", raw)
        if target.read(f"{name}/{MANIFEST}", MANIFEST_BYTES_MAX) != raw:
            raise ManifestDamaged(f"{target.where} gives back another manifest of {name} than was written; try again")
    except BaseException:
        with suppress(TxLogError):
            target.delete([each.key for each in target.objects(f"{name}/")])
        raise
    return manifest


def draw_name(position: Position, why: Why, at: float) -> str:
    """Sorts by index; never drawn twice."""
    when = time.strftime("%Y%m%dt%H%M%Sz", time.gmtime(at))
    return f"{position.index:012}-{position.hash.hex()[:8]}-{why}-{when}-{secrets.token_hex(3)}"


def _fed(pieces: Iterator[bytes], writer: PartWriter) -> Iterator[bytes]:
    for piece in pieces:
        writer.feed(piece)
        yield piece
