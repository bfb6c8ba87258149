"""What reads bytes from outside. Each reader may refuse its input by a typed error, and by nothing else."""

from __future__ import annotations

import asyncio
import http.client
import io
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from e2e.conformance.determinism.random_updates import RandomUpdates
from e2e.fuzz.compressed_inputs import (
    STREAM_SEEDS,
    UPLOAD_SEEDS,
    coded_body,
    compressed_stream,
    packed_upload,
    read_coded,
    read_packed,
    read_stream,
)
from e2e.fuzz.mutations import mutate, word_soup
from e2e.fuzz.seed_values import encode_msgpack, generate_value, sample_journal
from e2e.fuzz.structured_inputs import binary_rdf, frames, head, rdf_transaction
from txlog.auth import parse_users_file
from txlog.auth.authenticator import parse_basic_credentials
from txlog.auth.secret_hashes import parse_hash
from txlog.http.min_position import read_min_position as position_of
from txlog.http.write_options import parse_write_options
from txlog.journal import Journal, MemoryVfs, check_journal
from txlog.model.durability import Durability
from txlog.model.entry import LogEntry, Position
from txlog.model.errors import BadInput, NotDeterministic, PeerFault, TxLogError
from txlog.model.view import View
from txlog.server.feed.feed_request import parse_feed_request as wish_of
from txlog.server.frontdoor.plain_heads import parse_plain_write
from txlog.server.frontdoor.request_parameters import parse_graph_iri
from txlog.server.frontdoor.result_formats import RDF_ALIASES, RDF_FORMATS, TABULAR_MEDIA_TYPES
from txlog.server.frontdoor.tabular_results import negotiate_media_type
from txlog.server.peers.frame_connection import FrameConnection
from txlog.sparql import (
    hide_marker,
    hide_system_graphs,
    prepare_evaluated,
    prepare_lines,
    prepare_rdf,
    prepare_removal,
    prepare_update,
    query_form,
    refuse_services,
)
from txlog.sparql.formats.rdf4j_transaction_xml import prepare_rdf_transaction
from txlog.sparql.rewrite.bound_parameters import (
    UpdateGraphs,
    apply_limits,
    apply_parameters,
    bind_query,
    parse_binding,
)
from txlog.sparql.rewrite.star_query import quoted_to_terms
from txlog.sparql.triple_terms import parse_star_term
from txlog.wire import log_page, messages
from txlog.workers.marker_names import parse_marker

