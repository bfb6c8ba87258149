"""``POST /txlog/transactions``: many transactions in one request, as JSON lines in both directions.

The lines that have arrived become one batch: one run, one record, one message. The master answers the lines of a batch
together and in order, as soon as the last of them has reached its durability level. Meanwhile it accepts later lines.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from aiohttp import web

from txlog.http.body_compression import DecodedBody, request_coding
from txlog.http.router import API_HEADER, API_VERSION, RawResponse, Request, Response, Route, encode_json, send_continue
from txlog.http.write_options import WriteOptions, check_key, parse_synchronous
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.durability import Durability
from txlog.model.errors import BadInput, PeerFault, Refused, TooLarge, TxLogError, Unavailable
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.synchronous import NO_REQUEST, SynchronousRequest, refine_request
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_loop import AwaitedWrite
from txlog.runtime.transaction_status import BELOW_APPLIED
from txlog.runtime.transaction_traces import WriteTrace
from txlog.server.frontdoor.off_loop import OFF_LOOP_SPARQL, run_sparql_off_loop
from txlog.server.frontdoor.portability_rule import EngineTraits, PortabilityRule
from txlog.server.frontdoor.request_parameters import draw_blank_node_seed, read_write_options
from txlog.server.frontdoor.synchronous_answers import find_reply
from txlog.server.frontdoor.synchronous_door import (
    SynchronousDoor,
    is_synchronous,
    level_of,
    recognise_repeat,
)
from txlog.server.frontdoor.update_request import now_text
from txlog.sparql import TransactionBody, prepare_lines, prepare_update

BATCHES_IN_FLIGHT_MAX = 4
"""Batches of one request that may wait for their level; at this limit the master stops reading its body."""
LOOP_TURN_S = 0.005
"""After so many seconds of preparing lines, other requests get their turn."""
READ_BYTES = 1 << 20
"""Up to this length, a body of known length is read as a whole and becomes one batch."""
_RESPONSE_HEADERS = f"Content-Type: application/x-ndjson\r\n{API_HEADER}: {API_VERSION}\r\n".encode()


class NdjsonTransaction(msgspec.Struct):
    """Exactly one of ``update``, ``quads``, or ``add`` with ``delete``; N-Quads or SPARQL text. ``key``: idempotency
    key. ``synchronous``: true, false or a quorum; ``timeout``: how long it may stay undecided, as ``10s``."""

    quads: str | None = None
    update: str | None = None
    add: str | None = None
    delete: str | None = None
    key: str = ""
    synchronous: bool | str | None = None
    timeout: str = ""

    def request(self, default: SynchronousRequest) -> SynchronousRequest:
        """What the line asks for. ``default``: what the whole request asks for. :class:`BadInput`."""
        if self.synchronous is None and not self.timeout:
            return default
        text = str(self.synchronous).lower() if isinstance(self.synchronous, bool) else self.synchronous or ""
        asked = parse_synchronous(f"{text}; timeout={self.timeout}" if self.timeout else text, "synchronous")
        return refine_request(default, asked)


_decoder = msgspec.json.Decoder(NdjsonTransaction)


class NdjsonBatch(NamedTuple):
    """``refused`` maps the offset of a line in the batch to its error. ``write`` has the other lines, in order.
    ``deadline`` is a time of the event loop's clock, in seconds. ``level``: what the lines wait for;
    ``synchronous_level``: what they wait for where a first try turns out to be synchronous.
    ``has_synchronous``: one of them takes effect only where a quorum holds it. ``requests``: what each line of
    ``write`` asked for. ``trace``: of ``write``, None where it is not recorded."""

    line_count: int
    refused: dict[int, TxLogError]
    write: AwaitedWrite | None
    deadline: float
    level: Durability
    synchronous_level: Durability
    has_synchronous: bool = False
    requests: Sequence[SynchronousRequest] = ()
    trace: WriteTrace | None = None


class NdjsonWriteHandler:
    """``POST /txlog/transactions``: writes JSON lines as transactions and streams the outcomes back."""

    def __init__(self, site: MasterContext) -> None:
        self._portability = PortabilityRule(site)
        self._site = site
        self._loop = site.loop
        self._durability = site.durability
        self._status = site.status
        self._line_max = site.config.limits.body_bytes
        self._batch_max = site.config.limits.batch_transactions
        self._synchronous_door = SynchronousDoor(lambda: site.status.configuration)

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/transactions", self.post)]

    async def post(self, request: Request, _: Mapping[str, str]) -> Response:
        """Accepts JSON lines, one transaction each; answers one JSON line per transaction, in order."""
        asked = read_write_options(self._site, request)
        if asked.key:
            raise BadInput('Idempotency-Key: each line has its own: {"update": "...", "key": "..."}')
        await send_continue(request)
        reader = _LineReader(request, self._line_max)
        lines = await reader.read()
        if reader.at_end and len(lines) <= self._batch_max:
            batch = await self._submit(lines, asked)
            self._loop.in_flight += 1
            try:
                body = await self._render_answers(batch)
            finally:
                self._loop.in_flight -= 1
            return RawResponse(200, _RESPONSE_HEADERS, body)
        return await self._stream(request, reader, lines, asked)

    async def _stream(self, request: Request, reader: _LineReader, lines: list[bytes], asked: WriteOptions) -> Response:
        """Sends answers while further lines arrive: a client that sends without end needs answers without end."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", API_HEADER: API_VERSION})
        await response.prepare(request)
        batches: deque[NdjsonBatch] = deque()
        room = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)
        filled = asyncio.Event()
        finished = False

        async def answer() -> None:
            while True:
                while batches:
                    batch = batches.popleft()
                    await response.write(await self._render_answers(batch))
                    room.release()
                if finished:
                    return
                filled.clear()
                await filled.wait()

        self._loop.in_flight += 1
        answering = asyncio.ensure_future(answer())
        try:
            while True:
                for first in range(0, len(lines), self._batch_max):
                    taking = asyncio.ensure_future(room.acquire())
                    await asyncio.wait((taking, answering), return_when=asyncio.FIRST_COMPLETED)
                    if answering.done():
                        taking.cancel()
                        answering.result()
                    batches.append(await self._submit(lines[first : first + self._batch_max], asked))
                    filled.set()
                if reader.at_end or answering.done():
                    break
                try:
                    lines = await reader.read()
                except (TooLarge, BadInput) as wrong:
                    batches.append(NdjsonBatch(1, {0: wrong}, None, 0.0, asked.level, asked.level))
                    break
            finished = True
            filled.set()
            await answering
        finally:
            self._loop.in_flight -= 1
            answering.cancel()
        await response.write_eof()
        return response

    # One batch

    async def _submit(self, lines: list[bytes], asked: WriteOptions) -> NdjsonBatch:
        refused: dict[int, TxLogError] = {}
        submissions: list[Submission] = []
        requests: list[SynchronousRequest] = []
        traits, has_rules = self._portability.traits(), bool(self._synchronous_door.rules)
        began = time.monotonic()
        for at, line in enumerate(lines):
            try:
                if len(line) < OFF_LOOP_SPARQL:
                    one, request = self._prepare(line, asked, traits, has_rules)
                else:
                    one, request = await run_sparql_off_loop(
                        len(line), partial(self._prepare, line, asked, traits, has_rules)
                    )
                submissions.append(one)
                requests.append(request)
            except DECODE_ERRORS as wrong:
                refused[at] = BadInput(f"not a JSON line of a transaction: {wrong}")
            except TxLogError as wrong:
                refused[at] = wrong
            if time.monotonic() - began > LOOP_TURN_S:
                await asyncio.sleep(0)
                began = time.monotonic()
        has_synchronous = any(map(is_synchronous, submissions))
        synchronous_level = level_of(asked)
        level = synchronous_level if has_synchronous else asked.level
        write: AwaitedWrite | None = None
        trace: WriteTrace | None = None
        if submissions:
            try:
                write = self._loop.write(submissions, level)
                trace = self._site.trace_write(write, asked.traceparent)
            except Unavailable as wrong:
                refused = dict.fromkeys(range(len(lines)), wrong) | refused
        deadline = asyncio.get_running_loop().time() + asked.timeout_s
        return NdjsonBatch(
            len(lines), refused, write, deadline, level, synchronous_level, has_synchronous, requests, trace
        )

    def _prepare(
        self, line: bytes, asked: WriteOptions, traits: EngineTraits, has_rules: bool
    ) -> tuple[Submission, SynchronousRequest]:
        """The transaction of a line, and what it asks for. Raises one of :data:`DECODE_ERRORS`, or a
        :class:`TxLogError`. A thread runs this for a long line."""
        if len(line) > self._line_max:
            raise _line_too_long(self._line_max)
        transaction = _decoder.decode(line)
        key = transaction.key
        if key:
            check_key(key, "key")
        quads = transaction.quads
        if quads is not None and transaction.update is None and transaction.add is None and transaction.delete is None:
            prepared = prepare_lines(quads, draw=draw_blank_node_seed)
            self._portability.check_terms(prepared.kind, prepared.payload, traits)
        else:
            prepared = self._portability.check(_prepare_transaction(transaction), traits)
        kind, payload = prepared.kind, prepared.payload
        one = Submission(kind, key, payload, content_hash(kind, key, payload))
        request = transaction.request(asked.synchronous)
        if has_rules or request is not NO_REQUEST:
            one = self._synchronous_door.convert(one, request)
        return one, request

    async def _render_answers(self, batch: NdjsonBatch) -> bytes:
        """The answer lines of the batch, once all its transactions have reached their level or the deadline has
        passed."""
        write, level = batch.write, batch.level
        answers: list[SubmissionAccepted | Refused] = []
        reached = True
        repeats: set[Txid] = set()
        if write is not None:
            left = batch.deadline - asyncio.get_running_loop().time()
            reached = await self._durability.wait_for(write.reached, left)
            if batch.trace is not None:
                batch.trace.end()
            answers = write.answers or [Unavailable("Late", "not known yet whether it was accepted")] * len(write.batch)
            if write.answers and any(isinstance(answer, Refused) for answer in answers):
                tries = zip(write.batch, answers, batch.requests, strict=True)
                recognised = [recognise_repeat(self._status, *each) for each in tries]
                answers = [each.answer for each in recognised]
                if any(each.is_synchronous for each in recognised):
                    level = batch.synchronous_level
            last = next((a for a in reversed(answers) if isinstance(a, SubmissionAccepted) and not a.is_repeat), None)
            for one in answers:
                waits = isinstance(one, SubmissionAccepted) and (one.is_repeat or batch.has_synchronous)
                if isinstance(one, SubmissionAccepted) and waits and one.txid not in repeats:
                    await self._wait_for_level(one.txid, level, batch.deadline)
                    repeats.add(one.txid)
            if last is not None and reached and level not in BELOW_APPLIED:
                reached = await self._wait_for_level(last.txid, level, batch.deadline)
        whole = reached and level in BELOW_APPLIED and not repeats
        if whole and not batch.refused and answers:
            formatted = self._render_uniform_batch(answers, level)
            if formatted is not None:
                return formatted
        given = iter(answers)
        lines: list[bytes] = []
        for at in range(batch.line_count):
            wrong = batch.refused.get(at)
            answer: TxLogError | SubmissionAccepted = wrong if wrong is not None else next(given)
            if isinstance(answer, TxLogError):
                lines.append(_render_error(answer))
            else:
                lines.append(self._render_outcome(answer.txid, level))
        return b"".join(lines)

    async def _wait_for_level(self, txid: Txid, level: Durability, deadline: float) -> bool:
        left = deadline - asyncio.get_running_loop().time()
        return await self._site.transactions.wait_for_level(txid, level, max(0.0, left))

    def _render_outcome(self, txid: Txid, level: Durability) -> bytes:
        outcome = self._site.transactions.outcome(txid, level)
        view = outcome.to_dict()
        fields = {"txid": view["txid"], "position": view["position"], "durability": view["durability"]}
        if outcome.state in ("skipped", "blocked"):
            fields |= {"error": "Conflict", "reason": outcome.state.capitalize(), "workers": outcome.workers}
            fields["message"] = "workers refused this transaction; it is in the log"
        if outcome.synchronous is not None:
            fields["synchronous"] = outcome.synchronous.value
        if outcome.synchronous is SynchronousAnswer.ROLLED_BACK:
            reply = find_reply(outcome.synchronous, Durability.SYNCED, knows_pending=True)
            fields |= {"error": reply.reason, "reason": reply.reason, "message": reply.text}
        return encode_json(fields) + b"\n"

    def _render_uniform_batch(self, answers: list[SubmissionAccepted | Refused], level: Durability) -> bytes | None:
        """Formats a batch in which every line was accepted at one level. Plain text, because one dictionary per line
        costs more than the agreement about the whole batch. None if a line was refused."""
        agreement = self._status.log_state
        assert agreement is not None
        txids = [answer.txid for answer in answers if isinstance(answer, SubmissionAccepted)]
        if len(txids) != len(answers):
            return None
        history, stable = agreement.log_index, self._durability.stable.value
        origin, first_seq = txids[0]
        # Transactions of one origin keep their order in the log. If first and last are as far apart in the log as in
        # sequence numbers, the whole run is contiguous.
        first, last = history.index_of(origin, first_seq), history.index_of(origin, txids[-1].seq)
        if first and last - first == txids[-1].seq - first_seq == len(txids) - 1:
            indexes: Iterable[int] = range(first, last + 1)
        else:
            indexes = [history.index_of(*txid) for txid in txids]
        head = f'{{"txid":"{origin}.'
        place = f'","position":{{"epoch":{agreement.view.epoch},"index":'
        tail = f'"}},"durability":"{level.value}"}}\n'
        unplaced = f'","position":null,"durability":"{level.value}"}}\n'
        hash_at = history.hash_at
        return "".join(
            [
                f'{head}{seq}{place}{index},"hash":"{hash_at(index).hex()}{tail}'
                if 0 < index <= stable
                else f"{head}{seq}{unplaced}"
                for (_, seq), index in zip(txids, indexes, strict=True)
            ]
        ).encode()


