"""What a write sends in its headers, and what the headers of its answer say."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message

from txlog.client.responses import WriteResult, parse_position_header
from txlog.model.durability import Durability


def write_headers(
    media: str, key: str | None, durability: Durability | None, synchronous: bool | str | None, wait_s: float
) -> dict[str, str]:
    """The headers of one write. ``synchronous``: as in :meth:`txlog.client.MasterClient.write`."""
    headers = {"Content-Type": media, "Prefer": f"wait={wait_s:g}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    if durability is not None:
        headers["TxLog-Durability"] = durability.value
    if synchronous is not None:
        headers["TxLog-Synchronous"] = synchronous if isinstance(synchronous, str) else str(synchronous).lower()
    return headers


def parse_write_result(headers: Mapping[str, str] | Message) -> WriteResult:
    """The result that the headers of an answer name."""
    return WriteResult(
        headers.get("TxLog-Transaction"),
        parse_position_header(headers.get("TxLog-Position")),
        headers.get("TxLog-Durability"),
        synchronous=headers.get("TxLog-Synchronous"),
    )
