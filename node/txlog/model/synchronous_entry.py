"""Entries of the log for synchronous transactions: their kinds, and what their keys mean.

The key of an entry is a part of its content hash, and every master has it without the payload. So the key of a
synchronous transaction has its terms, and the key of a decision has all that the decision says. No master judges again
later whether a transaction is synchronous.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from txlog.model.bounds import COUNT_MAX, KEY_BYTES_MAX
from txlog.model.entry import CONTROL_KINDS, Span
from txlog.model.errors import BadInput
from txlog.model.ids import Origin, Txid, parse_txid
from txlog.model.quorum import CACHED_QUORUMS_MAX, Quorum, format_quorum, parse_quorum
from txlog.model.synchronous import check_timeout

KIND_SYNCHRONOUS_UPDATE: Final = 7
"""As ``KIND_UPDATE``, without effect before a COMMIT names it."""
KIND_SYNCHRONOUS_QUADS: Final = 8
"""As ``KIND_QUADS``, without effect before a COMMIT names it."""
KIND_DECISION: Final = 9
"""The key says which transactions take effect here, or are rolled back. The payload is empty."""
SYNCHRONOUS_KINDS: Final = (KIND_SYNCHRONOUS_UPDATE, KIND_SYNCHRONOUS_QUADS)

SYNCHRONOUS_AND_DECISION: Final = (*SYNCHRONOUS_KINDS, KIND_DECISION)
KINDS_WITH_OWN_KEYS: Final = (*CONTROL_KINDS, *SYNCHRONOUS_AND_DECISION)
"""The key of such an entry is not the Idempotency-Key of a client as it was sent."""

DECIDED_MAX: Final = 500
"""So many transactions one decision names at most."""
_CACHED_KEYS_MAX: Final = 1024
_CACHED_DECISIONS_MAX: Final = 256
"""A master reads such a key when its entry arrives, and again when that comes into the log."""
_SPAN = re.compile(r"(.+)\+([1-9][0-9]{0,18})")


class DecisionKind(StrEnum):
    """What a decision says. The first one in the log that names a transaction counts."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


class SynchronousKey(NamedTuple):
    """The key of a synchronous transaction. ``client_key``: the Idempotency-Key, empty when there is none."""

    quorum: Quorum
    timeout_ms: int
    client_key: str = ""


_VERDICTS: Final = frozenset(kind.value for kind in DecisionKind)


class Decision(NamedTuple):
    """The key of a decision. ``spans``: in the order of origins and seqs, none adjacent to the next."""

    verdict: DecisionKind
    spans: tuple[Span, ...]

    def names(self) -> tuple[Txid, ...]:
        """The transactions, each once."""
        return _names_of(self.spans)


@lru_cache(_CACHED_DECISIONS_MAX)
def _names_of(spans: tuple[Span, ...]) -> tuple[Txid, ...]:
    return tuple(
        [
            Txid(Origin(span.node, span.birth), seq)
            for span in spans
            for seq in range(span.first_seq, span.first_seq + span.count)
        ]
    )


def encode_synchronous_key(key: SynchronousKey) -> str:
    """``QUORUM TIMEOUT_MS CLIENTKEY``."""
    return f"{format_quorum(key.quorum)} {key.timeout_ms} {key.client_key}"


@lru_cache(_CACHED_KEYS_MAX)
def decode_synchronous_key(text: str) -> SynchronousKey:
    """The inverse of :func:`encode_synchronous_key`. One key has one text: :class:`BadInput` for any other."""
    parts = text.split(" ", 2)
    if len(parts) != 3 or not (parts[1].isascii() and parts[1].isdigit() and len(parts[1]) < 10):
        raise BadInput(f"not the key of a synchronous transaction: {text[:100]!r}")
    quorum, timeout_ms = _parse_canonical(parts[0]), check_timeout(int(parts[1]))
    if quorum is None or str(timeout_ms) != parts[1]:
        raise BadInput(f"not the key of a synchronous transaction: {text[:100]!r}")
    return SynchronousKey(quorum, timeout_ms, parts[2])