NOW: Final = "2026-01-02T03:04:05.678Z"
_PATHS: Final = frozenset((b"/repositories/r/statements",))
_RDF: Final = {
    "text/turtle": b"@prefix a: <urn:> . a:s a:p a:o , 'x'@en , '''y'''^^a:t ; a [ a:q ( 1 2.0 3e0 true ) ] . "
    b"_:b a:p _:b , <<( _:b a:p <<( a:s a:p 'z'@en--ltr )>> )>> . << a:s a:p 1 ~ _:b >> a:q a:o {| a:r 1 |} .",
    "text/x-turtlestar": b"<urn:s> <urn:p> << <urn:s> <urn:p> << _:b <urn:p> '>>' >> >> . # <<\n",
    "application/trig": b"PREFIX a: <urn:> a:g { a:s a:p 'x' } GRAPH a:h { _:b a:p <#r> } { a:s a:p 1 }",
    "application/n-quads": b'<urn:s> <urn:p> "x\\u00e9\\n"@en <urn:g> .\n_:a <urn:p> <urn:o> .\n'
    b'<urn:s> <urn:p> <<( _:a <urn:p> <<( <urn:s> <urn:p> "x" )>> )>> <urn:g> .\n',
    "application/rdf+xml": b'<!DOCTYPE r [<!ENTITY e "urn:">]><r:RDF '
    b"xmlns:r='http://www.w3.org/1999/02/22-rdf-syntax-ns#'"
    b" xmlns:a='urn:' xml:base='b/'><r:Description r:about='&e;s'><a:p xml:lang=''>x</a:p><a:p "
    b"r:parseType='Literal'><b>x</b></a:p></r:Description></r:RDF>",
    "application/ld+json": b'{"@context":{"a":"urn:"},"@id":"a:s","@graph":['
    b'{"@id":"_:b","a:p":[{"@value":"x"},1,true]}]}',
    "text/n3": b"@prefix a: <urn:> . a:s a:p a:o . a:s is a:p of a:o . a:s = a:o .",
    "application/trix": b'<?xml version="1.0"?><TriX xmlns="http://www.w3.org/2004/03/trix/trix-1/"><graph><uri>urn:g'
    b"</uri><triple><uri>urn:s</uri><uri>urn:p</uri><plainLiteral xml:lang='en'>x</plainLiteral></triple><triple>"
    b"<id>b</id><uri>urn:p</uri><typedLiteral datatype='urn:t'>y</typedLiteral></triple></graph></TriX>",
    "application/rdf+json": b'{"urn:s":{"urn:p":[{"value":"x","type":"literal","lang":"en"},'
    b'{"value":"_:b","type":"bnode",'
    b'"graphs":["urn:g",null]},{"value":"y","type":"literal","datatype":"urn:t"}]},"_:c":{"urn:p":[]}}',
    "application/x-binary-rdf": b"BRDF\0\0\0\x01\x03\0\0\0\x05\x01\0\0\0\x05\0u\0r\0n\0:\0s\x01\x06\0\0\0\x05"
    b"\x06\0\0\0\x05\x03\0\0\0\x01\0x\x00\x02\0\0\0\x01\0c\x01\x06\0\0\0\x05\x06\0\0\0\x05\x04\0\0\0\x01\0y\0\0\0\x02\0e\0n\x00\x7f",
}
_TRIPLE_1: Final = b"\x06\x05\x06\x05\x07"
_BINARY_TRIPLE: Final = (
    b"BRDF\0\0\0\x02\x05UTF-8\x03\x05\x01\x05urn:s\x01" + 2 * _TRIPLE_1 + 3 * b"\x06\x05" + b"\x00\x7f"
)
_BINARY_2: Final = b"BRDF\0\0\0\x02\x05UTF-8\x03\x05\x01\x05urn:s\x01\x06\x05\x06\x05\x03\x01x\x00\x7f"
_TRANSACTION: Final = (
    b"<?xml version='1.0'?><transaction><add><uri>urn:s</uri><uri>urn:p</uri><literal "
    b"xml:lang='en'>x</literal><contexts>"
    b"<uri>urn:g</uri><null/></contexts></add><remove><null/><uri>urn:p</uri><null/></remove><clear><contexts><null/>"
    b"</contexts></clear><sparql baseURI='urn:b'><updateString>INSERT { ?x ?y ?z } WHERE { ?x ?y ?z }</updateString>"
    b"<dataset><defaultGraphs><graph>urn:g</graph></defaultGraphs></dataset><includeInferred>true</includeInferred>"
    b"<bindings><binding_bnode name='x'>b</binding_bnode><binding_literal name='z' dataType='urn:t' "
    b"encoding='base64'>"
    b"eA==</binding_literal></bindings></sparql><setNamespace prefix='p' name='urn:p:'/><removeNamespace prefix='p'/>"
    b"<clearNamespaces/><add><bnode>b</bnode><uri>urn:p</uri><bnode>b</bnode></add></transaction>"
)
_QUERIES: Final = (
    b"PREFIX ex: <urn:> SELECT DISTINCT ?s (COUNT(?o) AS ?n) FROM <urn:g> FROM NAMED ex:h WHERE { GRAPH ?g { ?s "
    b"?p ?o } "
    b"OPTIONAL { ?s ex:p/ex:q* ?x } FILTER(?x > 1 && NOT EXISTS { ?x a ?y }) } GROUP BY ?s HAVING (?n > 1) ORDER BY "
    b"DESC(?s) LIMIT 5 OFFSET 2 VALUES ?s { UNDEF ex:a }",
    b"BASE <http://x/> ASK { GRAPH ?g {} GRAPH <g> { ?s ?p 'x'@en } }",
    b'CONSTRUCT WHERE { ?s <urn:p> ?o , 1.0 , """a\\"b""" }',
    b"SELECT * { ?s <urn:p> <<( ?a <urn:q> <<( _:b ?c 1 )>> )>> . <<?x ?y ?z>> ?v <<?x a 1>> {| <urn:r> ?w |} }",
    b"DESCRIBE <urn:a> ?x { ?x a <urn:T> . MINUS { SERVICE <urn:s> { ?x ?y ?z } } }",
    b"CONSTRUCT { ?s ?p [ <urn:q> ( 1 2 ) ] } { { SELECT ?s { ?s ?p ?o } LIMIT 3 } UNION { BIND(IRI(?s) AS ?p) } }",
)
_DEEP: Final = {
    "text/turtle": [b"<urn:a> <urn:p> " + b"<<( <urn:a> <urn:p> " * 17 + b"1" + b" )>>" * 17 + b" ."],
    "application/rdf+xml": [
        b"<r:RDF xmlns:r='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns:a='urn:'>"
        + b"<a:s><a:p>" * 64
        + b"</a:p></a:s>" * 64
        + b"</r:RDF>"
    ],
    "application/ld+json": [
        b'{"@id":"urn:a","urn:p":' * 65 + b"1" + b"}" * 65,
        b'{"@graph":' + b"[" * 63 + b"]" * 63 + b"}",
    ],
}
"""At the bounds of nesting, or just beyond them."""
_WIDE: Final = (
    b"ASK { ?s " + b"/".join([b"<urn:p>"] * 101) + b" ?o }",
    b"ASK { " + b"OPTIONAL { ?s ?p ?o } " * 50 + b"FILTER EXISTS { ( 1 2 ) ?p [ ?q ?r , ?t ] } }",
)
"""About as many parts of a join as there may be."""
_WORDS: Final = tuple(
    b"SELECT CONSTRUCT DESCRIBE ASK WHERE FROM NAMED GRAPH OPTIONAL UNION MINUS FILTER BIND VALUES SERVICE "
    b"INSERT DELETE "
    b"DATA WITH USING CLEAR DROP CREATE COPY MOVE ADD LOAD SILENT ALL DEFAULT TO AS GROUP BY ORDER HAVING LIMIT "
    b"OFFSET "
    b"DISTINCT REDUCED EXISTS NOT IN IF COALESCE CONCAT IRI UUID() RAND() NOW() BNODE() STRDT COUNT(*) PREFIX "
    b"BASE a true "
    b"?x ?y $z <urn:a> <rel> <> ex:a : a: _:b [] 'x' \"y\" '''z''' @en ^^ 1 -1 1.5 1e5 . ; , { } ( ) [ ] * + / "
    b"| ^ ! = < > "
    b"&& || != <= >= << >> <<( )>> {| |} ~ TRIPLE( isTRIPLE( # "
    b"\\u0041 urn:txlog:system \xef\xbb\xbf <urn:txlog:system:1> \xc3\xa9 "
    b"\xf0\x9f\x98\x80".split()
)
_MARKUP: Final = tuple(
    b"< > / & ; <a> </a> <a/> <!-- --> <![CDATA[ ]]> <?x ?> <!DOCTYPE x [ ]> <!ENTITY &lt; &#0; &#x10ffff; "
    b"xmlns= ' \" "
    b"<uri> </uri> <triple> </triple> <graph> <null/> encoding='base64' encoding='utf-16' <contexts> @context "
    b"@id @list "
    b"@graph @type @reverse @import { } [ ] : , null true 1e400 \\ud800 \\u0000".split()
)
_HEADERS: Final = (
    b"POST /repositories/r/statements HTTP/1.1\r\nHost: x\r\nContent-Type: application/sparql-update\r\n"
    b"Content-Length: 12\r\nTxLog-Durability: synced\r\nPrefer: respond-async, wait=30\r\nIdempotency-Key: k1",
    b"POST /repositories/r/statements HTTP/1.1\r\nhost: x\r\ncontent-length:5\r\nConnection: Keep-Alive\r\nX: ",
)
_HEADER_WORDS: Final = tuple(
    b"\r\n : Content-Length: Transfer-Encoding:chunked Connection: Expect:100-continue \t \r \n 0 5 +5 0x5 5,5 "
    b"close accepted "
    b'synced applied applied-all wait= wait=0 wait="5" HTTP/1.0 GET \x00 \x80 Host: q=0.5 */* text/* '
    b"text/turtle;q=nan".split(b" ")
)
_ASKED: Final = (b"synced", b"respond-async; wait=5", b"k-1", b"text/csv;q=0.5, */*")
_SHOWN: Final = (
    b"Basic YW5uOnNlY3JldA==", b"17", b"3:17:" + b"0f" * 16, b"17:" + b"0f" * 16 + b":3",
    b"text/event-stream;q=0.5, */*",
)  # fmt: skip
_SHOWN_WORDS: Final = (
    b"Basic ",
    b"Bearer ",
    b":",
    b"YTpi",
    b"=",
    b"0" * 20,
    b"-1",
    b"\xb2",
    b"now",
    b";q=",
    b"*/*",
    b",",
)
_MARKERS: Final = (b"urn:txlog:system:5:" + b"0" * 32 + b":1:2:u3-" + b"1" * 32,)
_USERS: Final = (
    b"# who\nann admin $sha256$" + b"a" * 64 + b"\nbob reader $scrypt$ln=14,r=8,p=5$c2FsdHNhbHRzYWx0c2FsdA$"
    + b"A" * 43 + b" # old\n",
)  # fmt: skip


