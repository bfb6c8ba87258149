"""Safeguards of the command that loads in bulk, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

RUN = "txlog/bulk/load_run.py"
COMMANDS = "txlog/cli/bulk_commands.py"
SOURCES = "txlog/cli/bulk_sources.py"
ACTIVITY = "txlog/local/store_activity.py"
_COMMANDS = "node/tests/cli/test_bulk_commands.py::"
_RUN = "node/tests/bulk/test_load_run.py::"
_SOURCES = "node/tests/cli/test_bulk_sources.py::"
_ACTIVITY = "node/tests/local/test_store_activity.py::"


def _mutant(rule: str, name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, rule, False, (SourceEdit(file, old, new),), test=test)


BULK_COMMAND_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "B16",
        "bulk-aborted-load-written",
        RUN,
        '    if decision.decision != "commit":\n',
        '    if decision.decision == "":\n',
        f"{_RUN}test_an_aborted_load_is_not_written",
    ),
    _mutant(
        "B16",
        "bulk-written-before-it-is-refused",
        RUN,
        "    if refused:\n",
        "    if refused == ['']:\n",
        f"{_RUN}test_clusters_that_take_none",
    ),
    _mutant(
        "B16",
        "bulk-others-forget-beside-a-hanging-master",
        "txlog/client/bulk_calls.py",
        "ASK_S = 10.0\n",
        "ASK_S = 60.0\n",
        f"{_RUN}test_a_master_that_hangs_leaves_time_to_ask_the_others_again",
    ),
    _mutant(
        "B16",
        "bulk-decided-and-still-prepared",
        RUN,
        "    while not is_decided():\n",
        "    while True:\n",
        f"{_RUN}test_what_another_command_has_decided_is_prepared_no_longer",
    ),
    _mutant(
        "B16",
        "bulk-decided-and-still-sorted",
        COMMANDS,
        "        if not self._is_decided():\n            self._await_sorted",
        "        if self._home:\n            self._await_sorted",
        f"{_COMMANDS}test_what_another_command_has_decided_is_waited_for_no_longer",
    ),
    _mutant(
        "B16",
        "bulk-sent-for-held",
        RUN,
        "            if phase != HELD:\n",
        "            if not phase:\n",
        f"{_RUN}test_it_waits_until_each_working_worker_holds_the_load",
    ),
    _mutant(
        "B16",
        "bulk-held-of-another-load",
        RUN,
        'phase = worker.bulk.phase if worker.bulk is not None and worker.bulk.load == load.id else ""',
        'phase = worker.bulk.phase if worker.bulk is not None else ""',
        f"{_RUN}test_it_waits_until_each_working_worker_holds_the_load",
    ),
    _mutant(
        "B16",
        "bulk-old-pipelines-let-in",
        RUN,
        "            unknown += [_unknown(site, worker) for worker in workers if _is_of_earlier_version(worker)]\n",
        "",
        f"{_RUN}test_each_pipeline_has_to_say_that_it_knows_bulk_loads",
    ),
    _mutant(
        "B16",
        "bulk-unreported-worker-counts-as-away",
        RUN,
        "for site, w in workers if w.state == UNREPORTED]",
        'for site, w in workers if w.state == ""]',
        f"{_RUN}test_a_worker_without_a_report_is_waited_for",
    ),
    _mutant(
        "B16",
        "bulk-new-master-for-all",
        RUN,
        "        if worker.name not in found or found[worker.name].state == UNREPORTED:\n",
        "        if worker.name not in found:\n",
        f"{_RUN}test_a_report_that_any_master_has_counts",
    ),
    _mutant(
        "B16",
        "bulk-silent-masters-let-in",
        RUN,
        '                reasons.append(f"{master.url} does not answer ({error})")\n',
        "                del error\n",
        f"{_RUN}test_each_master_has_to_answer",
    ),
    _mutant(
        "B16",
        "bulk-aborted-load-continued",
        COMMANDS,
        ' or (decision is not None and decision.decision == "abort"):\n',
        ":\n",
        f"{_COMMANDS}test_an_aborted_load_is_not_continued",
    ),
    _mutant(
        "B16",
        "bulk-starved-store-counts-as-idle",
        ACTIVITY,
        "        return sorted({name for (name, _), looks in seen.items() if looks >= BUSY_LOOKS})\n",
        "        return []\n",
        f"{_ACTIVITY}test_what_computes_is_busy",
    ),
    _mutant(
        "B16",
        "bulk-store-that-answers-counts-as-busy",
        ACTIVITY,
        "if looks >= BUSY_LOOKS}",
        "if looks}",
        f"{_ACTIVITY}test_a_store_that_answers_is_not_busy",
    ),
    _mutant(
        "B16",
        "bulk-undecided-load-first",
        COMMANDS,
        "            undecided = undecided or request\n",
        "            return request\n",
        f"{_COMMANDS}test_what_is_in_or_may_be_comes_before_what_is_undecided",
    ),
    _mutant(
        "B16",
        "bulk-begun-twice-at-once",
        COMMANDS,
        "    return _find_request(setting, sources, graph, again) or made\n",
        "    return made\n",
        f"{_COMMANDS}test_commands_of_the_same_files_that_begin_at_once_share_a_load",
    ),
    _mutant(
        "B16",
        "bulk-held-after-a-failure",
        COMMANDS,
        "        except BaseException:\n            give_up",
        "        except KeyboardInterrupt:\n            give_up",
        f"{_COMMANDS}test_stores_are_freed_unless_the_entry_may_come",
    ),
    _mutant(
        "B16",
        "bulk-freed-before-its-entry",
        COMMANDS,
        "        except Unavailable:\n            raise  #",
        "        except MemoryError:\n            raise  #",
        f"{_COMMANDS}test_stores_are_freed_unless_the_entry_may_come",
    ),
    _mutant(
        "B16",
        "bulk-entry-put-off-by-hanging-masters",
        RUN,
        "            if number and time.monotonic() > until:\n",
        "            if number < 0 and time.monotonic() > until:\n",
        f"{_RUN}test_masters_that_hang_do_not_put_the_entry_off_beyond_its_key",
    ),
    _mutant(
        "B16",
        "bulk-keys-that-are-soon-forgotten",
        RUN,
        "    if retention_s < RETENTION_MIN_S:\n",
        "    if retention_s < 0:\n",
        f"{_RUN}test_a_key_that_is_soon_forgotten_is_refused",
    ),
    _mutant(
        "B16",
        "bulk-silent-data-centre-counts-as-loaded",
        RUN,
        "        if is_over and silent:\n",
        "        if is_over and not sites:\n",
        f"{_RUN}test_masters_that_are_away_leave_it_open_which_workers_have_it",
    ),
    _mutant(
        "B16",
        "bulk-committed-parts-deleted",
        COMMANDS,
        '                if self._home.decide("abort", time.time()).decision == "abort":\n',
        '                if self._home.decide("abort", time.time()).decision:\n',
        f"{_COMMANDS}test_parts_of_a_committed_load_stay",
    ),
    _mutant(
        "B16",
        "bulk-late-entry-written",
        RUN,
        "    if left_s <= 0:\n",
        "    if left_s <= -1e9:\n",
        f"{_RUN}test_no_entry_is_written_whose_key_may_be_forgotten",
    ),
    _mutant(
        "B16",
        "bulk-entry-tried-beyond-its-key",
        RUN,
        "    until = time.monotonic() + min(APPEND_S, left_s)\n",
        "    until = time.monotonic() + APPEND_S\n",
        f"{_RUN}test_no_entry_is_written_whose_key_may_be_forgotten",
    ),
    _mutant(
        "B16",
        "bulk-late-load-continued",
        COMMANDS,
        "append_time_left(decision.at, _key_retention(setting)) > 0:\n",
        "append_time_left(decision.at, _key_retention(setting)) > -1e9:\n",
        f"{_COMMANDS}test_a_load_of_unknown_outcome_is_continued_while_its_key_is_known",
    ),
    _mutant(
        "B16",
        "bulk-key-known-a-thousand-times-too-long",
        COMMANDS,
        '["keyRetention"]) / 1000\n',
        '["keyRetention"])\n',
        f"{_COMMANDS}test_how_long_a_key_is_known_is_counted_in_seconds",
    ),
    _mutant(
        "B16",
        "bulk-outcome-not-noted",
        COMMANDS,
        "            self._home.write_outcome(outcome)\n",
        "",
        f"{_COMMANDS}test_where_a_load_is_in_the_log_is_noted_before_the_workers_are_waited_for",
    ),
    _mutant(
        "B18",
        "bulk-damaged-part-stays",
        COMMANDS,
        "        if reference is None or not self._has_sound_parts(reference):\n",
        "        if reference is None:\n",
        f"{_COMMANDS}test_a_damaged_part_is_written_again_from_the_same_files",
    ),
    _mutant(
        "B18",
        "bulk-files-share-blank-nodes",
        SOURCES,
        'f"{load}:{number}"',
        'f"{load}"',
        f"{_SOURCES}test_blank_nodes_are_of_one_file_of_one_load",
    ),
    _mutant(
        "B18",
        "bulk-loads-share-blank-nodes",
        SOURCES,
        'f"{load}:{number}"',
        'f"{number}"',
        f"{_SOURCES}test_blank_nodes_are_of_one_file_of_one_load",
    ),
    _mutant(
        "B18",
        "bulk-changed-source-taken",
        SOURCES,
        "        if hashed.hexdigest() != source.digest:\n",
        "        if not hashed.hexdigest():\n",
        f"{_SOURCES}test_a_file_that_changes_is_refused",
    ),
    _mutant(
        "B18",
        "bulk-source-system-names-taken",
        SOURCES,
        "    check_supported_terms(text)\n    return",
        "    return",
        f"{_SOURCES}test_what_is_no_rdf_is_named_with_its_place",
    ),
)
