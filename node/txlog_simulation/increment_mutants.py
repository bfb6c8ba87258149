"""Safeguards of incremental backups and their chains, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

CHANGES = "txlog/backup/quad_changes.py"
LOG = "txlog/backup/log_changes.py"
WRITER = "txlog/backup/increment_writer.py"
CHAIN = "txlog/backup/backup_chain.py"
CATALOGUE = "txlog/backup/catalogue.py"
LEASE = "txlog/backup/read_lease.py"
_STATE = "node/tests/backup/test_increments.py::"
_CHAINS = "node/tests/backup/test_increment_chains.py::"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    rule = "B15" if test.startswith(_CHAINS) else "B14"
    return Mutant(name, rule, False, (SourceEdit(file, old, new),), test=test)


INCREMENT_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "increment-adds-what-was-there",
        CHANGES,
        "if is_there and quad not in found)\n",
        "if is_there)\n",
        f"{_STATE}test_a_chain_is_the_state_digest_for_digest",
    ),
    _mutant(
        "increment-forgets-what-went",
        CHANGES,
        "sorted(quad for quad in found if not self._is_there[quad])",
        "[]",
        f"{_STATE}test_a_chain_is_the_state_digest_for_digest",
    ),
    _mutant(
        "the-first-change-of-a-quad-counts",
        CHANGES,
        "        self._is_there[quad] = is_there\n",
        "        self._is_there.setdefault(quad, is_there)\n",
        f"{_STATE}test_a_chain_is_the_state_digest_for_digest",
    ),
    _mutant(
        "increment-with-literals-as-they-were-sent",
        LOG,
        "        changes.change(form(effect.payload))\n",
        "        changes.change(effect.payload)\n",
        f"{_STATE}test_a_chain_is_the_state_digest_for_digest",
    ),
    _mutant(
        "chain-read-from-its-end",
        "txlog/backup/verification.py",
        "    for each in increments:\n",
        "    for each in increments[::-1]:\n",
        f"{_STATE}test_a_chain_is_restored_as_a_full_backup_is",
    ),
    _mutant(
        "increment-over-an-update",
        LOG,
        "        if effect.kind == KIND_UPDATE:\n",
        "        if effect.kind < 0:\n",
        f"{_STATE}test_an_update_makes_the_next_backup_a_full_one",
    ),
    _mutant(
        "increment-from-the-pages-of-another-log",
        LOG,
        "    if at.hash != upto.hash:\n",
        "    if at.index != upto.index:\n",
        f"{_STATE}test_pages_of_another_log_make_no_increment",
    ),
    _mutant(
        "increment-upon-another-content",
        WRITER,
        "        and each.manifest.base_content == marker.base\n",
        "",
        f"{_STATE}test_content_from_before_the_log_goes_with_the_chain",
    ),
    _mutant(
        "increment-forgets-the-content-before-the-log",
        WRITER,
        "parts, before.base_content, step.undecided, increment)",
        'parts, bytes.fromhex(before.base or ""), step.undecided, increment)',
        f"{_STATE}test_content_from_before_the_log_goes_with_the_chain",
    ),
    _mutant(
        "increment-upon-the-same-index-of-another-branch",
        WRITER,
        "(each.manifest.place.index < marker.position.index or ",
        "(each.manifest.place.index <= marker.position.index or ",
        f"{_STATE}test_a_backup_of_another_branch_at_the_same_index_is_not_continued",
    ),
    _mutant(
        "chain-without-end",
        WRITER,
        "    if len(chain) > chain_max:\n",
        "    if not chain:\n",
        f"{_STATE}test_a_chain_is_bounded",
    ),
    _mutant(
        "changes-larger-than-their-full-backup",
        WRITER,
        "    changed += sum(each.part_bytes for each in chain[1:])\n",
        "",
        f"{_STATE}test_changes_of_half_of_the_full_backup_make_a_full_one",
    ),
    _mutant(
        "changes-without-a-bound-in-memory",
        CHANGES,
        "            if self._bytes_max is not None and self._bytes > self._bytes_max:\n",
        "            if self._bytes < 0:\n",
        f"{_STATE}test_changes_beyond_memory_make_a_full_one",
    ),
    _mutant(
        "split-backup-that-needs-another-one",
        "txlog/backup/backup_job.py",
        '    if config.incremental and config.why != "split":\n',
        "    if config.incremental:\n",
        "node/tests/backup/test_increments_of_masters.py::test_the_job_makes_chains_and_retires_them_whole",
    ),
    _mutant(
        "another-backup-of-the-name-of-a-link",
        CHAIN,
        "    if not same or link.engine",
        "    if link.engine",
        f"{_CHAINS}test_a_damaged_link_is_named",
    ),
    _mutant(
        "complete-without-its-links",
        CATALOGUE,
        "    found = _mark_broken_chains([each",
        "    found = list([each",
        f"{_CHAINS}test_a_damaged_link_is_named",
    ),
    _mutant(
        "retention-deletes-what-others-need",
        "txlog/backup/retention.py",
        "[name for name in gone if name not in links]",
        "gone",
        f"{_CHAINS}test_retention_keeps_what_a_kept_backup_needs",
    ),
    _mutant(
        "only-the-next-link-is-needed",
        CHAIN,
        "            manifest = manifests.get(manifest.continues.of)\n",
        "            manifest = None\n",
        f"{_CHAINS}test_retention_keeps_what_a_kept_backup_needs",
    ),
    _mutant(
        "full-backup-deleted-before-what-needs-it",
        CHAIN,
        "key=lambda name: -manifests[name].chain_number if",
        "key=lambda name: manifests[name].chain_number if",
        f"{_CHAINS}test_retention_keeps_what_a_kept_backup_needs",
    ),
    _mutant(
        "needed-backup-deleted-by-name",
        CATALOGUE,
        "            _refuse_needed(target, name)\n",
        "",
        f"{_CHAINS}test_what_is_continued_is_not_deleted",
    ),
    _mutant(
        "lease-looked-for-before-a-deletion-is-announced",
        CATALOGUE,
        "            _refuse_leased(target, name)\n",
        "",
        f"{_CHAINS}test_an_increment_that_is_in_the_middle_at_any_step_of_a_deletion",
    ),
    _mutant(
        "announced-deletion-not-looked-for",
        LEASE,
        "        if is_leased(target, name, DELETING_PREFIX, DELETING_TTL_S):\n",
        "        if not name:\n",
        f"{_CHAINS}test_an_increment_at_any_step_of_a_deletion",
    ),
    _mutant(
        "increment-whose-link-is-gone",
        WRITER,
        "        read_chain(target, manifest)  # ",
        "        # ",
        f"{_CHAINS}test_an_increment_whose_lease_ran_out_is_none_without_its_link",
    ),
    _mutant(
        "merged-backup-not-compared",
        "txlog/backup/backup_writer.py",
        "        if expected is not None:\n",
        "        if expected is manifest:\n",
        f"{_CHAINS}test_a_merge_that_differs_is_none",
    ),
)
