"""Answers to writes, as the bytes of headers: formatted once for each transaction, and therefore compiled."""

from __future__ import annotations

import time
from typing import Final

from aiohttp.helpers import rfc822_formatted_time

from txlog.http.router import RawResponse, Response, json_response
from txlog.http.write_options import SYNCHRONOUS_HEADER
from txlog.model.durability import Durability
from txlog.model.ids import Origin, Txid
from txlog.protocol.events import SubmissionAccepted
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.runtime.durability_tracker import DurabilityTracker
from txlog.runtime.literal_form import LiteralForm
from txlog.runtime.master_loop import PendingWrite
from txlog.runtime.transaction_status import TransactionOutcome
from txlog.server.frontdoor.synchronous_answers import SynchronousReply
from txlog.workers.canonical_literals import stored_form

_COMMITTED_HEADER: Final = f"{SYNCHRONOUS_HEADER}: {SynchronousAnswer.COMMITTED.value}\r\n"


def accepted_txid(write: PendingWrite, reached: bool) -> Txid | None:
    """The last transaction in the usual case: it is no repeat, was not refused, and has reached the requested level."""
    if reached and write.answers:
        answer = write.answers[-1]
        if isinstance(answer, SubmissionAccepted) and not answer.is_repeat:
            return answer.txid
    return None


class WriteResponseFormatter:
    """``durability`` knows the position that a transaction has reached. ``literals``: the form in which the stores
    hold literals, which is known once a transaction was accepted. ``api_path``: where TxLog's paths of this log
    begin."""

    def __init__(self, durability: DurabilityTracker, literals: LiteralForm, api_path: str) -> None:
        self._api_path = api_path
        self._durability = durability
        self._literals = literals
        self._literals_header = ""
        self._origin: Origin | None = None
        self._name = ""
        self._level: Durability | None = None
        self._level_header = ""
        self._date_second = 0
        self._date = ""

    def headers(self, txid: Txid, level: Durability | None) -> str:
        """The header lines, each with its end: id, position once it is stable here, reached level, form of literals."""
        origin, seq = txid
        if origin is not self._origin:
            self._origin, self._name = origin, str(origin)
        if level is not self._level:
            self._level, self._level_header = level, "" if level is None else f"TxLog-Durability: {level.value}\r\n"
        if not self._literals_header:
            self._literals_header = f"TxLog-Literals: {stored_form(self._literals.keeps)}\r\n"
        position = self._position_header(txid)
        return f"TxLog-Transaction: {self._name}.{seq}\r\n{position}{self._level_header}{self._literals_header}"

    def synchronous_response(self, txid: Txid, level: Durability | None, reply: SynchronousReply) -> RawResponse:
        """The whole answer about a synchronous transaction."""
        headers = f"{self.headers(txid, level)}{SYNCHRONOUS_HEADER}: {reply.answer.value}\r\n"
        if reply.reason:
            headers += f"TxLog-Error: {reply.reason}\r\n"
        if reply.has_location:
            headers += f"Location: {self._api_path}/transactions/{txid}\r\n"
        if not reply.text:
            return RawResponse(reply.status, headers.encode())
        headers += "Content-Type: text/plain; charset=utf-8\r\n"
        return RawResponse(reply.status, headers.encode(), f"{txid}: {reply.text}\n".encode())

    def _position_header(self, txid: Txid) -> str:
        durability = self._durability
        index = durability.index_of(txid)
        if not 0 < index <= durability.stable.value:
            return ""
        position = durability.position_at(index)
        return f"TxLog-Position: {position.epoch}:{index}:{position.hash.hex()}\r\n"

    def format_success(self, txid: Txid, level: Durability, *, committed: bool = False) -> bytes:
        """The whole answer of a success, for a connection that stays open. ``committed``: of a synchronous
        transaction."""
        second = int(time.time())
        if second != self._date_second:
            self._date_second, self._date = second, rfc822_formatted_time()
        headers = self.headers(txid, level) + (_COMMITTED_HEADER if committed else "")
        return f"HTTP/1.1 204 No Content\r\n{headers}Date: {self._date}\r\n\r\n".encode()


def timeout_response() -> Response:
    """The time was over before the transaction had an id. It is not known whether it will be accepted (rule 16)."""
    return RawResponse(202, b"Content-Type: text/plain; charset=utf-8\r\n", b"not known yet whether it was accepted\n")


def worker_refusal_response(outcome: TransactionOutcome) -> Response:
    """409: the transaction is in the log, and no worker that could execute it does."""
    position = outcome.position
    headers = {"TxLog-Transaction": str(outcome.txid)}
    if position is not None:
        headers["TxLog-Position"] = str(position)
    body = {
        "error": "Conflict",
        "reason": outcome.state.capitalize(),
        "message": "workers refused this transaction; it is in the log. See their answers",
        "txid": str(outcome.txid),
        "workers": outcome.workers,
    }
    return json_response(body, 409, headers)
