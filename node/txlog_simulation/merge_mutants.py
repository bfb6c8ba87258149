"""Safeguards of chains that are merged by a schedule, one each taken out (B14, B15). Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_CHAIN = "txlog/backup/bounded_chain.py"
_MERGE = "txlog/backup/bounded_chain.py"
_WRITER = "txlog/backup/backup_writer.py"
_INCREMENT = "txlog/backup/increment_writer.py"
_CATALOGUE = "txlog/backup/catalogue.py"
_TESTS = "node/tests/backup/test_bounded_chains.py::"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, rule, False, (SourceEdit(file, old, new),), test=_TESTS + test)


MERGE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "merges-without-end",
        "B14",
        _CHAIN,
        "        if merges >= merges_max:\n",
        "        if merges < 0:\n",
        "test_merges_bound_a_chain_until_a_worker_is_due",
    ),
    _mutant(
        "merges-that-were-not-allowed",
        "B14",
        _CHAIN,
        "    if not full.chain_end or not merges_max:\n        raise full\n",
        "    if not full.chain_end:\n        raise full\n    merges_max = merges_max or 9\n",
        "test_without_leave_nothing_is_merged",
    ),
    _mutant(
        "merges-are-not-counted",
        "B14",
        _MERGE,
        "read_chain(target, merged)[0].name) + 1",
        "name) + 1",
        "test_merges_bound_a_chain_until_a_worker_is_due",
    ),
    _mutant(
        "the-merged-backup-is-not-continued",
        "B14",
        _CHAIN,
        "            merged = before.name\n",
        "            merged = before.name\n            raise full\n",
        "test_changes_of_half_of_the_full_backup_are_merged",
    ),
    _mutant(
        "many-changes-are-no-reason-to-merge",
        "B14",
        _INCREMENT,
        "before.name if len(chain) > 1 else",
        "before.name if len(chain) > 9 else",
        "test_changes_of_half_of_the_full_backup_are_merged",
    ),
    _mutant(
        "a-damaged-chain-fails-the-backup",
        "B14",
        _CHAIN,
        "    except BackupFault as fault:\n",
        "    except ZeroDivisionError as fault:\n",
        "test_a_chain_with_a_damaged_link_is_not_merged",
    ),
    _mutant(
        "an-unreadable-note-counts-as-a-workers",
        "B14",
        _CATALOGUE,
        "isinstance(found, int) and found > 0 else MERGES_UNKNOWN",
        "isinstance(found, int) and found > 0 else 0",
        "test_an_unreadable_note_means_that_a_worker_is_due",
    ),
    _mutant(
        "a-merged-backup-that-does-not-say-so",
        "B14",
        _WRITER,
        "        if order.merges:  # before the manifest: a complete one says what it is\n"
        '            write(MERGED_NAME, encode_checked({"merges": order.merges}))\n'
        "        write_manifest(target, manifest, write)\n",
        "        write_manifest(target, manifest, write)\n"
        "        if order.merges:\n"
        '            write(MERGED_NAME, encode_checked({"merges": order.merges}))\n',
        "test_a_merge_that_is_killed_at_any_step_breaks_nothing",
    ),
    _mutant(
        "the-window-keeps-what-was-merged",
        "B15",
        "txlog/backup/retention.py",
        "key=lambda each: (each.name not in merged, each.finished, each.name)",
        "key=lambda each: (each.finished, each.name)",
        "test_for_the_window_the_merged_one_is_enough",
    ),
    _mutant(
        "merged-backups-stay-for-ever",
        "B15",
        _CHAIN,
        'order._replace(why="schedule", retention="normal", name=None)',
        'order._replace(why="manual", retention="normal", name=None)',
        "test_the_old_chain_goes_when_its_time_is_over",
    ),
)
