"""A start on a journal: it must hold what was durable; one that is damaged is mended from others, as
``server/journal_repair_mode.py`` does it, or never passes for whole (rule 28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.journal import Journal
from txlog.model.entry import Run, Span
from txlog.model.errors import Fatal, JournalDamaged
from txlog.model.hashes import HASH_BYTES, content_hash
from txlog.model.ids import Origin, Txid
from txlog.model.records import Held, Promised, Record, Recovered
from txlog.protocol.events import Marks
from txlog.runtime.journal_repair import JournalRepair
from txlog.wire import messages as wire
from txlog.wire.messages import FetchOrder, FetchRuns
from txlog_simulation.mirror import Mirror, mirror_of, summary_of
from txlog_simulation.violation import ACKNOWLEDGEMENT, JOURNAL, LIVENESS, LOG

if TYPE_CHECKING:
    from txlog_simulation.machine import Machine


def open_journal(machine: Machine) -> tuple[Journal, Recovered]:
    """Read the journal. One damaged beyond repair says so and ends this process; it may never pass for whole
    (rule 28)."""
    try:
        return machine.disk.open()
    except JournalDamaged:
        _beyond_repair(machine)
        raise


def mend(machine: Machine, journal: Journal, recovered: Recovered) -> None:
    """It begins to ask others for what the journal lost; often its process ends before it has it."""
    machine.repair = JournalRepair(machine.settings(), recovered, journal)
    machine.world.note(machine.name, "damaged", f"{'; '.join(machine.repair.damage_names)}")
    machine.world.met["damaged journal"] += 1
    machine.known_elsewhere = [(m, dict(m.mirror.held)) for m in machine.world.machines if m is not machine]
    if not machine.fuse and machine.rng.random() < 0.4 and not machine.world.healing:
        machine.fuse = machine.rng.randint(1, 10)
    machine.turn_soon(machine.world.now_ms)


def mending_turn(machine: Machine, repair: JournalRepair, inbox: list[tuple[int, bytes]]) -> None:
    """One turn of a process that has no core yet."""
    world, now = machine.world, machine.now()
    try:
        for source, data in inbox:
            repair.receive(world.machines[source].name, data, now)
            machine.step("receive")
        wake_mono_ms, sends = repair.poll(now)
    except Fatal:
        _check_given_up(machine)
        _beyond_repair(machine)
        raise
    for peer, message in sends:
        machine.asked = message
        world.note(machine.name, "ask", f"{peer} kind={message.__struct_config__.tag}")
        world.network.send(world.now_ms, machine.slot, world.slots[peer], wire.encode(message))
        machine.step("send")
    if repair.is_finished:
        _mended(machine, repair)
    else:
        machine.turn_by(wake_mono_ms)


def _mended(machine: Machine, repair: JournalRepair) -> None:
    """What came is written; the journal is opened anew and must be what it was."""
    journal = machine.disk.journal
    assert journal is not None
    view = machine.mirror.accepted
    if view is not None and not machine.mirror.stopped and any(mended.runs for _, mended in repair.repaired):
        machine.pending.append(Promised(view.epoch, view.ballot + 1, ""))  # where a stamp is not certain
    for damage, mended in repair.repaired:
        journal.repair(damage, mended.runs, mended.contents, mended.added)
        machine.step("repair")
    journal.sync()
    journal.close()
    machine.repair = None
    journal, recovered = open_journal(machine)
    if recovered.damage:
        raise Fatal("Damaged", f"{recovered.damage[0].where}: it is damaged still, although it was mended")
    machine.world.note(machine.name, "repaired", f"{len(repair.repaired)} places")
    machine.world.met["repaired"] += 1
    check_recovered(machine, recovered)
    check_readable(machine, journal)
    machine.begin(journal, recovered)


def _beyond_repair(machine: Machine) -> None:
    if machine.flipped and not machine.damaged:
        machine.world.met["beyond repair"] += 1
        machine.world.lose(machine)


def can_be_mended(machine: Machine) -> bool:
    """Whether a master that runs has what was asked for last."""
    others = [m for m in machine.world.machines if m is not machine and m.executor is not None]
    match machine.asked:
        case FetchOrder():
            return any(other.mirror.log > machine.asked.after for other in others)
        case FetchRuns(span):
            return any(_has(machine, other, other.mirror.held, span) for other in others)
        case _:
            return True


def _check_given_up(machine: Machine) -> None:
    """Beyond repair is only what nobody else had when the repair began."""
    if isinstance(machine.asked, FetchRuns):
        span = machine.asked.span
        for other, held in machine.known_elsewhere:
            if not other.damaged and _has(machine, other, held, span):
                machine.world.findings.add(LIVENESS, "28", f"{machine.name} gives up on {span}, {other.name} holds it")


def check_readable(machine: Machine, journal: Journal) -> None:
    """Where a journal was damaged once: every transaction that this disk held is what its origin made."""
    world = machine.world
    if machine.damaged or not machine.flipped:
        return
    for origin, last in sorted(machine.mirror.held.items()):
        made, seq = world.transactions.made[origin], machine.mirror.trimmed.get(origin, 0) + 1
        while seq <= last:
            run = journal.read(origin.node, origin.birth, seq, last, 1 << 20)
            for item in run.items:
                if content_hash(item.kind, item.key, item.payload) != made[seq - 1].content:
                    world.findings.add(LOG, "28", f"{machine.name} mended {origin}.{seq}: another content")
                elif item.stamp != world.log.stamp(machine.name, Txid(origin, seq)):
                    _check_stamp(machine, Txid(origin, seq), item.stamp)
                seq += 1
            if not run.items:
                world.findings.add(LOG, "28", f"{machine.name} is mended and does not hold {origin}.{seq}")
                break


def _check_stamp(machine: Machine, txid: Txid, stamp: int) -> None:
    """It was mended with another stamp: a later one that a later view gave, which is as good in a view that is stopped,
    where only the log binds (docs/decisions/0005)."""
    world, mirror = machine.world, machine.mirror
    if stamp <= world.log.stamp(machine.name, txid) or not mirror.stopped or txid in _logged(machine):
        world.findings.add(LOG, "28", f"{machine.name} mended {txid}: another stamp")
        return
    world.met["mended with a later stamp"] += 1
    world.log.mended(machine.name, txid, stamp)
    mirror.mended(txid, stamp)


def _logged(machine: Machine) -> set[Txid]:
    """What stands in its log."""
    mirror = machine.mirror
    if mirror.accepted is None:
        return set()
    return {entry.txid for entry in machine.world.log.branch(mirror).entries[mirror.foot : mirror.log]}


def check_recovered(machine: Machine, recovered: Recovered) -> None:
    """What was durable is still there, and nothing that was never written (rules 8, 15, 28)."""
    if machine.flipped and recovered.accepted is None and machine.mirror.accepted is not None and not machine.damaged:
        # both copies of the view's record were hit, one after the other: it is not written again by a repair
        machine.world.met["view lost to two flips"] += 1
        machine.world.lose(machine)
    if machine.damaged:
        machine.mirror = mirror_of(recovered)
        machine.world.another_disk(machine)
        return
    found = summary_of(recovered)
    for part in (None, *(part for record in machine.pending for part in _parts(record))):
        if part is not None:
            machine.now_durable(part)
        if machine.mirror.summary() == found:
            return
    _check_told(machine, mirror_of(recovered))
    machine.world.findings.add(
        JOURNAL, "28", f"{machine.name} reads back {found}, its disk held {machine.mirror.summary()} at most"
    )


def _parts(record: Record) -> list[Record]:
    """What of it may have come to the disk alone: a run with a payload that was there before is written in several
    records (docs/decisions/0021)."""
    if not isinstance(record, Held):
        return [record]
    run, width = record.run, HASH_BYTES
    return [
        Held(Run(run.node, run.birth, run.first_seq + at, [item]), record.contents[width * at : width * (at + 1)])
        for at, item in enumerate(run.items)
    ]


def _check_told(machine: Machine, found: Mirror) -> None:
    """A journal that lost something: was anybody told of it?"""
    if machine.origin is None:
        return
    told = machine.world.acknowledgements.told.get(machine.origin, Marks(0, 0, 0, 0, 0))
    for name, said, kept in (
        ("accepted", told.accepted, found.held.get(machine.origin, 0)),
        ("log", told.log, found.log),
        ("stable", told.stable, found.stable),
    ):
        if said > kept:
            text = f"{machine.name} told {name} {said}, after a crash it knows {kept}"
            machine.world.findings.add(ACKNOWLEDGEMENT, "15", text)


def _has(machine: Machine, other: Machine, held: dict[Origin, int], span: Span) -> bool:
    """Whether a master that holds this can be asked for the first of these: with the stamp that it has in the log of
    the damaged one, if it is there."""
    origin, log = Origin(span.node, span.birth), machine.world.log
    if not other.mirror.trimmed.get(origin, 0) < span.first_seq <= held.get(origin, 0):
        return False
    txid = Txid(origin, span.first_seq)
    return txid not in _logged(machine) or log.stamp(other.name, txid) == log.stamp(machine.name, txid)
