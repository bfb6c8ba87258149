"""Writes of plain RDF4J and SPARQL clients: one request, one transaction."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence

from txlog.http.router import RawResponse, Request, Response, Route, read_body
from txlog.http.write_options import WriteOptions
from txlog.model.durability import WORKER_LEVELS, Durability
from txlog.model.entry import KIND_QUADS, KIND_UPDATE
from txlog.model.errors import BadInput, Conflict, KeyNotTaken, NotDeterministic, OutcomeUndecided, Refused, Unsupported
from txlog.model.hashes import content_hash, content_state
from txlog.model.ids import Txid
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_loop import PendingWrite
from txlog.runtime.payload_transfer import LARGE_PAYLOAD_BYTES
from txlog.runtime.transaction_status import BELOW_APPLIED, TransactionOutcome
from txlog.server.frontdoor.evaluated_updates import DataCondition, OptimisticUpdateExecutor
from txlog.server.frontdoor.graph_creation import refuse_existing_graphs
from txlog.server.frontdoor.load_fetcher import LoadFetcher
from txlog.server.frontdoor.namespace_changes import build_entries
from txlog.server.frontdoor.off_loop import (
    OFF_LOOP_BYTES,
    OFF_LOOP_TERMS,
    parse_form,
    run_off_loop,
    run_sparql_off_loop,
)
from txlog.server.frontdoor.portability_rule import PortabilityRule
from txlog.server.frontdoor.read_router import ReadRouter
from txlog.server.frontdoor.request_parameters import (
    context_parameters,
    draw_blank_node_seed,
    read_write_options,
    repository_routes,
)
from txlog.server.frontdoor.synchronous_answers import find_reply
from txlog.server.frontdoor.synchronous_door import (
    SynchronousDoor,
    is_synchronous,
    level_of,
    recognise_repeat,
)
from txlog.server.frontdoor.update_request import (
    UpdateRequest,
    means_all_graphs,
    now_text,
    parse_update_request,
    strip_angle_brackets,
)
from txlog.server.frontdoor.write_responses import (
    WriteResponseFormatter,
    accepted_txid,
    timeout_response,
    worker_refusal_response,
)
from txlog.sparql import EvaluatedUpdate, TransactionBody, find_loads, prepare_rdf
from txlog.sparql.formats.rdf4j_transaction_xml import prepare_rdf_transaction
from txlog.sparql.packed_upload import is_packed, prepare_packed_removal, prepare_upload

UPDATE_MEDIA_TYPE = "application/sparql-update"
_RDF_TRANSACTION = "application/x-rdftransaction"
_FORM = "application/x-www-form-urlencoded"
_CREATE = re.compile(r"\bCREATE\b", re.IGNORECASE)


class WriteHandler:
    """``POST /repositories/{id}/statements``. ``effects`` runs the updates that are evaluated once. ``loads`` fetches
    for ``LOAD``. If one of them is None, its updates are refused. ``router`` finds a store in which to look whether a
    graph exists that CREATE would make."""

    def __init__(
        self,
        site: MasterContext,
        effects: OptimisticUpdateExecutor | None,
        loads: LoadFetcher | None = None,
        router: ReadRouter | None = None,
    ) -> None:
        self._optimistic_updates = effects
        self._load_fetcher = loads
        self._router = router
        self._all_graphs = site.config.updates_without_graph == "all"
        self._portability = PortabilityRule(site)
        self._site = site
        self._loop = site.loop
        self._durability = site.durability
        self.bytes_max = site.config.limits.body_bytes
        self.response_formatter = WriteResponseFormatter(site.durability, site.literals, site.api_path)
        self.synchronous_door = SynchronousDoor(lambda: site.status.configuration)

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return repository_routes("/statements", POST=self.post)

    async def post(self, request: Request, names: Mapping[str, str]) -> Response:
        """Accepts a SPARQL update, an RDF body or an ``x-rdftransaction`` as one transaction."""
        asked = read_write_options(self._site, request)
        media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media in (UPDATE_MEDIA_TYPE, _FORM):
            update = await self._read_update_request(request)
            try:
                prepared = await self._prepare(request, update)
            except NotDeterministic as refused:
                if refused.construct == "LOAD" and self._load_fetcher is not None:
                    return await self._post_load(self._load_fetcher, update, asked)
                return await self._post_evaluated_once(request, update, asked, refused)
        elif media == _RDF_TRANSACTION:
            return await self._rdf_transaction(request, asked)
        else:
            prepared = await self.read_upload(request, context_parameters(request) or [])
        content = await self._hash_content(prepared, asked.key)
        return await self.write(Submission(prepared.kind, asked.key, prepared.payload, content), asked)

    async def _prepare(self, request: Request, update: UpdateRequest) -> TransactionBody:
        """The update as a transaction; with CREATE, after a look at whether the graph exists. Without allowed sources a
        ``LOAD SILENT`` adds nothing."""
        size = len(update.text)
        created = await run_sparql_off_loop(size, update.created_graphs) if _CREATE.search(update.text) else []
        if created and self._router is not None:
            await refuse_existing_graphs(self._router, request, created)
        try:
            return await self._prepare_checked(size, update.prepare)
        except NotDeterministic as refused:
            if refused.construct != "LOAD" or self._load_fetcher is not None:
                raise
            loads = await run_sparql_off_loop(size, lambda: find_loads(update.text, base=update.base))
            if not all(each.silent for each in loads):
                raise
            return await self._prepare_checked(size, lambda: update.prepare_loaded({}))

    async def _prepare_checked(self, size: int, prepare: Callable[[], TransactionBody]) -> TransactionBody:
        traits = self._portability.traits()
        return await run_sparql_off_loop(size, lambda: self._portability.check(prepare(), traits))

    async def _post_load(self, loads: LoadFetcher, update: UpdateRequest, asked: WriteOptions) -> Response:
        """An update with ``LOAD``: the master fetches its sources now, once, and logs them as quads
        (:mod:`.load_fetcher`)."""
        if asked.key:
            raise KeyNotTaken(
                "Idempotency-Key: a LOAD may fetch something else each time, so it has no key; send it without"
            )
        wanted = await run_sparql_off_loop(len(update.text), lambda: find_loads(update.text, base=update.base))
        until = time.monotonic() + asked.timeout_s
        documents = await loads.fetch_all(wanted, asked.timeout_s)
        size = len(update.text) + sum(len(document.body) for document in documents.values())
        prepared = await self._prepare_checked(size, lambda: update.prepare_loaded(documents))
        left = max(0.0, until - time.monotonic())
        content = await self._hash_content(prepared, "")
        return await self.write(
            Submission(prepared.kind, "", prepared.payload, content), asked._replace(timeout_s=left)
        )

    async def _post_evaluated_once(
        self, request: Request, update: UpdateRequest, asked: WriteOptions, refused: NotDeterministic
    ) -> Response:
        """An update that is evaluated once, with its effect in the log (:mod:`.evaluated_updates`)."""
        if not refused.once:
            raise refused
        if self._optimistic_updates is None:
            why = f"{refused.why} (nonDeterministicUpdates of this cluster is refuse)"
            raise NotDeterministic(refused.construct, why)
        if asked.key:
            raise KeyNotTaken(
                f"Idempotency-Key: {refused.construct} makes this update one that is evaluated once, and tried again "
                "where others come between; such a one has no key. Send it without"
            )
        evaluated = await self._prepare_evaluated(update)
        return await self._submit_evaluated(self._optimistic_updates, request, evaluated, asked, None)

    async def _prepare_evaluated(self, update: UpdateRequest) -> EvaluatedUpdate:
        traits = self._portability.traits()

        def prepare() -> EvaluatedUpdate:
            evaluated = update.prepare_evaluated()
            self._portability.check_terms(KIND_UPDATE, evaluated.text.encode(), traits)
            return evaluated

        return await run_sparql_off_loop(len(update.text), prepare)

    async def commit_serializable(
        self, request: Request, update: EvaluatedUpdate, condition: DataCondition, asked: WriteOptions
    ) -> Response:
        """Commits an update that takes effect only if ``condition`` holds for the data before its index."""
        effects = self._conditional_updates()
        if asked.key:
            raise BadInput("Idempotency-Key: the commit of a SERIALIZABLE transaction that has read takes none")
        return await self._submit_evaluated(effects, request, update, asked, condition)

    async def prepare_serializable(
        self, request: Request, update: EvaluatedUpdate, condition: DataCondition, timeout_s: float
    ) -> None:
        """Raises :class:`Conflict` where :meth:`commit_serializable` would, for the data at the end of the log."""
        await self._conditional_updates().check(request, update, condition, timeout_s)

    def _conditional_updates(self) -> OptimisticUpdateExecutor:
        if self._optimistic_updates is None:
            raise Conflict(
                "Transaction handling error: what this transaction has read cannot be compared at its commit, since "
                "nonDeterministicUpdates of this cluster is refuse; begin it as SNAPSHOT"
            )
        return self._optimistic_updates

    async def _submit_evaluated(
        self,
        effects: OptimisticUpdateExecutor,
        request: Request,
        update: EvaluatedUpdate,
        asked: WriteOptions,
        condition: DataCondition | None,
    ) -> Response:
        self._portability.check_effects()
        self._loop.in_flight += 1
        try:
            write, known = await effects.submit(request, update, asked, condition)
            if not known:
                return self._outcome_unknown(write, asked)
            if is_synchronous(write.batch[-1]):
                return await self.synchronous_response(write, asked._replace(level=level_of(asked)))
            return await self.final_response(write, asked, True)
        finally:
            self._loop.in_flight -= 1

    def _outcome_unknown(self, write: PendingWrite, asked: WriteOptions) -> Response:
        answer = write.answers[0] if write.answers else None
        txid = answer.txid if isinstance(answer, SubmissionAccepted) else None
        if txid is not None and self._is_rolled_back(txid):
            reply = find_reply(SynchronousAnswer.ROLLED_BACK, asked.level, knows_pending=asked.knows_pending)
            return self.response_formatter.synchronous_response(txid, None, reply)
        if is_synchronous(write.batch[-1]) and not asked.knows_pending:
            raise OutcomeUndecided("not known yet whether this update takes effect; look at the data")
        if txid is None:
            return timeout_response()
        headers = self.response_formatter.headers(txid, None) + "Content-Type: text/plain; charset=utf-8\r\n"
        text = f"not known yet whether {txid} takes effect: others may come between; look at the data\n"
        return RawResponse(202, headers.encode(), text.encode())

    def _is_rolled_back(self, txid: Txid) -> bool:
        return self._durability.synchronous_answer(txid, Durability.SYNCED) is SynchronousAnswer.ROLLED_BACK

    async def _rdf_transaction(self, request: Request, asked: WriteOptions) -> Response:
        """``x-rdftransaction``. Changes of namespaces become entries of their own, directly before the entry of the
        data. The master accepts all of them or none."""
        body = await read_body(request, self.bytes_max, self._site.interactive_load)
        upload = await run_sparql_off_loop(
            len(body), lambda: prepare_rdf_transaction(body, now=now_text(), draw=draw_blank_node_seed)
        )
        prepared = await self._prepare_checked(len(body), lambda: upload.prepared)
        before = build_entries(upload.namespaces)
        if before and asked.key:
            raise BadInput("Idempotency-Key: a transaction that changes namespaces is several entries and has no key")
        content = await self._hash_content(prepared, asked.key)
        data = Submission(prepared.kind, asked.key, prepared.payload, content)
        if before and not prepared.payload:
            *before, data = before
        return await self.write(data, asked, before)

    async def write(self, submission: Submission, asked: WriteOptions, before: Sequence[Submission] = ()) -> Response:
        """Submits one transaction and answers when it has reached its level, or at the time-out with the URL of its
        status. ``before``: submissions that go with it, at smaller indexes; none of them may be a repeat. Raises
        :class:`BadInput` for a term that not every store of the cluster can keep."""
        until = time.monotonic() + asked.timeout_s
        kind, payload, traits = submission.kind, submission.payload, self._portability.traits()
        await run_off_loop(len(payload), lambda: self._portability.check_terms(kind, payload, traits), OFF_LOOP_TERMS)
        submission = await self.synchronous_door.convert_off_loop(submission, asked.synchronous)
        if is_synchronous(submission):
            asked = asked._replace(level=level_of(asked))
            if before:
                raise BadInput(
                    "a transaction that changes namespaces is several entries, and this one takes effect only where a "
                    "quorum holds it; change the namespaces in a request of their own"
                )
        loop, payload = self._loop, submission.payload
        if len(payload) >= LARGE_PAYLOAD_BYTES and self._site.payload_transfer is not None:
            loop.in_flight += 1
            try:
                await self._site.payload_transfer.replicate(kind, submission.key, payload, submission.content)
            finally:
                loop.in_flight -= 1
        write = loop.write([*before, submission], asked.level)
        trace = self._site.trace_write(write, asked.traceparent)
        loop.in_flight += 1
        try:
            reached = await self._durability.wait_for(write.reached, asked.timeout_s)
            if is_synchronous(submission):
                left = max(0.0, until - time.monotonic())
                return await self.synchronous_response(write, asked._replace(timeout_s=left))
            return self.fast_response(write, asked, reached) or await self.final_response(write, asked, reached)
        finally:
            loop.in_flight -= 1
            if trace is not None:
                trace.end()

    def fast_response(self, write: PendingWrite, asked: WriteOptions, reached: bool) -> RawResponse | None:
        """The answer of the usual case: a transaction that is no repeat has reached its level. None in all other
        cases."""
        txid = accepted_txid(write, reached) if asked.level in BELOW_APPLIED else None
        return None if txid is None else self._success_response(txid, asked.level)

    async def final_response(self, write: PendingWrite, asked: WriteOptions, reached: bool) -> Response:
        """The answer of every other case. Raises the error with which the core refused it."""
        if not write.answers:
            return timeout_response()
        answer, synchronous = self._recognise(write, asked)
        if synchronous:
            return await self._synchronous_outcome(answer, asked)
        return await self._ordinary_outcome(answer, asked, reached)

    async def answer_repeat(self, txid: Txid, asked: WriteOptions) -> Response:
        """The answer about a transaction that was accepted before."""
        answer = SubmissionAccepted(txid, repeat=True)
        if self._durability.synchronous_answer(txid, asked.level) is not None:
            return await self._synchronous_outcome(answer, asked)
        return await self._ordinary_outcome(answer, asked, False)

    async def synchronous_response(self, write: PendingWrite, asked: WriteOptions) -> Response:
        """What may be answered about a synchronous transaction now. Raises the error with which the core refused it."""
        if not write.answers:
            if not asked.knows_pending:
                raise OutcomeUndecided(
                    "not known yet whether it was accepted; look at the data, or repeat it under its key"
                )
            return timeout_response()
        return await self.final_response(write, asked, False)

    def _recognise(self, write: PendingWrite, asked: WriteOptions) -> tuple[SubmissionAccepted, bool]:
        """What the core accepted, now or in an earlier try, and whether it is synchronous. Raises what refused it."""
        status = self._site.status
        answer, synchronous = recognise_repeat(status, write.batch[-1], write.answers[-1], asked.synchronous)
        if isinstance(answer, Refused):
            raise answer
        return answer, synchronous

    async def _ordinary_outcome(self, answer: SubmissionAccepted, asked: WriteOptions, reached: bool) -> Response:
        txid = answer.txid
        if answer.is_repeat or asked.level not in BELOW_APPLIED:
            reached = await self._site.transactions.wait_for_level(txid, asked.level, asked.timeout_s)
        outcome = self._site.transactions.outcome(txid, asked.level)
        if outcome.state in ("skipped", "blocked") and asked.level in WORKER_LEVELS:
            return worker_refusal_response(outcome)
        return (
            self._success_response(txid, outcome.level or Durability.ACCEPTED)
            if reached
            else self._pending_response(outcome)
        )

    async def _synchronous_outcome(self, answer: SubmissionAccepted, asked: WriteOptions) -> Response:
        txid, transactions = answer.txid, self._site.transactions
        asked = asked._replace(level=level_of(asked))
        if answer.is_repeat or asked.level not in BELOW_APPLIED:
            await transactions.wait_for_level(txid, asked.level, asked.timeout_s)
        outcome = transactions.outcome(txid, asked.level)
        if outcome.state in ("skipped", "blocked") and asked.level in WORKER_LEVELS:
            return worker_refusal_response(outcome)
        known = self._durability.synchronous_answer(txid, asked.level) or SynchronousAnswer.COMMITTED
        reply = find_reply(known, asked.level, knows_pending=asked.knows_pending)
        return self.response_formatter.synchronous_response(txid, outcome.level, reply)

    def _success_response(self, txid: Txid, level: Durability) -> RawResponse:
        return RawResponse(204, self.response_formatter.headers(txid, level).encode())

    def _pending_response(self, outcome: TransactionOutcome) -> Response:
        txid = outcome.txid
        headers = self.response_formatter.headers(txid, outcome.level)
        location = f"{self._site.api_path}/transactions/{txid}"
        headers += f"Location: {location}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        reached = outcome.level.value if outcome.level else "nothing yet"
        return RawResponse(202, headers.encode(), f"reached so far: {reached}; ask {location}\n".encode())

    # The body

    def check_plain_quad(self, payload: bytes) -> None:
        """Raises :class:`BadInput` for a term that not every store of the cluster can keep."""
        self._portability.check_terms(KIND_QUADS, payload)

    def prepare_plain(self, body: bytes, kind: str) -> TransactionBody:
        """Prepares a body without parameters: an update or RDF. Raises the error that :meth:`post` would answer with,
        or another one that marks the body as *not plain*."""
        if kind.partition(";")[0].strip().lower() != UPDATE_MEDIA_TYPE:
            found = prepare_rdf(body, kind, base=None, contexts=[], draw=draw_blank_node_seed)
            self._portability.check_terms(found.kind, found.payload)
            return found
        text = _decode_text(body, "MALFORMED QUERY")
        if not text.strip():
            raise BadInput("Updates must be non-empty")
        if _CREATE.search(text):
            raise BadInput("CREATE needs a look at a store")
        return self._portability.check(UpdateRequest(text, None, self._all_graphs).prepare())

    async def read_update(self, request: Request) -> TransactionBody | EvaluatedUpdate:
        """The update of a request: its body, a form field, or the parameter ``update``. One that two stores could
        execute differently is one to evaluate once."""
        update = await self._read_update_request(request)
        try:
            return await self._prepare(request, update)
        except NotDeterministic as refused:
            if not refused.once or self._optimistic_updates is None:
                raise
            return await self._prepare_evaluated(update)

    async def _read_update_request(self, request: Request) -> UpdateRequest:
        media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        body = await read_body(request, self.bytes_max, self._site.interactive_load)
        all_graphs = means_all_graphs(request, self._all_graphs)
        query = list(request.query.items()) if "?" in request.raw_path else []
        if media == _FORM:
            query += await parse_form(_decode_text(body, "MALFORMED QUERY"))
            text = dict(query).get("update")
            if text is None:
                raise BadInput("the form has no update=; a query is sent to the repository, not to its statements")
        elif not body and "update" in dict(query):
            text = dict(query)["update"]
        else:
            text = _decode_text(body, "MALFORMED QUERY")
        size = sum(len(name) + len(value) for name, value in query) + len(text)
        return await run_sparql_off_loop(size, lambda: parse_update_request(text, query, all_graphs))

    def _yield_to_interactive(self) -> None:
        """Yields to interactive requests; it runs in another thread than the loop's."""
        if self._site.interactive_load.is_active:
            time.sleep(YIELD_S)

    async def _hash_content(self, prepared: TransactionBody, key: str) -> bytes:
        """The content hash. A long payload is hashed in pieces; other requests get the processor between them."""
        kind, payload = prepared.kind, prepared.payload
        if len(payload) < OFF_LOOP_BYTES:
            return content_hash(kind, key, payload)

        def hashed() -> bytes:
            state = content_state(kind, key)
            for offset in range(0, len(payload), HASH_CHUNK_BYTES):
                state.update(memoryview(payload)[offset : offset + HASH_CHUNK_BYTES])
                self._yield_to_interactive()
            return state.digest()

        return await asyncio.get_running_loop().run_in_executor(None, hashed)

    async def read_removal(self, request: Request, graphs: Sequence[str] | None) -> TransactionBody:
        """An RDF body as deletions from these graphs. None: from the graph that each statement names, or from all
        graphs."""
        kind = request.headers.get("Content-Type", "")
        body = await read_body(request, self.bytes_max, self._site.interactive_load)
        base = strip_angle_brackets(request.query.get("baseURI"))
        size = PACKED_BYTES if is_packed(body) else len(body)
        return await run_off_loop(
            size, lambda: prepare_packed_removal(body, kind, self.bytes_max, base=base, graphs=graphs)
        )

    async def read_upload(self, request: Request, graphs: Sequence[str]) -> TransactionBody:
        """An RDF body as additions to these graphs (``<iri>``, "" for the default graph). Without graphs: to those that
        the body names."""
        kind = request.headers.get("Content-Type", "")
        if not kind.partition(";")[0].strip():
            raise Unsupported("no Content-Type; send application/sparql-update or an RDF format such as text/turtle")
        body = await read_body(request, self.bytes_max, self._site.interactive_load)
        base = request.query.get("baseURI")
        contexts = [graph or "null" for graph in graphs]
        same = request.query.get("preserveNodeId", "").lower() == "true"
        return await run_off_loop(
            PACKED_BYTES if is_packed(body) else len(body),
            lambda: prepare_upload(
                body,
                kind,
                self.bytes_max,
                base=strip_angle_brackets(base),
                contexts=contexts,
                draw=draw_blank_node_seed,
                same_nodes=same,
                yield_control=self._yield_to_interactive,
            ),
        )


PACKED_BYTES = OFF_LOOP_BYTES
"""The size that a packed body counts as: it may unpack to any."""

HASH_CHUNK_BYTES = 512 << 10
"""Bytes hashed at once; takes half a millisecond."""
YIELD_S = 0.001
"""Time slice, in seconds. A long body is processed for about this long; then other requests, if there are any, get the
interpreter and the processor for as long. The body takes twice the time, and small requests are not delayed by it."""


def _decode_text(body: bytes, what: str) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise BadInput(f"{what}: not UTF-8 at byte {wrong.start}") from None
