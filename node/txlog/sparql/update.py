"""Updates to what the log can carry: quads where possible, else a text that gives the same on every worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import pyoxigraph

from txlog.model.entry import KIND_UPDATE
from txlog.model.errors import BadInput, NotDeterministic
from txlog.model.quads import split_graph
from txlog.sparql.drawn import one_solution
from txlog.sparql.effects import PREDICATES_MAX, Evaluated, Part
from txlog.sparql.emptiness import met_by_empty_graphs, select_counts_graphs
from txlog.sparql.everywhere import (
    Modify,
    in_any_graph,
    looks_everywhere,
    modify_of,
    on_the_union,
    one_pattern,
)
from txlog.sparql.looks import Everything, predicates_of
from txlog.sparql.ordering import totally_ordered, unordered
from txlog.sparql.plain import plain_update
from txlog.sparql.prepared import Prepared
from txlog.sparql.rdf import (
    Skolem,
    check_terms,
    lines_of,
    nquads_of,
    parse,
    quads,
    refuse_blank_deletes,
)
from txlog.sparql.terms import DEFAULT_PREFIXES, base_iri
from txlog.sparql.tokens import (
    BLANK,
    COMMENT,
    IRI,
    LANGUAGE,
    NUMBER,
    PNAME,
    SPACE,
    STRING,
    TOKEN,
    WORD,
    Token,
    bad_token,
    line_column,
    malformed,
)
from txlog.sparql.unfolding import READ_BYTES_MAX, check_unfolded, limit_of
from txlog.sparql.walk import Names, Piece, Walk, may_be_empty

_FLAGS = re.DOTALL
_GAP = rf"(?:{SPACE}|{COMMENT}|)*+"
_SKIP = re.compile(_GAP, _FLAGS)
_HEAD = re.compile(rf"{_GAP}(?i:(INSERT|DELETE))(?:{SPACE}|{COMMENT}){_GAP}(?i:DATA)\b{_GAP}\{{", _FLAGS)
_PREFIX = re.compile(rf"{_GAP}(?i:PREFIX)\b{_GAP}({PNAME}){_GAP}({IRI})", _FLAGS)
_BASE = re.compile(rf"{_GAP}(?i:BASE)\b{_GAP}({IRI})", _FLAGS)
_END = re.compile(rf"{_GAP}(?:(;)|\Z)", _FLAGS)
_DATA = re.compile(
    rf"(?:{SPACE}|{IRI}|{BLANK}|{PNAME}|(?!(?i:GRAPH)(?![A-Za-z0-9_])){WORD}|{STRING}|{NUMBER}|\^\^|[\[\]();,.+\-]|{LANGUAGE}|{COMMENT}|)*+",
    _FLAGS,
)
_GRAPH = re.compile(rf"(?i:GRAPH){_GAP}({IRI}|{PNAME}){_GAP}\{{", _FLAGS)
_DOT = re.compile(rf"{_GAP}\.", _FLAGS)
_TYPED = re.compile(
    rb'(<[^>]*+> <[^>]*+> )"(?:[^"\\]++|\\.|)*+"\^\^<http://www\.w3\.org/2001/XMLSchema#[^>]*+>( <[^>]*+>)? \.'
)
_OPERATIONS: Final = frozenset(("INSERT", "DELETE", "WITH", "LOAD", "CLEAR", "CREATE", "DROP", "ADD", "MOVE", "COPY"))
_SILENT: Final = frozenset(("CLEAR", "CREATE", "DROP", "ADD", "MOVE", "COPY"))
_PLACE = re.compile(r"error at (\d+):(\d+): (.*)", re.DOTALL)

# The first operation fails when it is executed, so the judge parses everything and runs nothing.
_BARRIER: Final = "DROP GRAPH <x:no-such-graph>;\n"
_judge = pyoxigraph.Store()


class LoadAsked(NamedTuple):
    """A ``LOAD`` of an update. ``graph``: the IRI of its ``INTO GRAPH``, None without."""

    url: str
    graph: str | None
    silent: bool


class Document(NamedTuple):
    """What a ``LOAD`` has fetched: ``media`` as its server said, ``url`` where it was in the end."""

    body: bytes
    media: str
    url: str


def loads_of(text: str, *, base: str | None) -> list[LoadAsked]:
    """Every ``LOAD`` of an update. Raises what :func:`prepare_update` does, but for them."""
    found: list[LoadAsked] = []

    def collect(asked: LoadAsked) -> None:
        found.append(asked)

    _Update(text, base_iri(base), "", lambda: 0, load=collect).prepare()
    return found


def prepare_loaded(
    text: str,
    documents: Mapping[str, Document],
    *,
    base: str | None,
    now: str,
    draw: Callable[[], int],
    everywhere: bool = False,
) -> Prepared:
    """An update whose every ``LOAD`` is the data of its document, by URL; one that is not there adds nothing. In a
    ``LOAD`` without ``INTO GRAPH`` the graphs are those of the document. Raises as :func:`prepare_update`."""
    update = _Update(
        text, base_iri(base), now, draw, load=lambda asked: documents.get(asked.url), everywhere=everywhere
    )
    return update.prepare()


def prepare_update(
    text: str, *, base: str | None, now: str, draw: Callable[[], int], everywhere: bool = False
) -> Prepared:
    """A SPARQL 1.1 update to a transaction. ``everywhere``: without a graph it means all of them (``everywhere.py``).

    ``base`` resolves relative IRIs (a client's ``baseURI``), ``now`` is what ``NOW()`` means in it (the lexical form of
    an xsd:dateTime), ``draw`` gives 128 random bits for the names of blank nodes. When every operation is INSERT DATA
    or DELETE DATA the result is ``KIND_QUADS``: the net effect, the last operation of a quad wins. Otherwise it is
    ``KIND_UPDATE``: operations joined with ``;``, without prologue, comment or trailing ``;``.

    Raises ``NotDeterministic``, ``SystemGraphNamed``, ``TooLarge`` and ``BadInput`` (``MALFORMED QUERY: error at
    line:column``).
    Source: SPARQL 1.1 Update; which constructs differ between workers was found by experiment (docs of this room).
    """
    root = base_iri(base)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise malformed(text, error.start, "half a surrogate pair is no character") from None
    found = plain_update(text)
    if found is not None and not (everywhere and found.payload.startswith(b"D")):
        return found
    return _Update(text, root, now, draw, everywhere=everywhere).prepare()


def prepare_evaluated(
    text: str, *, base: str | None, now: str, draw: Callable[[], int], everywhere: bool = False
) -> Evaluated:
    """The same for an update that :func:`prepare_update` refused as ``NotDeterministic`` (``once``): what is evaluated
    once. Raises the same; ``NotDeterministic`` for what asks other addresses, and for what not even one evaluation
    gives a meaning that all stores share."""
    update = _Update(text, base_iri(base), now, draw, once=True, everywhere=everywhere)
    prepared = update.prepare()
    return Evaluated(prepared.payload.decode(), update.looks_at(), update.parts())


def parses(text: str) -> bool:
    """Whether it is an update for a worker. Carries nothing out."""
    try:
        _judge.update(_BARRIER + text)
    except SyntaxError:
        return False
    except RuntimeError:
        pass  # the barrier
    return True


class _Update:
    def __init__(
        self,
        text: str,
        base: str | None,
        now: str,
        draw: Callable[[], int],
        *,
        once: bool = False,
        load: Callable[[LoadAsked], Document | None] | None = None,
        everywhere: bool = False,
    ) -> None:
        self.text = text
        self.everywhere = everywhere
        self.shown: dict[int, tuple[tuple[str, str], ...]] = {}
        """By operation: the graphs to which one on the union writes."""
        self.texts: list[str] = []
        self.once = once
        self.load = load
        self.draw = draw
        self.limit = limit_of(len(text))
        self.names = Names(base, self.limit)
        self.read = 0
        """What the parser was given for data, prefixes and all; and what that came to."""
        self.unfolded = 0
        self.pinned = f'("{now}"^^<{DEFAULT_PREFIXES["xsd"]}dateTime>)'
        self.skolem = Skolem(draw)
        self.labels: set[bytes] = set()
        self.data: list[tuple[bool, list[bytes]]] = []
        self.operations: list[Piece | None] = []

    def prepare(self) -> Prepared:
        text, at = self.text, 1 if self.text.startswith("\ufeff") else 0
        while True:
            at = self._prologue(at)
            head = _HEAD.match(text, at)
            if head is not None:
                at = self._data(head)
            else:
                at = _SKIP.match(text, at).end()  # type: ignore[union-attr]
                if at == len(text):
                    break
                at = self._operation(at)
            end = _END.match(text, at)
            if end is None:
                at = _SKIP.match(text, at).end()  # type: ignore[union-attr]
                raise malformed(text, at, "expected ; or the end")
            at = end.end()
            if end[1] is None:
                break
        if not self.once and all(operation is None for operation in self.operations):
            net = self._net()
            if net is not None:
                return net
        return self._update()

    def _prologue(self, at: int) -> int:
        text, names = self.text, self.names
        while True:
            found = _PREFIX.match(text, at)
            if found is not None:
                if not found[1].endswith(":"):
                    raise malformed(text, found.start(1), f"{found[1][:80]} is no prefix; it ends with a colon")
                names.prefixes[found[1][:-1]] = names.iri(text, Token("IRI", found[2], found.start(2)))
            else:
                found = _BASE.match(text, at)
                if found is None:
                    return at
                names.base = names.iri(text, Token("IRI", found[1], found.start(1)))
            at = found.end()

    # -- INSERT DATA and DELETE DATA

    def _data(self, head: re.Match[str]) -> int:
        text, adds = self.text, head[1].upper() == "INSERT"
        piece, at = self._blocks(head.end())
        self.read += sum(len(part) for part, _ in piece)
        check_unfolded(self.read, max(READ_BYTES_MAX, self.limit))
        try:
            nquads = parse(piece.text(), pyoxigraph.RdfFormat.TRIG, self.names.base)
        except SyntaxError as error:
            raise self._not_data(error, piece) from None
        except ValueError as error:
            raise malformed(text, head.start(1), str(error)) from None
        check_terms(nquads)
        if adds:
            nquads, labels = self.skolem.body(nquads)
            if labels & self.labels:
                raise malformed(
                    text, head.start(1), f"the blank node {min(labels & self.labels).decode()} is of another operation"
                )
            self.labels |= labels
        else:
            refuse_blank_deletes(nquads)
        self.unfolded += len(nquads)
        check_unfolded(self.unfolded, self.limit)
        lines = lines_of(nquads)
        if self.everywhere and not adds:
            lines = self._deleted_everywhere(lines, head.start(1))
            if not lines:
                return at
        self.data.append((adds, lines))
        self.operations.append(None)
        return at

    def _deleted_everywhere(self, lines: list[bytes], at: int) -> list[bytes]:
        """What names its graph; the others go from every graph there is, by operations of their own."""
        named: list[bytes] = []
        for line in lines:
            triple, graph = split_graph(line)
            if graph:
                named.append(line)
                continue
            text = triple.decode().rstrip()
            # The templates hold no variable, so a graph that lacks the triple is passed over.
            self.operations.append(Piece([(f"DELETE WHERE {{ {text} }}", at)]))
            self.operations.append(Piece([(f"DELETE WHERE {{ GRAPH ?graph {{ {text} }} }}", at)]))
        return named

    def _blocks(self, at: int) -> tuple[Piece, int]:
        """The body as TriG: the same triples, those of the default graph in braces of their own."""
        text, names = self.text, self.names
        piece, body, start = Piece(), at, at
        at = _DATA.match(text, at).end()  # type: ignore[union-attr]
        if at < len(text) and text[at] == "}":
            piece.append((text[start - 1 : at + 1], start - 1))
        else:
            at = self._graphs(piece, start, at)
        # Only the names this operation can use, so that many operations do not each look through the whole text.
        known = [(prefix, iri) for prefix, iri in DEFAULT_PREFIXES.items() if text.find(prefix + ":", body, at) >= 0]
        declared = {**dict(known), **names.prefixes}
        piece.insert(0, ("".join([f"PREFIX {prefix}: <{iri}>\n" for prefix, iri in declared.items()]), body))
        return piece, at + 1

    def _graphs(self, piece: Piece, start: int, at: int) -> int:
        """A body with GRAPH in it; ``text[start:at]`` stands before the first. The offset of the brace that ends it."""
        text = self.text
        while True:
            piece.append(("{", start))
            piece.append((text[start:at], start))
            piece.append(("}", at))
            if at < len(text) and text[at] == "}":
                return at
            graph = _GRAPH.match(text, at)
            if graph is None:
                raise self._unexpected(at)
            start = graph.end()
            at = _DATA.match(text, start).end()  # type: ignore[union-attr]
            if at >= len(text) or text[at] != "}":
                raise self._unexpected(at)
            piece.append(("GRAPH ", graph.start()))
            piece.append((graph[1], graph.start(1)))
            piece.append((text[start - 1 : at + 1], start - 1))
            start = at + 1
            dot = _DOT.match(text, start)
            if dot is not None:
                start = dot.end()
            at = _DATA.match(text, start).end()  # type: ignore[union-attr]

    def _unexpected(self, at: int) -> BadInput:
        found = TOKEN.match(self.text, at)
        if found is None:
            return malformed(self.text, at, "expected } before the end")
        token = Token(found.lastgroup or "", found[0], at)
        if token.kind == "ERROR":
            return bad_token(self.text, token)
        if token.kind == "VARIABLE":
            return malformed(self.text, at, f"{token.text}: variables are not allowed in DATA")
        return malformed(self.text, at, f"unexpected {token.text[:80]}; GRAPH <iri> {{ ... }} or a triple is expected")

    def _not_data(self, error: SyntaxError, piece: Piece) -> BadInput:
        lines = piece.text().split("\n")
        row = min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
        column = (error.offset or 1) - 1
        at, within = sum(len(line) + 1 for line in lines[:row]) + column, 0
        for part, start in piece:
            if at < within + len(part):
                at = start + at - within
                break
            within += len(part)
        else:
            at = len(self.text)
        said = error.msg.rpartition(": ")[2] if error.msg.startswith("Parser error") else error.msg
        if "No scheme found" in said:
            said = "the IRI is relative: send baseURI, or write BASE or the full IRI"
        return malformed(self.text, at, said)

    def _net(self) -> Prepared | None:
        """The net effect, or None where quads would not keep the order of the operations."""
        if len(self.data) == 1:
            adds, lines = self.data[0]
            return quads((), lines) if adds else quads(lines, ())
        effect: dict[bytes, bool] = {}
        typed: dict[tuple[bytes, bytes], set[bytes]] = {}
        ordered = False
        last_delete = max((number for number, (adds, _) in enumerate(self.data) if not adds), default=-1)
        for number, (adds, lines) in enumerate(self.data):
            for line in lines:
                effect[line] = adds
            if not adds and typed:
                ordered = ordered or any(typed.get(key, {line}) != {line} for line, key in _typed(lines))
            if adds and number < last_delete:
                for line, key in _typed(lines):
                    typed.setdefault(key, set()).add(line)
        if ordered:
            return None
        return quads(
            (line for line, adds in effect.items() if not adds), (line for line, adds in effect.items() if adds)
        )

    # -- everything else

    def _operation(self, at: int) -> int:
        """One operation to its end; the offset of its ``;`` or of the end."""
        text, found, depth, end = self.text, [], 0, len(self.text)
        for match in TOKEN.finditer(text, at):
            kind = match.lastgroup
            if kind == "SPACE" or kind == "COMMENT":
                continue
            mark = match[0]
            if kind == "MARK":
                if mark == "{":
                    depth += 1
                elif mark == "}":
                    depth -= 1
                elif mark == ";" and depth <= 0:
                    end = match.start()
                    break
            found.append(Token(kind or "", mark, match.start()))
            if kind == "ERROR":
                raise bad_token(text, found[-1])
        if not found:
            raise malformed(text, at, "an operation is missing before ;")
        first = found[0]
        word = first.text.upper()
        if first.kind != "WORD" or word not in _OPERATIONS:
            raise malformed(text, first.start, f"{first.text[:80]} begins no operation of an update")
        if word == "LOAD" and self.load is not None:
            self._load(found, self.load)
            return end
        modify = modify_of(found) if self.everywhere else None
        if modify is not None and looks_everywhere(modify):
            return self._everywhere(found, modify, end)
        draw = self.draw if not self.once and one_solution(found) else None
        walk = Walk(text, self.names, self.pinned, once=self.once, draw=draw)
        second = found[1].text.upper() if len(found) > 1 else ""
        if word in _SILENT and second != "SILENT":
            # A missing graph must not stop a worker for good; RDF4J does not mind one either.
            walk.out.append((f"{word} SILENT ", first.start))
            found = found[1:]
        if word == "DELETE" and second == "WHERE":
            self._delete_where(walk, found)
        else:
            walk.run(found, "top")
        if not self.once and any(select_counts_graphs(found, at) for at in walk.unnamed):
            raise _over_empty_graphs()
        self.operations.append(walk.out)
        return end

    def _everywhere(self, found: list[Token], modify: Modify, end: int) -> int:
        """An operation that means all graphs."""
        pattern = one_pattern(modify)
        if pattern is not None:
            for toks in (found, in_any_graph(pattern)):
                walk = Walk(self.text, self.names, self.pinned, once=self.once)
                self._delete_where(walk, toks)
                self.operations.append(walk.out)
            return end
        if not self.once:
            raise NotDeterministic(
                "an update of all graphs",
                "stores know of none, so it is evaluated once; GRAPH, WITH or USING name the graphs that are meant",
                once=True,
            )
        toks, shown = on_the_union(self.text, modify, self.draw())
        walk = Walk(self.text, self.names, self.pinned, once=True)
        walk.run(toks, "top")
        self.shown[len(self.operations)] = tuple(
            (name, f"<{self.names.iri(self.text, graph)}>" if graph is not None else "") for name, graph in shown
        )
        self.operations.append(walk.out)
        return end

    def parts(self) -> tuple[Part, ...]:
        """The operations, once it is prepared, where some are on the union."""
        if not self.shown:
            return ()
        return tuple(Part(text, self.shown.get(at, ())) for at, text in enumerate(self.texts))

    def _load(self, found: list[Token], load: Callable[[LoadAsked], Document | None]) -> None:
        """``LOAD [SILENT] <iri> [INTO GRAPH <iri>]``, as the data of its document."""
        rest = found[1:]
        silent = bool(rest) and rest[0].text.upper() == "SILENT"
        rest = rest[1:] if silent else rest
        into = [token.text.upper() for token in rest[1:3]] == ["INTO", "GRAPH"] and len(rest) == 4
        if not (into or len(rest) == 1) or any(token.kind not in ("IRI", "PNAME") for token in (rest[0], rest[-1])):
            raise malformed(self.text, found[0].start, "LOAD: expected LOAD [SILENT] <iri> [INTO GRAPH <iri>]")
        url = self.names.iri(self.text, rest[0])
        graph = self.names.iri(self.text, rest[3]) if into else None
        document = load(LoadAsked(url, graph, silent))
        lines: list[bytes] = []
        if document is not None:
            nquads, _ = self.skolem.body(nquads_of(document.body, document.media, document.url.partition("#")[0]))
            lines = lines_of(nquads)
            if graph is not None:
                end = b" <%s> ." % graph.encode()
                lines = [split_graph(line)[0] + end for line in lines]
            self.unfolded += sum(map(len, lines))
            check_unfolded(self.unfolded, self.limit)
        self.data.append((True, lines))
        self.operations.append(None)

    def _delete_where(self, walk: Walk, found: list[Token]) -> None:
        hides = any(
            token.kind == "WORD" and token.text.upper() == "GRAPH" and may_be_empty(found, index)
            for index, token in enumerate(found)
        )
        delete, where, body = found[0], found[1], found[2:]
        if not hides:
            # Its one group is template and pattern at once: nothing in it may be rewritten.
            walk.out.append(("DELETE WHERE ", delete.start))
            walk.run(body, "quads")
            return
        walk.out.append(("DELETE ", delete.start))
        walk.run(body, "quads")
        walk.out.append((" WHERE ", where.start))
        walk.run(body, "pattern")

    def _update(self) -> Prepared:
        texts: list[str] = []
        data = iter(self.data)
        judged: list[tuple[str, Piece]] = []
        settle = totally_ordered if self.once else unordered
        for operation in self.operations:
            if operation is None:
                adds, lines = next(data)
                texts.append(data_text(adds, lines))
            else:
                judged.append((operation.text(), operation))
                texts.append(settle(judged[-1][0]))
        for text, piece in judged:
            self._check(text, piece)
            if not self.once and met_by_empty_graphs(text):
                raise _over_empty_graphs()
        self.texts = texts
        payload = " ;\n".join(texts).encode()
        check_unfolded(len(payload), self.limit)
        return Prepared(KIND_UPDATE, payload, len(texts))

    def looks_at(self) -> tuple[str, ...] | None:
        """The predicates of all quads that it may read or write, None for any; once it is prepared."""
        found: set[str] = set()
        for _, lines in self.data:
            found.update(line.split(b" ", 2)[1].decode() for line in lines)
        try:
            for operation in self.operations:
                if operation is not None:
                    found |= predicates_of(operation.text())
        except Everything:
            return None
        return tuple(sorted(found)) if len(found) <= PREDICATES_MAX else None

    def _check(self, text: str, piece: Piece) -> None:
        try:
            _judge.update(_BARRIER + text)
        except SyntaxError as error:
            found = _PLACE.match(error.msg)
            if found is None:
                raise BadInput(f"MALFORMED QUERY: {error.msg}") from None
            row, column = int(found[1]), int(found[2])
            at = piece.source_offset(sum(len(line) + 1 for line in text.split("\n")[: row - 2]) + column - 1)
            raise BadInput(f"MALFORMED QUERY: error at {line_column(self.text, at)}: {_short(found[3])}") from None
        except RuntimeError:
            return


def _over_empty_graphs() -> NotDeterministic:
    why = "not every worker knows the same graphs without quads; put a triple pattern into its group"
    return NotDeterministic("GRAPH over empty graphs", why, once=True)


def _short(said: str) -> str:
    said = re.sub(r"\s+", " ", re.sub(r", \[[^\]]*\](?:\.\.=?\S+)?|\['[^\]]*\](?:, )?", "", said))
    return said if len(said) <= 300 else said[:300] + " …"


def _typed(lines: list[bytes]) -> list[tuple[bytes, tuple[bytes, bytes]]]:
    """Lines whose object a store may write otherwise ("01" as "1"), each with what else identifies it."""
    found = []
    for line in lines:
        match = _TYPED.fullmatch(line)
        if match is not None:
            found.append((line, (match[1], match[2] or b"")))
    return found


def data_text(adds: bool, lines: list[bytes]) -> str:
    """Lines of N-Quads as INSERT DATA or DELETE DATA."""
    graphs: dict[bytes, list[bytes]] = {}
    for line in lines:
        triple, graph = split_graph(line)
        graphs.setdefault(graph, []).append(triple)
    blocks = []
    for graph, triples in graphs.items():
        block = b" .\n".join(triples)
        blocks.append(b"GRAPH %s {\n%s }" % (graph, block) if graph else block + b" .")
    return f"{'INSERT' if adds else 'DELETE'} DATA {{\n" + b"\n".join(blocks).decode() + "\n}"
