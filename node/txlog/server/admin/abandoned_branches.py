"""The orders that this master has given up, to be read for ever: ``GET /txlog/branches``.

When two branches become one log, what a losing one had ordered behind the place where they part gets other indexes.
Its transactions are in the log; which order this side's clients had been shown stands here: a file beside the journal
for each branch that this master gave up, about 16 bytes an entry. What a transaction says is in the journal once, and
is read from there, as long as the log is not trimmed above it. For people: nothing is decided by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from txlog.config.atomic_file import sync_folder, write_durably
from txlog.http.router import Request, Response, Route, bytes_response, int_parameter, json_response
from txlog.model.decode_errors import DECODE_ERRORS
from txlog.model.entry import Span
from txlog.model.errors import BadInput, JournalDamaged, NotFound, Unavailable
from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin, Txid
from txlog.runtime.durability_tracker import ViewTransition
from txlog.runtime.master_context import MasterContext
from txlog.server.admin.views import format_view_number
from txlog.wire.log_page import KIND_NAMES

FOLDER: Final = "branches"
SUFFIX: Final = ".branch"
FORMAT: Final = 1
PAGE_ENTRIES: Final = 1000
PAGE_ENTRIES_MAX: Final = 100_000
PAGE_BYTES: Final = 4 << 20
"""Of payloads in one answer, and at least one of them; whoever wants more asks behind the last index."""
YIELD_AFTER_S: Final = 0.004
"""The journal is read on the loop's thread: for so long at a time."""


class AbandonedBranchRecord(msgspec.Struct, frozen=True):
    """``spans`` and ``hashes`` (16 bytes each) are the entries behind ``after``, in the order that was given up; those
    up to ``stable`` had been shown to workers and clients. ``at``: seconds since 1970."""

    format: int
    cluster: bytes
    view: str
    members: list[str]
    strategy: str
    ended_by: str
    at: float
    after: int
    after_hash: bytes
    stable: int
    spans: list[Span]
    hashes: bytes

    @property
    def count(self) -> int:
        return len(self.hashes) // HASH_BYTES

    def hash_at(self, index: int) -> bytes:
        """The chain hash behind one of its entries; empty for any other index."""
        at = (index - self.after - 1) * HASH_BYTES
        return self.hashes[at : at + HASH_BYTES] if at >= 0 else b""

    def entries(self, after: int, count: int) -> Iterator[tuple[int, Txid, bytes]]:
        """Index, transaction and chain hash of at most ``count`` entries behind ``after``."""
        index = self.after
        for span in self.spans:
            first = max(index, after)
            for at in range(first, min(index + span.count, after + count)):
                here = (at - self.after) * HASH_BYTES
                txid = Txid(Origin(span.node, span.birth), span.first_seq + at - index)
                yield at + 1, txid, self.hashes[here : here + HASH_BYTES]
            index += span.count


_DECODER = msgspec.msgpack.Decoder(AbandonedBranchRecord)


