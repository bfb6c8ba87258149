"""JSON in exactly one form, with a checksum over the rest of itself: no changed byte goes unnoticed."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from txlog.model.decode_errors import DECODE_ERRORS


def encode_checked(fields: dict[str, Any]) -> bytes:
    """The bytes of these fields."""
    plain = msgspec.json.format(msgspec.json.encode(fields), indent=1)
    return msgspec.json.format(msgspec.json.encode({**fields, "checksum": sha256(plain).hexdigest()}), indent=1) + b"\n"


def decode_checked(raw: bytes) -> dict[str, Any] | None:
    """The inverse of :func:`encode_checked`; None for bytes that it did not write."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(raw)
        given = fields.pop("checksum")
        return fields if isinstance(given, str) and encode_checked(fields) == raw else None
    except (*DECODE_ERRORS, AttributeError, KeyError, TypeError):
        return None
