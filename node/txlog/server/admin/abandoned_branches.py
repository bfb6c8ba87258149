"""The branches that this master has abandoned: ``GET /txlog/branches``. They stay readable for ever.

When a rejoin merges two branches, the losing one's entries after the last shared index get other indexes. Their
transactions are in the log. The order that this side's clients saw is stored here: one file per abandoned branch, next
to the journal, about 16 bytes an entry. The payloads are only in the journal, and are readable until the log is trimmed
above them. These files are for people; TxLog decides nothing by them.
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
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_listener import ViewTransition
from txlog.server.admin.views import format_view_number
from txlog.wire.log_page import KIND_NAMES

FOLDER: Final = "branches"
SUFFIX: Final = ".branch"
FORMAT: Final = 1
PAGE_ENTRIES: Final = 1000
PAGE_ENTRIES_MAX: Final = 100_000
PAGE_BYTES: Final = 4 << 20
"""Maximum size of the payloads in one answer, which has at least one entry. A client asks again after the last
index."""
YIELD_AFTER_S: Final = 0.004
"""The loop's thread reads the journal; it yields after this time."""


class AbandonedBranchRecord(msgspec.Struct, frozen=True):
    """``spans`` and ``hashes`` (16 bytes each) describe the entries after index ``after``, in the abandoned order.
    Workers and clients had seen the entries up to ``stable``. ``at``: seconds since 1970."""

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
        """Number of entries."""
        return len(self.hashes) // HASH_BYTES

    def hash_at(self, index: int) -> bytes:
        """The chain hash after the entry at ``index``; empty for an index that is not on this branch."""
        at = (index - self.after - 1) * HASH_BYTES
        return self.hashes[at : at + HASH_BYTES] if at >= 0 else b""

    def entries(self, after: int, count: int) -> Iterator[tuple[int, Txid, bytes]]:
        """Index, transaction and chain hash of at most ``count`` entries after the index ``after``."""
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
    """``/txlog/branches``. ``covering()`` names the backup that contains what was trimmed, or returns None."""

    def __init__(self, site: MasterContext, covering: Callable[[], str | None]) -> None:
        self._context = site
        self._backup_covering = covering
        self._folder = site.config.journal_folder / FOLDER

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/branches", self.list_branches), Route("GET", "/txlog/branches/{view}", self.get)]

    def on_view_changed(self, change: ViewTransition) -> None:
        """Persists what the new view truncated from the old order. This happens before anything else, so that a crash
        cannot lose it."""
        agreement = self._context.status.log_state
        cut = agreement.displaced if agreement is not None else None
        if agreement is None or cut is None or not cut.spans:
            return
        # ``old`` may never have been installed; the record then names the view before it
        agreement.displaced, old = None, change.old
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
        except OSError as wrong:  # another module reports a full disk
            self._context.log.warning("BranchNotKept", view=branch.view, entries=branch.count, error=str(wrong))

    async def common_index(self, index: int, value: bytes) -> int | None:
        """The last index that today's log shares with the order that had the hash ``value`` at ``index``. None if this
        master never had that order, or if the beginning of that order is trimmed."""
        agreement = self._context.status.log_state
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
        """The branch files that can be read."""
        found: list[AbandonedBranchRecord] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(Unavailable):  # GET /txlog/branches names an unreadable file
                found.append(_load(path))
        return found

    async def list_branches(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"node", "branches"}``, oldest first. Fields: ``view``, ``members``, ``splitRecovery``, ``endedBy`` (the
        view that abandoned it), ``at`` (seconds since 1970) and ``after`` (the last index that it shares with the log).
        It also has ``end``, ``hash`` (at its end) and ``stable``. For an unreadable file it has ``view`` and
        ``error``."""
        summaries = await asyncio.to_thread(self._summaries)
        return json_response({"node": self._context.config.node, "branches": summaries})

    def _summaries(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            try:
                found.append(_summary(_load(path)))
            except Unavailable as wrong:
                found.append({"view": path.stem, "at": 0.0, "error": str(wrong)})
        return sorted(found, key=lambda one: (one["at"], one["view"]))

    async def get(self, request: Request, names: Mapping[str, str]) -> Response:
        """JSON lines ``{"index","id","hash","now"}``. ``now`` is the index of the transaction in today's log, or null
        if it has none or was trimmed. ``?after=INDEX&count=1000``. 404 for a branch that this master does not have.
        ``&payload=true`` adds ``kind``, ``key`` and ``payload``; if they are not available they are null, and
        ``missing`` gives the reason. Such an answer also ends after :data:`PAGE_BYTES`."""
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
        index_of = self._context.durability.index_of
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
        """Kind, key and payload of the transaction from the journal, or the reason why they are missing."""
        site = self._context
        fields: dict[str, object] = {"kind": None, "key": None, "payload": None, "missing": None}
        if site.durability.is_trimmed(txid):
            backup = self._backup_covering()
            where = f"the backup {backup} has its effect" if backup else "no backup that has its effect is known here"
            text = f"the log is trimmed: {where}"
            return {
                **fields,
                "missing": {"reason": "Trimmed", "backup": backup, "text": text},
            }
        try:
            run = site.status.read_transactions(*txid.origin, txid.seq, 1, 1)
        except JournalDamaged as wrong:
            return {**fields, "missing": {"reason": "Damaged", "backup": None, "text": str(wrong)}}
        if not run.items:
            text = "this master's journal does not hold it; the other masters of that branch may"
            return {**fields, "missing": {"reason": "NotHeld", "backup": None, "text": text}}
        item = run.items[0]
        payload = item.payload.decode("utf-8", "backslashreplace")
        return {
            **fields,
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