class AbandonedBranchesHandler:
    """``covering``: the backup that holds what was trimmed, None where none is known."""

    def __init__(self, site: MasterContext, covering: Callable[[], str | None]) -> None:
        self._context = site
        self._backup_covering = covering
        self._folder = site.config.journal_folder / FOLDER

    def routes(self) -> list[Route]:
        return [Route("GET", "/txlog/branches", self.list_branches), Route("GET", "/txlog/branches/{view}", self.get)]

    def on_view_changed(self, change: ViewTransition) -> None:
        """What the new view took off the order of the old one is written down before anything else happens, so that no
        end of the process comes between."""
        agreement = self._context.loop.log_state
        cut = agreement.displaced if agreement is not None else None
        if agreement is None or cut is None or not cut.spans:
            return
        agreement.displaced, old = None, change.old  # which may have come to nothing: then it is the one before's
        branch = AbandonedBranchRecord(
            FORMAT,
            old.cluster_id,
            str(format_view_number(agreement.displaced_view)),
            [member.node for member in old.members],
            old.strategy,
            str(format_view_number(change.new.number)),
            round(time.time(), 3),
            cut.after,
            cut.after_hash,
            change.stable,
            cut.spans,
            cut.hashes,
        )
        path = self._folder / f"{branch.view}{SUFFIX}"
        try:
            if not self._folder.is_dir():
                self._folder.mkdir()
                sync_folder(self._folder.parent)
            write_durably(path, msgspec.msgpack.encode(branch))
        except OSError as wrong:  # a full disk says so elsewhere
            self._context.log.warning("BranchNotKept", view=branch.view, entries=branch.count, error=str(wrong))

    async def common_index(self, index: int, value: bytes) -> int | None:
        """The last index at which the log of today is the one that had the hash ``value`` at ``index``. None where that
        order was never this master's, or its beginning is trimmed."""
        agreement = self._context.loop.log_state
        if agreement is None:
            return None
        pieces = await asyncio.to_thread(self._load_readable)
        history = agreement.log_index
        while not (history.has_hash_at(index) and history.hash_at(index) == value):
            piece = next((one for one in pieces if one.hash_at(index) == value), None)
            if piece is None:
                return None
            index, value = piece.after, piece.after_hash
        return index

    def _load_readable(self) -> list[AbandonedBranchRecord]:
        """Those that can be read."""
        found: list[AbandonedBranchRecord] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(Unavailable):  # GET /txlog/branches names it
                found.append(_load(path))
        return found

    async def list_branches(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"node", "branches"}``, oldest first: ``view``, ``members``, ``splitRecovery``, ``endedBy`` (the view that
        gave it up), ``at`` (seconds since 1970), ``after`` (the last index that it shares with the log), ``end``,
        ``hash`` (at its end), ``stable``; for a file that cannot be read ``view`` and ``error``."""
        told = await asyncio.to_thread(self._summaries)
        return json_response({"node": self._context.config.node, "branches": told})

    def _summaries(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            try:
                found.append(_summary(_load(path)))
            except Unavailable as wrong:
                found.append({"view": path.stem, "at": 0.0, "error": str(wrong)})
        return sorted(found, key=lambda one: (one["at"], one["view"]))

    async def get(self, request: Request, names: Mapping[str, str]) -> Response:
        """JSON lines ``{"index","id","hash","now"}``: ``now`` is where the transaction stands in the log today, null
        while it is in none or was trimmed. ``?after=INDEX&count=1000``. 404 for a branch that this master has not.
        ``&payload=true``: with ``kind``, ``key`` and ``payload`` besides; of what cannot be given they are null, and
        ``missing`` says why. Such an answer ends behind :data:`PAGE_BYTES`, too."""
        view = names["view"]
        path = self._folder / f"{view}{SUFFIX}"
        if view not in {one.stem for one in self._folder.glob(f"*{SUFFIX}")}:
            raise NotFound(
                f"{self._context.config.node} has given up no branch {view[:80]!r}; /txlog/branches lists them"
            )
        after = int_parameter(request.query, "after", 0)
        count = int_parameter(request.query, "count", PAGE_ENTRIES, least=1, most=PAGE_ENTRIES_MAX)
        wanted = request.query.get("payload", "false")
        if wanted not in ("true", "false"):
            raise BadInput(f"payload={wanted[:40]}: true or false")
        branch = await asyncio.to_thread(_load, path)
        index_of = self._context.loop.index_of
        lines: list[str] = []
        size, began = 0, time.monotonic()
        for at, txid, value in branch.entries(max(after, branch.after), count):
            line: dict[str, object] = {
                "index": at,
                "id": str(txid),
                "hash": value.hex(),
                "now": index_of(txid) or None,
            }
            if wanted == "true":
                line |= self._content_fields(txid)
                if time.monotonic() - began > YIELD_AFTER_S:
                    await asyncio.sleep(0)
                    began = time.monotonic()
            lines.append(json.dumps(line))
            size += len(lines[-1])
            if wanted == "true" and size >= PAGE_BYTES:
                break
        return bytes_response("".join(f"{line}\n" for line in lines).encode(), "application/x-ndjson")

    def _content_fields(self, txid: Txid) -> dict[str, object]:
        """What it says, from the journal; or why that cannot be told."""
        loop = self._context.loop
        told: dict[str, object] = {"kind": None, "key": None, "payload": None, "missing": None}
        if loop.is_trimmed(txid):
            backup = self._backup_covering()
            where = f"the backup {backup} has its effect" if backup else "no backup that has its effect is known here"
            return {**told, "missing": {"reason": "Trimmed", "backup": backup, "text": f"the log is trimmed: {where}"}}
        try:
            run = loop.executor.journal.read(*txid.origin, txid.seq, 1, 1)
        except JournalDamaged as wrong:
            return {**told, "missing": {"reason": "Damaged", "backup": None, "text": str(wrong)}}
        if not run.items:
            text = "this master's journal does not hold it; the other masters of that branch may"
            return {**told, "missing": {"reason": "NotHeld", "backup": None, "text": text}}
        item = run.items[0]
        payload = item.payload.decode("utf-8", "backslashreplace")
        return {
            **told,
            "kind": KIND_NAMES.get(item.kind, str(item.kind)),
            "key": item.key or None,
            "payload": payload,
        }


def _load(path: Path) -> AbandonedBranchRecord:
    try:
        branch = _DECODER.decode(path.read_bytes())
    except (OSError, *DECODE_ERRORS) as wrong:
        raise Unavailable("Damaged", f"{path}: {wrong}; the other masters of that branch have it too") from None
    if branch.format != FORMAT:
        raise Unavailable("Damaged", f"{path}: format {branch.format} is not known here; expected {FORMAT}")
    return branch


def _summary(branch: AbandonedBranchRecord) -> dict[str, object]:
    return {
        "view": branch.view,
        "members": branch.members,
        "splitRecovery": branch.strategy,
        "endedBy": branch.ended_by,
        "at": branch.at,
        "after": branch.after,
        "end": branch.after + branch.count,
        "hash": branch.hashes[-HASH_BYTES:].hex(),
        "stable": branch.stable,
    }
