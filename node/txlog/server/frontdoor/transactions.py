"""RDF4J's transactions: ``/repositories/{id}/transactions``. What they write waits at this master, and is one entry of
the log at the commit. Until then nobody sees it but the transaction itself (``overlay.py``)."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from txlog.model.entry import KIND_QUADS
from txlog.model.errors import BadInput, Conflict, Refused, TooLarge, TxLogError, Unavailable
from txlog.model.hashes import content_hash
from txlog.model.quads import decode_quads
from txlog.protocol.events import Submission
from txlog.runtime.asked import Asked, asked_of
from txlog.runtime.site import Site
from txlog.runtime.web import RawResponse, Request, Response, Route, bytes_answer, read_body, text_answer
from txlog.server.frontdoor.evaluators import Evaluators
from txlog.server.frontdoor.forms import FORMS
from txlog.server.frontdoor.looked import Looked
from txlog.server.frontdoor.overlay import COPIES_MAX, COPY_BYTES_MAX, Overlay
from txlog.server.frontdoor.reads import Changes, Reads, form_of
from txlog.server.frontdoor.repository import check_repository, contexts_of, term_of, under
from txlog.server.frontdoor.writes import Writes
from txlog.sparql import Prepared, join, needed, query_looks_at
from txlog.workers.canonical import canonical_lines

IDLE_S: Final = 60.0
"""A transaction that nobody asks anything for so long is rolled back."""
OPEN_MAX: Final = 256
LARGE_BYTES: Final = 256 << 10
"""Of what it has written since it was last looked at: in a thread."""
LARGE_S: Final = 600.0
"""A repository that was too large to copy is taken for that for so long."""
ENDED_MAX: Final = 1000
"""Transactions that are over and of which it is still known how."""
LEVELS: Final = ("NONE", "READ_UNCOMMITTED", "READ_COMMITTED", "SNAPSHOT_READ", "SNAPSHOT", "SERIALIZABLE")
_LEVEL_PARAMETERS: Final = (
    "isolation-level",
    "transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel",
)
_FORM: Final = "application/x-www-form-urlencoded"


_ON_SNAPSHOT: Final = ("SNAPSHOT", "SERIALIZABLE")
"""They read one copy from their first read on. RDF4J's SNAPSHOT_READ wants one for each read, which a worker gives."""


class Open:
    """``parts``: what it has written, ``size`` in bytes. ``committing``: it was handed to the log, and its fate is not
    known yet: it may only be committed again, under the same key. ``looked``: what it has read, where that counts.
    ``plain``: the first ``counted`` parts as quads that come or go; None: they are more than that."""

    def __init__(self, name: str, level: str) -> None:
        self.name = name
        self.on_snapshot = level in _ON_SNAPSHOT
        self.looked: Looked | None = Looked() if level == "SERIALIZABLE" else None
        self.parts: list[Prepared] = []
        self.size = 0
        self.used = time.monotonic()
        self.turn = asyncio.Lock()
        self.overlay: Overlay | None = None
        self.plain: dict[bytes, bool] | None = {}
        self.counted = 0
        self.committing = False

    def count(self) -> None:
        """Bring ``plain`` up to what has been written."""
        for part in self.parts[self.counted :]:
            self.counted += 1
            if part.kind != KIND_QUADS:
                self.plain = None  # from now on only a copy tells
            if self.plain is not None:
                self.plain.update((line, adds) for adds, line in decode_quads(canonical_lines(part.payload)))


