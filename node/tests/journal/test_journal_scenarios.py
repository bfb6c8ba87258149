"""Scenarios as texts: commands, four dashes, what they print. ``TXLOG_REWRITE=1`` writes what is printed now.

``define`` a journal record by record, break it, ``open`` it, ``dump_journal`` and ``read`` it; ``sync`` prints the
calls to the file system. Contents follow from node and seq (see ``journal_pen``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from journal_pen import BIRTHS, Pen, item, open_journal, stamped, view

from txlog.journal import Journal, MemoryVfs, SimulatedCrash, check_journal, dump_journal
from txlog.model.entry import Span
from txlog.model.errors import JournalFault
from txlog.model.records import (
    CounterCeiling,
    Damage,
    LogAppended,
    RecoveredState,
    StableAdvanced,
    ViewAccepted,
    ViewInstalled,
    ViewLeft,
    ViewPromised,
)

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


class Bench:
    """One disk, one journal at a time."""

    def __init__(self) -> None:
        self.files = MemoryVfs(trace=True)
        self.pen = Pen()
        self.journal: Journal | None = None
        self.options: dict[str, int] = {}

    def run(self, line: str) -> Iterator[str]:
        command, *words = line.split()
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        try:
            yield from getattr(self, f"do_{command}")(plain, options)
        except JournalFault as error:
            yield f"{error.name}: {error}"

    # -- life

    def do_open(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self.options = {key: int(value) for key, value in options.items()} or self.options
        self.files.operations.clear()
        self.journal, recovered = open_journal(self.files, **self.options)
        if not recovered.damage:
            self.pen.resume(recovered)
        yield from _recovered(recovered)
        yield from (f"note: {note}" for note in self.journal.notes)

    def do_sync(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self.files.operations.clear()
        self._journal.sync()
        yield from self.files.operations

    def do_write(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """A sync that the process does not outlive: the last fsync is never asked for."""
        sync = self._journal.begin_sync()
        assert sync is not None
        self.files.hook = _end_at_fdatasync
        with pytest.raises(SimulatedCrash):
            sync.run()
        self.files.hook = None
        return iter(())

    def do_seal(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self.files.operations.clear()
        yield str(self._journal.seal())
        yield from self.files.operations

    def do_kill(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self.files.kill()
        return iter(())

    def do_crash(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """``crash survives|perishes``, or ``crash tears SECTOR...``: those sectors perish."""
        fate, *sectors = words
        lost = {int(sector) for sector in sectors}
        self.files.crash(_chooser(fate, lost))
        return iter(())

    # -- records

    def do_held(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self._journal.append(self.pen.held(words[0], int(words[1])))
        return iter(())

    def do_added(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        pieces = [(node, int(count)) for node, count in zip(words[::2], words[1::2], strict=True)]
        self._journal.append(self.pen.added(*pieces))
        return iter(())

    def do_late(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """Held while no view is in force: without stamps."""
        self._journal.append(self.pen.held(words[0], int(words[1]), late=True))
        return iter(())

    def do_accept(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """``accept CUT [NODE COUNT]... [NODE@SEQ=STAMP,STAMP...]...``: the next view."""
        pieces = [(node, int(count)) for node, count in zip(words[1::2], words[2::2], strict=True)]
        new = []
        for key, values in options.items():
            node, _, seq = key.partition("@")
            new.append(stamped(node, int(seq), [int(value) for value in values.split(",")]))
        self._journal.append(self.pen.accepted(int(words[0]), *pieces, stamped=new))
        return iter(())

    def do_install(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """The view accepted last."""
        self._journal.append(self.pen.installed())
        return iter(())

    def do_promised(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self._journal.append(ViewPromised(int(words[0]), int(words[1]), words[2]))
        return iter(())

    def do_left(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self._journal.append(ViewLeft(int(words[0]), int(words[1]), words[2]))
        return iter(())

    def do_view(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self._journal.append(ViewAccepted(view(int(words[0]))))
        return iter(())

    def do_installed(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self._journal.append(ViewInstalled(int(words[0]), 1, "a"))
        return iter(())

    def do_stable(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self._journal.append(StableAdvanced(int(words[0])))
        return iter(())

    def do_ceiling(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self._journal.append(CounterCeiling(int(words[0])))
        return iter(())

    # -- harm

    def do_flip(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """``flip SEGMENT OFFSET...``: the lowest bit of these bytes."""
        for offset in words[1:]:
            self.files.flip_bit(_segment(words[0]), int(offset), 0)
        return iter(())

    def do_truncate(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self.files.truncate(_segment(words[0]), int(words[1]))
        return iter(())

    def do_erase(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self.files.erase(_segment(words[0]))
        return iter(())

    # -- looking

    def do_show(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        return dump_journal(self.files)

    def do_check(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        report = check_journal(self.files)
        yield f"ok {report.ok} records {report.records} log {report.log_end} stable {report.stable}"
        yield f"held {report.held} cut {report.cut_bytes}"
        yield from (f"note: {note}" for note in report.notes)
        yield from (_damage(damage) for damage in report.damage)
        if report.refused:
            yield report.refused

    def do_read(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """``read NODE SEQ COUNT``: the seqs that are held and right."""
        node, seq, count = words[0], int(words[1]), int(words[2])
        run = self._journal.read(node, BIRTHS[node], seq, count, 1 << 20)
        assert run.items == [self.pen.item(node, seq + i) for i in range(len(run.items))]
        stamps = [one.stamp for one in run.items]
        usual = stamps == [item(node, seq + i).stamp for i in range(len(stamps))]
        yield f"{node} {seq}..{run.last_seq}{'' if usual else f' stamps {stamps}'}" if run.items else "not held"

    def do_repair(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        """Every damage, with what another master would send."""
        journal = self._journal
        for damage in list(journal.damage):
            runs = [self.pen.held_again(span.node, span.first_seq, span.count) for span in damage.spans]
            added = _order(self.pen, damage)
            journal.repair(damage, [one.run for one in runs], [one.contents for one in runs], added)
        journal.sync()
        yield f"{len(journal.damage)} left"

    @property
    def _journal(self) -> Journal:
        assert self.journal is not None
        return self.journal


def _chooser(fate: str, lost: set[int]) -> Callable[[str, int], int]:
    def choose(what: str, options: int) -> int:
        kind, *rest = what.split()
        if kind == "folder":
            return 0
        if kind == "write":
            return {"survives": 0, "perishes": 1, "tears": 2}[fate]
        return int(int(rest[1]) // 512 in lost)

    return choose


def _end_at_fdatasync(operation: str, name: str) -> None:
    if operation == "fdatasync":
        raise SimulatedCrash


def _segment(number: str) -> str:
    return f"segment-{int(number):010d}"


def _order(pen: Pen, damage: Damage) -> LogAppended | None:
    a, b = damage.log_from, damage.log_to
    if a > b:
        return None
    spans = [Span(node, BIRTHS[node], seq, 1) for node, seq in pen.log[a - 1 : b]]
    return LogAppended(a, spans, b"".join(pen.hashes[a - 1 : b]), 0)


def _recovered(found: RecoveredState) -> Iterator[str]:
    yield f"start {found.start}{' fresh' if found.is_new else ''}, ceiling {found.ceiling}, stable {found.stable}"
    views = [one.number if one else None for one in (found.accepted, found.installed)]
    left = f" left {found.left}" if found.left[0] else ""
    yield f"accepted {views[0]} promised {found.promised} installed {views[1]}{left}"
    spans = " ".join(f"{s.node or '?'}:{s.first_seq}+{s.count}" for s in found.log_spans)
    yield f"log {len(found.log_hashes) // 16} stamp {found.log_stamp}: {spans}"
    for meta in found.queued:
        stamps = meta.stamps.tolist()
        usual = stamps == [item(meta.node, meta.first_seq + i).stamp for i in range(len(meta.stamps))]
        yield f"queued {meta.node} {meta.first_seq}+{len(meta.stamps)}{'' if usual else f' stamps {stamps}'}"
    for seen in found.keys:
        yield f"key {seen.index} {seen.kind} {seen.key} {seen.span.node}.{seen.span.first_seq}"
    yield from (_damage(damage) for damage in found.damage)


def _damage(damage: Damage) -> str:
    spans = " ".join(f"{s.node}:{s.first_seq}+{s.count}" for s in damage.spans)
    order = f"log {damage.log_from}..{damage.log_to}" if damage.log_from <= damage.log_to else "no log"
    return f"damage {damage.first}..{damage.last}; {order}; held {spans or 'nothing'}; {damage.where}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    bench, wanted, printed = Bench(), [], []
    for block in path.read_text().split("\n\n"):
        commands, _, expected = block.strip("\n").partition("\n----")
        lines = [line for line in commands.splitlines() if line and not line.startswith("#")]
        output = [text.rstrip() for line in lines for text in bench.run(line)]
        wanted.append(expected.strip("\n"))
        printed.append("\n".join(output))
        commands_only = commands
        printed[-1] = printed[-1].strip("\n")
        if os.environ.get("TXLOG_REWRITE"):
            wanted[-1] = printed[-1]
        printed[-1], wanted[-1] = f"{commands_only}\n----\n{printed[-1]}", f"{commands_only}\n----\n{wanted[-1]}"
    if os.environ.get("TXLOG_REWRITE"):
        path.write_text("\n\n".join(text.rstrip("\n") for text in printed) + "\n")
    assert printed == wanted
