"""A run that begins with the journals of a cluster with a long life: the masters find them, and the checkers know them.

The checkers are told of these records as of any other: they compute the log's hashes and the effects of its keys again.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from txlog.model.ids import Txid
from txlog.model.records import CounterCeiling, Record, TransactionsPersisted
from txlog_simulation.checkers.clients import SentTransaction
from txlog_simulation.old_journals import DAY_MS, RUN_MS, OldEntry, OldJournals, old_journals
from txlog_simulation.simulated_master import EPOCH_MS
from txlog_simulation.submissions import build_submission

if TYPE_CHECKING:
    from txlog_simulation.simulation import Simulation

KEYS_AGAIN: Final = 60
"""Keys of the old log that clients of the run use again, half of them about as old as the retention."""
_BEGIN_MS: Final = EPOCH_MS // 1000
"""What a right clock shows when the run begins."""


def begin_old(world: Simulation) -> list[tuple[str, str]]:
    """Put the journals in place before the first start. Returns keys of the log that clients may send again, with what
    they sent under them."""
    plan = world.plan
    assert plan.old is not None
    made = old_journals(plan.old, world.masters, plan.majority, plan.strategy, _BEGIN_MS, plan.segment_bytes)
    _tell_clients(world, made)
    _place_disks(world, made)
    for record in made.records:
        _on_durable_everywhere(world, record)
    _place_workers(world, made)
    for record in made.trim:
        _on_durable_everywhere(world, record)
    for node, late in made.waiting.items():
        machine = world.simulated_masters[world.slots[node]]
        if late:
            machine.on_record_durable(CounterCeiling(late[-1].item.stamp))
        for one in late:
            machine.on_record_durable(one.persisted())
    world.coverage["begun old"] += 1
    world.coverage["begun old and trimmed"] += bool(made.trim)
    return _keys_again(world, made.entries)


def _on_durable_everywhere(world: Simulation, record: Record) -> None:
    """At its origin first, as it happened."""
    made_by = record.run.node if isinstance(record, TransactionsPersisted) else ""
    for machine in sorted(world.simulated_masters, key=lambda one: one.name != made_by):
        machine.on_record_durable(record)


def _tell_clients(world: Simulation, made: OldJournals) -> None:
    members = set(made.origins.values())
    for one in [*made.entries, *(one for late in made.waiting.values() for one in late)]:
        item = one.item
        submission = build_submission(item.payload.decode(), item.key, item.kind)
        world.transactions.on_submitted(one.origin.node, [submission])
        world.clients.on_sent([submission])
        sent_ms = one.sent_ms - _BEGIN_MS
        world.clients.sent[Txid(one.origin, one.seq)] = SentTransaction(item.key, one.content, sent_ms)
        if one.origin not in members:
            world.transactions.lost.add(one.origin)


def _place_disks(world: Simulation, made: OldJournals) -> None:
    for machine in world.simulated_masters:
        origin = made.origins[machine.name]
        machine.disk.restore(made.images[machine.name])
        machine.origin = origin
        machine.last_seen = machine.last_member = (origin.birth, 1)
        world.durable_states[origin] = machine.durable_state


def _place_workers(world: Simulation, made: OldJournals) -> None:
    """They have executed what was stable, and each has a backup of it."""
    for machine in world.simulated_masters:
        branch, worker = world.log.branch_of(machine.durable_state), machine.worker
        worker.index, worker.hash = branch.settled, branch.hash_at(branch.settled)
        counting = [one.txid for one in branch.entries[: branch.settled] if one.counts_instead is None]
        worker.effects = dict.fromkeys(counting, 1)
        worker.seen = {one.txid for one in branch.entries[: branch.settled]}
        worker.births.add(machine.last_seen[0])
        assert machine.durable_state.accepted is not None
        worker.cluster = machine.durable_state.accepted.cluster_id
        worker.back_up()


def _keys_again(world: Simulation, entries: list[OldEntry]) -> list[tuple[str, str]]:
    rng = Random(f"old keys {world.plan.seed}")
    keyed = [one for one in entries if one.item.key]
    near = [one for one in keyed if abs(_BEGIN_MS - one.sent_ms - DAY_MS) < RUN_MS]
    chosen = [*rng.sample(near, min(len(near), KEYS_AGAIN // 2)), *rng.sample(keyed, min(len(keyed), KEYS_AGAIN // 2))]
    return [(one.item.key, one.item.payload.decode()) for one in chosen]
