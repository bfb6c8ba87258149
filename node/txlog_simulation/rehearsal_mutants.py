"""Safeguards of rehearsed recoveries, schedules and restore points, one each taken out: a directed test must fail.
Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_VERDICT = "txlog/rehearsal/verdict.py"
_REPORTS = "txlog/server/admin/rehearsal_reports.py"
_PLAN = "txlog/archive/restore_plan.py"
_VERDICT_TEST = "node/tests/rehearsal/test_verdict.py::"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, "rehearsal", True, (SourceEdit(path, old, new),), test=test)


REHEARSAL_MUTANTS = (
    _mutant(
        "nothing-compared-is-equal",
        _VERDICT,
        "    if compared.graphs < 1:\n",
        "    if compared.graphs < 0:\n",
        f"{_VERDICT_TEST}test_only_equal_graphs_at_one_place_are_good",
    ),
    _mutant(
        "compared-at-one-index-of-two-branches",
        _VERDICT,
        "    if live.place != restored.place:\n",
        "    if live.place.index != restored.place.index:\n",
        f"{_VERDICT_TEST}test_only_equal_graphs_at_one_place_are_good",
    ),
    _mutant(
        "a-rehearsal-without-a-bound-for-the-loss",
        _VERDICT,
        "times.rpo_s > bounds.rpo_s",
        "times.rpo_s > 100 * bounds.rpo_s",
        f"{_VERDICT_TEST}test_names_of_faults",
    ),
    _mutant(
        "a-failed-rehearsal-counts-as-good",
        _REPORTS,
        "        is_good = report.ok and (",
        "        is_good = (",
        "node/tests/server/test_rehearsal_reports.py::test_all_masters_know_the_last_one_and_the_last_good_one",
    ),
    _mutant(
        "the-first-point-of-several",
        _PLAN,
        "    if len(places) > 1:\n",
        "    if len(places) > 99:\n",
        "node/tests/rehearsal/test_restore_to_points.py::test_several_of_one_name_and_none",
    ),
    _mutant(
        "a-changed-schedule-waits-for-the-former-time",
        "txlog/supervision/backup_schedule.py",
        "next_at=due_at if stays else latest)",
        "next_at=due_at)",
        "node/tests/supervision/test_supervision_values.py::test_a_scheduled_backup",
    ),
    _mutant(
        "a-rehearsal-repeats-the-key-of-a-bulk-load",
        "txlog/rehearsal/scratch_cluster.py",
        " if not key.startswith(BULK_KEY_PREFIX)), None)",
        "), None)",
        "node/tests/rehearsal/test_rehearsals.py::test_the_key_of_a_bulk_load_is_not_repeated",
    ),
    _mutant(
        "each-look-moves-an-interval",
        "txlog/supervision/backup_schedule.py",
        "        stays = is_interval and due_at <= latest\n",
        "        stays = False\n",
        "node/tests/supervision/test_supervision_values.py::test_an_interval_comes_to_its_end",
    ),
    _mutant(
        "a-full-disk-ends-all-schedules",
        "txlog/local/scheduled_backups.py",
        "        except OSError as error:  # such as a full disk;",
        "        except ZeroDivisionError as error:  # such as a full disk;",
        "node/tests/local/test_full_disks.py::test_schedules_go_on",
    ),
    _mutant(
        "a-restore-starts-without-its-mark",
        "txlog/local/duty_runner.py",
        'self._state.write("duties.json", {**self._saved, "restoring"',
        'str("duties.json"), str({**self._saved, "restoring"',
        "node/tests/local/test_full_disks.py::test_no_restore_starts_that_a_crash_would_forget",
    ),
)