def _prepare_transaction(line: NdjsonTransaction) -> TransactionBody:
    if line.update is not None and line.quads is None and line.add is None and line.delete is None:
        return prepare_update(line.update, base=None, now=now_text(), draw=draw_blank_node_seed)
    if line.update is None and line.quads is None and (line.add is not None or line.delete is not None):
        return prepare_lines(line.add or "", line.delete or "", draw=draw_blank_node_seed)
    raise BadInput('a line is {"update": ...}, {"quads": ...}, or {"add": ..., "delete": ...}; "key" may be in each')


def _render_error(error: TxLogError) -> bytes:
    fields = {"error": error.name, "message": str(error)}
    if isinstance(error, Unavailable | PeerFault):
        fields["reason"] = error.reason
    return encode_json(fields) + b"\n"


def _line_too_long(line_max: int) -> TooLarge:
    return TooLarge(f"one line may have {line_max} bytes; it is one transaction")


class _LineReader:
    """Reads whole lines of a body as they arrive. ``at_end``: the body has ended."""

    def __init__(self, request: Request, line_max: int) -> None:
        coding = request_coding(request)
        self._content = DecodedBody(request, coding) if coding else request.content
        self._rest = b""
        self._line_max = line_max
        length = request.content_length
        self._read_whole = length is not None and length <= READ_BYTES and not coding
        """A small body of known length arrives whole soon; to wait for it makes one batch of it. A compressed one may
        be of any length."""
        self.at_end = False

    async def read(self) -> list[bytes]:
        """At least one line, unless the body ends before. Empty lines are ignored."""
        content = self._content
        pieces = [self._rest]
        size = len(self._rest)
        whole = False
        while not content.at_eof() and (self._read_whole or not whole):
            piece = await content.readany()
            pieces.append(piece)
            size += len(piece)
            whole = whole or b"\n" in piece
            if not whole and size > self._line_max:
                raise _line_too_long(self._line_max)
        text = b"".join(pieces)
        if content.at_eof():
            self.at_end = True
            self._rest = b""
        else:
            text, _, self._rest = text.rpartition(b"\n")
        return [line for line in text.split(b"\n") if line and not line.isspace()]
