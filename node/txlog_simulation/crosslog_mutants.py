"""Safeguards of transactions over several logs (R10 to R16), one each taken out. Imports nothing of ``txlog``.

No master of the simulator makes such a transaction yet, so that tests kill them: the runs of the model, in which the
rules of the masters are asked in every step, and directed ones.
"""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

PARTICIPANT = "txlog/protocol/crosslog/participant_fold.py"
SYSTEM = "txlog/protocol/crosslog/system_fold.py"
CROSSLOG_DECISIONS = "txlog/protocol/crosslog/decisions.py"
_MODEL = "node/tests/protocol/test_crosslog_rules_model.py"
_RULES = "node/tests/protocol/test_crosslog_rules.py"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str = _MODEL) -> Mutant:
    return Mutant(f"crosslog-{name}", rule, True, (SourceEdit(file, old, new),), test=test)


CROSSLOG_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "prepare-in-any-repository",
        "R10",
        PARTICIPANT,
        "if self.log not in key.participants or is_first",
        "if is_first",
        test=_RULES,
    ),
    _mutant(
        "truncation-forgets-open-parts", "R10", PARTICIPANT, "            self.open[part.gid] = part\n", "", test=_RULES
    ),
    _mutant(
        "trimmed-though-a-part-is-open",
        "R17",
        PARTICIPANT,
        "min([served_from, *(each.log_index - 1 for each in self.open.values())])",
        "served_from",
        test=_RULES,
    ),
    _mutant("committed-without-a-quorum", "R11", CROSSLOG_DECISIONS, "each.quorate and each.fold.has", "each.fold.has"),
    _mutant(
        "last-decision-counts",
        "R12",
        SYSTEM,
        "is_finished(key.gid) or key.gid in self.decisions:",
        "is_finished(key.gid):",
    ),
    _mutant("outcome-without-prepare", "R14", CROSSLOG_DECISIONS, "    if gid not in log.open:\n", "    if not gid:\n"),
    _mutant(
        "commit-is-never-recovered",
        "R15",
        CROSSLOG_DECISIONS,
        "return True if undecided.waited_ms >= decide_after_ms else None",
        "return None",
        test=_RULES,
    ),
    _mutant(
        "forgotten-before-it-is-settled",
        "R16",
        CROSSLOG_DECISIONS,
        "part is not None and part.log_index <= each.settled_at",
        "part is not None",
    ),
    _mutant(
        "forgotten-is-decided-again",
        "R16",
        SYSTEM,
        "if self.is_finished(key.gid) or key.gid in",
        "if key.gid in",
        test=_RULES,
    ),
    _mutant(
        "forgotten-is-not-aborted",
        "R16",
        CROSSLOG_DECISIONS,
        "commits=False, place=0) if system.is_finished(gid) else None",
        "commits=False, place=0) if not gid else None",
    ),
    _mutant(
        "watermark-passes-what-is-undecided",
        "R16",
        CROSSLOG_DECISIONS,
        "known = (*first.open, *first.concluded, *system.decisions)",
        "known = (*first.concluded, *system.decisions)",
    ),
    _mutant(
        "watermark-passes-what-is-decided-elsewhere",
        "R16",
        CROSSLOG_DECISIONS,
        "known = (*first.open, *first.concluded, *system.decisions)",
        "known = (*first.open, *system.decisions)",
        test=_RULES,
    ),
    _mutant(
        "watermark-passes-commits-that-are-not-final",
        "R16",
        CROSSLOG_DECISIONS,
        "for seq in begun - may_pass)]",
        "for seq in begun - may_pass - {gid.seq for gid in system.decisions})]",
    ),
    _mutant(
        "key-counts-twice",
        "R12",
        SYSTEM,
        "key.commits and other is None",
        "key.commits",
        test=_RULES,
    ),
)
