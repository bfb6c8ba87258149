"""The rules of transactions over several logs say in every step of the model's runs what the model says.

The model (``e2e/model/crosslog``) was run with its assertions in thousands of runs. Here its runs ask both: whenever
the model decides, writes an outcome or forgets, so does the code of the masters, from logs that grow and are truncated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from e2e.model.crosslog.cluster import CrosslogCluster
from e2e.model.crosslog.crosslog_mutant import WATERMARKS
from e2e.model.crosslog.forgotten import ForgetRules
from e2e.model.crosslog.masters import CrosslogMaster
from e2e.model.crosslog.random_run import CrosslogOptions, CrosslogRun
from e2e.model.crosslog.transactions import TransactionRules
from e2e.model.crosslog.values import (
    SYSTEM_LOG,
    CrosslogEntry,
    EntryName,
    EntryOrigin,
    LogStrategy,
    ModelDecide,
    ModelOutcome,
    ModelPrepare,
    ModelWatermark,
    PlacedVerdict,
)
from txlog.model.crosslog_entry import (
    DecideKey,
    FinishedKey,
    OutcomeKey,
    PrepareKey,
    decode_outcome,
    decode_prepare,
    decode_system,
    encode_outcome,
    encode_prepare,
    encode_system,
)
from txlog.model.ids import Origin, Txid
from txlog.protocol.crosslog.decisions import (
    ParticipantLog,
    find_watermark,
    may_commit,
    may_forget,
    next_outcome,
)
from txlog.protocol.crosslog.participant_fold import ParticipantFold
from txlog.protocol.crosslog.system_fold import SystemFold

REPOSITORIES = {1: 0, 2: 2, 3: 3}
"""The model's number of a repository to that of its log: 1 is the system log."""


def origin_of(origin: EntryOrigin) -> Origin:
    """Each log of a master has a journal of its own, so a birth of its own."""
    return Origin(f"m{origin.master}", 10 * origin.birth + origin.log)


def txid_of(name: EntryName) -> Txid:
    return Txid(origin_of(name.origin), name.sequence)


class MirroredMaster:
    """The logs of one master of the model, as the code of the masters reads them. A lost disk begins another."""

    def __init__(self, logs: range, birth: int = 0) -> None:
        self.birth = birth
        self.seen: list[list[CrosslogEntry]] = [[] for _ in logs]
        self.folds = {log: ParticipantFold(REPOSITORIES[log]) for log in logs if log != SYSTEM_LOG}
        self.system = SystemFold()


