"""Recognises plain queries: those that a worker answers as they are, in a format that the client accepts.

Such a query has no time-out and no triple terms, and no plan is asked for. What is not recognised is no error:
:mod:`.read_handler` answers it, or refuses it.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from yarl import URL

from txlog.http.body_compression import best_coding
from txlog.model.errors import TxLogError
from txlog.server.frontdoor.head_templates import has_one_parameter
from txlog.server.frontdoor.off_loop import OFF_LOOP_SPARQL
from txlog.server.frontdoor.plain_heads import RequestHead
from txlog.server.frontdoor.query_request import ACCEPT_CHARS_MAX, Parameters, parse_query_request
from txlog.server.frontdoor.read_router import WorkerQuery
from txlog.server.frontdoor.result_formats import N_TRIPLES, ResultFormat
from txlog.server.frontdoor.statement_lines import StatementPattern
from txlog.server.frontdoor.statement_reads import Headers
from txlog.server.frontdoor.stream_converter import StreamConverter
from txlog.server.frontdoor.worker_connections import worker_address, worker_path
from txlog.sparql.rewrite.query_template import FilledText, split_template
from txlog.workers.adapter import WorkerRequest

FORM: Final = "application/x-www-form-urlencoded"
QUERY_MEDIA_TYPE: Final = "application/sparql-query"


class StatementParameters(NamedTuple):
    """What a read of statements names. ``terms``: subject, predicate and object as sent, "" for any. ``graphs``: as
    :func:`~.request_parameters.parse_contexts` gives them."""

    terms: tuple[str, str, str]
    graphs: tuple[str, ...] | None
    form: ResultFormat


class PlainReadHead:
    """A recognised head of a read. ``read``: what it asks for, None where the body says it or ``statements`` does.
    ``parameters``: of the URL. ``min_position``: the header ``TxLog-Min-Position``. ``coding``: in which the client
    gets a long answer."""

    __slots__ = (
        "accept",
        "authorization",
        "coding",
        "content_length",
        "is_form",
        "min_position",
        "parameters",
        "read",
        "statements",
    )

    def __init__(
        self,
        length: int,
        parameters: Parameters,
        accept: str,
        read: PlainRead | None,
        is_form: bool,
        authorization: str | None,
        min_position: str | None,
        coding: str,
        statements: StatementParameters | None = None,
    ) -> None:
        self.content_length = length
        self.parameters = parameters
        self.accept = accept
        self.read = read
        self.is_form = is_form
        self.authorization = authorization
        self.min_position = min_position
        self.coding = coding
        self.statements = statements

    def is_template_of(self, target: bytes, iris: tuple[bytes, ...]) -> bool:
        """Whether heads that differ in these IRIs only differ in the IRIs of their query only. ``target``: of this
        head."""
        return self.read is not None and self.read.iris == iris and has_one_parameter(target)

    def with_iris(self, iris: tuple[bytes, ...]) -> PlainReadHead:
        """The same head about other IRIs."""
        read = self.read
        assert read is not None
        return PlainReadHead(
            self.content_length,
            (),
            self.accept,
            read._replace(iris=iris),
            self.is_form,
            self.authorization,
            self.min_position,
            self.coding,
        )


def recognise_read(head: RequestHead) -> PlainReadHead | None:
    """The query of a head with the repository's path; None if it is not a plain one."""
    given = head.target.partition(b"?")[2]
    if b"prefer" in head.headers:
        return None
    parameters = parse_parameters(given)
    accept = dict(parameters).get("Accept") or head.headers.get(b"accept") or "*/*"
    if len(accept) > ACCEPT_CHARS_MAX:
        return None
    if head.method == b"GET":
        if head.content_length:
            return None
        text = dict(parameters).get("query")
        read = None if text is None else plain_query(parameters, text, accept)
        return None if read is None else read_head(head, parameters, accept, read)
    media = head.headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if media not in (FORM, QUERY_MEDIA_TYPE) or not 0 < head.content_length < OFF_LOOP_SPARQL:
        return None
    return read_head(head, parameters, accept, is_form=media == FORM)


