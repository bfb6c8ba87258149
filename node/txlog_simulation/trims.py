"""Logs are trimmed while everything else happens, and who still needed what went is found out (rules 17 and 19)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from txlog.model.ids import Origin
from txlog.model.records import Foot
from txlog.protocol.agreement import Agreement
from txlog.protocol.trimming import BACKUP, WORKER, Place
from txlog_simulation.violation import LOG
from txlog_simulation.violation import WORKER as OF_WORKER

if TYPE_CHECKING:
    from txlog_simulation.machine import Machine
    from txlog_simulation.world import World

SHARE: Final = 0.35
"""Of the seeds in which logs are trimmed."""
EVERY_MS: Final = (40, 200)
BACKUPS: Final = 0.5


class Trims:
    """Its own chance, so that seeds without it run as ever. ``_seen``: what a master was last told of the others."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(f"trims of {world.plan.seed}")
        self.on = self._rng.random() < SHARE
        self._seen: dict[str, list[Place]] = {}

    def begin(self) -> None:
        """Once, when the run begins."""
        if self.on:
            for machine in self._world.machines:
                self._world.at(self._rng.randint(*EVERY_MS), self._look, machine)

    def _look(self, machine: Machine) -> None:
        world, rng = self._world, self._rng
        world.at(world.now_ms + rng.randint(*EVERY_MS), self._look, machine)
        if rng.random() < BACKUPS:
            worker = rng.choice(world.machines).worker
            if worker.index and not worker.paths:
                worker.back_up()
        stale = self._seen.get(machine.name)
        self._seen[machine.name] = places = self._places()
        machine.trim(stale if stale is not None and rng.random() < 0.5 else places)

    def _places(self) -> list[Place]:
        found: list[Place] = []
        for machine in self._world.machines:
            worker = machine.worker
            found.append(Place(WORKER, worker.name, worker.index, worker.hash))
            found += [Place(BACKUP, worker.name, index, value) for index, value, _ in worker.backups if index]
        return found

    # Checks

    def judge(self, machine: Machine, foot: Foot) -> None:
        """A trim is durable; ``machine.mirror`` is what it found."""
        world, mirror, name = self._world, machine.mirror, machine.name
        if machine.damaged and foot.index <= mirror.log:
            world.met["trimmed behind a lost disk"] += 1
        if foot.index > mirror.log:
            world.met["snapshot taken over"] += 1
            if not any(
                len(branch.entries) >= foot.index and branch.hash_at(foot.index) == foot.hash
                for branch in world.log.branches.values()
            ):
                world.findings.add(LOG, "17", f"{name} takes over a snapshot at {foot.index} of a log that nobody had")
            return
        world.met["trimmed"] += 1
        branch = world.log.branch(mirror)
        if foot.index > mirror.stable:
            world.findings.add(LOG, "19", f"{name} trims at {foot.index}, stable is {mirror.stable}")
        if branch.hash_at(foot.index) != foot.hash:
            world.findings.add(LOG, "19", f"{name} trims at {foot.index} of another log")
        seqs: dict[Origin, int] = {}
        for entry in branch.entries[: foot.index]:
            seqs[entry.txid.origin] = entry.txid.seq
        if seqs != {Origin(node, birth): seq for node, birth, seq in foot.seqs}:
            world.findings.add(LOG, "19", f"{name} trims at {foot.index} and keeps {foot.seqs}, the log has {seqs}")
        self._judge_needs(machine, foot)

    def _judge_needs(self, machine: Machine, foot: Foot) -> None:
        world, name = self._world, machine.name
        for other in world.machines:
            if other.damaged or other.forged or other.origin is None or other.mirror.foot > foot.index:
                continue
            theirs = other.mirror
            new = theirs.accepted is None  # it lost its disk: a snapshot brings it here
            if not new and (theirs.log < foot.index or theirs.hash_at(foot.index) != foot.hash):
                world.findings.add(LOG, "19", f"{name} trims at {foot.index}, {other.name} is at {theirs.log}")
            if other.worker.index < foot.index:
                text = f"{name} trims at {foot.index}, the worker of {other.name} is at {other.worker.index}"
                world.findings.add(OF_WORKER, "19", text)
        backups = [index for m in world.machines for index, _, _ in m.worker.backups]
        if max(backups) < foot.index:
            world.findings.add(OF_WORKER, "19", f"{name} trims at {foot.index}, the newest backup is at {max(backups)}")

    def went_back(self, machine: Machine, agreement: Agreement) -> None:
        """A worker was restored from its own backups; where the log does not reach back to them, from another's."""
        history, worker = agreement.history, machine.worker
        if worker.index >= history.start:
            return
        found = [
            one
            for other in self._world.machines
            for one in other.worker.backups
            if one[0] >= history.start and history.keeps(one[0]) and history.hash_at(one[0]) == one[1]
        ]
        if not found:
            text = f"worker of {machine.name} goes back to {worker.index}, the log is kept from {history.start} on"
            self._world.findings.add(OF_WORKER, "19", text)
            return
        self._world.met["worker restored from another's backup"] += 1
        worker.index, worker.hash, effects = max(found, key=lambda one: one[0])
        worker.effects, worker.seen = dict(effects), set(effects)
