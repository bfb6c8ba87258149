"""The protocol between a master and its evaluator process, over two pipes.

A frame is its length (4 bytes, big-endian) and so many bytes. A request is a frame with an :class:`EvaluationRequest`.
After a :class:`LoadDataset` come frames of its data, up to an empty one. The answer is one frame: ``+`` and the result
in the form that the request defines, or ``-`` and an :class:`EvaluationFailure`.
"""

from __future__ import annotations

import struct
from typing import IO, Final

import msgspec

from txlog.model.entry import KIND_QUADS, Position
from txlog.model.errors import BadInput, Conflict, TooLarge, TxLogError, Unavailable, WorkerFault
from txlog.sparql import EvaluatedUpdate

FRAME_LENGTH: Final = struct.Struct(">I")
OK_FLAG: Final = b"+"
ERROR_FLAG: Final = b"-"
N_TRIPLES: Final = "application/n-triples"
TIMEOUT_REASON: Final = "QueryTimeout"
OUT_OF_MEMORY_REASON: Final = "QueryTooLarge"
"""Reasons of :class:`Unavailable`: the evaluation was ended because it exceeded its time or memory."""
RETRY_S: Final = 1


class LoadDataset(msgspec.Struct, frozen=True, tag=True):
    """Replace the copy by the data that follows this frame. ``engine``: the engine whose answer to ``dump`` the data
    is; "": N-Quads. ``predicates`` (``<iri>``): the data holds all quads with these; None: all quads. ``keep_source``:
    keep the N-Quads, for a :class:`FingerprintRequest` with ``before_changes``. ``as_written``: they are those of a
    store that holds literals as they were sent; an ``engine`` says that by itself. The answer is a
    :class:`DatasetLoaded`."""

    engine: str
    predicates: tuple[str, ...] | None = None
    keep_source: bool = False
    as_written: bool = False


class DatasetLoaded(msgspec.Struct, frozen=True):
    """``position``: the data's position on the log; None where the data holds none, or is at no position of a log."""

    position: Position | None


class ApplyOperations(msgspec.Struct, frozen=True, tag=True):
    """Execute these operations (kind, payload). ``position``: the copy's position afterwards; None: the operations are
    in no log, they belong to an open transaction."""

    operations: tuple[tuple[int, bytes], ...]
    position: Position | None


class ExecuteUpdate(msgspec.Struct, frozen=True, tag=True):
    """Execute this update of an open transaction. The answer is what it deleted and added, as a payload of kind quads.
    ``random_bits``: 128 random bits, big-endian, for the names of blank nodes."""

    update: EvaluatedUpdate
    random_bits: bytes
    bytes_max: int


class FingerprintRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for the :class:`~txlog.sparql.update_effect.DataFingerprint` of the quads with these predicates, or of all.
    ``before_changes``: of the data that was loaded and kept, without later changes."""

    predicates: tuple[str, ...] | None
    before_changes: bool = False


class EvaluateRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for the effect of this update, as :meth:`txlog.evaluation.dataset_copy.DatasetCopy.evaluate` computes it.
    ``random_bits``: 128 random bits, big-endian."""

    update: EvaluatedUpdate
    random_bits: bytes
    bytes_max: int
    quads_read_max: int


class QueryRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for the answer to a query in a media type: one of SPARQL's result formats, or N-Triples for a graph.
    ``union``: the default graph is the union of all graphs; ``default``, ``named``: graphs by parameter, bare IRIs."""

    text: str
    union: bool
    default: tuple[str, ...]
    named: tuple[str, ...]
    media_type: str
    bytes_max: int


class MatchRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for the matching quads as N-Quads. Terms are canonical N-Triples, None for any. Graphs are ``<iri>``, "" for
    the default graph; None for all. ``merged``: without graphs, each statement once."""

    terms: tuple[str | None, str | None, str | None]
    graphs: tuple[str, ...] | None
    merged: bool
    bytes_max: int


class CountRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for the number of statements in these graphs, or in all, in decimal digits."""

    graphs: tuple[str, ...] | None


class TransactionStep(msgspec.Struct, frozen=True):
    """One step of an open transaction: a change that reads nothing (a payload of kind ``kind``), an update, or a
    read."""

    change: bytes = b""
    kind: int = KIND_QUADS
    update: EvaluatedUpdate | None = None
    read: QueryRequest | MatchRequest | CountRequest | None = None


class ReplayRequest(msgspec.Struct, frozen=True, tag=True):
    """Ask for a digest of all that these steps, in this order, read and change. ``before_changes``: on the data that
    was loaded and kept, without later changes."""

    steps: tuple[TransactionStep, ...]
    before_changes: bool = False


ChangeRequest = LoadDataset | ApplyOperations | ExecuteUpdate
ReadRequest = FingerprintRequest | EvaluateRequest | QueryRequest | MatchRequest | CountRequest | ReplayRequest
"""Requests that do not change the copy."""


class EvaluationRequest(msgspec.Struct, frozen=True):
    """One request. ``seconds``: the time limit of the work; 0: none, the work ends with its data."""

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
    """The form in which an evaluator sends an error; :func:`decode_failure` is the inverse for :data:`ERRORS` and
    ``Unavailable``."""
    return EvaluationFailure(type(error).__name__, str(error), error.reason if isinstance(error, Unavailable) else "")


def decode_failure(failure: EvaluationFailure) -> TxLogError:
    """The exception for an :class:`EvaluationFailure`."""
    if failure.reason:
        return Unavailable(failure.reason, failure.message, RETRY_S)
    return ERRORS.get(failure.name, WorkerFault)(failure.message)


def timeout_error() -> Unavailable:
    """The error of a request whose evaluator was ended at its time limit."""
    return Unavailable(TIMEOUT_REASON, "the evaluation took longer than it may, and was ended; let it do less", RETRY_S)


def memory_error() -> Unavailable:
    """The error of a request whose evaluator was ended at its memory limit."""
    return Unavailable(
        OUT_OF_MEMORY_REASON, "the evaluation took more memory than it may, and was ended; let it do less", RETRY_S
    )


def read_frame(source: IO[bytes]) -> bytes | None:
    """The next frame; None at the end, also in the middle of a frame: the writing process is gone."""
    head = source.read(FRAME_LENGTH.size)
    if len(head) < FRAME_LENGTH.size:
        return None
    (length,) = FRAME_LENGTH.unpack(head)
    body = source.read(length)
    return body if len(body) == length else None


def write_frame(sink: IO[bytes], *pieces: bytes) -> None:
    """Write the concatenated pieces as one frame, and flush. ``OSError`` when the reading process is gone."""
    sink.write(FRAME_LENGTH.pack(sum(map(len, pieces))))
    for piece in pieces:
        sink.write(piece)
    sink.flush()
