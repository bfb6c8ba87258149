"""The disk of one simulated master: the real journal on files in memory, with the bad days a disk can have."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from txlog.journal import Journal, MemoryVfs
from txlog.journal.memory_vfs import WRITE_KEPT, WRITE_LOST, WRITE_TORN
from txlog.model.entry import Span
from txlog.model.hashes import HASH_BYTES, chain_hash, chain_start, origin_tag
from txlog.model.ids import Origin
from txlog.model.records import (
    LogAppended,
    Record,
    RecoveredState,
    StableAdvanced,
    TransactionsPersisted,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.view import View

STAGING_PROBABILITY = 0.08
"""Of the records with transactions, those whose payloads are written ahead of them."""
LATE_FLIP_BYTES = (500, 1200)
"""Bytes before the end of the last segment: there are the seals, and in front of them what was written last."""


class SimulatedDisk:
    """What outlives a master's process. ``step`` is told of every operation on the files and may end the process
    there. ``met`` counts what befell the files."""

    def __init__(
        self, node: str, rng: Random, segment_bytes: int, met: Counter[str], step: Callable[[str], None]
    ) -> None:
        self._node = node
        self._rng = rng
        self._staging_rng = Random(f"laid {rng.getstate()[1][:2]}")
        """Of its own, so that what else befalls a disk in a seed stays."""
        self._power_rng = Random(f"power {rng.getstate()[1][:2]}")
        self._segment_bytes = segment_bytes
        self._failing = 0
        self._coverage = met
        self._step = step
        self._files = self._with_hook(MemoryVfs())
        self.journal: Journal | None = None
        self.full = False
        self.on_error: Callable[[], None] = lambda: None
        self._flipped_at_rest = False
        self.may_have_lost_seal = False
        """A bit turned, and the power failed before the next start had synced the seals behind the last record."""
        self.may_keep_old_tail = False
        """The fsync of zeros over a torn tail failed, and the next start read these zeros (decision 54, limits)."""

    def _with_hook(self, files: MemoryVfs) -> MemoryVfs:
        files.hook = self._on_operation
        files.choose_failed = self._choose_outcome
        # these are other files: what befell those before is no cause of anything from here on
        self._flipped_at_rest = self.may_have_lost_seal = self.may_keep_old_tail = False
        return files

    def _on_operation(self, operation: str, name: str) -> None:
        if self._failing and operation == "fdatasync":
            if self._failing == 1:
                self._coverage["disk-error"] += 1
                self.on_error()
            self._failing += 1
            raise OSError(errno.EIO, "the disk failed", name)
        self._step(operation)

    def open(self) -> tuple[Journal, RecoveredState]:
        """A new start of the process reads its journal; ``JournalFault`` by name when it cannot."""
        journal, recovered = Journal.open(
            self._files,
            node=self._node,
            draw_birth=lambda: self._rng.getrandbits(64),
            segment_bytes=self._segment_bytes,
            cache_bytes=1 << 14,
        )
        self.journal = journal
        self._flipped_at_rest = False
        return journal, recovered

    def on_idle(self) -> None:
        """What the product does between batches: a seal behind the last record, a spare segment ahead, an index of a
        sealed segment, or a look at an old one."""
        if self.journal is None:
            return
        if self._rng.random() < 0.05:
            self.journal.seal()
        prepare = self.journal.begin_preallocation() if self._rng.random() < 0.05 else None
        if prepare is not None:
            prepare.run()
            self.journal.end_preallocation(prepare)
        survey = self.journal.begin_scrub() if self._rng.random() < 0.1 else None
        if survey is not None:
            survey.run()
            self.journal.end_scrub(survey)
            self._coverage["sealed segment read again"] += survey.done

    def stage_payloads(self, record: TransactionsPersisted) -> None:
        """What the product does with large payloads while they travel: some are on the disk before their record, some
        are begun and no more, and of some nothing comes."""
        journal = self.journal
        if journal is None or self._staging_rng.random() >= STAGING_PROBABILITY:
            return
        for at, item in enumerate(record.run.items):
            chance = self._staging_rng.random()
            if not item.payload or chance < 0.3:
                continue
            content = record.contents[HASH_BYTES * at : HASH_BYTES * (at + 1)] if chance < 0.9 else bytes(HASH_BYTES)
            laid = journal.stage_payload(content, len(item.payload), item.key)
            for unwanted in journal.pop_removable_staged():
                unwanted.remove()
            if laid is None:
                continue
            half = 1 + self._staging_rng.randrange(len(item.payload))
            laid.write(item.payload[:half])
            if chance > 0.4:
                laid.write(item.payload[half:])
                laid.finish()
                journal.finish_staging(laid)

    def remove_trimmed(self) -> None:
        """The files that a trim has left, as the product does it behind a sync."""
        removal = self.journal.begin_removal() if self.journal is not None else None
        if removal is not None:
            assert self.journal is not None
            removal.run()
            self.journal.end_removal(removal)
            self._coverage["segments removed"] += len(removal.segments)

    def crash(self) -> bool:
        """The process ends and the power fails (always true): of what was not synced, chance decides what is left."""
        self.journal = None
        self._failing = 0
        self.may_have_lost_seal |= self._flipped_at_rest
        self._files.crash(self._choose_outcome)
        return True

    def end_by_failed_sync(self) -> bool:
        """The process ends. Returns whether the power failed with it; if not, the next start can read what the disk may
        not have."""
        if self._power_rng.random() < 0.5:
            return self.crash()
        self._coverage["failed fsync, and the power stays"] += 1
        self.may_keep_old_tail |= self.journal is None and not self._files.drops_cached
        self.journal = None
        self._failing = 0
        self._files.kill()
        return False

    def _choose_outcome(self, what: str, options: int) -> int:
        chosen = self._rng.randrange(options)
        if what.startswith("write"):
            name = {WRITE_KEPT: "unsynced write kept", WRITE_LOST: "unsynced write lost", WRITE_TORN: "torn write"}[
                chosen
            ]
            self._coverage[name] += 1
        return chosen

    def fail_syncs(self) -> None:
        """Every fsync fails until the process is gone: what they were to make durable is anybody's guess."""
        self._failing = 1
        self._files.drops_cached = self._power_rng.random() < 0.5

    def close_cleanly(self) -> bool:
        """The process is stopped in order: all is synced, and sealed (True) where there is room for a seal."""
        sealed = False
        if self.journal is not None:
            self.journal.sync()
            sealed = self.journal.seal()
        self.journal = None
        self._files.kill()
        return sealed

    def rewrite(self, records: Sequence[Record], birth: int, start: int) -> None:
        """The folder is another one: a whole journal with these records, ``start`` starts old."""
        self._files = MemoryVfs()
        for _ in range(max(1, start)):
            journal, _recovered = Journal.open(
                self._files, node=self._node, draw_birth=lambda: birth, segment_bytes=self._segment_bytes
            )
            if records:
                journal.append(list(records))
                journal.sync()
                records = ()
            journal.close()
        self._with_hook(self._files)

    def wipe(self) -> None:
        """Everything is gone."""
        self._files = self._with_hook(MemoryVfs())

    def image(self) -> dict[str, bytes]:
        """A copy of the disk as it is now."""
        return self._files.dump()

    def restore(self, image: dict[str, bytes]) -> None:
        """The disk is what it was when the image was made."""
        self._files = self._with_hook(MemoryVfs.load(image))

    def flip_bit(self, late: bool) -> bool:
        """One bit at rest turns; False when there is nothing to turn. ``late``: in one of the last records."""
        files = [(name, data) for name, data in self._files.dump().items() if name.startswith(("index", "segment"))]
        if not files:
            return False
        name, data = files[-1] if late else self._rng.choice(files)  # the last one is a segment
        self._coverage["index flipped"] += name.startswith("index")
        used = max(1, len(data.rstrip(b"\0")))
        at = (
            max(0, used - self._rng.randint(LATE_FLIP_BYTES[0], LATE_FLIP_BYTES[1]))
            if late
            else self._rng.randrange(used)
        )
        self._files.flip_bit(name, at, self._rng.randrange(8))
        self._flipped_at_rest |= name.startswith("segment")  # an index is rebuilt, and no seal proves it
        return True

    def set_full(self, full: bool) -> None:
        """No room for another file, or room again."""
        self.full = full
        self._files.capacity = sum(len(data) for data in self._files.dump().values()) if full else 1 << 40


