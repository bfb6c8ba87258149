"""What a master and a process that evaluates for it say to each other over two pipes.

A frame is its length (4 bytes, big-endian) and so many bytes. A question is a frame with an :class:`Asked`; behind a
:class:`Load` come frames of its data, up to an empty one. The answer is one frame: ``+`` and what the question says of
it, or ``-`` and a :class:`Failure`.
"""

from __future__ import annotations

import struct
from typing import IO, Final

import msgspec

from txlog.model.entry import Position
from txlog.model.errors import BadInput, Conflict, TooLarge, TxLogError, Unavailable, WorkerFault
from txlog.sparql import Evaluated

LENGTH: Final = struct.Struct(">I")
DONE: Final = b"+"
FAILED: Final = b"-"
N_TRIPLES: Final = "application/n-triples"
TIME: Final = "QueryTimeout"
MEMORY: Final = "QueryTooLarge"
"""Reasons of :class:`Unavailable`: the evaluation was ended, since it wanted more than it may have."""
RETRY_S: Final = 1


class Load(msgspec.Struct, frozen=True, tag=True):
    """A copy anew, of the data behind it. ``engine``: whose answer to ``everything`` it is; "": N-Quads.
    ``predicates`` (``<iri>``): the data holds all quads with these, None: all there are. ``keep``: N-Quads are kept,
    for :class:`SumsOf` what was ``before``. The answer is a :class:`Loaded`."""

    engine: str
    predicates: tuple[str, ...] | None = None
    keep: bool = False


class Loaded(msgspec.Struct, frozen=True):
    """``position``: the place on the log; None where the data says none, or stands nowhere on one."""

    position: Position | None


class Follow(msgspec.Struct, frozen=True, tag=True):
    """Carry these out (kind, payload). ``position``: what then is the copy's; None: they stand in no log, they are a
    transaction's own."""

    operations: tuple[tuple[int, bytes], ...]
    position: Position | None


class SumsOf(msgspec.Struct, frozen=True, tag=True):
    """The :class:`txlog.sparql.Sums` of what has these predicates, or of all. ``before``: of what was loaded and kept,
    without what followed."""

    looks_at: tuple[str, ...] | None
    before: bool = False


class Evaluate(msgspec.Struct, frozen=True, tag=True):
    """What this update changes, as :meth:`txlog.evaluation.copy.Copy.evaluate` says. ``drawn``: 128 random bits,
    big-endian."""

    update: Evaluated
    drawn: bytes
    bytes_max: int
    looks_max: int


class Query(msgspec.Struct, frozen=True, tag=True):
    """The answer to a query in that media type: one of SPARQL's results, N-Triples for a graph. ``union``: of all
    graphs; ``default``, ``named``: graphs by parameter, bare."""

    text: str
    union: bool
    default: tuple[str, ...]
    named: tuple[str, ...]
    media: str
    bytes_max: int


class Matching(msgspec.Struct, frozen=True, tag=True):
    """What matches (canonical N-Triples, None for any; graphs ``<iri>``, "" for the default one, None for all) as
    N-Quads. ``merged``: without graphs, each statement once."""

    terms: tuple[str | None, str | None, str | None]
    graphs: tuple[str, ...] | None
    merged: bool
    bytes_max: int


class Count(msgspec.Struct, frozen=True, tag=True):
    """How many statements there are in these graphs, or in all, in decimal digits."""

    graphs: tuple[str, ...] | None


Change = Load | Follow
Look = SumsOf | Evaluate | Query | Matching | Count
"""What leaves the copy as it is."""


class Asked(msgspec.Struct, frozen=True):
    """``seconds``: when they are over the work is ended; 0: it ends with its data."""

    seconds: float
    work: Change | Look


class Failure(msgspec.Struct, frozen=True):
    """An error of :data:`ERRORS` by its name; ``reason`` of an :class:`Unavailable`."""

    name: str
    message: str
    reason: str = ""


ERRORS: Final[dict[str, type[TxLogError]]] = {
    each.__name__: each for each in (BadInput, Conflict, TooLarge, WorkerFault)
}


def failure_of(error: TxLogError) -> Failure:
    return Failure(type(error).__name__, str(error), error.reason if isinstance(error, Unavailable) else "")


def error_of(failure: Failure) -> TxLogError:
    """What a :class:`Failure` is raised as."""
    if failure.reason:
        return Unavailable(failure.reason, failure.message, RETRY_S)
    return ERRORS.get(failure.name, WorkerFault)(failure.message)


def out_of_time() -> Unavailable:
    return Unavailable(TIME, "the evaluation took longer than it may, and was ended; let it do less", RETRY_S)


def out_of_memory() -> Unavailable:
    return Unavailable(MEMORY, "the evaluation took more memory than it may, and was ended; let it do less", RETRY_S)


def read_frame(source: IO[bytes]) -> bytes | None:
    """The next frame; None at the end, also in the middle of one: whoever wrote it is gone."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = source.read(length)
    return body if len(body) == length else None


def write_frame(sink: IO[bytes], *pieces: bytes) -> None:
    sink.write(LENGTH.pack(sum(map(len, pieces))))
    for piece in pieces:
        sink.write(piece)
    sink.flush()
