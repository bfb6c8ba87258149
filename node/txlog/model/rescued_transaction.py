"""How a transaction of a lost cluster is given again to the cluster that has taken its place."""

from __future__ import annotations

from typing import Final

from txlog.model.ids import Txid

KIND_HEADER: Final = "TxLog-Kind"
"""Header of a request: the kind of the entry."""
_PREFIX: Final = "rescue."


def rescue_key(txid: Txid) -> str:
    """The Idempotency-Key of a transaction whose client gave none: to give it again twice is harmless."""
    return f"{_PREFIX}{txid}"
