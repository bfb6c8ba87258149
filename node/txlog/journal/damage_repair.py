"""Repairs the damage that recovery found in a journal, with content that other masters sent (rule 28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txlog.journal import format as fmt
from txlog.journal import record_bodies
from txlog.journal.format import RecordBody
from txlog.journal.record_reader import RecordReader, RecordUnreadable
from txlog.journal.repair_check import LoggedTransactions, check_repair, proves_all_stamps
from txlog.journal.scan import JournalScan
from txlog.journal.transaction_reader import TransactionReader
from txlog.journal.write_buffer import WriteBuffer
from txlog.model.entry import TransactionRun
from txlog.model.errors import JournalDamaged
from txlog.model.hashes import NO_HASH, chain_start
from txlog.model.records import Damage, LogAppended, RecoveredState, ViewAccepted, ViewPromised
from txlog.model.view import NO_VIEW


class DamageRepair:
    """The damage of one journal, and the state of its recovery against which a repair is checked.

    ``transactions``: reads what the journal still holds. ``append_held``: appends a repaired run with its content
    hashes, and indexes it."""

    def __init__(
        self,
        found: JournalScan,
        recovered: RecoveredState,
        buffer: WriteBuffer,
        reader: RecordReader,
        transactions: TransactionReader,
        append_held: Callable[[TransactionRun, bytes], None],
    ) -> None:
        self._buffer = buffer
        self._reader = reader
        self._transactions = transactions
        self._append_held = append_held
        self._unpaired_copies = found.unpaired_copies()
        self._view_without_copy = found.view_without_copy()
        self._bad_headers = {bad.where: bad.segment for bad in found.damaged if bad.segment}
        self.damage = list(recovered.damage)
        """Damage that is not repaired yet."""
        self._chain_before_damage: dict[int, bytes] = {}
        first_hash = self._initial_chain_hash()
        for damage in self.damage:
            before = damage.log_from - 1
            kept = before >= max(1, recovered.log_start.index)
            self._chain_before_damage[damage.first] = recovered.hash_at(before) if kept else first_hash
        self._logged = LoggedTransactions(recovered, first_hash) if self.damage else None

    def _initial_chain_hash(self) -> bytes:
        views = self._buffer.views
        view = views.get(self._buffer.state_header.accepted) or next(iter(views.values()), None)
        return chain_start(view.cluster_id) if view else NO_HASH

    def apply(
        self, damage: Damage, runs: Sequence[TransactionRun], contents: Sequence[bytes], added: LogAppended | None
    ) -> None:
        """Check the content sent for ``damage`` and append it; :meth:`Journal.repair` documents the rules."""
        assert damage in self.damage
        assert self._logged is not None
        transactions = self._transactions
        check_repair(
            damage,
            runs,
            contents,
            added,
            self._chain_before_damage[damage.first],
            transactions.lookup_meta,
            transactions.certain_stamp,
            self._logged,
        )
        if not proves_all_stamps(runs, added, self._logged, transactions.is_restamped):
            self._stop_view()
        for run, hashes in zip(runs, contents, strict=True):
            self._append_held(run, hashes)
        if added is not None:
            self._buffer.append(record_bodies.encode_added(added, fmt.FLAG_REPAIR))
        segment = next((number for where, number in self._bad_headers.items() if damage.where.startswith(where)), 0)
        self._buffer.append(record_bodies.encode_repaired(damage.first, damage.last, segment))
        self.damage.remove(damage)
        if not self.damage:
            self.copy_views()

    def provable_prefix(self, run: TransactionRun) -> int:
        """How many of the first of these transactions may replace damaged ones (:meth:`Journal.provable_prefix`)."""
        assert self._logged is not None
        return self._logged.provable_prefix(run, self._transactions.certain_stamp)

    def _stop_view(self) -> None:
        """Promise the least number above the view: no proposal has it, so none is refused for it."""
        state = self._buffer.state_header
        epoch, ballot, _ = state.accepted
        if state.promised == state.accepted != NO_VIEW and state.left != state.accepted:
            promise = ViewPromised(epoch, ballot + 1, "")
            self._buffer.append(record_bodies.encode_scalar_record(promise))
            state.set_promised((promise.epoch, promise.ballot, promise.coordinator))

    def copy_views(self) -> None:
        """Restore two copies of each view record: one was lost in damage or in a torn tail, and no other master can
        send it. :class:`JournalDamaged` when the other copy cannot be read either."""
        for place in self._unpaired_copies:
            try:
                body = self._reader.read_body(place)
            except RecordUnreadable as error:
                raise JournalDamaged(
                    f"copying the view at byte {place.offset} of {fmt.segment_name(place.segment)}: {error}, and its"
                    " other copy was lost before. Next: start again; what can be repaired will be named"
                ) from None
            flags = body.flags | fmt.FLAG_REPAIR
            self._buffer.append(RecordBody(body.kind, flags, body.a, body.b, body.front, body.tail))
        if self._view_without_copy is not None:
            body = record_bodies.encode_accepted(ViewAccepted(self._view_without_copy), 0, fmt.FLAG_REPAIR)
            self._buffer.append(body)
            self._buffer.append(body)
        self._unpaired_copies, self._view_without_copy = [], None