def fixed_random_bits() -> int:
    """128 bits that are not random here."""
    return 7


class FuzzTarget(NamedTuple):
    """``seeds`` and ``words``: what inputs are made of; ``read``: the reader; ``generate``: other inputs, now and then;
    ``share``: how often its turn comes, of all shares; ``generated_share``: how often, of 1, an input is as
    ``generate`` gives it."""

    name: str
    seeds: Sequence[bytes]
    words: Sequence[bytes]
    read: Callable[[bytes], None]
    generate: Callable[[random.Random], bytes] | None = None
    share: int = 1
    generated_share: float = 0.0

    def input(self, chance: random.Random) -> bytes:
        if self.generate is not None and self.generated_share and chance.random() < self.generated_share:
            return self.generate(chance)
        if self.generate is not None and chance.random() < 0.3:
            return mutate(chance, [self.generate(chance)], self.words)
        return word_soup(chance, self.words) if chance.random() < 0.1 else mutate(chance, self.seeds, self.words)


class ReadersDisagree(Exception):
    """Two readers understand one input differently."""


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _try_readers(*steps: Callable[[], object]) -> None:
    """Each of them, whether the one before refused it or not. Refused is what all of them refuse."""
    refused: TxLogError | None = None
    accepted_by = 0
    for step in steps:
        try:
            step()
            accepted_by += 1
        except TxLogError as wrong:
            refused = wrong
    if refused is not None and not accepted_by:
        raise refused


