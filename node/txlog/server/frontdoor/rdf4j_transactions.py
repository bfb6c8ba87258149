"""RDF4J's transactions: ``/repositories/{id}/transactions``. The writes of an open transaction wait at this master; the
commit makes them one entry of the log. Until then only the transaction itself sees them (:mod:`.transaction_view`)."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from aiohttp import web

from txlog.http.route_table import NO_PARAMETERS
from txlog.http.router import RawResponse, Request, Response, Route, bytes_response, own_url, read_body, text_response
from txlog.http.write_options import WriteOptions, parse_synchronous, with_synchronous
from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput, CommitPending, Conflict, Refused, RolledBack, TooLarge, TxLogError, Unavailable
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.synchronous import NO_REQUEST, refine_request
from txlog.protocol.events import Submission
from txlog.runtime.master_context import MasterContext
from txlog.server.frontdoor.evaluator_pool import EvaluatorPool
from txlog.server.frontdoor.off_loop import OFF_LOOP_BYTES, parse_form, run_sparql_off_loop
from txlog.server.frontdoor.open_transaction import (
    EndedTransaction,
    EndedTransactions,
    OpenTransaction,
    TransactionOver,
    commit_condition,
)
from txlog.server.frontdoor.read_handler import ReadHandler
from txlog.server.frontdoor.read_set import ReadSet
from txlog.server.frontdoor.request_parameters import (
    context_parameters,
    pattern_terms,
    read_write_options,
    repository_routes,
)
from txlog.server.frontdoor.result_formats import RDF_FORMATS, negotiate_format
from txlog.server.frontdoor.statement_lines import LineChanges
from txlog.server.frontdoor.transaction_view import (
    LOWER_LEVEL_ADVICE,
    SMALLER_READ_ADVICE,
    VIEWS_MAX,
    TransactionView,
    count_request,
    evaluated_update,
    match_request,
    query_request,
    view_lost,
    view_too_large,
)
from txlog.server.frontdoor.write_handler import WriteHandler
from txlog.sparql import EvaluatedUpdate, TransactionBody, concatenate, query_predicates, required_predicates
from txlog.workers.canonical_literals import stored_form

TRANSACTION_IDLE_S: Final = 60.0
"""Seconds without a request after which a transaction is rolled back."""
OPEN_TRANSACTIONS_MAX: Final = 256
OPEN_BODIES_MAX: Final = 16
"""What all open transactions may hold together in the memory, in bodies of the largest size."""
TOO_LARGE_CACHE_S: Final = 600.0
"""Seconds for which a repository that was too large to copy is assumed to still be."""
ISOLATION_LEVELS: Final = ("NONE", "READ_UNCOMMITTED", "READ_COMMITTED", "SNAPSHOT_READ", "SNAPSHOT", "SERIALIZABLE")
_LEVEL_PARAMETERS: Final = (
    "isolation-level",
    "transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel",
)
_SYNCHRONOUS_SETTING: Final = "transaction-setting__txlog.synchronous"
_FORM: Final = "application/x-www-form-urlencoded"
_UNKNOWN: Final = "it is not known whether it counts"


class TransactionHandler:
    """``writes`` submits the commit, ``reads`` queries the workers, ``evaluators`` hold the copies for reads of own
    writes."""

    def __init__(
        self,
        site: MasterContext,
        writes: WriteHandler,
        reads: ReadHandler,
        evaluators: EvaluatorPool,
    ) -> None:
        self._site = site
        self._bytes_max = site.config.limits.body_bytes
        self._writes = writes
        self._reads = reads
        self._evaluator_pool = evaluators
        self.idle_s = TRANSACTION_IDLE_S
        self.open_max = OPEN_TRANSACTIONS_MAX
        self.open_bytes_max = OPEN_BODIES_MAX * self._bytes_max
        self.open: dict[str, OpenTransaction] = {}
        self._ended = EndedTransactions()
        self._too_large_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._actions: dict[str, Callable[[Request, OpenTransaction], Awaitable[Response]]] = {
            "ADD": self._add,
            "DELETE": self._delete,
            "UPDATE": self._update,
            "QUERY": self._query,
            "GET": self._get,
            "SIZE": self._size,
            "PING": self._ping,
            "PREPARE": self._prepare,
            "COMMIT": self._commit,
            "ROLLBACK": self._rollback,
        }

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        one = {"PUT": self.act, "POST": self.act, "DELETE": self.rollback}
        return [
            *repository_routes("/transactions", POST=self.begin),
            *repository_routes("/transactions/{transaction}", **one),
        ]

    # Begin and end

    async def begin(self, request: Request, names: Mapping[str, str]) -> Response:
        """Begins a transaction."""
        here, body = own_url(request), await read_body(request, 64 << 10)
        parameters = dict(request.query)
        if body and request.headers.get("Content-Type", "").lower().startswith(_FORM):
            parameters |= dict(await parse_form(body.decode("utf-8", "replace")))
        level = ""
        for name in _LEVEL_PARAMETERS:
            given = parameters.get(name)
            if given is not None:
                level = re.split("[#/]", given)[-1].upper()
                if level not in ISOLATION_LEVELS:
                    raise BadInput(f"{name}={given[:80]}: one of {', '.join(ISOLATION_LEVELS)}")
        if self._site.is_closing:
            raise Unavailable("Closing", "this master is stopping; begin at another one")
        if len(self.open) >= self.open_max:
            raise Unavailable("TransactionsOpen", f"{len(self.open)} transactions are open here; commit some first")
        one = OpenTransaction(str(uuid.uuid4()), level, as_written=self._site.literals.keeps)
        one.synchronous = parameters.get(_SYNCHRONOUS_SETTING)
        if one.synchronous is not None:
            parse_synchronous(one.synchronous, _SYNCHRONOUS_SETTING)
        self.open[one.name] = one
        self._expire_idle()
        return web.Response(status=201, headers={"Location": f"{here}/{one.name}"})

    def _expire_idle(self) -> None:
        """Rolls back the transactions that have been idle for too long, and runs again when the next one is due."""
        now = time.monotonic()
        for one in list(self.open.values()):
            if now - one.last_used >= self.idle_s and not one.lock.locked():
                how = f"it expired: no request used it for {self.idle_s:g} s"
                self._close_transaction(one, EndedTransaction(f"{how}, and {_UNKNOWN}" if one.committing else how))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.open:
            due = min(one.last_used for one in self.open.values()) + self.idle_s
            self._timer = asyncio.get_running_loop().call_later(max(0.05, due - now), self._expire_idle)

    def _close_transaction(self, one: OpenTransaction, ended: EndedTransaction) -> None:
        self.open.pop(one.name, None)
        self._release_view(one)
        self._ended.add(one.name, ended)

    def _release_view(self, one: OpenTransaction) -> None:
        overlay, one.view = one.view, None
        if overlay is not None:
            self._evaluator_pool.release(overlay.evaluator)

    def _find_open(self, names: Mapping[str, str]) -> OpenTransaction:
        name = names["transaction"]
        try:
            name = str(uuid.UUID(name))
        except ValueError:
            raise BadInput(f"not a valid transaction id: {name[:80]}") from None
        one = self.open.get(name)
        if one is None:
            raise self._ended.error(name)
        one.last_used = time.monotonic()
        return one

    async def act(self, request: Request, names: Mapping[str, str]) -> Response:
        """Carries out one action of an open transaction."""
        word = request.query.get("action", "")
        action = self._actions.get(word.upper())
        if action is None:
            raise BadInput(f"action={word[:40]}: one of {', '.join(self._actions)}")
        try:
            return await self._run_exclusively(request, self._find_open(names), action)
        except TransactionOver as over:
            if action != self._commit or not over.ended.is_committed:
                raise
            return await self._commit_again(request, over.ended.txid)

    async def rollback(self, request: Request, names: Mapping[str, str]) -> Response:
        """Rolls a transaction back."""
        return await self._run_exclusively(request, self._find_open(names), self._rollback)

    async def _run_exclusively(
        self, request: Request, one: OpenTransaction, action: Callable[[Request, OpenTransaction], Awaitable[Response]]
    ) -> Response:
        async with one.lock:
            if one.name not in self.open:
                raise self._ended.error(one.name)
            if one.committing and action == self._rollback:
                raise CommitPending(
                    f"'{one.name}' was handed to the log, and may still take effect: it cannot be rolled back; send "
                    "COMMIT again"
                )
            if one.committing and action not in (self._commit, self._ping):
                raise BadInput(
                    f"Transaction handling error: '{one.name}' was handed to the log, and it is not known yet "
                    "whether it counts; send COMMIT again"
                )
            try:
                return await action(request, one)
            finally:
                one.last_used = time.monotonic()

    # Writing

    def _append_change(self, one: OpenTransaction, part: TransactionBody) -> None:
        if one.size_bytes + len(part.payload) > self._bytes_max:
            raise TooLarge(
                f"a transaction may hold {self._bytes_max} bytes, for it is one entry of the log; "
                "commit what there is, or roll it back"
            )
        waiting = sum(other.size_bytes for other in self.open.values())
        if waiting + len(part.payload) > self.open_bytes_max:
            raise Unavailable("TransactionsOpen", f"{waiting >> 20} MiB wait in open transactions; commit some first")
        if part.payload:
            one.changes.append(part)
            one.size_bytes += len(part.payload)

    def _append_quads(self, one: OpenTransaction, part: TransactionBody) -> None:
        self._append_change(one, part)
        if one.read_set is not None:
            one.read_set.add_change(part)

    async def _add(self, request: Request, one: OpenTransaction) -> Response:
        self._append_quads(one, await self._writes.read_upload(request, context_parameters(request) or []))
        return web.Response()

    async def _delete(self, request: Request, one: OpenTransaction) -> Response:
        self._append_quads(one, await self._writes.read_removal(request, context_parameters(request)))
        return web.Response()

    async def _update(self, request: Request, one: OpenTransaction) -> Response:
        change = await self._writes.read_update(request)
        if isinstance(change, TransactionBody) and change.kind == KIND_QUADS:
            self._append_quads(one, change)
            return web.Response(status=204)
        kept, update = None, change
        if isinstance(update, TransactionBody):
            kept, update = update, await asyncio.to_thread(evaluated_update, update)
        done = await self._evaluate(request, one, update, kept)
        self._append_change(one, done)
        if one.read_set is not None:
            one.read_set.add_update(update)
        return web.Response(status=204)

    async def _evaluate(
        self, request: Request, one: OpenTransaction, update: EvaluatedUpdate, kept: TransactionBody | None
    ) -> TransactionBody:
        """What the update changes in the data as this transaction sees it now. ``kept``: the same update for the log,
        which is taken where that cannot be found out: then it is evaluated at its place in the log. None: it cannot be
        logged."""
        had_view = one.view is not None
        wanted = None if update.read_predicates is None else frozenset(update.read_predicates)
        try:
            view = await self._view_for(request, one, wanted, part_first=True)
            return await view.execute_update(update, self._bytes_max - one.size_bytes)
        except TooLarge:
            if kept is None:
                raise
            return kept  # the view is as it was: it applies the update with its next read
        except (Conflict, Unavailable):
            if kept is None or (had_view and one.reads_snapshot):
                raise
            self._release_view(one)
            return kept

    # Reading

    def _has_own_view(self, one: OpenTransaction) -> bool:
        return one.reads_snapshot or bool(one.changes)

    async def _view_for(
        self, request: Request, one: OpenTransaction, wanted: frozenset[str] | None, *, part_first: bool = False
    ) -> TransactionView:
        """The transaction's own view, if it needs one: it has written, or it reads one snapshot. The view covers these
        predicates (None: all). Where no snapshot is read it is as new as the log. ``part_first``: no more than these
        predicates is needed."""
        log_index = self._site.durability.executable.value
        if one.view is not None and not one.reads_snapshot and one.view.log_index != log_index:
            self._release_view(one)
        if one.view is not None and not one.view.evaluator.is_usable:
            if one.reads_snapshot:
                raise view_lost()
            self._release_view(one)
        if one.view is None or one.view.predicates is not None:
            payloads = [part.payload.decode() for part in one.changes if part.kind != KIND_QUADS]
            if wanted is not None and payloads:
                wanted = await asyncio.to_thread(required_predicates, payloads, wanted)
            if one.view is not None and not one.view.covers(wanted):
                self._release_view(one)
        if one.view is None:
            if sum(other.view is not None for other in self.open.values()) >= VIEWS_MAX and not self._free_view():
                raise Unavailable(
                    "TransactionsOpen", f"{VIEWS_MAX} transactions read copies of their own; commit some first"
                )
            one.view = await self._create_view(request, one, wanted, log_index, part_first=part_first)
        await one.view.apply_changes(one.changes)
        return one.view

    def _free_view(self) -> bool:
        """Takes the view of another transaction that can have a new one at any time."""
        for other in self.open.values():
            if other.view is not None and not other.reads_snapshot and not other.lock.locked():
                self._release_view(other)
                return True
        return False

    async def _create_view(
        self,
        request: Request,
        one: OpenTransaction,
        wanted: frozenset[str] | None,
        log_index: int,
        *,
        part_first: bool,
    ) -> TransactionView:
        """A view of all data; if that is too much, of the wanted predicates."""
        part = wanted is not None and not one.reads_snapshot
        create = partial(TransactionView.create, self._evaluator_pool, self._reads, request)
        if part and part_first:
            with suppress(TooLarge):
                return await create(wanted, log_index)
        now = time.monotonic()
        if not part or now >= self._too_large_until:
            try:
                return await create(None, log_index, keep=one.read_set is not None)
            except TooLarge:
                self._too_large_until = now + TOO_LARGE_CACHE_S
        if not part:
            raise view_too_large("the repository", LOWER_LEVEL_ADVICE if one.reads_snapshot else SMALLER_READ_ADVICE)
        try:
            return await create(wanted, log_index)
        except TooLarge:
            raise view_too_large("all that has the predicates which it names", SMALLER_READ_ADVICE) from None

    async def _query(self, request: Request, one: OpenTransaction) -> Response:
        if not self._has_own_view(one):
            return await self._reads.query(request, NO_PARAMETERS)
        asked = await self._reads.parse_query(request)
        if asked.level:
            raise BadInput("explain: a query of a transaction that has written is evaluated here, not by a worker")
        wanted = await run_sparql_off_loop(len(asked.text), lambda: query_predicates(asked.text), is_query=True)
        answer = await (await self._view_for(request, one, wanted)).query(asked)
        answer.headers["TxLog-Literals"] = stored_form(self._site.literals.keeps)
        if one.read_set is not None:
            one.read_set.add_read(wanted, query_request(asked))
        return answer

    async def _net_lines(self, one: OpenTransaction) -> LineChanges | None:
        """The writes as lines, if a worker's statements can be read together with them: quads only, and no snapshot."""
        if one.reads_snapshot:
            return None
        if sum(len(part.payload) for part in one.changes[one.netted_count :]) > OFF_LOOP_BYTES:
            await asyncio.to_thread(one.update_net_lines)
        else:
            one.update_net_lines()
        return one.net_lines

    async def _get(self, request: Request, one: OpenTransaction) -> Response:
        if not self._has_own_view(one):
            return await self._reads.statements(request, NO_PARAMETERS)
        plain = await self._net_lines(one)
        if plain is not None:
            return await self._reads.statements_with_changes(request, plain)
        form = negotiate_format(request, tuple(RDF_FORMATS))
        terms = pattern_terms(request, as_written=self._site.literals.keeps)
        graphs = context_parameters(request)
        wanted = None if terms[1] is None else frozenset((terms[1],))
        body = await (await self._view_for(request, one, wanted)).statements(terms, graphs, form)
        if one.read_set is not None:
            one.read_set.add_read(wanted, match_request(terms, graphs, form))
        answer = bytes_response(body, form.media_type)
        answer.headers["TxLog-Literals"] = stored_form(self._site.literals.keeps)
        return answer

    async def _size(self, request: Request, one: OpenTransaction) -> Response:
        if not self._has_own_view(one):
            return await self._reads.size(request, NO_PARAMETERS)
        plain = await self._net_lines(one)
        if plain is not None:
            return text_response(str(await self._reads.size_with_changes(request, plain)))
        graphs = context_parameters(request)
        size = await (await self._view_for(request, one, None)).size(graphs)
        if one.read_set is not None:
            one.read_set.add_read(None, count_request(graphs))
        return text_response(str(size))

    async def _ping(self, request: Request, one: OpenTransaction) -> Response:
        return text_response(str(round(self.idle_s * 1000)))

    # Commit and rollback

    async def _prepare(self, request: Request, one: OpenTransaction) -> Response:
        """Refuses what a commit would refuse now. It reserves nothing: others may still come before the commit."""
        if one.read_set and one.view is not None and one.changes:
            asked = read_write_options(self._site, request)
            update, condition = await commit_condition(one, one.read_set, one.view)
            await self._writes.prepare_serializable(request, update, condition, asked.timeout_s)
        return web.Response()

    async def _commit(self, request: Request, one: OpenTransaction) -> Response:
        """Commits as one entry of the log. Its idempotency key is the transaction itself unless the client gives one. A
        repeated commit, here or at another master, therefore takes effect once."""
        asked = self._commit_options(request, one)
        prepared = concatenate(one.changes)
        if not prepared.payload:
            self._close_transaction(one, EndedTransaction("it was committed, and had written nothing", True))
            return web.Response()
        if one.read_set is not None and one.read_set and one.view is not None:
            return await self._commit_serializable(request, one, one.read_set, one.view, asked)
        # Once it was handed to the log, only this key finds it again: under another one it would be a second entry.
        key = one.commit_key if one.committing else asked.key or f"transaction:{one.name}"
        submission = Submission(
            prepared.kind, key, prepared.payload, content_hash(prepared.kind, key, prepared.payload)
        )
        before, one.committing, one.commit_key = one.committing, True, key
        try:
            answer = await self._writes.write(submission, asked._replace(key=key))
        except (BadInput, Refused):
            one.committing = before  # no more was accepted than before: the client may retry or, else, roll back
            raise
        return answer if answer.status == 202 else self._end_commit(one, answer)

    def _commit_options(self, request: Request, one: OpenTransaction) -> WriteOptions:
        """The options of a commit, whose client knows 202: RDF4J's own insists on 200 here."""
        asked = read_write_options(self._site, request)._replace(knows_pending=True)
        setting = request.query.get(_SYNCHRONOUS_SETTING)
        if setting is not None and asked.synchronous is NO_REQUEST:
            asked = with_synchronous(asked, setting, _SYNCHRONOUS_SETTING)
        if one.synchronous is None:
            return asked
        begun = parse_synchronous(one.synchronous, _SYNCHRONOUS_SETTING)
        return asked._replace(synchronous=refine_request(begun, asked.synchronous))

    async def _commit_serializable(
        self, request: Request, one: OpenTransaction, looked: ReadSet, overlay: TransactionView, asked: WriteOptions
    ) -> Response:
        """Commits on a condition: the transaction would have read the same in the data before its place in the log, and
        its writes would have been the same."""
        update, condition = await commit_condition(one, looked, overlay)
        one.committing = True
        try:
            answer = await self._writes.commit_serializable(request, update, condition, asked)
        except TxLogError:
            one.committing = False
            raise
        except BaseException:
            how = f"its commit broke off, and {_UNKNOWN}: look at the data"
            self._close_transaction(one, EndedTransaction(how))
            raise
        return self._end_commit(one, answer)

    def _end_commit(self, one: OpenTransaction, answer: Response) -> Response:
        if isinstance(answer, RawResponse) and answer.status == RolledBack.status:
            one.committing = False  # nothing of it took effect, and its key is free again
            return answer
        if answer.status == 202:
            self._close_transaction(one, EndedTransaction(_UNKNOWN))
            return answer
        txid = answer.txid if isinstance(answer, RawResponse) else None
        self._close_transaction(one, EndedTransaction("it was committed", txid is not None, txid))
        return _as_rdf4j(answer)

    async def _commit_again(self, request: Request, txid: Txid | None) -> Response:
        """Answers a commit that was repeated because its answer was lost: about the first, at the level asked now."""
        asked = read_write_options(self._site, request)._replace(knows_pending=True)
        return web.Response() if txid is None else _as_rdf4j(await self._writes.answer_repeat(txid, asked))

    async def _rollback(self, request: Request, one: OpenTransaction) -> Response:
        self._close_transaction(one, EndedTransaction("it was rolled back"))
        return web.Response(status=204)


def _as_rdf4j(answer: Response) -> Response:
    """RDF4J's clients insist on 200 for a commit."""
    return answer.as_status(200) if isinstance(answer, RawResponse) and answer.status == 204 else answer