class Comparison:
    """Asks the rules of the masters whenever the model asks its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int, options: CrosslogOptions) -> None:
        self.asked: Counter[str] = Counter()
        self.run = CrosslogRun(seed, options)
        self.cluster = self.run.cluster
        self.mirrors = [MirroredMaster(self.cluster.logs) for _ in self.cluster.masters]
        for owner, name, compare in (
            (TransactionRules, "_is_prepared", self._compare_prepared),
            (TransactionRules, "_write_outcomes_of", self._compare_outcomes),
            (ForgetRules, "_may_forget", self._compare_forget),
            (ForgetRules, "_watermark", self._compare_watermark),
        ):
            monkeypatch.setattr(owner, name, self._asking_both(getattr(owner, name), compare))
        monkeypatch.setattr(CrosslogCluster, "append", self._appending_to_both(CrosslogCluster.append))

    @staticmethod
    def _asking_both(asked: Callable[..., Any], compare: Callable[..., None]) -> Callable[..., Any]:
        def both(rules: object, *arguments: Any, **options: Any) -> Any:
            expect = compare(*arguments)
            found = asked(rules, *arguments, **options)
            if expect is not None:
                assert expect == found, arguments
            return found

        return both

    # -- logs

    def _appending_to_both(self, append: Callable[..., None]) -> Callable[..., None]:
        def both(cluster: CrosslogCluster, master: CrosslogMaster, log: int, entry: CrosslogEntry) -> None:
            self._append(self._mirror_of(master), log, len(master.logs[log].entries), entry)
            append(cluster, master, log, entry)

        return both

    def _append(self, mirror: MirroredMaster, log: int, at: int, entry: CrosslogEntry) -> None:
        """A view begins with an empty log in the model, and with a truncation at a master."""
        seen = mirror.seen[log]
        if at < len(seen) and seen[at].uid == entry.uid:
            return
        self._truncate(mirror, log, at)
        seen.append(entry)
        self._apply(mirror, log, len(seen), entry)

    def _truncate(self, mirror: MirroredMaster, log: int, length: int) -> None:
        seen = mirror.seen[log]
        if length < len(seen):
            assert log != SYSTEM_LOG, "an entry has left the system log"
            mirror.folds[log].truncate(length)
            del seen[length:]
            self.asked["truncated"] += 1

    def _apply(self, mirror: MirroredMaster, log: int, index: int, entry: CrosslogEntry) -> None:
        content = entry.content
        if isinstance(content, ModelPrepare):
            name = self.cluster.names[content.gid]
            prepare = PrepareKey(
                None if name == entry.name else txid_of(name), self._logs(content.gid), 180_000, f"key {content.gid}"
            )
            mirror.folds[log].apply_prepare(index, txid_of(entry.name), decode_prepare(encode_prepare(prepare)))
        elif isinstance(content, ModelOutcome):
            outcome = OutcomeKey(self._gid(content.gid), content.commits, content.place + 1)
            mirror.folds[log].apply_outcome(index, decode_outcome(encode_outcome(outcome)))
        elif isinstance(content, ModelDecide):
            key = f"key {content.gid}" if content.commits else ""
            decide = DecideKey(self._gid(content.gid), content.commits, self._logs(content.gid), key)
            decoded = decode_system(encode_system(decide))
            assert isinstance(decoded, DecideKey)
            mirror.system.apply_decide(index, decoded)
        elif isinstance(content, ModelWatermark):
            finished = decode_system(encode_system(FinishedKey(origin_of(content.origin), content.sequence)))
            assert isinstance(finished, FinishedKey)
            forgotten = mirror.system.apply_finished(finished)
            for fold in mirror.folds.values():
                fold.forget(gid for gid in forgotten if gid not in fold.open)

    def _gid(self, gid: int) -> Txid:
        return txid_of(self.cluster.names[gid])

    def _logs(self, gid: int) -> tuple[int, ...]:
        return tuple(REPOSITORIES[log] for log in self.cluster.participants[gid])

    def _mirror_of(self, master: CrosslogMaster) -> MirroredMaster:
        if self.mirrors[master.number].birth != master.birth:
            self.mirrors[master.number] = MirroredMaster(self.cluster.logs, master.birth)
        return self.mirrors[master.number]

    def _mirror(self, master: CrosslogMaster) -> MirroredMaster:
        mirror = self._mirror_of(master)
        for log, copy in enumerate(master.logs):
            if copy.view is not None:
                self._truncate(mirror, log, len(copy.entries))
        return mirror

    def _participants(self, master: CrosslogMaster, gid: int) -> list[ParticipantLog]:
        mirror, cluster = self._mirror(master), self.cluster
        found = []
        for log in cluster.participants[gid]:
            copy, fold = master.logs[log], mirror.folds[log]
            assert copy.view is not None
            settled_at = cluster.settled_at(master, log)
            fold.mark_final(settled_at)
            found.append(ParticipantLog(fold, cluster.is_majority(copy.view.members), settled_at))
        return found

    def _is_there(self, master: CrosslogMaster, gid: int) -> bool:
        return all(master.logs[log].view is not None for log in self.cluster.participants[gid])

    # -- rules

    def _compare_prepared(self, master: CrosslogMaster, gid: int) -> bool | None:
        if not self._is_there(master, gid):
            return None
        self.asked["prepared"] += 1
        return may_commit(self._gid(gid), self._participants(master, gid))

    def _compare_outcomes(self, master: CrosslogMaster, gid: int) -> None:
        mirror, fold = self._mirror(master), master.logs[SYSTEM_LOG].fold
        name = self._gid(gid)
        decision, finished = fold.decisions.get(gid), fold.is_finished(gid)
        assert mirror.system.is_finished(name) == finished
        for log in self.cluster.participants[gid]:
            if master.logs[log].view is None:
                continue
            is_open = master.logs[log].fold.is_open(gid)
            expect = None
            if is_open and decision is not None:
                expect = OutcomeKey(name, decision.commits, decision.place + 1)
            elif is_open and finished:
                expect = OutcomeKey(name, commits=False, place=0)
                self.asked["presumed aborted"] += 1
            assert next_outcome(name, mirror.folds[log], mirror.system) == expect
            self.asked["outcomes"] += expect is not None

    def _compare_forget(self, master: CrosslogMaster, gid: int, _decision: PlacedVerdict) -> bool | None:
        if not self._is_there(master, gid):
            return None
        self.asked["forgettable"] += 1
        participants = self._participants(master, gid)
        return may_forget(self._gid(gid), self.mirrors[master.number].system.decisions[self._gid(gid)], participants)

    def _compare_watermark(self, master: CrosslogMaster, origin: EntryOrigin) -> int | None:
        copy, mirror = master.logs[origin.log], self._mirror(master)
        if copy.view is None or any(each.view is None for each in master.logs):
            return None
        before = mirror.system.watermarks.get(origin_of(origin), 0)
        settled = before
        settled_at = self.cluster.settled_at(master, origin.log)
        while copy.places.get(EntryName(origin, settled + 1), settled_at) < settled_at:
            settled += 1
        name = origin_of(origin)
        forgettable = [
            gid
            for gid, decision in mirror.system.decisions.items()
            if gid.origin == name
            and may_forget(gid, decision, self._participants(master, self.cluster.gids[EntryName(origin, gid.seq)]))
        ]
        self.asked["watermarks"] += 1
        return find_watermark(name, settled, mirror.folds[origin.log], mirror.system, forgettable)

    def compare_logs(self) -> None:
        """At the end: what is concluded, open and decided."""
        for master in self.cluster.masters:
            mirror = self._mirror(master)
            for log in self.cluster.repositories:
                fold, ours = master.logs[log].fold, mirror.folds[log]
                assert set(ours.open) == {self._gid(gid) for gid in fold.prepared if fold.is_open(gid)}
                for gid, outcome in fold.outcomes.items():
                    part = ours.concluded.get(self._gid(gid))
                    if part is not None:
                        assert (part.log_index, part.commits) == (outcome.place + 1, outcome.commits)
                        self.asked["effects"] += 1
            decided = master.logs[SYSTEM_LOG].fold.decisions
            assert {(gid, each.place, each.commits) for gid, each in mirror.system.decisions.items()} == {
                (self._gid(gid), each.place + 1, each.commits) for gid, each in decided.items()
            }


@pytest.mark.parametrize(
    ("options", "seed"),
    [(WATERMARKS, 4_000_002), (WATERMARKS, 4_000_010), (WATERMARKS._replace(strategy=LogStrategy.SIMPLE), 4_000_005)],
    ids=["mixed", "mixed-again", "simple"],
)
def test_masters_and_model_say_the_same_in_random_runs(
    options: CrosslogOptions, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Comparison(monkeypatch, seed, options)
    both.run.run()
    both.compare_logs()
    for met in ("prepared", "outcomes", "presumed aborted", "forgettable", "watermarks", "truncated", "effects"):
        assert both.asked[met], both.asked
