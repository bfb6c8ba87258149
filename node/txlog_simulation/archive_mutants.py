"""Safeguards of what writes and deletes files of an archive, and backups, one each taken out. Imports nothing of
``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

PLAN = "txlog/archive/compaction_plan.py"
COMPACTOR = "txlog/archive/compactor.py"
WINDOW = "txlog/archive/window_plan.py"
RETENTION = "txlog/archive/window_retention.py"
STREAM = "txlog/archive/stream.py"
ARCHIVER = "txlog/archive/archiver.py"
ARCHIVER_TEST = "node/tests/archive/test_archiver_decisions.py::"
NAME_TEST = "node/tests/backup/test_backups_of_one_name.py::"
BACKUP_WINDOW_TEST = "node/tests/backup/test_window_retention.py::"
SKIPS_TEST = "node/tests/archive/test_skips_below_the_window.py::"
READ_BACK_TEST = "node/tests/archive/test_read_back.py::"
HEADER_TEST = "node/tests/archive/test_archive_headers.py::"
COMPACTION_TEST = "node/tests/archive/test_compaction.py::"
LEVEL_TEST = "node/tests/server/test_archived_level.py::"
WINDOW_TEST = "node/tests/archive/test_recovery_window.py::"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, "19", False, (SourceEdit(file, old, new),), test=test)


ARCHIVE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "archived-on-another-branch",
        "txlog/server/admin/archive_reports.py",
        "        places = [known.archived.highest(self._is_on_log) for known in self._streams.values()]\n",
        "        places = [known.archived.highest(lambda place: True) for known in self._streams.values()]\n",
        f"{LEVEL_TEST}test_the_branch_that_lost_is_not_archived",
    ),
    _mutant(
        "archived-is-every-stable-one",
        "txlog/runtime/transaction_status.py",
        "        while not durability.is_archived(txid):\n",
        "        while not durability.index_of(txid):\n",
        f"{LEVEL_TEST}test_it_waits_for_the_archive_of_any_data_centre",
    ),
    _mutant(
        "archived-without-an-archive",
        "txlog/runtime/transaction_status.py",
        "        if level is Durability.ARCHIVED and not self._durability.has_archive:\n",
        "        if level is None:\n",
        f"{LEVEL_TEST}test_without_an_archive_it_is_refused_and_nothing_is_logged",
    ),
    _mutant(
        "archived-stays-where-the-log-is-cut",
        "txlog/runtime/durability_tracker.py",
        "        for mark in (self.executable, self.archived):\n",
        "        for mark in (self.executable,):\n",
        "node/tests/runtime/test_a_log_that_is_cut.py::"
        "test_everything_falls_with_the_cut_and_nothing_of_the_base_is_shown_before_its_install",
    ),
    _mutant(
        "archive-deletes-by-index-alone",
        PLAN,
        "    return [name for name in names if not name.level and name.start in nodes and name.end in nodes]\n",
        "    known = {node.index for node in nodes}\n"
        "    return [name for name in names if name.start.index in known and name.last in known]\n",
        f"{COMPACTION_TEST}test_the_same_indexes_on_another_branch_are_no_reason",
    ),
    _mutant(
        "archive-deletes-without-grace",
        PLAN,
        "            if name.level and now - modified[name] >= grace_s:\n",
        "            if name.level and now:\n",
        f"{COMPACTION_TEST}test_small_files_stay_until_the_grace_is_over",
    ),
    _mutant(
        "archive-compacts-what-is-not-final",
        PLAN,
        "            if name.level or name in seen or name.last > final.get(head, 0):\n",
        "            if name.level or name in seen:\n",
        f"{COMPACTION_TEST}test_what_is_not_final_stays_as_it_is",
    ),
    _mutant(
        "archive-deletes-the-place-where-a-branch-begins",
        PLAN,
        "        if not lost:\n",
        "        if lost is not None:\n",
        f"{COMPACTION_TEST}test_a_place_from_which_another_file_goes_on_stays",
    ),
    _mutant(
        "archive-believes-a-compacted-file",
        COMPACTOR,
        "            for nodes in self._read_places(run, small, wanted):\n",
        "            for nodes in [wanted]:\n",
        f"{COMPACTION_TEST}test_nothing_is_deleted_for_a_compacted_file_that_is_damaged_later",
    ),
    _mutant(
        "archive-does-not-read-back-what-it-compacted",
        COMPACTOR,
        "                found = self._stream.read_file(name)\n",
        "                return name\n",
        f"{COMPACTION_TEST}test_a_compacted_file_that_the_target_spoils_is_written_again",
    ),
    _mutant(
        "archive-mixes-views-in-one-file",
        COMPACTOR,
        "        if run and (is_full or file.header.meta.view != run[-1].header.meta.view):\n",
        "        if run and is_full:\n",
        f"{COMPACTION_TEST}test_every_place_keeps_its_view",
    ),
    _mutant(
        "archive-reads-only-short-headers",
        STREAM,
        "        if length > len(data) > _HEADER_BYTES:\n",
        "        if length > len(data) > FILE_BYTES_MAX:\n",
        f"{HEADER_TEST}test_a_header_of_any_length_that_a_file_can_have_is_read_alone",
    ),
    _mutant(
        "archive-believes-origins-of-a-header",
        "txlog/archive/format.py",
        "    if not is_same or _origins_of(entries) != origins:\n",
        "    if not is_same:\n",
        "node/tests/archive/test_archive_format.py::test_an_origin_without_an_entry_is_found",
    ),
    _mutant(
        "archive-asks-a-dead-target-for-every-header",
        "txlog/archive/stream_reader.py",
        "            pool.shutdown(cancel_futures=True)\n",
        "            pool.shutdown()\n",
        f"{HEADER_TEST}test_a_target_that_is_gone_is_not_asked_for_every_header",
    ),
    _mutant(
        "archive-writes-headers-of-any-length",
        "txlog/archive/branch_line.py",
        " or facts > FACT_BYTES_MAX",
        "",
        f"{HEADER_TEST}test_a_file_ends_before_its_header_is_too_long",
    ),
    _mutant(
        "archive-compacts-to-headers-of-any-length",
        COMPACTOR,
        " or facts + more_facts > FACT_BYTES_MAX",
        "",
        f"{HEADER_TEST}test_a_compacted_file_ends_before_its_header_is_too_long",
    ),
    _mutant(
        "archive-goes-on-where-it-stopped",
        ARCHIVER,
        "        if not self._is_on_path(line):\n            self._leave(line)\n",
        "        if not line:\n            self._leave(line)\n",
        f"{ARCHIVER_TEST}test_an_archiver_that_was_stopped_for_long_goes_on_where_files_lead",
    ),
    _mutant(
        "archive-reports-what-no-file-leads-to",
        ARCHIVER,
        "        if not self._is_on_path(line):  # this process was stopped meanwhile\n",
        "        if not line:\n",
        f"{ARCHIVER_TEST}test_what_an_archiver_wrote_behind_its_time_is_not_reported",
    ),
    _mutant(
        "archive-passes-over-files-that-hold-more",
        "txlog/archive/stream_reader.py",
        "        return all(end in paths.reached or self._is_inside(end, paths) for end in ends)\n",
        "        return bool(ends)\n",
        f"{ARCHIVER_TEST}test_files_that_hold_more_than_the_paths_are_missed",
    ),
    _mutant(
        "window-base-from-after-its-beginning",
        WINDOW,
        "            base.finished_ms <= begin_ms\n",
        "            base.finished_ms\n",
        f"{WINDOW_TEST}test_without_a_backup_before_the_window_nothing_goes",
    ),
    _mutant(
        "window-base-of-another-order",
        WINDOW,
        "            and one.has(base.backup.node, read)\n",
        "",
        f"{WINDOW_TEST}test_a_backup_that_is_on_no_timeline_is_no_base",
    ),
    _mutant(
        "window-base-that-holds-what-is-skipped-later",
        WINDOW,
        "            and not may_hold_skipped(one, base.backup, skips, read)\n",
        "",
        f"{WINDOW_TEST}test_a_backup_that_holds_what_is_skipped_later_is_no_base",
    ),
    _mutant(
        "window-without-the-orders-that-ended-in-it",
        WINDOW,
        "    kept += [one for one in timelines.superseded if _last_ms(one) > begin_ms]\n",
        "",
        f"{WINDOW_TEST}test_an_order_that_ended_in_the_window_keeps_its_base",
    ),
    _mutant(
        "window-above-a-held-backup",
        WINDOW,
        "    used_bases = [*anchors, *(base.backup for base in bases if base.is_held)]\n",
        "    used_bases = anchors\n",
        f"{WINDOW_TEST}test_what_a_held_backup_needs_stays",
    ),
    _mutant(
        "window-moves-under-a-restore",
        RETENTION,
        '        if stream.is_announced("lease", key, LEASE_TTL_S):\n',
        "        if not key:\n",
        f"{WINDOW_TEST}test_a_restore_and_a_retention_give_way_to_each_other",
    ),
    _mutant(
        "window-deletes-before-it-says-where-paths-begin",
        RETENTION,
        "        _record(stream, plan)\n",
        "        stream.delete_files(plan.files)\n        _record(stream, plan)\n",
        f"{WINDOW_TEST}test_wherever_a_retention_ends_the_window_is_whole",
    ),
    _mutant(
        "window-forgets-the-namespaces-of-deleted-files",
        RETENTION,
        "    stream.record_skips(plan.floor, plan.begins, plan.skips)\n",
        "",
        f"{SKIPS_TEST}test_they_stay_what_they_were",
    ),
    _mutant(
        "window-forgets-what-earlier-ones-kept",
        "txlog/archive/timeline.py",
        "        for rows in (self.earlier, *(file.skips for file in self.files())):\n",
        "        for rows in (*(file.skips for file in self.files()), ()):\n",
        f"{SKIPS_TEST}test_they_stay_what_they_were",
    ),
    _mutant(
        "archive-waits-for-what-no-master-has",
        "txlog/archive/read_back.py",
        "        return _Repair.LOST if without == len(self._masters) else _Repair.LATER\n",
        "        return _Repair.LATER\n",
        f"{READ_BACK_TEST}test_what_no_master_has_any_more_holds_nothing_back",
    ),
    _mutant(
        "archive-gives-up-what-a-master-may-have",
        "txlog/archive/read_back.py",
        "        return _Repair.LOST if without == len(self._masters) else _Repair.LATER\n",
        "        return _Repair.LOST\n",
        f"{READ_BACK_TEST}test_what_no_master_has_stays_unverified_and_is_tried_again",
    ),
    _mutant(
        "backup-of-the-window-deleted",
        "txlog/backup/retention.py",
        "        if each.place.index >= floor:\n",
        "        if each.place.index > floor:\n",
        f"{BACKUP_WINDOW_TEST}test_all_from_the_floor_of_the_archive_on_stay",
    ),
    _mutant(
        "backups-of-an-idle-log-without-end",
        "txlog/backup/retention.py",
        "            first.setdefault((each.engine, each.place.index, each.place.hash), each)\n",
        "            first.setdefault((each.name, each.place.index, each.place.hash), each)\n",
        f"{BACKUP_WINDOW_TEST}test_an_idle_log_keeps_its_first_backup_and_the_newest",
    ),
    _mutant(
        "backup-deletes-what-another-one-wrote",
        "txlog/backup/backup_writer.py",
        "    except (NameTaken, PartMissing):\n        raise ",
        "    except ZeroDivisionError:\n        raise ",
        f"{NAME_TEST}test_a_late_writer_leaves_the_parts_of_one_that_is_not_finished",
    ),
    _mutant(
        "backup-deletes-what-another-one-finished",
        "txlog/backup/backup_writer.py",
        '    if manifest in written or all(each.key != manifest for each in target.list_objects(f"{name}/")):\n',
        "    if manifest:\n",
        f"{NAME_TEST}test_a_writer_that_fails_leaves_the_backup_that_another_one_finished",
    ),
    _mutant(
        "backup-deleted-because-a-listing-lacks-its-manifest",
        "txlog/backup/catalogue.py",
        "    gone = [name for name in old if not _has_manifest(target, name)]\n",
        "    gone = old\n",
        f"{NAME_TEST}test_a_listing_that_lacks_a_manifest_deletes_no_backup",
    ),
    _mutant(
        "archive-believes-a-name-that-is-not-durable",
        "txlog/backup/folder_target.py",
        "                sync_folder(path.parent)\n                return False\n",
        "                return False\n",
        f"{NAME_TEST}test_an_object_whose_name_was_not_durable_is_made_so",
    ),
)
