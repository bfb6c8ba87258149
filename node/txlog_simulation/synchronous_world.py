"""Synchronous transactions of a run: which ones clients bring, what they ask, and faults at the moments that matter.

A master that has just written a decision is isolated, the others split, and join without it: the rules about branches
and anchors are needed there, and hardly anywhere else
(``docs/decisions/0074-the-model-of-synchronous-transactions.md``).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from txlog.model.durability import Durability
from txlog.model.entry import KIND_UPDATE, RunItem
from txlog.model.errors import Refused
from txlog.model.hashes import content_hash
from txlog.model.ids import Txid
from txlog.model.quorum import ALL, MAJORITY
from txlog.model.synchronous_entry import (
    KIND_DECISION,
    KIND_SYNCHRONOUS_QUADS,
    KIND_SYNCHRONOUS_UPDATE,
    SYNCHRONOUS_KINDS,
    DecisionKind,
    SynchronousKey,
    decode_decision,
    encode_synchronous_key,
)
from txlog.protocol.events import Submission, SubmissionAccepted
from txlog.protocol.views.decisions import SynchronousAnswer
from txlog_simulation.checkers.synchronous import SynchronousChecker
from txlog_simulation.process_states import UP
from txlog_simulation.synchronous_coverage import SynchronousCoverage

if TYPE_CHECKING:
    from txlog_simulation.simulated_master import SimulatedMaster
    from txlog_simulation.simulation import Simulation

SYNCHRONOUS_SHARE: Final = 0.6
STEERED_SHARE: Final = 0.35
"""Of the decisions that masters write."""
TIMEOUTS_MS: Final = (100, 100, 300, 30_000, 0)
ASKS_MAX: Final = 40
LEVELS: Final = (Durability.QUORUM, Durability.QUORUM, Durability.SYNCED, Durability.APPLIED)


class SynchronousWorld:
    """Its own chance: runs without it stay what they are. Does nothing in a plan without synchronous transactions."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._rng = Random(f"synchronous {world.plan.seed}")
        self.enabled = world.plan.synchronous
        self.checker = SynchronousChecker(world.violations)
        self.coverage = SynchronousCoverage(world.coverage)
        self._steered = 0

    def submission(self, one: Submission) -> Submission:
        """A client's transaction, or the synchronous one in its place. One client's key has one set of terms."""
        if not self.enabled or one.kind not in (1, 2):
            return one
        rng = Random(f"terms of {one.key}") if one.key else self._rng
        if rng.random() >= SYNCHRONOUS_SHARE:
            return one
        kind = KIND_SYNCHRONOUS_UPDATE if one.kind == KIND_UPDATE else KIND_SYNCHRONOUS_QUADS
        quorum = ALL if rng.random() < 0.15 else MAJORITY
        key = encode_synchronous_key(SynchronousKey(quorum, rng.choice(TIMEOUTS_MS), one.key))
        return Submission(kind, key, one.payload, content_hash(kind, key, one.payload))

    def on_answers(
        self, machine: SimulatedMaster, batch: list[Submission], answers: list[SubmissionAccepted | Refused]
    ) -> None:
        """A master has answered a batch: clients ask what becomes of what it took."""
        if not self.enabled:
            return
        world = self._world
        for one, answer in zip(batch, answers, strict=True):
            if one.kind in SYNCHRONOUS_KINDS and isinstance(answer, SubmissionAccepted) and not answer.is_repeat:
                self.checker.on_taken(answer.txid, world.now_ms)
                world.coverage["synchronous"] += 1
                world.schedule(world.now_ms + self._rng.randint(1, 60), self._ask, answer.txid, machine.slot, ASKS_MAX)

    def _ask(self, txid: Txid, slot: int, left: int) -> None:
        """A client asks this master or another one, until it gets a final answer."""
        world, rng = self._world, self._rng
        if rng.random() < 0.3:
            slot = rng.randrange(len(world.simulated_masters))
        answer = self._answer_of(world.simulated_masters[slot], txid, rng.choice(LEVELS))
        pause_ms = rng.choice((3, 20, 80, 300))
        if answer is not SynchronousAnswer.ROLLED_BACK and left:
            world.schedule(world.now_ms + pause_ms, self._ask, txid, slot, left - 1)

    def _answer_of(self, machine: SimulatedMaster, txid: Txid, level: Durability) -> SynchronousAnswer | None:
        levels, world = machine.levels, self._world
        if machine.state != UP or levels is None or machine.damaged or txid.origin in world.transactions.lost:
            return None
        answer = levels.synchronous_answer(txid, level)
        if answer is None:
            return None
        world.coverage[f"answered {answer}"] += 1
        if answer is SynchronousAnswer.COMMITTED:
            is_synced = level is not Durability.QUORUM
            self.checker.on_committed(machine.name, txid, world.now_ms, synced=is_synced)
        elif answer is SynchronousAnswer.ROLLED_BACK:
            self.checker.on_rolled_back(machine.name, txid)
        return answer

    # Decisions

    def on_own_persisted(self, machine: SimulatedMaster, items: list[RunItem]) -> None:
        """A master writes transactions of its own. It makes decisions without a client."""
        world = self._world
        for item in items if self.enabled else ():
            if item.kind == KIND_DECISION:
                made = Submission(item.kind, item.key, item.payload, content_hash(item.kind, item.key, item.payload))
                world.transactions.on_submitted(machine.name, [made])
                decision = decode_decision(item.key)
                world.coverage[decision.verdict.value] += 1
                if machine.executor is not None:
                    self.coverage.on_decision(machine.executor.core, decision)
                if any(txid.origin != machine.origin for txid in decision.names()):
                    world.coverage["decided by another one"] += 1
                if decision.verdict is DecisionKind.COMMIT or self._rng.random() < 0.5:
                    self._steer(machine)

    def _steer(self, machine: SimulatedMaster) -> None:
        world, rng = self._world, self._rng
        if world.healing or self._steered > 3 or rng.random() >= STEERED_SHARE / (1 + self._steered):
            return
        self._steered += 1
        plan = world.plan
        hop_ms = max(plan.near_ms, plan.far_ms) + plan.disk_ms
        at_ms = world.now_ms + rng.choice((1, 2, hop_ms, hop_ms, 2 * hop_ms))
        world.schedule(at_ms, self._isolate, machine)

    def _isolate(self, machine: SimulatedMaster) -> None:
        world, rng = self._world, self._rng
        if world.healing:
            return
        slots, plan = range(world.plan.masters), world.plan
        rest = [slot for slot in slots if slot != machine.slot]
        term_ms = max(plan.max_peer_lag_ms, 3 * plan.round_timeout_ms) + 3 * plan.round_timeout_ms
        end_ms = world.now_ms + rng.choice((term_ms, 2 * term_ms, 3 * term_ms))
        near = rng.choice(rest)
        beside = {machine.slot} if rng.random() < 0.7 else {machine.slot, near}  # with one that may lack the decision
        world.coverage["isolated with a decision"] += 1
        world.trace_event(machine.name, "isolated with a decision", f"{sorted(beside)} until {end_ms}")
        world.cut([(a, b) for a in slots for b in slots if (a in beside) != (b in beside)], end_ms)
        others = [slot for slot in slots if slot not in beside]
        if len(others) > 1 and rng.random() < 0.6:
            one = set(rng.sample(others, rng.randint(1, len(others) - 1)))
            links = [(a, b) for a in others for b in others if (a in one) != (b in one)]
            world.cut(links, world.now_ms + rng.choice((term_ms // 2, term_ms, 2 * term_ms)))
        if rng.random() < 0.25:
            world.crash_for(machine, world.now_ms + rng.choice((30, term_ms)))

    def check_final(self) -> None:
        """All masters are in one view, and have one log."""
        if not self.enabled or not self._world.log.branches:
            return
        branch = self._world.log.branches[max(self._world.log.branches)]
        self.checker.check_final(
            branch.synchronous, sorted(branch.effects.items()), self._world.transactions.lost, decided=self.is_decided
        )

    @property
    def is_decided(self) -> bool:
        """Whether the view of each master decides, so that nothing may stay undecided."""
        cores = [m.executor.core for m in self._world.simulated_masters if m.executor is not None]
        return all(core.view is not None and core.view.is_quorate for core in cores)

    @property
    def is_waiting(self) -> bool:
        """Whether a master that may decide has something undecided."""
        if not self.enabled:
            return False
        for machine in self._world.simulated_masters:
            core = machine.executor.core if machine.executor is not None else None
            if core is None or core.view is None or core.log_state is None:
                continue
            if core.view.anchor is None or (core.view.is_quorate and not core.log_state.synchronous.is_empty):
                return True
        return False
