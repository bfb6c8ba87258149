"""What a master and a process that evaluates for it say to each other over two pipes.

A frame is its length (4 bytes, big-endian) and so many bytes. A question is a frame with an :class:`EvaluationRequest`;
behind a
:class:`LoadDataset` come frames of its data, up to an empty one. The answer is one frame: ``+`` and what the question
says of it, or ``-`` and a :class:`EvaluationFailure`.
"""

from __future__ import annotations

import struct
from typing import IO, Final

import msgspec

from txlog.model.entry import Position
from txlog.model.errors import BadInput, Conflict, TooLarge, TxLogError, Unavailable, WorkerFault
from txlog.sparql import EvaluatedUpdate

FRAME_LENGTH: Final = struct.Struct(">I")
OK_FLAG: Final = b"+"
ERROR_FLAG: Final = b"-"
N_TRIPLES: Final = "application/n-triples"
TIMEOUT_REASON: Final = "QueryTimeout"
OUT_OF_MEMORY_REASON: Final = "QueryTooLarge"
"""Reasons of :class:`Unavailable`: the evaluation was ended, since it wanted more than it may have."""
RETRY_S: Final = 1


class LoadDataset(msgspec.Struct, frozen=True, tag=True):
    """A copy anew, of the data behind it. ``engine``: whose answer to ``everything`` it is; "": N-Quads.
    ``predicates`` (``<iri>``): the data holds all quads with these, None: all there are. ``keep_source``: N-Quads are
    kept, for :class:`FingerprintRequest` what was ``before_changes``. The answer is a :class:`DatasetLoaded`."""

    engine: str
    predicates: tuple[str, ...] | None = None
    keep_source: bool = False


class DatasetLoaded(msgspec.Struct, frozen=True):
    """``position``: the place on the log; None where the data says none, or stands nowhere on one."""

    position: Position | None


class ApplyOperations(msgspec.Struct, frozen=True, tag=True):
    """Carry these out (kind, payload). ``position``: what then is the copy's; None: they stand in no log, they are a
    transaction's own."""

    operations: tuple[tuple[int, bytes], ...]
    position: Position | None


class FingerprintRequest(msgspec.Struct, frozen=True, tag=True):
    """The :class:`txlog.sparql.Sums` of what has these predicates, or of all. ``before_changes``: of what was loaded
    and kept, without what followed."""

    predicates: tuple[str, ...] | None
    before_changes: bool = False


class EvaluateRequest(msgspec.Struct, frozen=True, tag=True):
    """What this update changes, as :meth:`txlog.evaluation.dataset_copy.DatasetCopy.evaluate` says. ``random_bits``:
    128 random bits, big-endian."""

    update: EvaluatedUpdate
    random_bits: bytes
    bytes_max: int
    quads_read_max: int


class QueryRequest(msgspec.Struct, frozen=True, tag=True):
    """The answer to a query in that media type: one of SPARQL's results, N-Triples for a graph. ``union``: of all
    graphs; ``default``, ``named``: graphs by parameter, bare."""

    text: str
    union: bool
    default: tuple[str, ...]
    named: tuple[str, ...]
    media_type: str
    bytes_max: int


class MatchRequest(msgspec.Struct, frozen=True, tag=True):
    """What matches (canonical N-Triples, None for any; graphs ``<iri>``, "" for the default one, None for all) as
    N-Quads. ``merged``: without graphs, each statement once."""

    terms: tuple[str | None, str | None, str | None]
    graphs: tuple[str, ...] | None
    merged: bool
    bytes_max: int


class CountRequest(msgspec.Struct, frozen=True, tag=True):
    """How many statements there are in these graphs, or in all, in decimal digits."""

    graphs: tuple[str, ...] | None


ChangeRequest = LoadDataset | ApplyOperations
ReadRequest = FingerprintRequest | EvaluateRequest | QueryRequest | MatchRequest | CountRequest
"""What leaves the copy as it is."""


class EvaluationRequest(msgspec.Struct, frozen=True):
    """``seconds``: when they are over the work is ended; 0: it ends with its data."""

    seconds: float
    work: ChangeRequest | ReadRequest


class EvaluationFailure(msgspec.Struct, frozen=True):
    """An error of :data:`ERRORS` by its name; ``reason`` of an :class:`Unavailable`."""

    name: str
    message: str
    reason: str = ""


ERRORS: Final[dict[str, type[TxLogError]]] = {
    each.__name__: each for each in (BadInput, Conflict, TooLarge, WorkerFault)
}


def encode_failure(error: TxLogError) -> EvaluationFailure:
    return EvaluationFailure(type(error).__name__, str(error), error.reason if isinstance(error, Unavailable) else "")


def decode_failure(failure: EvaluationFailure) -> TxLogError:
    """What a :class:`EvaluationFailure` is raised as."""
    if failure.reason:
        return Unavailable(failure.reason, failure.message, RETRY_S)
    return ERRORS.get(failure.name, WorkerFault)(failure.message)


def timeout_error() -> Unavailable:
    return Unavailable(TIMEOUT_REASON, "the evaluation took longer than it may, and was ended; let it do less", RETRY_S)


def memory_error() -> Unavailable:
    return Unavailable(
        OUT_OF_MEMORY_REASON, "the evaluation took more memory than it may, and was ended; let it do less", RETRY_S
    )


def read_frame(source: IO[bytes]) -> bytes | None:
    """The next frame; None at the end, also in the middle of one: whoever wrote it is gone."""
    head = source.read(FRAME_LENGTH.size)
    if len(head) < FRAME_LENGTH.size:
        return None
    (length,) = FRAME_LENGTH.unpack(head)
    body = source.read(length)
    return body if len(body) == length else None


def write_frame(sink: IO[bytes], *pieces: bytes) -> None:
    sink.write(FRAME_LENGTH.pack(sum(map(len, pieces))))
    for piece in pieces:
        sink.write(piece)
    sink.flush()
