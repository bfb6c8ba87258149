"""Skips a transaction that workers refuse or do not survive: by an operator's request, or by the skip coordinator.

A skip is never a guess. The skip coordinator is the first present master of the configured order. It appends a skip
only while every member is present. Every reachable worker of every data centre must have rejected this transaction
itself: with an answer, or by ending or stalling at it again and again, with no other transaction in the request.
No worker may still be executing it, and no unreachable worker may be known to have executed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from txlog.http.router import Request, Response, Route, json_response, read_body
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.durability import Durability
from txlog.model.entry import KIND_SKIP
from txlog.model.errors import BadInput, Conflict, JournalDamaged, NotFound, Refused
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid, parse_txid
from txlog.model.synchronous_entry import KIND_DECISION, decode_decision
from txlog.protocol.events import Submission
from txlog.runtime.master_context import MasterContext
from txlog.runtime.worker_notices import TOPIC
from txlog.runtime.worker_state import STALE_S, RegisteredWorker
from txlog.server.admin.worker_repairs import WorkerRepairs
from txlog.wire import messages as wire

NOTICE_INTERVAL_S = 1.0
NOTICE_DELAY_S = 0.02
"""A changed state is sent after this delay, in seconds, several in one notice. A client may wait for ``applied`` at
another master."""
NOTICE_TTL_S = 5.0
"""Seconds for which the report of a data centre counts for a skip."""
NAMED_MAX = 20
"""Transactions of a decision that a message names."""


class SkipHandler:
    """``POST /txlog/skip/{txid}``, and the automatic skip. ``send(peer, message)`` sends a message to another
    master. ``has_change_set(index)``: whether the entry at this index may have left as a change set."""

    def __init__(
        self,
        site: MasterContext,
        send: Callable[[str, bytes], None],
        repairs: WorkerRepairs,
        has_change_set: Callable[[int], bool],
    ) -> None:
        self._context = site
        self._has_change_set = has_change_set
        self._loop = site.loop
        self._registry = site.registry
        self._send = send
        self._repairs = repairs
        self._requested_skips: set[str] = set()

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("POST", "/txlog/skip/{txid}", self.post)]

    def tasks(self) -> dict[str, Any]:
        """The tasks that run until the process ends, by name."""
        return {"workers-notices": self._send_notices()}

    # Notices

    def on_notice(self, peer: str, topic: str, body: bytes) -> None:
        """Handles a notice from another master."""
        if topic == TOPIC:
            self._registry.on_notice(body, peer)

    async def _send_notices(self) -> None:
        changed = self._registry.notices.due
        while True:
            changed.clear()
            if self._registry.workers and not self._registry.literals.is_undecided:
                self._repairs.refresh_states()
                message = wire.encode(wire.Notice(TOPIC, self._registry.notices.encode()))
                for peer in self._context.other_nodes:
                    self._send(peer, message)
            await self._skip_if_refused()
            try:
                await asyncio.wait_for(changed.wait(), NOTICE_INTERVAL_S)
                await asyncio.sleep(NOTICE_DELAY_S)
            except TimeoutError:
                pass

    # Automatic skips

    async def _skip_if_refused(self) -> None:
        for worker in self._registry.workers.values():
            if worker.state == "Blocked" and worker.txid:
                self._context.transactions.keep_refusals(worker.txid)
        name = self._refused_everywhere()
        if name is None or name in self._requested_skips or not self._is_skip_coordinator():
            return
        try:
            txid = parse_txid(name)
        except BadInput:
            return
        if self._context.transactions.outcome(txid).level is None or self._context.transactions.is_skipped(txid):
            return
        self._requested_skips.add(name)
        self._context.transactions.keep_refusals(name)
        answers = self._registry.known.refusals(name)
        word = "refused" if all(answer["status"] is not None for answer in answers.values()) else "not survived"
        reason = f"{word} by every reachable worker: {', '.join(sorted(answers))}"
        self._context.log.warning("Skipped", txid=name, workers=answers)
        await self._append_skip(txid, reason, 0.0)

    def _is_skip_coordinator(self) -> bool:
        """Whether this master is the first of the configured order and every member is present (state Joined)."""
        if self._context.state != "Joined" or self._context.is_closing:
            return False
        return self._context.masters[0][0] == self._context.config.node

    def _refused_everywhere(self) -> str | None:
        """The transaction that every reachable worker has itself refused or has not survived, and that no worker has
        executed or may still execute; None without one."""
        now = time.time()
        heard = {self._registry.data_center: now}
        for data_center, at in self._registry.notices.last_received.values():
            heard[data_center] = max(heard.get(data_center, 0.0), at)
        if any(now - heard.get(data_center, 0.0) > NOTICE_TTL_S for _, data_center in self._context.masters):
            return None  # a missing report is no refusal
        workers = [*self._registry.workers.values()]
        workers += [w for dc in self._registry.remote_workers.values() for w in dc.values()]
        if any(w.may_execute for w in workers):
            return None  # it may execute the transaction yet, also while it is unreachable
        reachable = [w for w in workers if not _is_unreachable(w, now)]
        refused = {w.rejects for w in reachable}
        if len(refused) != 1 or None in refused:
            return None
        before = max(w.index for w in reachable)
        if any(w.index > before for w in workers):
            return None  # an unreachable worker has executed it, and so has not refused it
        if self._has_change_set(before + 1):
            return None  # a worker that is gone has executed it, and followers know what it changed
        return refused.pop()

    # Skips by an operator

    async def post(self, request: Request, names: Mapping[str, str]) -> Response:
        """Appends a skip of this transaction to the log."""
        txid = parse_txid(names["txid"])
        body = await read_body(request, 4096)
        reason = "by hand"
        if body.strip():
            try:
                body_fields = msgspec.json.decode(body, type=dict[str, Any])
            except DECODE_ERRORS as wrong:
                raise BadInput(f'{{"reason": "..."}}: {wrong}') from None
            reason = str(body_fields.get("reason") or reason)[:500]
        if self._context.transactions.outcome(txid).level is None:
            raise NotFound(f"{txid} is not known here; is it spelt right, is this the right cluster?")
        if self._context.transactions.is_skipped(txid):
            raise Conflict(f"{txid} is skipped already")
        self._refuse_decision(txid)
        self._context.transactions.keep_refusals(str(txid))
        skip = await self._append_skip(txid, reason, self._context.config.write_timeout_s)
        self._context.log.warning("SkippedByHand", txid=str(txid), reason=reason)
        return json_response(
            {"txid": str(txid), "skip": str(skip), "state": self._context.transactions.outcome(txid).state}
        )

    def _refuse_decision(self, txid: Txid) -> None:
        """Raises :class:`Conflict` for a decision. All that it commits would be without effect, also what clients were
        answered as committed; a skip names the one transaction that workers refuse."""
        try:
            items = self._context.status.read_transactions(*txid.origin, txid.seq, 1, 1).items
        except JournalDamaged:
            return
        if items and items[0].kind == KIND_DECISION:
            decision = decode_decision(items[0].key)
            names = ", ".join(map(str, decision.names()[:NAMED_MAX]))
            raise Conflict(
                f"{txid} is a {decision.verdict.name}; skip the one of its transactions that workers refuse: {names}"
            )

    async def _append_skip(self, txid: Txid, reason: str, seconds: float) -> Txid:
        name, payload = str(txid), reason.encode()
        submission = Submission(KIND_SKIP, name, payload, content_hash(KIND_SKIP, name, payload))
        level = Durability.SYNCED if seconds else Durability.ACCEPTED
        write = self._loop.write([submission], level)
        await self._context.durability.wait_for(write.reached, seconds or 5.0)
        answer = write.answers[0] if write.answers else None
        if isinstance(answer, Refused):
            if not seconds:
                self._requested_skips.discard(name)
                return txid
            raise answer
        return answer.txid if answer is not None else txid


def _is_unreachable(worker: RegisteredWorker, now: float) -> bool:
    return worker.state == "Unreachable" or (worker.reported_at > 0 and now - worker.reported_at > STALE_S)
