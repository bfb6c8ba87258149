"""The ids of masters and transactions: origins and txids (rules 1 and 3)."""

from __future__ import annotations

import re
from typing import NamedTuple

from txlog.model.bounds import NODE_LABEL, Birth, CoordinatorId, Count, NodeId, Seq
from txlog.model.errors import BadInput

NODE_ID = re.compile(f"^{NODE_LABEL}$")
_TXID = re.compile(r"^([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)\.([0-9a-f]{16})\.([1-9][0-9]{0,18})$")


ViewNumber = tuple[Count, Count, CoordinatorId]
"""The number of a view: epoch, ballot, coordinator."""


class Origin(NamedTuple):
    """A master's node id together with the birth of its journal.

    ``birth`` is the incarnation: 64 random bits, drawn when the journal is created. A master that lost its disk is
    another origin and can never use an id again. Tuples compare as the protocol orders origins
    (node id bytes, then birth): node ids are ASCII, so text order is byte order.
    """

    node: NodeId
    birth: Birth

    def __str__(self) -> str:
        return f"{self.node}.{self.birth:016x}"


class Txid(NamedTuple):
    """The permanent name of a transaction: origin and a sequence number, contiguous from 1."""

    origin: Origin
    seq: Seq

    def __str__(self) -> str:
        return f"{self.origin.node}.{self.origin.birth:016x}.{self.seq}"


def parse_txid(text: str) -> Txid:
    """The inverse of ``str(txid)``; :class:`BadInput` names the fault."""
    found = _TXID.match(text)
    if not found:
        raise BadInput(f"not a transaction id: {text[:100]!r}; it looks like uk-1.00c0ffee00c0ffee.42")
    return Txid(Origin(found[1], int(found[2], 16)), int(found[3]))
