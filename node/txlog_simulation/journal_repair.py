"""A start on a journal: it must hold what was durable; one that is damaged is mended from others, as
``server/journal_repair_mode.py`` does it, or never passes for whole (rule 28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.journal import Journal
from txlog.model.entry import Span, TransactionRun
from txlog.model.errors import Fatal, JournalDamaged
from txlog.model.hashes import HASH_BYTES, content_hash
from txlog.model.ids import Origin, Txid
from txlog.model.records import Record, RecoveredState, TransactionsPersisted, ViewPromised
from txlog.protocol.events import DurabilityMarks
from txlog.runtime.journal_repair import JournalRepair
from txlog.wire import messages as wire
from txlog.wire.messages import FetchOrder, FetchRuns
from txlog_simulation.durable_state import DurableState, durable_state_of, summary_of
from txlog_simulation.violation import ACKNOWLEDGEMENT, JOURNAL, LIVENESS, LOG

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster


def open_journal(machine: SimulatedMaster) -> tuple[Journal, RecoveredState]:
    """Read the journal. One damaged beyond repair says so and ends this process; it may never pass for whole
    (rule 28)."""
    try:
        return machine.disk.open()
    except JournalDamaged:
        _on_unrepairable(machine)
        raise


def begin_repair(machine: SimulatedMaster, journal: Journal, recovered: RecoveredState) -> None:
    """It begins to ask others for what the journal lost; often its process ends before it has it."""
    machine.repair = JournalRepair(machine.settings(), recovered, journal)
    machine.world.trace_event(machine.name, "damaged", f"{'; '.join(machine.repair.damage_names)}")
    machine.world.coverage["damaged journal"] += 1
    machine.known_elsewhere = [
        (m, dict(m.durable_state.held_seqs)) for m in machine.world.simulated_masters if m is not machine
    ]
    if not machine.steps_to_crash and machine.rng.random() < 0.4 and not machine.world.healing:
        machine.steps_to_crash = machine.rng.randint(1, 10)
    machine.schedule_turn(machine.world.now_ms)


def run_repair_turn(machine: SimulatedMaster, repair: JournalRepair, inbox: list[tuple[int, bytes]]) -> None:
    """One turn of a process that has no core yet."""
    world, now = machine.world, machine.now()
    try:
        for source, data in inbox:
            repair.receive(world.simulated_masters[source].name, data, now)
            machine.on_step("receive")
        wake_mono_ms, sends = repair.poll(now)
    except Fatal:
        _check_unrepairable(machine)
        _on_unrepairable(machine)
        raise
    for peer, message in sends:
        machine.repair_request = message
        world.trace_event(machine.name, "ask", f"{peer} kind={message.__struct_config__.tag}")
        world.network.send(world.now_ms, machine.slot, world.slots[peer], wire.encode(message))
        machine.on_step("send")
    if repair.is_finished:
        _on_repaired(machine, repair)
    else:
        machine.schedule_turn_by(wake_mono_ms)


def _on_repaired(machine: SimulatedMaster, repair: JournalRepair) -> None:
    """What came is written; the journal is opened anew and must be what it was."""
    journal = machine.disk.journal
    assert journal is not None
    view = machine.durable_state.accepted
    if view is not None and not machine.durable_state.is_stopped and any(mended.runs for _, mended in repair.repaired):
        machine.pending_records.append(ViewPromised(view.epoch, view.ballot + 1, ""))  # where a stamp is not certain
    for damage, mended in repair.repaired:
        journal.repair(damage, mended.runs, mended.contents, mended.added)
        machine.on_step("repair")
    journal.sync()
    journal.close()
    machine.repair = None
    journal, recovered = open_journal(machine)
    if recovered.damage:
        raise Fatal("Damaged", f"{recovered.damage[0].where}: it is damaged still, although it was mended")
    machine.world.trace_event(machine.name, "repaired", f"{len(repair.repaired)} places")
    machine.world.coverage["repaired"] += 1
    check_recovered(machine, recovered)
    check_readable(machine, journal)
    machine.start_core(journal, recovered)


def _on_unrepairable(machine: SimulatedMaster) -> None:
    if (machine.flipped or machine.disk.may_keep_old_tail) and not machine.damaged:
        machine.world.coverage["beyond repair"] += 1
        machine.world.mark_damaged(machine)


def is_repairable(machine: SimulatedMaster) -> bool:
    """Whether a master that runs has what was asked for last."""
    others = [m for m in machine.world.simulated_masters if m is not machine and m.executor is not None]
    match machine.repair_request:
        case FetchOrder():
            return any(other.durable_state.log_length > machine.repair_request.after for other in others)
        case FetchRuns(span):
            return any(_can_supply(machine, other, other.durable_state.held_seqs, span) for other in others)
        case _:
            return True


def _check_unrepairable(machine: SimulatedMaster) -> None:
    """Beyond repair is only what nobody else had when the repair began."""
    if isinstance(machine.repair_request, FetchRuns):
        span = machine.repair_request.span
        for other, held in machine.known_elsewhere:
            if not other.damaged and _can_supply(machine, other, held, span):
                machine.world.violations.add(
                    LIVENESS, "28", f"{machine.name} gives up on {span}, {other.name} holds it"
                )


def check_readable(machine: SimulatedMaster, journal: Journal) -> None:
    """Where a journal was damaged once: every transaction that this disk held is what its origin made."""
    world = machine.world
    if machine.damaged or not machine.flipped:
        return
    for origin, last in sorted(machine.durable_state.held_seqs.items()):
        made, seq = world.transactions.by_origin[origin], machine.durable_state.trimmed_seqs.get(origin, 0) + 1
        while seq <= last:
            run = journal.read(origin.node, origin.birth, seq, last, 1 << 20)
            for item in run.items:
                if content_hash(item.kind, item.key, item.payload) != made[seq - 1].content:
                    world.violations.add(LOG, "28", f"{machine.name} mended {origin}.{seq}: another content")
                elif item.stamp != world.log.stamp_of(machine.name, Txid(origin, seq)):
                    _check_repaired_stamp(machine, Txid(origin, seq), item.stamp)
                seq += 1
            if not run.items:
                world.violations.add(LOG, "28", f"{machine.name} is mended and does not hold {origin}.{seq}")
                break


def _check_repaired_stamp(machine: SimulatedMaster, txid: Txid, stamp: int) -> None:
    """It was mended with another stamp: a later one that a later view gave, which is as good in a view that is stopped,
    where only the log binds (docs/decisions/0005)."""
    world, mirror = machine.world, machine.durable_state
    if (
        stamp <= world.log.stamp_of(machine.name, txid)
        or not mirror.is_stopped
        or txid in _logged_transactions(machine)
    ):
        world.violations.add(LOG, "28", f"{machine.name} mended {txid}: another stamp")
        return
    world.coverage["mended with a later stamp"] += 1
    world.log.on_repaired(machine.name, txid, stamp)
    mirror.on_repaired(txid, stamp)


def _logged_transactions(machine: SimulatedMaster) -> set[Txid]:
    """What stands in its log."""
    mirror = machine.durable_state
    if mirror.accepted is None:
        return set()
    return {entry.txid for entry in machine.world.log.branch_of(mirror).entries[mirror.log_start : mirror.log_length]}


def check_recovered(machine: SimulatedMaster, recovered: RecoveredState) -> None:
    """What was durable is still there, and nothing that was never written (rules 8, 15, 28)."""
    if (
        machine.flipped
        and recovered.accepted is None
        and machine.durable_state.accepted is not None
        and not machine.damaged
    ):
        # both copies of the view's record were hit, one after the other: it is not written again by a repair
        machine.world.coverage["view lost to two flips"] += 1
        machine.world.mark_damaged(machine)
    if machine.damaged:
        machine.durable_state = durable_state_of(recovered)
        machine.world.on_disk_replaced(machine)
        return
    found = summary_of(recovered)
    for part in (None, *(part for record in machine.pending_records for part in _possible_fragments(record))):
        if part is not None:
            machine.on_record_durable(part)
        if machine.durable_state.summary() == found:
            return
    _check_acknowledged(machine, durable_state_of(recovered))
    machine.world.violations.add(
        JOURNAL, "28", f"{machine.name} reads back {found}, its disk held {machine.durable_state.summary()} at most"
    )


def _possible_fragments(record: Record) -> list[Record]:
    """What of it may have come to the disk alone: a run with a payload that was there before is written in several
    records (docs/decisions/0021)."""
    if not isinstance(record, TransactionsPersisted):
        return [record]
    run, width = record.run, HASH_BYTES
    return [
        TransactionsPersisted(
            TransactionRun(run.node, run.birth, run.first_seq + at, [item]),
            record.contents[width * at : width * (at + 1)],
        )
        for at, item in enumerate(run.items)
    ]


def _check_acknowledged(machine: SimulatedMaster, found: DurableState) -> None:
    """A journal that lost something: was anybody told of it?"""
    if machine.origin is None:
        return
    told = machine.world.acknowledgements.released_marks.get(machine.origin, DurabilityMarks(0, 0, 0, 0, 0))
    for name, said, kept in (
        ("accepted", told.accepted, found.held_seqs.get(machine.origin, 0)),
        ("log", told.log, found.log_length),
        ("stable", told.stable, found.stable),
    ):
        if said > kept:
            text = f"{machine.name} told {name} {said}, after a crash it knows {kept}"
            machine.world.violations.add(ACKNOWLEDGEMENT, "15", text)


def _can_supply(machine: SimulatedMaster, other: SimulatedMaster, held: dict[Origin, int], span: Span) -> bool:
    """Whether a master that holds this can be asked for the first of these: with the stamp that it has in the log of
    the damaged one, if it is there."""
    origin, log = Origin(span.node, span.birth), machine.world.log
    if not other.durable_state.trimmed_seqs.get(origin, 0) < span.first_seq <= held.get(origin, 0):
        return False
    txid = Txid(origin, span.first_seq)
    return txid not in _logged_transactions(machine) or log.stamp_of(other.name, txid) == log.stamp_of(
        machine.name, txid
    )
