"""Safeguards of a recovery from an archive, one each. The simulator has no archive: a directed test must fail."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_FOLD = "txlog/successor/inheritance.py"
_FIRST = "txlog/successor/first_records.py"
_CLAIM = "txlog/successor/recovery_claim.py"
_SHELL = "txlog/successor/succession.py"
_RESTORE = "txlog/archive/moment_restore.py"
_TESTS = "node/tests/successor/"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, "recovery", True, (SourceEdit(path, old, new),), test=_TESTS + test)


SUCCESSION_MUTANTS = (
    _mutant(
        "the-id-of-the-lost-cluster",
        _FIRST,
        "return bootstrap_cluster_id([self.member])",
        "return bytes(range(16))",
        "test_succession.py::test_the_journal_goes_on_at_the_end_of_the_archive",
    ),
    _mutant(
        "a-recovery-without-a-claim",
        _SHELL,
        "    if not request.is_copy:\n        request.on_step",
        "    if request.is_copy:\n        request.on_step",
        "test_succession.py::test_a_second_one_is_refused_and_a_copy_is_not",
    ),
    _mutant(
        "a-claim-that-another-one-took-meanwhile",
        _CLAIM,
        "        if there.claim.token != wanted.token:\n            raise _already(target, stream, there)\n",
        "",
        "test_recovery_claim.py::test_of_two_at_once_one_has_it",
    ),
    _mutant(
        "keys-of-repeats-count",
        _FOLD,
        "entry.kind not in KINDS_WITH_OWN_KEYS and not entry.is_noop and stamp >= oldest",
        "entry.kind not in KINDS_WITH_OWN_KEYS and stamp >= oldest",
        "test_inheritance.py::test_it_is_what_a_plain_fold_of_the_log_gives",
    ),
    _mutant(
        "younger-keys-are-not-missed",
        _FOLD,
        "if 0 < each.start.index < place.index and first > oldest:",
        "if 0 > each.start.index and first > oldest:",
        "test_inheritance.py::test_an_archive_that_lacks_younger_keys_is_refused",
    ),
    _mutant(
        "stamps-above-the-place-alone",
        _FOLD,
        "        max(last.stamp, *(file.last_stamp for file in every)),\n",
        "        last.stamp,\n",
        "test_inheritance.py::test_epoch_and_stamps_are_above_those_of_every_timeline",
    ),
    _mutant(
        "abandoned-ends-are-not-named",
        _FOLD,
        "    for timeline in (*timelines.current, *timelines.superseded):\n",
        "    for timeline in timelines.current:\n",
        "test_inheritance.py::test_what_the_place_does_not_have_is_named",
    ),
    _mutant(
        "a-majority-of-one",
        _FIRST,
        "        inherited.place.index if majority else -1,\n",
        "        -1,\n",
        "test_founded_masters.py::test_a_master_that_founded_restarts_like_any_other[Majority]",
    ),
    _mutant(
        "a-new-cluster-without-namespaces",
        "txlog/successor/succession.py",
        "    if reader.skips_fault is not None and not request.is_copy:\n",
        "    if reader.skips_fault is None and not reader:\n",
        "test_succession.py::test_what_deleted_files_said_must_be_known_to_a_successor",
    ),
    _mutant(
        "an-archive-from-the-first-entry",
        "txlog/archive/stream_position.py",
        "            if not status.view.number:\n                continue  # it learns the log",
        "            if not status.node:\n                continue  # it learns the log",
        "test_founded_masters.py::test_the_new_archive_begins_where_the_new_log_does",
    ),
    _mutant(
        "a-store-of-the-lost-cluster",
        _RESTORE,
        "_carry_out(prepared, cluster or reader.stream.id.cluster,",
        "_carry_out(prepared, reader.stream.id.cluster,",
        "test_founded_masters.py::test_stores_follow_the_new_log",
    ),
)