def read_update(data: bytes) -> None:
    """An update, and the same to be evaluated once, with parameters in it."""
    text = text_of(data)

    def prepared() -> None:
        try:
            prepare_update(text, base=None, now=NOW, draw=fixed_random_bits)
        except NotDeterministic as refused:
            if refused.once:
                prepare_evaluated(text, base=None, now=NOW, draw=fixed_random_bits)

    graphs = UpdateGraphs(["urn:g"], ["urn:h"], ["null", "urn:i"], ["urn:j"])
    _try_readers(
        prepared,
        lambda: prepare_update(text, base="http://x/y?z", now=NOW, draw=fixed_random_bits),
        lambda: apply_parameters(text, {"x": "<urn:v>"}, UpdateGraphs()),
        lambda: apply_parameters(text, {}, graphs),
    )


def read_query(data: bytes) -> None:
    text = text_of(data)
    _try_readers(
        lambda: hide_system_graphs(text),
        lambda: hide_system_graphs(text, base="http://x/"),
        lambda: refuse_services(text),
        lambda: query_form(text),
        lambda: bind_query(text, {"x": "'v'", "s": "<urn:v>"}),
        lambda: apply_limits(text, 5, 3, distinct=True),
        lambda: parse_binding("x", text),
        lambda: parse_graph_iri(text, "graph"),
        lambda: hide_marker(hide_system_graphs(quoted_to_terms(text))),
        lambda: parse_star_term(data),
    )


