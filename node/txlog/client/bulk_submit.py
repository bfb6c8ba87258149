"""Many transactions over one request: JSON lines in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from txlog.client.connection import MasterConnection
from txlog.client.responses import WriteRequest, WriteResult
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.durability import Durability
from txlog.model.errors import PeerFault

PATH = "/txlog/transactions"
_LINES = {"Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}
_encode_line = msgspec.json.Encoder().encode
_decode_result = msgspec.json.Decoder(WriteResult).decode


def submit_writes(
    connection: MasterConnection,
    writes: Iterable[WriteRequest],
    durability: Durability | None,
    wait_s: float | None,
    batch_bytes: int,
    timeout_s: float,
) -> Iterator[WriteResult]:
    """See :meth:`txlog.client.MasterClient.submit`. ``timeout_s`` is added to ``wait_s`` for each wait."""
    headers = dict(_LINES)
    if durability is not None:
        headers["TxLog-Durability"] = durability.value
    if wait_s is not None:
        headers["Prefer"] = f"wait={wait_s:g}"
    answers = connection.stream_lines(
        PATH, _encode_batches(writes, batch_bytes), headers=headers, timeout_s=(wait_s or 30.0) + timeout_s
    )
    for line in answers:
        if not line:
            continue
        try:
            yield _decode_result(line)
        except DECODE_ERRORS as wrong:
            raise PeerFault(connection.url, "Malformed", f"{PATH}: {wrong}") from None


def _encode_batches(writes: Iterable[WriteRequest], batch_bytes: int) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for write in writes:
        line = _encode_line(write) + b"\n"
        batch.append(line)
        size += len(line)
        if size >= batch_bytes:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)