def _entries(spans: list[Span]) -> list[tuple[str, int, int]]:
    return [(span.node, span.birth, span.first_seq + i) for span in spans for i in range(span.count)]


def forged_records(written: Sequence[Record], above: int) -> list[Record] | None:
    """The same records with two neighbours of the log exchanged and every hash behind them anew; None where the log has
    no such neighbours. They are the first ones above an index (0: the last ones of all), of different origins, so that
    each origin's seqs still rise, and behind the base of the latest view, which names the hash there."""
    made: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    order: list[tuple[str, int, int]] = []
    stable = accepted_at = 0
    view: View | None = None
    for number, record in enumerate(written):
        match record:
            case TransactionsPersisted():
                rows = made.setdefault((record.run.node, record.run.birth), [])
                for at, item in enumerate(record.run.items):
                    rows.append((item.stamp, record.contents[at * HASH_BYTES : (at + 1) * HASH_BYTES]))
            case LogAppended():
                order += _entries(record.spans)
                stable = record.stable
            case ViewAccepted():
                view, accepted_at = record.view, number
                order[record.cut :] = _entries(record.spans)
                stable = min(stable, record.cut)
                for stamped in record.reassigned:
                    rows = made[stamped.node, stamped.birth]
                    for seq, stamp in enumerate(stamped.stamps, stamped.first_seq):
                        rows[seq - 1] = (stamp, rows[seq - 1][1])
            case ViewInstalled():
                stable = view.base_index if view is not None else stable
            case _:
                pass
    base = view.base_index if view is not None else 0
    apart = [i for i in range(max(above, base), len(order) - 1) if order[i][:2] != order[i + 1][:2]]
    if not apart or view is None:
        return None
    at = apart[0] if above else apart[-1]
    order[at], order[at + 1] = order[at + 1], order[at]
    value, cells, spans = chain_start(view.cluster_id), [], []
    for node, birth, seq in order:
        stamp, content = made[node, birth][seq - 1]
        value = chain_hash(value, stamp, origin_tag(Origin(node, birth)), seq, content)
        cells.append(value)
        spans.append(Span(node, birth, seq, 1))
    kept: list[Record] = [
        record for record in written[accepted_at:] if not isinstance(record, LogAppended | StableAdvanced)
    ]
    return [*written[:accepted_at], *kept, LogAppended(base + 1, spans[base:], b"".join(cells[base:]), min(stable, at))]
