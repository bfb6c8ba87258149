"""Reads of plain RDF4J and SPARQL clients, answered by a worker of this data centre and streamed."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from aiohttp import ClientError, ClientResponse, web

from txlog.http.body_compression import VARY
from txlog.http.router import (
    Request,
    Response,
    Route,
    bytes_response,
    read_body,
    text_response,
)
from txlog.model.errors import BadInput, NotAcceptable, Unavailable, Unsupported
from txlog.runtime.master_context import MasterContext
from txlog.server.frontdoor.answer_steps import clean_lines, read_beginning, resume, steps_for
from txlog.server.frontdoor.answer_stream import send_stream
from txlog.server.frontdoor.describe import append_answers, find_statement_queries
from txlog.server.frontdoor.off_loop import parse_form, run_sparql_off_loop
from txlog.server.frontdoor.portability_rule import PortabilityRule
from txlog.server.frontdoor.query_plans import explain_query
from txlog.server.frontdoor.query_request import ACCEPT_CHARS_MAX, ParsedQuery, parse_query_request
from txlog.server.frontdoor.read_router import (
    ALL_STATEMENTS,
    RETRY_S,
    ReadRouter,
    WorkerQuery,
    WorkerRequestSpec,
    worker_error,
)
from txlog.server.frontdoor.request_parameters import (
    context_parameters,
    pattern_terms,
    repository_routes,
)
from txlog.server.frontdoor.result_formats import (
    BINARY_TABLE,
    BOOLEAN,
    N_QUADS,
    N_TRIPLES,
    PREFERRED_FORMATS,
    RDF_FORMATS,
    RESULTS_JSON,
    convert_to_binary_table,
    converter,
    negotiate_format,
)
from txlog.server.frontdoor.statement_lines import (
    LineChanges,
    StatementPattern,
    added_lines,
    filter_lines,
    unchanged_line_filter,
)
from txlog.server.frontdoor.statement_reads import StatementRead, read_of_graph, read_of_pattern
from txlog.server.frontdoor.stream_converter import Stage, StreamConverter, convert_stream
from txlog.server.frontdoor.tabular_results import accept_header, table_response
from txlog.server.frontdoor.worker_choice import WorkerCandidate
from txlog.sparql.rewrite.star_query import speaks_star
from txlog.sparql.skolem_iris import iri_to_label
from txlog.workers import Adapter
from txlog.workers.adapter import RequestOutcome, Unreachable, WorkerRequest, WorkerResponse
from txlog.workers.canonical_literals import literal_form


class ReadHandler:
    """The read paths of RDF4J's REST API and of SPARQL."""

    def __init__(self, site: MasterContext) -> None:
        self._site = site
        self._bytes_max = site.config.limits.body_bytes
        self._literals = site.literals
        self._portability = PortabilityRule(site)
        self.router = ReadRouter(site)

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [
            *repository_routes("", GET=self.query, POST=self.query),
            *repository_routes("/size", GET=self.size),
            *repository_routes("/contexts", GET=self.contexts),
            *repository_routes("/rdf-graphs", GET=self.contexts),
            *repository_routes("/statements", GET=self.statements),
        ]

    # Queries

    async def query(self, request: Request, names: Mapping[str, str]) -> Response:
        """Answers a SPARQL query from a worker."""
        asked = await self.parse_query(request)
        if asked.level:
            plan = WorkerQuery(asked.text, asked.accept, asked.union, asked.default, asked.named)
            return await explain_query(self.router, request, plan, asked.level, asked.seconds)
        made = asked.converted_format
        wanted = asked.accept if not made else RESULTS_JSON if made in (BOOLEAN, BINARY_TABLE) else N_TRIPLES
        build = WorkerQuery(asked.text, wanted, asked.union, asked.default, asked.named)
        if made == BOOLEAN:
            return await self._boolean_response(request, build)
        following: list[WorkerQuery] = []
        if asked.form == "DESCRIBE" and made:
            texts = await find_statement_queries(self.router, request, build, asked.seconds)
            build, *following = [build._replace(text=text) for text in texts]
        if not made or made == N_TRIPLES:
            return await self._stream_response(request, build, asked.seconds, following=following)
        convert = convert_to_binary_table if made == BINARY_TABLE else converter(RDF_FORMATS[made])
        headers = {"Content-Type": made}
        return await self._stream_response(
            request, build, asked.seconds, headers=headers, following=following, convert=convert
        )

    async def parse_query(self, request: Request) -> ParsedQuery:
        """The query that URL, form and body request together; :class:`BadInput` names an error in them."""
        parameters, text = await self._read_parameters(request)
        if text is None:
            raise BadInput("Missing parameter: query; send it as query=, or as a body of application/sparql-query")
        accept = dict(parameters).get("Accept") or accept_header(request)
        if len(accept) > ACCEPT_CHARS_MAX:
            raise BadInput(f"Accept: at most {ACCEPT_CHARS_MAX} characters")
        star = "<<" in text and not self._portability.lacking_engine()
        given, asked = tuple(parameters), text
        size = sum(len(name) + len(value) for name, value in given) + len(asked)
        return await run_sparql_off_loop(
            size, lambda: parse_query_request(given, asked, accept, star=star and speaks_star(accept)), is_query=True
        )

    async def _read_parameters(self, request: Request) -> tuple[list[tuple[str, str]], str | None]:
        """All parameters, of the URL and the form, and the query itself."""
        parameters = [(name, value) for name, value in request.query.items()]
        if request.method not in ("POST", "PUT"):
            return parameters, dict(parameters).get("query")
        media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        body = await read_body(request, self._bytes_max)
        if not body and "query" in request.query:
            return parameters, request.query["query"]
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError as wrong:
            raise BadInput(f"MALFORMED QUERY: not UTF-8 at byte {wrong.start}") from None
        if media == "application/sparql-query":
            return parameters, text
        if media == "application/x-www-form-urlencoded":
            form = await parse_form(text, is_query=True)
            if "update" in dict(form):
                raise BadInput("an update is sent to the repository's statements")
            return [*parameters, *form], dict(form).get("query", dict(parameters).get("query"))
        raise Unsupported(
            f"Content-Type: {media[:80] or 'none'}; a query is application/sparql-query or a form with query="
        )

    async def _boolean_response(self, request: Request, build: WorkerRequestSpec) -> Response:
        answer = await self.router.fetch(request, build)
        if answer.status != 200:
            raise worker_error(answer.status, answer.text)
        found = re.search(rb'"boolean"\s*:\s*(true|false)', answer.body)
        if found is None:
            raise NotAcceptable("Accept: text/boolean is for ASK")
        return bytes_response(found[1], "text/boolean")

    async def _stream_response(
        self,
        request: Request,
        build: WorkerRequestSpec,
        seconds: float | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        keep: Callable[[bytes], bool] | None = None,
        more: Sequence[bytes] = (),
        following: Sequence[WorkerQuery] = (),
        convert: StreamConverter | None = None,
    ) -> Response:
        """The answer of the first worker that gives one: a small one as a whole, another in pieces. If it breaks off,
        so does this one: the client sees an incomplete body. ``keep`` selects its lines; ``more``: lines after those;
        ``following``: queries whose answers come after it; ``convert``: to another format."""
        began = time.monotonic()
        for store in await self.router.choose(request, seconds):
            try:
                async with self.router.open_response(
                    store, await self.router.build_request(store, build), seconds
                ) as answer:
                    if answer.status in (502, 503, 504):
                        continue
                    if answer.status != 200:
                        raise worker_error(answer.status, (await answer.read())[:8000].decode("utf-8", "replace"))
                    media = answer.headers.get("Content-Type", "application/octet-stream")
                    kept = {"Content-Type": media, "Vary": VARY, "TxLog-Worker": store.worker.name, **(headers or {})}
                    steps = steps_for(store.adapter, build, media)
                    kept["TxLog-Literals"] = literal_form(store.adapter.engine, cleaned=steps.prepare is not None)
                    steps = steps._replace(keep=keep or steps.keep, more=more, convert=convert)
                    pieces: AsyncIterator[bytes] = answer.content.iter_any()
                    if following:
                        pieces = append_answers(self.router, store, pieces, following, seconds)
                    else:
                        beginning, is_whole = await _read_beginning(store, answer, steps.small_bytes)
                        if is_whole:
                            return web.Response(body=steps.apply(b"".join(beginning)), headers=kept)
                        pieces = resume(beginning, answer.content)
                    return await send_stream(request, kept, steps.stream(pieces))
            except Unreachable:
                if seconds is not None and time.monotonic() - began >= seconds:
                    raise Unavailable("QueryTimeout", f"Query evaluation took longer than {seconds:g} s") from None
        raise Unavailable("NoWorker", "no worker of this data centre can be reached; ask again", RETRY_S)

    async def dump_statements(self, request: Request) -> AsyncIterator[bytes]:
        """All statements as N-Quads, from one worker and one moment."""
        for store in await self.router.choose(request):
            try:
                async with self.router.open_response(store, store.adapter.snapshot(N_QUADS)) as answer:
                    if answer.status != 200:
                        continue
                    pieces: AsyncIterator[bytes] = answer.content.iter_any()
                    if not store.adapter.capabilities.hidden_marker:
                        pieces = convert_stream(pieces, clean_lines(store.adapter), Stage.PREPARE)
                    try:
                        async for piece in pieces:
                            yield piece
                    except (TimeoutError, ClientError) as broken:
                        raise Unavailable("NoWorker", f"a worker broke off: {broken}; ask again", RETRY_S) from broken
                    return
            except Unreachable:
                continue
        raise Unavailable("NoWorker", "no worker of this data centre can be reached; ask again", RETRY_S)

    # The content of a repository

    async def size(self, request: Request, names: Mapping[str, str]) -> Response:
        """The number of statements."""
        return text_response(
            str(
                await self._count_statements(await self.router.choose(request), context_parameters(request), asked=True)
            )
        )

    async def count(self) -> int:
        """The number of statements at the worker that would answer now. :class:`Unavailable` without one."""
        return await self._count_statements(self.router.readable_workers(), None, asked=False)

    async def _count_statements(
        self, stores: Sequence[WorkerCandidate], graphs: list[str] | None, *, asked: bool
    ) -> int:
        """Counts the statements. ``asked``: the request of a client of the repository."""
        counted = None if graphs is None else [g.strip("<>") if g else None for g in graphs]
        adapter, answer = await self._ask_adapter(stores, lambda one: one.size(counted), counted=asked)
        return adapter.parse_size(answer)

    async def _ask_adapter(
        self, stores: Sequence[WorkerCandidate], ask: Callable[[Adapter], WorkerRequest], *, counted: bool = True
    ) -> tuple[Adapter, WorkerResponse]:
        """The good answer of the first worker that gives one, and the adapter that reads it."""
        adapters: list[Adapter] = []

        def build(adapter: Adapter) -> WorkerRequest:
            adapters.append(adapter)
            return ask(adapter)

        answer = await self.router.fetch_from(stores, build, counted=counted)
        if answer.status != 200:
            raise worker_error(answer.status, answer.text)
        return adapters[-1], answer

    async def contexts(self, request: Request, names: Mapping[str, str]) -> Response:
        """The named graphs."""
        adapter, answer = await self._ask_adapter(await self.router.choose(request), lambda one: one.contexts())
        rows = [(iri_to_label(graph), graph) for graph in adapter.parse_contexts(answer)]
        cells = [[("uri", graph) if label is None else ("bnode", label)] for label, graph in rows]
        return table_response(accept_header(request), ("contextID",), cells)

    async def statements_with_changes(self, request: Request, changes: LineChanges) -> Response:
        """The statements that match subj, pred, obj and context, as they would be with these changes. In a format
        without graphs, a statement of several graphs appears once for each, as in RDF4J."""
        form = negotiate_format(request, tuple(RDF_FORMATS))
        terms, graphs = _pattern_parameters(request, self._literals.keeps)
        headers = {"Content-Disposition": f"attachment; filename=statements.{form.extension}"}
        # The master writes the final format, whatever the worker's is.
        headers["Content-Type"] = form.media_type
        convert = None if form.media_type == N_QUADS else converter(form)
        keep = unchanged_line_filter(terms, graphs, changes)
        return await self._stream_response(
            request,
            ALL_STATEMENTS,
            headers=headers,
            keep=keep,
            more=added_lines(terms, graphs, changes),
            convert=convert,
        )

    async def size_with_changes(self, request: Request, changes: LineChanges) -> int:
        """The number of statements that the contexts of this request would have with these changes. It reads all of
        them."""
        terms: list[bytes | None] = [None, None, None]
        graphs = context_parameters(request)
        count = 0
        async for piece in filter_lines(
            self.dump_statements(request),
            unchanged_line_filter(terms, graphs, changes),
            added_lines(terms, graphs, changes),
        ):
            count += piece.count(b"\n")
        return count

    async def statements(self, request: Request, names: Mapping[str, str]) -> Response:
        """All statements, or those that match subj, pred, obj and context."""
        form = negotiate_format(request, tuple(RDF_FORMATS))
        subject, predicate, value = pattern_terms(request, as_written=self._literals.keeps)
        graphs = context_parameters(request)
        pattern = StatementPattern(subject, predicate, value, None if graphs is None else tuple(graphs))
        return await self._stream_statements(request, read_of_pattern(pattern, form))

    async def single_graph(self, request: Request, graph: str) -> Response:
        """One graph (``<iri>``, "" for the default graph); empty if there is no graph of that name, as in RDF4J."""
        return await self._stream_statements(
            request, read_of_graph(graph, negotiate_format(request, PREFERRED_FORMATS))
        )

    async def _stream_statements(self, request: Request, read: StatementRead) -> Response:
        return await self._stream_response(request, read.build, headers=dict(read.headers), convert=read.convert)


async def _read_beginning(store: WorkerCandidate, answer: ClientResponse, bytes_max: int) -> tuple[list[bytes], bool]:
    try:
        return await read_beginning(answer.content, bytes_max)
    except (TimeoutError, ClientError, OSError) as broken:  # nothing is sent yet, so another worker may answer
        raise Unreachable(store.worker.url, f"it broke off: {broken}", RequestOutcome.UNKNOWN) from broken


def _pattern_parameters(request: Request, as_written: bool) -> tuple[list[bytes | None], list[str] | None]:
    terms = pattern_terms(request, as_written=as_written)
    return [None if term is None else term.encode() for term in terms], context_parameters(request)
