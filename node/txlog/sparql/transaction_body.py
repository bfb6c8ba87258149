"""The form in which the HTTP API passes a write to the log."""

from __future__ import annotations

import msgspec


class TransactionBody(msgspec.Struct, frozen=True, gc=False):
    """One transaction that has the same result on every worker.

    ``kind`` is ``KIND_QUADS`` or ``KIND_UPDATE`` (:mod:`txlog.model.entry`); ``payload`` has the format of that kind.
    ``change_count`` counts quads deleted and added, or operations. A payload may be empty: nothing to do.
    """

    kind: int
    payload: bytes
    change_count: int
