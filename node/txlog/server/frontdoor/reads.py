"""Reads of plain RDF4J and SPARQL clients, answered by a worker of this data centre and streamed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import parse_qsl

import pyoxigraph
from aiohttp import ClientError, web

from txlog.model.errors import (
    BadInput,
    NotAcceptable,
    NotFound,
    SystemGraphNamed,
    Unavailable,
    Unsupported,
    WorkerFault,
)
from txlog.runtime.site import Site
from txlog.runtime.web import Request, Response, Route, bytes_answer, read_body, seconds_of, text_answer
from txlog.server.frontdoor.stores import RETRY_S, Stores, lower
from txlog.server.frontdoor.tables import accepted, table_answer
from txlog.sparql import SYSTEM_GRAPHS, hide_system_graphs
from txlog.sparql.tokens import tokens
from txlog.workers import Adapter
from txlog.workers.base import Unreachable, WorkerRequest

PROTOCOL = "12"
SMALL_BYTES = 64 << 10
"""An answer of known length up to this goes out in one piece."""
QUERY_S_MAX = 3600.0
_UNSUPPORTED = ("limit", "offset", "distinct", "explain")
_IGNORED_ACCEPT = ("", "*/*")
_QUADS = ("application/n-quads", "application/trig")
_TRIPLES = ("text/turtle", "application/n-triples", "application/rdf+xml")
_ALIASES = {
    "text/x-nquads": "application/n-quads",
    "application/x-trig": "application/trig",
    "text/plain": "application/n-triples",
    "application/x-turtle": "text/turtle",
}
_EXTENSIONS = {
    "application/n-quads": "nq",
    "application/trig": "trig",
    "text/turtle": "ttl",
    "application/n-triples": "nt",
    "application/rdf+xml": "rdf",
}
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_TERM = rb'(?:<[^>]*>|_:[^ ]+|"(?:[^"\\]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^<[^>]*>)?)'
_LINE = re.compile(rb"^(" + _TERM + rb") (" + _TERM + rb") (" + _TERM + rb")(?: (" + _TERM + rb"))? \.$")


class Reads:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._repository = site.config.repository
        self._bytes_max = site.config.limits.body_bytes
        self.stores = Stores(site)

    def routes(self) -> list[Route]:
        made: list[Route] = []
        for prefix in ("", "/rdf4j-server"):
            one = f"{prefix}/repositories/{{id}}"
            made += [
                Route("GET", f"{prefix}/protocol", self.protocol),
                Route("GET", f"{prefix}/repositories", self.repositories),
                Route("GET", f"{prefix}/repositories/{self._repository}", self.query),
                Route("POST", f"{prefix}/repositories/{self._repository}", self.query),
                Route("GET", one, self.query),
                Route("POST", one, self.query),
                Route("GET", f"{one}/size", self.size),
                Route("GET", f"{one}/contexts", self.contexts),
                Route("GET", f"{one}/rdf-graphs", self.contexts),
                Route("GET", f"{one}/statements", self.statements),
            ]
        return made

    async def protocol(self, request: Request, names: Mapping[str, str]) -> Response:
        return text_answer(PROTOCOL)

    async def repositories(self, request: Request, names: Mapping[str, str]) -> Response:
        name = self._repository
        base = str(request.url.with_query(None)).rstrip("/")
        row = [
            ("uri", f"{base}/{name}"),
            ("literal", name),
            ("literal", f"TxLog cluster {name}"),
            ("boolean", "true"),
            ("boolean", "true"),
        ]
        return table_answer(_accept(request), ("uri", "id", "title", "readable", "writable"), [row])

    def _check(self, names: Mapping[str, str]) -> None:
        if names and names.get("id") != self._repository:
            raise NotFound(f"unknown repository {names['id'][:80]}; this cluster's is {self._repository}")

    # Queries

    async def query(self, request: Request, names: Mapping[str, str]) -> Response:
        self._check(names)
        parameters, text = await self._asked(request)
        if text is None:
            raise BadInput("MALFORMED QUERY: no query; send it as query=, or as a body of application/sparql-query")
        values = dict(parameters)
        language = values.get("queryLn", "SPARQL")
        if language.upper() != "SPARQL":
            raise BadInput(f"UNSUPPORTED QUERY LANGUAGE: {language[:40]}; this server speaks SPARQL")
        for name, _ in parameters:
            if name in _UNSUPPORTED or name.startswith("$"):
                raise BadInput(f"the parameter {name[:40]} is not supported; write it in the query")
        base = values.get("baseURI")
        hidden = hide_system_graphs(text, base=base.strip("<>") if base else None)
        default = [value for name, value in parameters if name == "default-graph-uri"]
        named = [value for name, value in parameters if name == "named-graph-uri"]
        for graph in (*default, *named):
            if graph.strip("<>").startswith(SYSTEM_GRAPHS):
                raise SystemGraphNamed(f"{graph[:80]} is TxLog's own")
        union = not default and not _has_from(hidden)
        graphs = [g.strip("<>") for g in default if g != "null"]
        accept = values.get("Accept") or _accept(request)
        seconds = seconds_of(values.get("timeout"), "timeout", 0.0, QUERY_S_MAX) or None
        boolean = accept.strip().lower() == "text/boolean"
        wanted = "application/sparql-results+json" if boolean else accept

        def build(adapter: Adapter) -> WorkerRequest:
            return adapter.query(hidden, wanted, union=union, default_graphs=graphs, named_graphs=named)

        if boolean:
            return await self._boolean(request, build)
        return await self._stream(request, build, seconds)

    async def _asked(self, request: Request) -> tuple[list[tuple[str, str]], str | None]:
        """All parameters, of the URL and the form, and the query itself."""
        parameters = [(name, value) for name, value in request.query.items()]
        if request.method != "POST":
            return parameters, dict(parameters).get("query")
        media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        body = await read_body(request, self._bytes_max)
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError as wrong:
            raise BadInput(f"MALFORMED QUERY: not UTF-8 at byte {wrong.start}") from None
        if media == "application/sparql-query":
            return parameters, text
        if media == "application/x-www-form-urlencoded":
            form = parse_qsl(text, keep_blank_values=True)
            if "update" in dict(form):
                raise BadInput("an update is sent to the repository's statements")
            return [*parameters, *form], dict(form).get("query", dict(parameters).get("query"))
        raise Unsupported(
            f"Content-Type: {media[:80] or 'none'}; a query is application/sparql-query or a form with query="
        )

    async def _boolean(self, request: Request, build: Callable[[Adapter], WorkerRequest]) -> Response:
        answer = await self.stores.fetch(request, build)
        if answer.status != 200:
            raise _worker_error(answer.status, answer.text)
        found = re.search(rb'"boolean"\s*:\s*(true|false)', answer.body)
        if found is None:
            raise NotAcceptable("Accept: text/boolean is for ASK")
        return bytes_answer(found[1], "text/boolean")

    async def _stream(
        self,
        request: Request,
        build: Callable[[Adapter], WorkerRequest],
        seconds: float | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        change: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None,
    ) -> Response:
        """The answer of the first worker that gives one, piece by piece. When it breaks off, so does ours: the
        client sees a body that does not end."""
        for store in await self.stores.choose(request):
            try:
                async with self.stores.ask(store, build(store.adapter), seconds) as answer:
                    if answer.status in (502, 503, 504):
                        continue
                    if answer.status != 200:
                        raise _worker_error(answer.status, (await answer.read())[:8000].decode("utf-8", "replace"))
                    told = lower(answer.headers)
                    kept = {"Content-Type": told.get("content-type", "application/octet-stream"), "Vary": "Accept"}
                    kept["TxLog-Worker"] = store.worker.name
                    length = int(told.get("content-length", -1))
                    if change is None and 0 <= length <= SMALL_BYTES:
                        return web.Response(body=await answer.read(), headers={**kept, **(headers or {})})
                    response = web.StreamResponse(headers={**kept, **(headers or {})})
                    await response.prepare(request)
                    if request.method == "HEAD":
                        return response
                    pieces = answer.content.iter_any()
                    try:
                        async for piece in pieces if change is None else change(pieces):
                            await response.write(piece)
                    except (TimeoutError, ClientError) as broken:
                        raise ConnectionResetError(f"the worker broke off: {broken}") from broken
                    await response.write_eof()
                    return response
            except Unreachable:
                continue
        raise Unavailable("NoWorker", "no worker of this data centre can be reached; ask again", RETRY_S)

    # What a repository holds

    async def size(self, request: Request, names: Mapping[str, str]) -> Response:
        self._check(names)
        graphs = _contexts(request)
        adapters: list[Adapter] = []

        def build(adapter: Adapter) -> WorkerRequest:
            adapters.append(adapter)
            return adapter.size([g.strip("<>") if g else None for g in graphs] if graphs is not None else None)

        answer = await self.stores.fetch(request, build)
        if answer.status != 200:
            raise _worker_error(answer.status, answer.text)
        return text_answer(str(adapters[-1].size_in(answer)))

    async def contexts(self, request: Request, names: Mapping[str, str]) -> Response:
        self._check(names)
        adapters: list[Adapter] = []

        def build(adapter: Adapter) -> WorkerRequest:
            adapters.append(adapter)
            return adapter.contexts()

        answer = await self.stores.fetch(request, build)
        if answer.status != 200:
            raise _worker_error(answer.status, answer.text)
        found = adapters[-1].contexts_in(answer)
        return table_answer(_accept(request), ("contextID",), [[("uri", graph)] for graph in found])

    async def statements(self, request: Request, names: Mapping[str, str]) -> Response:
        """Everything, or what matches subj, pred, obj and context."""
        self._check(names)
        accept = _accept(request)
        form = accepted(accept, (*_QUADS, *_TRIPLES), _ALIASES)
        if form is None:
            raise NotAcceptable(f"Accept: {accept[:100]}; there are {', '.join((*_QUADS, *_TRIPLES))}")
        subject, predicate, value = (_term(request, name) for name in ("subj", "pred", "obj"))
        graphs = _contexts(request)
        headers = {"Content-Disposition": f"attachment; filename=statements.{_EXTENSIONS[form]}"}
        filtered = any((subject, predicate, value)) or graphs is not None
        if form in _TRIPLES:
            text = _construct(subject, predicate, value, graphs)
            return await self._stream(request, lambda adapter: adapter.query(text, form, union=False), headers=headers)
        if not filtered:
            return await self._stream(request, lambda adapter: adapter.snapshot(form), headers=headers)
        if form != "application/n-quads":
            raise NotAcceptable(f"{form} of a part is not possible; ask for application/n-quads or a triple format")
        keep = _filter([t.encode() if t else None for t in (subject, predicate, value)], graphs)
        return await self._stream(
            request, lambda adapter: adapter.snapshot(form), headers=headers, change=lambda pieces: _lines(pieces, keep)
        )


def _accept(request: Request) -> str:
    given = request.query.get("Accept") if "Accept=" in request.raw_path else None
    accept = given or ", ".join(request.headers.getall("Accept", []))
    return accept or "*/*"


def _has_from(text: str) -> bool:
    return bool(_FROM.search(text)) and any(t.kind == "WORD" and t.text.upper() == "FROM" for t in tokens(text))


def _worker_error(status: int, text: str) -> BadInput | NotAcceptable | WorkerFault:
    text = text.strip()[:2000]
    if status == 400:
        return BadInput(f"MALFORMED QUERY: {text}")
    if status == 406:
        return NotAcceptable(text or "the worker has no such form")
    return WorkerFault(f"the worker answered {status}: {text}")


def _term(request: Request, name: str) -> str | None:
    """A term in N-Triples as canonical text, None when the parameter is not there."""
    text = request.query.get(name)
    if not text:
        return None
    place = {"subj": "{} <x:p> <x:o> .", "pred": "<x:s> {} <x:o> .", "obj": "<x:s> <x:p> {} ."}[name]
    try:
        found = next(iter(pyoxigraph.parse(place.format(text), pyoxigraph.RdfFormat.N_TRIPLES)))
    except (SyntaxError, ValueError, StopIteration):
        raise BadInput(f"{name}={text[:80]}: a term in N-Triples, such as <http://example.org/a>") from None
    return str({"subj": found.subject, "pred": found.predicate, "obj": found.object}[name])


def _contexts(request: Request) -> list[str] | None:
    """Graphs as ``<iri>``, "" for the default graph; None when the request names none."""
    given = request.query.getall("context", None)
    if given is None:
        return None
    graphs: list[str] = []
    for text in (part for one in given for part in _split(one)):
        if text == "null":
            graphs.append("")
        elif text.startswith("<") and text.endswith(">") and not re.search(r'[\s<>"{}|^`\\]', text[1:-1]):
            if text[1:-1].startswith(SYSTEM_GRAPHS):
                raise SystemGraphNamed(f"{text[:80]} is TxLog's own")
            graphs.append(text)
        else:
            raise BadInput(f"context={text[:80]}: an IRI in <>, or null")
    return graphs


def _split(text: str) -> list[str]:
    """rdflib joins several contexts with commas; an IRI may hold commas itself."""
    return re.findall(r"<[^>]*>|[^,]+", text)


def _construct(subject: str | None, predicate: str | None, value: str | None, graphs: list[str] | None) -> str:
    s, p, o = subject or "?s", predicate or "?p", value or "?o"
    triple = f"{s} {p} {o}"
    if graphs is None:
        where = f"{{ {triple} }} UNION {{ GRAPH ?g {{ {triple} }} }}"
    else:
        where = " UNION ".join(f"{{ GRAPH {g} {{ {triple} }} }}" if g else f"{{ {triple} }}" for g in graphs)
    return f"CONSTRUCT {{ {triple} }} WHERE {{ {where} }}"


def _filter(terms: list[bytes | None], graphs: list[str] | None) -> Callable[[bytes], bool]:
    wanted = None if graphs is None else {g.encode() for g in graphs}

    def keep(line: bytes) -> bool:
        found = _LINE.match(line)
        if found is None:
            return False
        if any(term is not None and found[at + 1] != term for at, term in enumerate(terms)):
            return False
        return wanted is None or (found[4] or b"") in wanted

    return keep


async def _lines(pieces: AsyncIterator[bytes], keep: Callable[[bytes], bool]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        kept = [line for line in whole if keep(line)]
        if kept:
            yield b"\n".join(kept) + b"\n"
    if rest and keep(rest):
        yield rest + b"\n"
