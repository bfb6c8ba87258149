"""Pages of the log for its readers: ``GET /txlog/log``.

The loop's thread owns and reads the journal. A page is therefore assembled in steps of a few milliseconds, and other
requests are served in between. A step reads one run per origin. Inside any piece of the log the sequence numbers of an
origin are consecutive, however much the origins interleave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from enum import Enum

from txlog.http.router import Request, Response, Route, bytes_response, encode_json, int_parameter
from txlog.model.entry import Position, RunItem
from txlog.model.errors import BadInput, LogAhead, LogDiverged, LogNeedsRestore, NotAcceptable, Unavailable
from txlog.model.hashes import NO_HASH
from txlog.model.ids import Origin, Txid
from txlog.model.synchronous_entry import SYNCHRONOUS_AND_DECISION
from txlog.model.view import Number
from txlog.protocol.log.executed_out_of_order import ExecutedElsewhere, find_branch_position
from txlog.protocol.log.log_state import LogState
from txlog.runtime.master_context import MasterContext
from txlog.server.feed.synchronous_pages import LoggedEffects, SynchronousEntries
from txlog.wire.log_page import MEDIA_TYPE, LogPage, PageEntry, encode_page, page_to_json

STEP_ENTRIES = 500
"""Entries of one step: about two milliseconds."""
STEP_BYTES = 512 << 10
PAGE_BYTES = 1 << 20
PAGE_BYTES_MAX = 8 << 20
"""Maximum size of one page that a reader may request, in bytes; it is in memory twice while it is sent."""
PAGE_ENTRIES_MAX = 50_000
UNORDERED_POSITIONS_MAX = 1000


class PageContents(Enum):
    """What a page has. ``FOR_ARCHIVE``: as with keys, with the names of what takes effect. The reader has the payloads
    at their own places, so it may read the whole log: also from before the first position that can be served."""

    EXECUTED = "executed"
    WITH_KEYS = "with keys"
    FOR_ARCHIVE = "for an archive"


class LogPageHandler:
    """``GET /txlog/log``."""

    def __init__(self, site: MasterContext) -> None:
        self._durability = site.durability
        self._status = site.status
        self._context = site
        self._executed_cache: tuple[tuple[str, int, Number], ExecutedElsewhere] | None = None

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/log", self.get)]

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """A page of the log after a position."""
        query = request.query
        after = int_parameter(query, "after", 0)
        upto = int_parameter(query, "upto", 1 << 62)
        bytes_max = min(int_parameter(query, "maxBytes", PAGE_BYTES, least=1), PAGE_BYTES_MAX)
        readable = _wants_json(request)
        hash_text = query.get("hash")
        contents = _parse_contents(query)
        agreement = self._log_state()
        start = self._checked_start(agreement, after, hash_text, contents)
        over = self._executed_elsewhere(agreement, query.get("unordered", ""))
        cuts = self._durability.truncation_count
        if contents is not PageContents.EXECUTED:
            # What is copied away from the masters must not leave the log: never more than is stable, as under ``None``.
            upto = min(upto, self._durability.stable.value)
            entries = await self._read_entries(
                agreement, after, min(upto, self._durability.executable.value), bytes_max, cuts, contents=contents
            )
            page = self._keyed_page(start, entries)
        else:
            entries = await self._read_entries(
                agreement, after, min(upto, self._durability.executable.value), bytes_max, cuts, over
            )
            page = LogPage(start, entries, self._durability.executable_position(), agreement.view.cluster_id)
        if readable:
            return bytes_response(encode_json(page_to_json(page)), "application/json")
        return bytes_response(encode_page(page), MEDIA_TYPE)

    def _keyed_page(self, start: Position, entries: list[PageEntry]) -> LogPage:
        """All of one moment, after the entries were read: the view may have changed since."""
        agreement = self._log_state()
        stable = self._durability.stable.value
        return LogPage(
            start,
            entries,
            self._durability.executable_position(),
            agreement.view.cluster_id,
            stable,
            min(stable, agreement.final_index),
            agreement.view.number,
        )

    async def read(self, after: Position, upto: int, bytes_max: int, *, keys: bool = False) -> list[PageEntry]:
        """The entries of the log after ``after``, up to ``upto`` at most, for readers in this process. ``keys``: as in
        a page with keys."""
        agreement = self._log_state()
        contents = PageContents.WITH_KEYS if keys else PageContents.EXECUTED
        self._checked_start(agreement, after.index, after.hash.hex() if after.index else None, contents)
        return await self._read_entries(
            agreement,
            after.index,
            min(upto, self._durability.executable.value),
            bytes_max,
            self._durability.truncation_count,
            contents=contents,
        )

    def _log_state(self) -> LogState:
        agreement = self._status.log_state
        if agreement is None:
            raise Unavailable("NotFounded", "the cluster is not founded yet, or this master is damaged: no log here")
        return agreement

    def _checked_start(
        self, agreement: LogState, after: int, hash_text: str | None, contents: PageContents
    ) -> Position:
        """The log's own position at ``after``, checked against the caller's hash there."""
        given: bytes | None = None
        if hash_text is not None:
            try:
                given = bytes.fromhex(hash_text)
            except ValueError:
                given = b""
            if len(given) != len(NO_HASH):
                raise BadInput(f"hash={hash_text[:40]}: {2 * len(NO_HASH)} hexadecimal digits")
        end = self._durability.executable.value
        if given is None and after > end:
            return Position(agreement.view.epoch, after, NO_HASH)
        if after > end:
            raise LogAhead(f"index {after} is above this master's stable index {end}; ask again later")
        start = _first_served(agreement, contents)
        if after < start:
            raise LogNeedsRestore(
                f"index {after} is below {start}, from which the log is kept: restore a backup or copy a live worker"
            )
        mine = agreement.log_index.hash_at(after)
        if given is not None and given != mine and not (after == 0 and given == NO_HASH):
            raise LogDiverged(f"at index {after} this log's hash is {mine.hex()}, not {given.hex()}: another branch")
        return Position(agreement.view.epoch, after, mine)

    def _executed_elsewhere(self, agreement: LogState, text: str) -> ExecutedElsewhere | None:
        """What a worker that was at these positions has executed. The last result is cached, because the reader asks
        page by page."""
        if not text:
            return None
        about = (text, self._durability.truncation_count, agreement.view.number)
        if self._executed_cache is not None and self._executed_cache[0] == about:
            return self._executed_cache[1]
        paths = [
            find_branch_position(agreement, *_parse_position(place))
            for place in text.split(",")[:UNORDERED_POSITIONS_MAX]
        ]
        known = [path for path in paths if path is not None]
        if len(known) < len(paths):
            raise Unavailable("UnknownBranch", f"{text[:200]}: an order that this master never had; ask another one")
        self._executed_cache = (about, ExecutedElsewhere(known))
        return self._executed_cache[1]

    async def _read_entries(
        self,
        agreement: LogState,
        after: int,
        upto: int,
        bytes_max: int,
        cuts: int,
        over: ExecutedElsewhere | None = None,
        *,
        contents: PageContents = PageContents.EXECUTED,
    ) -> list[PageEntry]:
        entries: list[PageEntry] = []
        size = 0
        index = after
        began = time.monotonic()
        while index < upto and size < bytes_max and len(entries) < PAGE_ENTRIES_MAX:
            room = min(STEP_BYTES, bytes_max - size)
            step = self._read_step(agreement, index, min(upto, index + STEP_ENTRIES), room, over, contents)
            entries += step
            index += len(step)
            size += sum(map(_size, step))
            if index < upto and size < bytes_max and time.monotonic() - began > 0.004:
                await asyncio.sleep(0)
                if self._durability.truncation_count != cuts:
                    raise Unavailable("Rejoining", "the log was cut while this page was read; ask again")
                if index < _first_served(agreement, contents):
                    raise Unavailable("Trimmed", "the log was trimmed while this page was read; ask again")
                began = time.monotonic()
        return entries

    def _read_step(
        self,
        agreement: LogState,
        after: int,
        upto: int,
        bytes_max: int,
        over: ExecutedElsewhere | None,
        contents: PageContents,
    ) -> list[PageEntry]:
        """The next entries after ``after``, at least one."""
        keys = contents is not PageContents.EXECUTED
        spans = agreement.log_index.spans(after, upto)
        wanted: dict[tuple[str, int], list[int]] = {}
        for span in spans:
            seqs = wanted.setdefault((span.node, span.birth), [span.first_seq, 0])
            seqs[1] += span.count
        read = self._status.read_transactions
        items: dict[tuple[str, int], tuple[int, list[RunItem]]] = {}
        for (node, birth), (first, count) in wanted.items():
            items[node, birth] = (first, read(node, birth, first, count, bytes_max).items)
        entries: list[PageEntry] = []
        index = after
        noops, skips, hash_at = agreement.noops, agreement.skips, agreement.log_index.hash_at
        for span in spans:
            first, run = items[span.node, span.birth]
            for seq in range(span.first_seq, span.first_seq + span.count):
                at = seq - first
                if at >= len(run) or (bytes_max <= 0 and entries):
                    return entries
                index += 1
                item = run[at]
                noop = ""
                if noops and index in noops:
                    noop = f"key {noops[index]}"
                elif skips:
                    noop = self._skip_mark(agreement, f"{span.node}.{span.birth:016x}.{seq}")
                if over is not None and not noop:
                    noop = _executed_mark(over, agreement, index, Txid(Origin(span.node, span.birth), seq), item)
                is_synchronous = item.kind in SYNCHRONOUS_AND_DECISION
                entry = PageEntry(
                    index,
                    hash_at(index),
                    span.node,
                    span.birth,
                    seq,
                    item.stamp,
                    item.kind,
                    item.payload,
                    noop,
                    item.key if keys or is_synchronous else "",
                    item.first_stamp if keys else 0,
                )
                entries.append(self._serve(agreement, entry, contents) if is_synchronous else entry)
                bytes_max -= _size(entries[-1])
        return entries

    def _serve(self, agreement: LogState, entry: PageEntry, contents: PageContents) -> PageEntry:
        """A synchronous transaction or a decision."""
        served = self._synchronous_entries(agreement)
        if contents is PageContents.FOR_ARCHIVE:
            return served.serve_names(entry)
        return served.serve(entry, keys=contents is PageContents.WITH_KEYS)

    def _synchronous_entries(self, agreement: LogState) -> SynchronousEntries:
        def read(txid: Txid) -> RunItem:
            return self._status.read_transactions(*txid.origin, txid.seq, 1, STEP_BYTES).items[0]

        return SynchronousEntries(
            LoggedEffects(agreement), read, lambda txid: bool(self._skip_mark(agreement, str(txid)))
        )

    def _skip_mark(self, agreement: LogState, txid: str) -> str:
        at = agreement.skips.get(txid, 0)
        return "skip" if 0 < at <= self._durability.stable.value else ""


def _parse_contents(query: Mapping[str, str]) -> PageContents:
    effects = query.get("effects", "payloads")
    if effects not in ("payloads", "names"):
        raise BadInput(f"effects={effects[:40]}: payloads, or names in a page with keys")
    if query.get("keys", "") != "1":
        return PageContents.EXECUTED
    return PageContents.FOR_ARCHIVE if effects == "names" else PageContents.WITH_KEYS


def _first_served(agreement: LogState, contents: PageContents) -> int:
    log = agreement.log_index
    return log.start if contents is PageContents.FOR_ARCHIVE else log.served_from


def _size(entry: PageEntry) -> int:
    """About as many bytes as the entry takes in a page."""
    return len(entry.payload) + sum(len(effect.payload) + 30 for effect in entry.effects) + 60


def _parse_position(text: str) -> tuple[int, bytes]:
    index, _, value = text.partition(":")
    try:
        found = int(index), bytes.fromhex(value)
    except ValueError:
        found = -1, b""
    if found[0] < 0 or len(found[1]) != len(NO_HASH):
        raise BadInput(f"unordered={text[:80]}: expected INDEX:HASH,... as a worker's position shows them")
    return found


def _executed_mark(over: ExecutedElsewhere, agreement: LogState, index: int, txid: Txid, item: RunItem) -> str:
    if over.was_executed(index, txid.origin, txid.seq):
        return "executed"
    return "executed key" if item.key and over.repeats_executed_key(agreement, txid, item.key, item.age_stamp) else ""


def _wants_json(request: Request) -> bool:
    accept = request.headers.get("Accept", "*/*").lower()
    if MEDIA_TYPE in accept or "*/*" in accept or not accept.strip():
        return "application/json" in accept and MEDIA_TYPE not in accept
    if "json" in accept or "application/*" in accept:
        return "json" in accept
    raise NotAcceptable(f"Accept: {accept[:80]}; there are {MEDIA_TYPE} and application/json")