@lru_cache(CACHED_QUORUMS_MAX)
def _parse_canonical(text: str) -> Quorum | None:
    """None for another text than that of :func:`format_quorum`."""
    found = parse_quorum(text)
    return found if format_quorum(found) == text else None


def idempotency_key_of(kind: int, key: str) -> str:
    """The client's Idempotency-Key in the key of an entry; empty for an entry that has none."""
    if kind not in KINDS_WITH_OWN_KEYS:
        return key
    return decode_synchronous_key(key).client_key if kind in SYNCHRONOUS_KINDS else ""


def key_error(kind: int, key: str) -> str:
    """Why no master makes an entry of this kind with this key; empty where one may."""
    try:
        if kind in SYNCHRONOUS_KINDS:
            decode_synchronous_key(key)
        elif kind == KIND_DECISION:
            decode_decision(key)
    except BadInput as wrong:
        return str(wrong)
    return ""


def join_spans(names: Iterable[Txid]) -> list[Span]:
    """These transactions, each once, as the fewest spans, in the order of origins and seqs."""
    spans: list[Span] = []
    for (node, birth), seq in sorted(set(names)):
        last = spans[-1] if spans else None
        if last is not None and (last.node, last.birth, last.first_seq + last.count) == (node, birth, seq):
            spans[-1] = Span(node, birth, last.first_seq, last.count + 1)
        else:
            spans.append(Span(node, birth, seq, 1))
    return spans


def decide(verdict: DecisionKind, names: Iterable[Txid]) -> Decision:
    """The decision about these transactions; at least one, at most :data:`DECIDED_MAX`."""
    found = Decision(verdict, tuple(join_spans(names)))
    assert 0 < sum(span.count for span in found.spans) <= DECIDED_MAX, found
    return found


def encode_decision(decision: Decision) -> str:
    """``commit uk-1.00c0ffee00c0ffee.42 us-1.….7+3``: txids; ``+3`` names this one and the two that follow it."""
    texts = [
        str(Txid(Origin(span.node, span.birth), span.first_seq)) + (f"+{span.count}" if span.count > 1 else "")
        for span in decision.spans
    ]
    text = " ".join([decision.verdict.value, *texts])
    assert len(text) <= KEY_BYTES_MAX, len(text)
    return text


@lru_cache(_CACHED_DECISIONS_MAX)
def decode_decision(text: str) -> Decision:
    """The inverse of :func:`encode_decision`. One decision has one text: :class:`BadInput` for any other."""
    verdict, *texts = text.split(" ")
    if verdict not in _VERDICTS or not texts:
        raise BadInput(f"not a decision: {text[:100]!r}; it looks like commit uk-1.00c0ffee00c0ffee.42+3")
    found = Decision(DecisionKind(verdict), tuple(_decode_span(each) for each in texts))
    if sum(span.count for span in found.spans) > DECIDED_MAX:
        raise BadInput(f"a decision names more than {DECIDED_MAX} transactions: {text[:100]!r}")
    if any(_end_of(one) >= _begin_of(other) for one, other in pairwise(found.spans)):
        raise BadInput(f"the transactions of a decision are not in their order: {text[:100]!r}")
    return found


def _begin_of(span: Span) -> tuple[str, int, int]:
    return span.node, span.birth, span.first_seq


def _end_of(span: Span) -> tuple[str, int, int]:
    """What would begin here would be part of this span."""
    return span.node, span.birth, span.first_seq + span.count


def _decode_span(text: str) -> Span:
    several = _SPAN.fullmatch(text)
    first = parse_txid(several[1] if several else text)
    count = int(several[2]) if several else 1
    if (several and count == 1) or first.seq + count > COUNT_MAX:
        raise BadInput(f"not transactions of a decision: {text[:100]!r}")
    return Span(first.origin.node, first.origin.birth, first.seq, count)