def _reader_of(media: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        _try_readers(
            lambda: prepare_rdf(data, media, base=None, contexts=[], draw=fixed_random_bits),
            lambda: prepare_rdf(data, media, base="http://x/", contexts=["<urn:g>", "null"], draw=fixed_random_bits),
            lambda: prepare_removal(data, media, base=None, graphs=None),
        )

    return read


def read_lines(data: bytes) -> None:
    _try_readers(
        lambda: prepare_lines(data, data[::2], draw=fixed_random_bits),
        lambda: prepare_lines(text_of(data), draw=fixed_random_bits),
    )


def read_transaction(data: bytes) -> None:
    prepare_rdf_transaction(data, now=NOW, draw=fixed_random_bits)


def read_head(data: bytes) -> None:
    """What the short way takes, another parser of HTTP must understand in the same way."""
    head = parse_plain_write(data, _PATHS, Durability.SYNCED, 30.0, 1 << 16)
    if head is None:
        raise BadInput("another parser's to understand")
    line, _, rest = data.partition(b"\r\n")
    told = http.client.parse_headers(io.BytesIO(rest + b"\r\n\r\n"))
    lengths = told.get_all("Content-Length", [])
    if line.split(b" ")[1] not in _PATHS or len(lengths) != 1 or int(lengths[0]) != head.content_length:
        raise ReadersDisagree(f"{lengths} is taken as {head.content_length}")

    def value(name: str, default: str = "") -> str:
        """Space around it is none of it (RFC 9110, section 5.5); this parser leaves it there."""
        return str(told.get(name, default)).strip(" \t")

    if told.get_all("Transfer-Encoding") or value("Connection", "keep-alive").lower() != "keep-alive":
        raise ReadersDisagree("it is not of the one shape")
    if value("Idempotency-Key") != head.key or value("Content-Type") != head.media_type:
        raise ReadersDisagree("a header is read differently")


def read_write_options(data: bytes) -> None:
    text = data.decode("latin-1")
    _try_readers(
        lambda: parse_write_options(text, None, None, Durability.APPLIED, 30.0),
        lambda: parse_write_options(None, text, None, Durability.APPLIED, 30.0),
        lambda: parse_write_options(None, None, text, Durability.APPLIED, 30.0),
        lambda: negotiate_media_type(text, (*TABULAR_MEDIA_TYPES, *RDF_FORMATS), dict(RDF_ALIASES)),
    )


def read_message(data: bytes) -> None:
    messages.decode("uk-2", data)


def read_page(data: bytes) -> None:
    page = log_page.decode_page("uk-2", data)
    page.log_entries()
    log_page.page_to_json(page)


def read_users(data: bytes) -> None:
    text = text_of(data)
    parse_hash(text)
    parse_users_file(text, "users")


def read_markers(data: bytes) -> None:
    """Graphs that say where a store stands."""
    if parse_marker(text_of(data)) is None:
        raise BadInput("no marker")


def read_frames(data: bytes) -> None:
    """What peers send, in pieces cut anywhere: the same frames as in one piece."""
    loop = asyncio.new_event_loop()
    try:
        told: list[tuple[list[bytes], bool]] = []
        for cuts in (
            [len(data)],
            [*range(1, len(data), max(1, len(data) // 7)), len(data)],
            [*(cut for cut in (1, 3, 4, 5) if cut < len(data)), len(data)],
        ):
            got: list[bytes] = []
            frames = FrameConnection(got.append, lambda: None, loop.create_future(), 1 << 14)
            at = 0
            for cut in cuts:
                if not frames.is_closed and cut > at:
                    frames.data_received(data[at:cut])
                    at = cut
            told.append((got, frames.is_closed))
    finally:
        loop.close()
    if told[0] != told[1] or told[0] != told[2]:
        raise ReadersDisagree("frames depend on how they come")
    if told[0][1]:
        raise BadInput("it announces too much")


class _RequestStub(NamedTuple):
    """As much of a request as those look at who read headers."""

    headers: dict[str, str]
    query: dict[str, str]


def read_request_headers(data: bytes) -> None:
    """Who it is from, the position that a read wants, where a feed goes on."""
    text = data.decode("latin-1")

    def asked(**headers: str) -> Any:
        return _RequestStub({name.replace("_", "-"): value for name, value in headers.items()}, {})

    def known() -> None:
        if parse_basic_credentials(text) is None:
            raise BadInput("no name and password")

    _try_readers(
        known,
        lambda: position_of(asked(TxLog_Min_Position=text)),
        lambda: wish_of(asked(Last_Event_ID=text)),
        lambda: wish_of(_RequestStub({}, {"from": text})),  # type: ignore[arg-type]
        lambda: wish_of(asked(Accept=text)),
    )


_JOURNAL: Final = sample_journal()
_SEGMENTS: Final = [name for name in _JOURNAL if name.startswith("segment")]
_WHOLE_JOURNAL: Final = b"".join(_JOURNAL[name] for name in _SEGMENTS)


def read_journal(data: bytes) -> None:
    """The segments end to end, damaged: looked at, and opened."""
    files: dict[str, bytes] = {}
    for at, name in enumerate(_SEGMENTS):
        size = len(_JOURNAL[name])
        piece = data[at * size : (at + 1) * size]
        if piece:
            files[name] = piece
    check_journal(MemoryVfs.load(files))
    Journal.open(MemoryVfs.load(files), node="a", draw_birth=lambda: 10, segment_bytes=len(_JOURNAL[_SEGMENTS[0]]))


def _an_update(chance: random.Random) -> bytes:
    return RandomUpdates(chance, 0.3, triple_terms=chance.choice((0.0, 0.1))).update().encode()


def _a_message(chance: random.Random) -> bytes:
    """A message that a master takes, if a few draws bring one: its parts have to fit together."""
    made = b""
    for _ in range(50):
        made = messages.encode(generate_value(chance, messages.Message))
        with suppress(PeerFault):
            messages.decode("uk-2", made)
            return made
    return made


def _a_page(chance: random.Random) -> bytes:
    page: log_page.LogPage = generate_value(chance, log_page.LogPage)
    after = page.after.index % 1000
    entries = [replace(entry, index=after + at) for at, entry in enumerate(page.entries, 1)]
    return log_page.encode_page(replace(page, after=Position(1, after, bytes(16)), entries=entries))


def all_targets() -> list[FuzzTarget]:
    """All of them."""
    chance = random.Random(0)
    updates = [_an_update(chance) for _ in range(200)]
    media = [
        FuzzTarget(
            name,
            [seed, _BINARY_2, _BINARY_TRIPLE] if "binary" in name else [seed, *_DEEP.get(name, ())],
            (*_WORDS, *_MARKUP),
            _reader_of(name),
            share=2,
        )
        for name, seed in _RDF.items()
    ]
    answers = [encode_msgpack(generate_value(chance, kind)) for kind in (View, LogEntry)]
    return [
        FuzzTarget("update", updates, _WORDS, read_update, _an_update, share=10),
        FuzzTarget("query", (*_QUERIES, *_WIDE), _WORDS, read_query, share=5),
        *media,
        FuzzTarget("lines", [_RDF["application/n-quads"]], _WORDS, read_lines),
        FuzzTarget("x-rdftransaction", [_TRANSACTION], (*_MARKUP, *_WORDS), read_transaction, rdf_transaction, 3, 0.7),
        FuzzTarget("head", _HEADERS, _HEADER_WORDS, read_head, head, 3, 0.7),
        FuzzTarget(
            "binary", [_BINARY_2, _BINARY_TRIPLE], _MARKUP, _reader_of("application/x-binary-rdf"), binary_rdf, 3, 0.8
        ),
        FuzzTarget(
            "frames", [b"\0\0\0\1x\0\0\0\0"], [b"\0\0\0\0", b"\0\0\0\5", b"\xff" * 4], read_frames, frames, 2, 0.7
        ),
        FuzzTarget("compressed", STREAM_SEEDS, [b"\0", b"\xff"], read_stream, compressed_stream, 2, 0.5),
        FuzzTarget("coded body", [b"gzip\n" + STREAM_SEEDS[2]], [b"\0", b"zstd\n"], read_coded, coded_body, 2, 0.7),
        FuzzTarget("packed", UPLOAD_SEEDS, [b"PK\1\2", b"\0", b"\xff"], read_packed, packed_upload, 2, 0.5),
        FuzzTarget("request headers", _SHOWN, _SHOWN_WORDS, read_request_headers, share=2),
        FuzzTarget("asked", _ASKED, _HEADER_WORDS, read_write_options),
        FuzzTarget("message", [_a_message(chance) for _ in range(100)], answers, read_message, _a_message, share=3),
        FuzzTarget("page", [_a_page(chance) for _ in range(30)], answers, read_page, _a_page, share=2),
        FuzzTarget("journal", [_WHOLE_JOURNAL], [b"TXLOGSEG", b"\xf1TxR"], read_journal),
        FuzzTarget("users", _USERS, [b"$scrypt$", b"$sha256$", b"admin", b"\n", b" ", b"#", b"ln=99"], read_users),
        FuzzTarget("marker", _MARKERS, [b":", b":loading:", b"-", b":u"], read_markers),
    ]