def read_head(
    head: RequestHead,
    parameters: Parameters,
    accept: str,
    read: PlainRead | None = None,
    *,
    is_form: bool = False,
    statements: StatementParameters | None = None,
) -> PlainReadHead:
    """The parsed head, with what every read takes from its headers."""
    headers = head.headers
    accepted = headers.get(b"accept-encoding", "")
    # A browser that does not say for which page it asks gets its answer uncompressed.
    is_program = not headers.get(b"user-agent", "").startswith("Mozilla/")
    return PlainReadHead(
        head.content_length,
        parameters,
        accept,
        read,
        is_form,
        headers.get(b"authorization"),
        headers.get(b"txlog-min-position"),
        best_coding(accepted) if accepted and is_program else "",
        statements,
    )


def parse_body(head: PlainReadHead, body: bytes) -> PlainRead | None:
    """The query that a body says; None if it is not plain, or wrong."""
    try:
        text = body.decode("utf-8-sig")
        if not head.is_form:
            return plain_query(head.parameters, text, head.accept)
        form = parse_qsl(text, keep_blank_values=True)
    except ValueError:
        return None
    fields = dict(form)
    asked = fields.get("query", dict(head.parameters).get("query"))
    if asked is None or "update" in fields:
        return None
    given = (*head.parameters, *form)
    return plain_query(given, asked, fields.get("Accept") or head.accept)


def parse_parameters(given: bytes) -> Parameters:
    """The parameters of a URL, as aiohttp's side reads them."""
    if given.startswith(b"query=") and b"&" not in given and b";" not in given:
        try:
            return (("query", unquote_to_bytes(given[6:].replace(b"+", b" ")).decode()),)
        except ValueError:
            pass
    return tuple(URL(f"/?{given.decode()}", encoded=True).query.items()) if given else ()


class PlainRead(NamedTuple):
    """What a worker is asked for. ``iris``: those that take the place of the placeholders of a query, with their
    brackets. ``headers``, ``convert``: as in :class:`~.statement_reads.StatementRead`."""

    build: WorkerQuery | StatementPattern
    iris: tuple[bytes, ...]
    headers: Headers = ()
    convert: StreamConverter | None = None


def plain_query(parameters: Parameters, text: str, accept: str) -> PlainRead | None:
    """The query for a worker; None if it is not plain, or wrong. ``parameters`` hold ``text``, too, where it is one of
    them."""
    if "<<" in text or sum(len(name) + len(value) for name, value in parameters) + len(text) >= OFF_LOOP_SPARQL:
        return None
    template, iris = split_template(text)
    given = tuple((name, value) for name, value in parameters if name not in ("query", "Accept"))
    try:
        asked = parse_query_request(given, template, accept, star=False)
        encoded = tuple(iri.encode() for iri in iris)
    except (TxLogError, ValueError):
        return None
    made = asked.converted_format
    if asked.level or asked.seconds is not None or (made and (made != N_TRIPLES or asked.form == "DESCRIBE")):
        return None
    return PlainRead(WorkerQuery(asked.text, made or asked.accept, asked.union, asked.default, asked.named), encoded)


class FilledRequest:
    """The request of a query to one worker, which later queries of the same template share."""

    def __init__(self, url: str, asked: WorkerRequest) -> None:
        address = worker_address(url)
        assert address is not None, url
        host, port = address
        host = f"[{host}]" if ":" in host else host
        headers = {"Host": f"{host}:{port}", **asked.headers, "Accept-Encoding": "identity"}
        lines = [f"{asked.method} {worker_path(url)}{asked.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join([*lines, "Content-Length: "]).encode()
        self._body = FilledText(asked.body, is_form=asked.headers.get("Content-Type") == FORM)

    def encode(self, iris: tuple[bytes, ...]) -> bytes:
        """The bytes of the request."""
        body = self._body.fill(iris)
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)
