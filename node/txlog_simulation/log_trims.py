"""Logs are trimmed while everything else happens, and who still needed what went is found out (rules 17 and 19)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from txlog.model.ids import Origin
from txlog.model.records import LogStart
from txlog.protocol.log.log_state import LogState
from txlog.protocol.log.log_trim import BACKUP, WORKER, RetentionPosition
from txlog_simulation.master_duties import trim_log
from txlog_simulation.violation import LOG
from txlog_simulation.violation import WORKER as OF_WORKER

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

TRIM_PROBABILITY: Final = 0.35
"""Of the seeds in which logs are trimmed."""
TRIM_INTERVAL_MS: Final = (40, 200)
BACKUP_PROBABILITY: Final = 0.5


class LogTrims:
    """Its own chance, so that seeds without it run as ever. ``_reported_positions``: what a master was last told of the
    others."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._rng = Random(f"trims of {world.plan.seed}")
        self.enabled = self._rng.random() < TRIM_PROBABILITY
        self._reported_positions: dict[str, list[RetentionPosition]] = {}

    def begin(self) -> None:
        """Once, when the run begins."""
        if self.enabled:
            for machine in self._world.simulated_masters:
                self._world.schedule(self._rng.randint(*TRIM_INTERVAL_MS), self._trim_later, machine)

    def _trim_later(self, machine: SimulatedMaster) -> None:
        world, rng = self._world, self._rng
        if world.now_ms < world.asleep_until_ms:  # nobody runs, and nothing is backed up
            world.schedule(world.asleep_until_ms, self._trim_later, machine)
            return
        world.schedule(world.now_ms + rng.randint(*TRIM_INTERVAL_MS), self._trim_later, machine)
        if rng.random() < BACKUP_PROBABILITY:
            worker = rng.choice(world.simulated_masters).worker
            if worker.index and not worker.left_positions:
                worker.back_up()
        stale = self._reported_positions.get(machine.name)
        self._reported_positions[machine.name] = places = self._positions()
        trim_log(machine, stale if stale is not None and rng.random() < 0.5 else places)

    def _positions(self) -> list[RetentionPosition]:
        found: list[RetentionPosition] = []
        for machine in self._world.simulated_masters:
            worker = machine.worker
            is_unordered = bool(worker.left_positions)
            found.append(RetentionPosition(WORKER, worker.name, worker.index, worker.hash, is_unordered))
            found += [
                RetentionPosition(BACKUP, worker.name, index, value) for index, value, _ in worker.backups if index
            ]
        return found

    # Checks

    def check_trim(self, machine: SimulatedMaster, foot: LogStart) -> None:
        """A trim is durable; ``machine.durable_state`` is what it found."""
        world, mirror, name = self._world, machine.durable_state, machine.name
        if machine.damaged and foot.index <= mirror.log_length:
            world.coverage["trimmed behind a lost disk"] += 1
        if foot.index > mirror.log_length:
            world.coverage["snapshot taken over"] += 1
            if not any(
                len(branch.entries) >= foot.index and branch.hash_at(foot.index) == foot.hash
                for branch in world.log.branches.values()
            ):
                world.violations.add(
                    LOG, "17", f"{name} takes over a snapshot at {foot.index} of a log that nobody had"
                )
            return
        world.coverage["trimmed"] += 1
        branch = world.log.branch_of(mirror)
        if foot.index > mirror.stable:
            world.violations.add(LOG, "19", f"{name} trims at {foot.index}, stable is {mirror.stable}")
        if branch.hash_at(foot.index) != foot.hash:
            world.violations.add(LOG, "19", f"{name} trims at {foot.index} of another log")
        seqs: dict[Origin, int] = {}
        for entry in branch.entries[: foot.index]:
            seqs[entry.txid.origin] = entry.txid.seq
        if seqs != {Origin(node, birth): seq for node, birth, seq in foot.seqs}:
            world.violations.add(LOG, "19", f"{name} trims at {foot.index} and keeps {foot.seqs}, the log has {seqs}")
        self._check_still_needed(machine, foot)

    def _check_still_needed(self, machine: SimulatedMaster, foot: LogStart) -> None:
        world, name = self._world, machine.name
        for other in world.simulated_masters:
            if other.damaged or other.forged or other.origin is None or other.durable_state.log_start > foot.index:
                continue
            theirs = other.durable_state
            new = theirs.accepted is None  # it lost its disk: a snapshot brings it here
            if not new and (theirs.log_length < foot.index or theirs.hash_at(foot.index) != foot.hash):
                world.violations.add(LOG, "19", f"{name} trims at {foot.index}, {other.name} is at {theirs.log_length}")
            if other.worker.index < foot.index:
                text = f"{name} trims at {foot.index}, the worker of {other.name} is at {other.worker.index}"
                world.violations.add(OF_WORKER, "19", text)
        backups = [index for m in world.simulated_masters for index, _, _ in m.worker.backups]
        if max(backups) < foot.index:
            world.violations.add(
                OF_WORKER, "19", f"{name} trims at {foot.index}, the newest backup is at {max(backups)}"
            )

    def on_worker_restored(self, machine: SimulatedMaster, agreement: LogState) -> None:
        """A worker was restored from its own backups; where the log does not reach back to them, from another's."""
        history, worker = agreement.log_index, machine.worker
        if worker.index >= history.served_from:
            return
        found = [
            one
            for other in self._world.simulated_masters
            for one in other.worker.backups
            if one[0] >= history.served_from and history.has_hash_at(one[0]) and history.hash_at(one[0]) == one[1]
        ]
        if not found:
            text = f"worker of {machine.name} goes back to {worker.index}, the log is kept from {history.start} on"
            self._world.violations.add(OF_WORKER, "19", text)
            return
        self._world.coverage["worker restored from another's backup"] += 1
        worker.index, worker.hash, effects = max(found, key=lambda one: one[0])
        worker.effects, worker.seen = dict(effects), set(effects)