class OpenTransactions:
    """``writes`` hands the commit over, ``reads`` asks the workers, ``evaluators`` have copies for reads of own
    writes."""

    def __init__(
        self,
        site: Site,
        writes: Writes,
        reads: Reads,
        evaluators: Evaluators,
        idle_s: float = IDLE_S,
        open_max: int = OPEN_MAX,
    ) -> None:
        self._site = site
        self._repository = site.config.repository
        self._level = site.config.durability
        self._seconds = site.config.write_timeout_s
        self._bytes_max = site.config.limits.body_bytes
        self._writes = writes
        self._reads = reads
        self._evaluators = evaluators
        self.idle_s = idle_s
        self.open_max = open_max
        self.open: dict[str, Open] = {}
        self._ended: dict[str, str] = {}
        self._large_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._actions: dict[str, Callable[[Request, Open], Awaitable[Response]]] = {
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
        one = {"PUT": self.act, "POST": self.act, "DELETE": self.rollback}
        return [*under("/transactions", POST=self.begin), *under("/transactions/{transaction}", **one)]

    # Beginning and ending

    async def begin(self, request: Request, names: Mapping[str, str]) -> Response:
        check_repository(names, self._repository)
        body = await read_body(request, 64 << 10)
        parameters = dict(request.query)
        if body and request.headers.get("Content-Type", "").lower().startswith(_FORM):
            parameters |= dict(parse_qsl(body.decode("utf-8", "replace")))
        level = ""
        for name in _LEVEL_PARAMETERS:
            given = parameters.get(name)
            if given is not None:
                level = re.split("[#/]", given)[-1].upper()
                if level not in LEVELS:
                    raise BadInput(f"{name}={given[:80]}: one of {', '.join(LEVELS)}")
        if self._site.closing:
            raise Unavailable("Closing", "this master is stopping; begin at another one")
        if len(self.open) >= self.open_max:
            raise Unavailable("TransactionsOpen", f"{len(self.open)} transactions are open here; commit some first")
        one = Open(str(uuid.uuid4()), level)
        self.open[one.name] = one
        self._look()
        location = f"{request.url.with_query(None)}/{one.name}"
        return web.Response(status=201, headers={"Location": location})

    def _look(self) -> None:
        """Roll back what nobody has used for long, and come again when the next one is due."""
        now = time.monotonic()
        for one in list(self.open.values()):
            if now - one.used >= self.idle_s and not one.turn.locked():
                self._end(one, f"it expired: nobody asked anything of it for {self.idle_s:g} s")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.open:
            due = min(one.used for one in self.open.values()) + self.idle_s
            self._timer = asyncio.get_running_loop().call_later(max(0.05, due - now), self._look)

    def _end(self, one: Open, how: str) -> None:
        self.open.pop(one.name, None)
        self._blind(one)
        if len(self._ended) >= ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        self._ended[one.name] = how

    def _blind(self, one: Open) -> None:
        overlay, one.overlay = one.overlay, None
        if overlay is not None:
            self._evaluators.give_back(overlay.evaluator)

    def _find(self, names: Mapping[str, str]) -> Open:
        check_repository(names, self._repository)
        name = names["transaction"]
        try:
            name = str(uuid.UUID(name))
        except ValueError:
            raise BadInput(f"not a valid transaction id: {name[:80]}") from None
        one = self.open.get(name)
        if one is None:
            how = self._ended.get(name, "this master does not know it; it lives at the master that began it")
            raise BadInput(f"unable to find registered connection for transaction id '{name}': {how}")
        one.used = time.monotonic()
        return one

    async def act(self, request: Request, names: Mapping[str, str]) -> Response:
        word = request.query.get("action", "")
        action = self._actions.get(word.upper())
        if action is None:
            raise BadInput(f"action={word[:40]}: one of {', '.join(self._actions)}")
        return await self._in_turn(request, self._find(names), action)

    async def rollback(self, request: Request, names: Mapping[str, str]) -> Response:
        return await self._in_turn(request, self._find(names), self._rollback)

    async def _in_turn(
        self, request: Request, one: Open, action: Callable[[Request, Open], Awaitable[Response]]
    ) -> Response:
        async with one.turn:
            if one.name not in self.open:
                raise BadInput(f"unable to find registered connection for transaction id '{one.name}': it is over")
            if one.committing and action not in (self._commit, self._ping):
                raise BadInput(
                    f"Transaction handling error: '{one.name}' was handed to the log, and it is not known yet "
                    "whether it counts; send COMMIT again"
                )
            try:
                return await action(request, one)
            finally:
                one.used = time.monotonic()

    # Writing

    def _take(self, one: Open, part: Prepared) -> None:
        if one.size + len(part.payload) > self._bytes_max:
            raise TooLarge(
                f"a transaction may hold {self._bytes_max} bytes, for it is one entry of the log; "
                "commit what there is, or roll it back"
            )
        if part.payload:
            one.parts.append(part)
            one.size += len(part.payload)

    async def _add(self, request: Request, one: Open) -> Response:
        self._take(one, await self._writes.rdf(request, contexts_of(request) or []))
        return web.Response()

    async def _delete(self, request: Request, one: Open) -> Response:
        self._take(one, await self._writes.removal(request, contexts_of(request)))
        return web.Response()

    async def _update(self, request: Request, one: Open) -> Response:
        self._take(one, await self._writes.update_of(request))
        return web.Response(status=204)

    # Reading

    def _has_own_view(self, one: Open) -> bool:
        return one.on_snapshot or bool(one.parts)

    async def _seen(self, request: Request, one: Open, wanted: frozenset[str] | None) -> Overlay:
        """The transaction's own view, as far as these predicates go (None: any); there is one where it has written, or
        reads one snapshot."""
        if one.overlay is not None and not one.overlay.evaluator.is_there:
            if one.on_snapshot:
                raise _lost()
            self._blind(one)
        if one.overlay is None or one.overlay.predicates is not None:
            payloads = [part.payload.decode() for part in one.parts if part.kind != KIND_QUADS]
            if wanted is not None and payloads:
                wanted = await asyncio.to_thread(needed, payloads, wanted)
            if one.overlay is not None and not one.overlay.shows(wanted):
                self._blind(one)
        if one.overlay is None:
            if sum(other.overlay is not None for other in self.open.values()) >= COPIES_MAX:
                raise Unavailable(
                    "TransactionsOpen", f"{COPIES_MAX} transactions read copies of their own; commit some first"
                )
            one.overlay = await self._copied(request, one, wanted)
        await one.overlay.follow(one.parts)
        return one.overlay

    async def _copied(self, request: Request, one: Open, wanted: frozenset[str] | None) -> Overlay:
        """Of everything; where that is too much, of what is wanted."""
        part = wanted is not None and not one.on_snapshot
        now = time.monotonic()
        if not part or now >= self._large_until:
            try:
                keep = one.looked is not None
                return await Overlay.copy(self._evaluators, self._reads, request, None, keep=keep)
            except TooLarge:
                self._large_until = now + LARGE_S
        if not part:
            raise _too_large("the repository", _LOWER if one.on_snapshot else _OTHERWISE)
        try:
            return await Overlay.copy(self._evaluators, self._reads, request, wanted)
        except TooLarge:
            raise _too_large("all that has the predicates which it names", _OTHERWISE) from None

    async def _query(self, request: Request, one: Open) -> Response:
        if not self._has_own_view(one):
            return await self._reads.query(request, {"id": self._repository})
        asked = await self._reads.question(request)
        wanted = query_looks_at(asked.text)
        if one.looked is not None:
            one.looked.at(wanted)
        return await (await self._seen(request, one, wanted)).query(asked)

    async def _plain(self, one: Open) -> Changes | None:
        """What it has written, where a worker's statements may be read together with it: data alone, and no view of
        its own to be kept to."""
        if one.on_snapshot or one.overlay is not None:
            return None
        if sum(len(part.payload) for part in one.parts[one.counted :]) > LARGE_BYTES:
            await asyncio.to_thread(one.count)
        else:
            one.count()
        return one.plain

    async def _get(self, request: Request, one: Open) -> Response:
        if not self._has_own_view(one):
            return await self._reads.statements(request, {"id": self._repository})
        plain = await self._plain(one)
        if plain is not None:
            return await self._reads.changed_statements(request, plain)
        form = form_of(request, tuple(FORMS))
        terms = (term_of(request, "subj"), term_of(request, "pred"), term_of(request, "obj"))
        graphs = contexts_of(request)
        wanted = None if terms[1] is None else frozenset((terms[1],))
        if one.looked is not None:
            one.looked.at(wanted)
        body = await (await self._seen(request, one, wanted)).statements(terms, graphs, form)
        return bytes_answer(body, form.media)

    async def _size(self, request: Request, one: Open) -> Response:
        if not self._has_own_view(one):
            return await self._reads.size(request, {"id": self._repository})
        plain = await self._plain(one)
        if plain is not None:
            return text_answer(str(await self._reads.changed_size(request, plain)))
        graphs = contexts_of(request)
        if one.looked is not None:
            one.looked.at(None)
        return text_answer(str(await (await self._seen(request, one, None)).size(graphs)))

    async def _ping(self, request: Request, one: Open) -> Response:
        return text_answer(str(round(self.idle_s * 1000)))

    # The end

    async def _prepare(self, request: Request, one: Open) -> Response:
        return web.Response()

    async def _commit(self, request: Request, one: Open) -> Response:
        """One entry of the log. Its Idempotency-Key is the transaction itself unless the client has one, so that a
        commit that is repeated, here or anywhere, takes effect once."""
        asked = asked_of(request, self._level, self._seconds)
        prepared = join(one.parts)
        if not prepared.payload:
            self._end(one, "it was committed, and had written nothing")
            return web.Response()
        if one.looked is not None and one.looked and one.overlay is not None:
            return await self._serialised(request, one, one.looked, one.overlay, asked)
        key = asked.key or f"transaction:{one.name}"
        submission = Submission(
            prepared.kind, key, prepared.payload, content_hash(prepared.kind, key, prepared.payload)
        )
        one.committing = True
        try:
            answer = await self._writes.write(submission, asked._replace(key=key))
        except Refused:
            one.committing = False  # nothing was taken: it may be tried again, changed, or rolled back
            raise
        if answer.status == 202:
            return answer
        self._end(one, "it was committed")
        if isinstance(answer, RawResponse) and answer.status == 204:
            return answer.as_status(200)
        return answer

    async def _serialised(
        self, request: Request, one: Open, looked: Looked, overlay: Overlay, asked: Asked
    ) -> Response:
        """A commit that counts only if all that the transaction has looked at, to read or to write, is as it was when
        it began to read."""
        if not overlay.evaluator.is_there:
            raise _lost()
        update = await asyncio.to_thread(looked.update_of, one.parts)
        seen = await overlay.sums_before(update.looks_at)
        one.committing = True
        try:
            answer = await self._writes.serialised(request, update, seen, asked)
        except TxLogError:
            one.committing = False
            raise
        except BaseException:
            self._end(one, "its commit broke off, and it is not known whether it counts: look at the data")
            raise
        self._end(one, "it was committed" if answer.status != 202 else "it is not known whether it counts")
        if isinstance(answer, RawResponse) and answer.status == 204:
            return answer.as_status(200)
        return answer

    async def _rollback(self, request: Request, one: Open) -> Response:
        self._end(one, "it was rolled back")
        return web.Response(status=204)


_LOWER: Final = "begin it at READ_COMMITTED"
_OTHERWISE: Final = "read before writing, or name predicates that fewer have"


def _too_large(what: str, advice: str) -> Conflict:
    return Conflict(
        f"Transaction handling error: this transaction reads a copy, and {what} is larger than "
        f"{COPY_BYTES_MAX >> 20} MiB of N-Quads; {advice}"
    )


def _lost() -> Conflict:
    return Conflict(
        "Transaction handling error: what it saw went with an evaluation that took too much time or memory, and it "
        "asked to see nothing newer; roll it back"
    )
