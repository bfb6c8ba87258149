"""Safeguards of bulk loads, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

LANE = "txlog/pipeline/bulk_lane.py"
FILES = "txlog/bulk/load_files.py"
WRITER = "txlog/bulk/load_writer.py"
DOOR = "txlog/server/admin/bulk_loads.py"
BODY = "txlog/bulk/held_body.py"
ROUNDS = "txlog/pipeline/bulk_rounds.py"
BATCH = "txlog/pipeline/batch/catch_up.py"
OPERATIONS = "txlog/apply/entry_operations.py"
_LANES = "node/tests/pipeline/test_bulk_lanes.py::"
_INTERRUPTIONS = "node/tests/pipeline/test_bulk_interruptions.py::"
_COMMANDS = "node/tests/cli/test_bulk_commands.py::"
_FILES = "node/tests/bulk/test_load_files.py::"
_RUN = "node/tests/bulk/test_load_run.py::"


def _mutant(rule: str, name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, rule, False, (SourceEdit(file, old, new),), test=test)


BULK_MUTANTS: tuple[Mutant, ...] = (
    # B16: the entry only when every data centre has read back every part, and no command aborted
    _mutant(
        "B16",
        "bulk-copy-not-read-back",
        WRITER,
        "to.unfold_part(part, to.read_part(part))",
        "to.unfold_part(part, home.read_part(part))",
        f"{_FILES}test_a_copy_is_read_back_before_it_is_complete",
    ),
    _mutant(
        "B16",
        "bulk-last-decision-counts",
        FILES,
        "        return first\n",
        "        return LoadDecision(wanted, at)\n",
        f"{_FILES}test_the_first_decision_stands",
    ),
    _mutant(
        "B16",
        "bulk-entry-without-a-key",
        DOOR,
        "        key, payload = bulk_key(load.id), encode_bulk_load(load)\n",
        '        key, payload = "", encode_bulk_load(load)\n',
        f"{_RUN}test_the_entry_is_written_once_however_often_it_is_asked_for",
    ),
    _mutant(
        "B16",
        "bulk-asked-for-ever",
        DOOR,
        "        if self._wanted is not None and time.monotonic() > self._wanted_until:\n",
        "        if self._wanted is not None and time.monotonic() > self._wanted_until + 1e9:\n",
        f"{_RUN}test_a_load_is_prepared_for_as_long_as_it_is_asked_for",
    ),
    _mutant(
        "B16",
        "bulk-where-workers-leave-the-order",
        DOOR,
        '        if "None" in (status.settings.strategy, view.strategy if view is not None else ""):\n',
        '        if "none" in (status.settings.strategy, view.strategy if view is not None else ""):\n',
        f"{_RUN}test_clusters_that_take_none",
    ),
    _mutant(
        "B18",
        "bulk-earlier-failure-counts",
        DOOR,
        "            self._forget_failures()\n",
        "            pass\n",
        f"{_RUN}test_a_failure_of_an_earlier_attempt_is_forgotten",
    ),
    _mutant(
        "B17",
        "bulk-hanging-store-read-while-a-load-lands",
        LANE,
        "            self._is_marked(self._mark)\n            return self._due.waiting()\n",
        "            return self._due.waiting()\n",
        f"{_INTERRUPTIONS}test_a_store_that_answers_nothing_while_a_load_lands_is_not_read",
    ),
    _mutant(
        "B16",
        "bulk-keys-of-clients",
        "txlog/http/write_options.py",
        "    if key.startswith(BULK_KEY_PREFIX):\n",
        "    if key == BULK_KEY_PREFIX:\n",
        f"{_RUN}test_no_client_has_a_key_of_a_load",
    ),
    # B17: none or all, and nothing behind the marker
    _mutant(
        "B17",
        "bulk-end-before-its-mark",
        LANE,
        "        refused = self._replace(due.expected, mark)\n",
        "        body.end()\n        refused = self._replace(due.expected, mark)\n",
        f"{_LANES}test_the_mark_is_in_the_worker_before_the_body_is_ended",
    ),
    _mutant(
        "B17",
        "bulk-takeover-without-a-restart",
        LANE,
        "        if not self._has_ended:\n",
        "        if mark is None:\n",
        f"{_LANES}test_nothing_of_a_load_lands_behind_its_marker",
    ),
    _mutant(
        "B17",
        "bulk-marker-before-the-answer",
        LANE,
        "        if phase is BodyPhase.LANDED:\n",
        "        if phase in (BodyPhase.LANDED, BodyPhase.CLOSED):\n",
        f"{_LANES}test_a_store_that_ends_while_a_load_lands_gets_it_again",
    ),
    _mutant(
        "B17",
        "bulk-restore-beside-a-landing-load",
        "txlog/backup/dataset_load.py",
        "        if any(may_land(each) for each in found.system.loading):\n",
        "        if any(may_land(each) for each in ()):\n",
        f"{_LANES}test_restores_and_batches_leave_a_worker_alone_whose_load_may_land",
    ),
    _mutant(
        "B17",
        "bulk-batch-over-a-landing-load",
        "txlog/pipeline/batch/catch_up.py",
        "        if start.interrupted is not None and may_land(start.interrupted):\n",
        "        if start.interrupted is not None and not start.interrupted:\n",
        f"{_LANES}test_restores_and_batches_leave_a_worker_alone_whose_load_may_land",
    ),
    _mutant(
        "B17",
        "bulk-load-among-others",
        OPERATIONS,
        "        if end > at and (size > bytes_max or find_bulk_load(entries[end]) is not None):\n",
        "        if end > at and size > bytes_max:\n",
        f"{_LANES}test_a_load_that_nobody_prepared_is_in_at_its_place",
    ),
    _mutant(
        "B17",
        "bulk-load-as-an-update",
        OPERATIONS,
        "    if find_bulk_load(entry) is not None:\n",
        "    if find_bulk_load(entry) is not None and not entry.payload:\n",
        f"{_LANES}test_a_load_may_be_the_first_entry",
    ),
    _mutant(
        "B17",
        "bulk-slow-store-has-ended",
        BODY,
        "            self.close()\n            return False\n        self._used_at",
        "            self.close()\n            return True\n        self._used_at",
        f"{_INTERRUPTIONS}test_a_slow_store_has_not_ended",
    ),
    _mutant(
        "B17",
        "bulk-slow-connection-used-again",
        BODY,
        "            self.close()\n            return False\n        self._used_at",
        "            return False\n        self._used_at",
        f"{_INTERRUPTIONS}test_a_slow_store_has_not_ended",
    ),
    _mutant(
        "B17",
        "bulk-new-process-for-the-old-one",
        BODY,
        "        self._connection, self._used_at = connection, time.monotonic()\n        return False\n",
        "        self._connection, self._used_at = connection, time.monotonic()\n        return True\n",
        f"{_INTERRUPTIONS}test_a_slow_store_has_not_ended",
    ),
    _mutant(
        "B17",
        "bulk-any-fault-ends-a-store",
        BODY,
        "        except (ConnectionError, http.client.IncompleteRead) as closed:\n",
        "        except (OSError, http.client.HTTPException) as closed:\n",
        f"{_INTERRUPTIONS}test_only_a_connection_that_ends_shows_the_end_of_a_store",
    ),
    _mutant(
        "B17",
        "bulk-batch-over-a-landed-load",
        BATCH,
        "        if not may_be_landed(mark):\n",
        "        if mark.token >= 0:\n",
        f"{_INTERRUPTIONS}test_a_load_that_may_be_in_is_repeated_without_a_restart",
    ),
    _mutant(
        "B17",
        "bulk-skipped-load-passed-over",
        BATCH,
        "entry.noop == NOOP_SKIP",
        'entry.noop == ""',
        f"{_INTERRUPTIONS}test_a_repeated_load_heeds_pauses_and_skips",
    ),
    _mutant(
        "B17",
        "bulk-repeated-without-the-log",
        ROUNDS,
        "        if self._find_load(mark) is None:\n            return self._lane.leave()\n",
        "",
        f"{_INTERRUPTIONS}test_a_repeated_load_heeds_pauses_and_skips",
    ),
    _mutant(
        "B17",
        "bulk-repeated-in-a-pause",
        ROUNDS,
        "may_end=upto >= mark.position.index",
        "may_end=True",
        f"{_INTERRUPTIONS}test_a_repeated_load_heeds_pauses_and_skips",
    ),
    _mutant(
        "B17",
        "bulk-repeated-load-taken-back",
        LANE,
        "        if due.repeats or due.since == EMPTY_MARKER:\n",
        "        if due.since == EMPTY_MARKER:\n",
        f"{_INTERRUPTIONS}test_a_repeated_load_that_is_refused_may_still_be_in",
    ),
    _mutant(
        "B17",
        "bulk-unknown-position-is-empty",
        ROUNDS,
        "            if at is None and entry.index != 1:\n",
        "            if at is None and entry.index == 0:\n",
        f"{_INTERRUPTIONS}test_an_unknown_position_is_not_an_empty_worker",
    ),
    # B18: before the decision nothing has happened, and nothing else is taken for a load's own
    _mutant(
        "B18",
        "bulk-part-believed",
        FILES,
        "        if len(data) != part.bytes or sha256(data).hexdigest() != part.sha256:\n",
        "        if not data:\n",
        f"{_LANES}test_a_damaged_part_blocks_and_is_named",
    ),
    _mutant(
        "B18",
        "bulk-damaged-copy-stays",
        WRITER,
        " and not to.discard_damaged(part):\n",
        " and not part:\n",
        f"{_FILES}test_a_damaged_copy_is_made_again",
    ),
    _mutant(
        "B18",
        "bulk-errors-without-names",
        "txlog/cli/main.py",
        "    is_listed = type(error).__module__ == bulk_errors.__name__\n",
        "    is_listed = not error\n",
        f"{_COMMANDS}test_an_error_is_shown_by_the_name_that_the_page_lists",
    ),
    _mutant(
        "B18",
        "bulk-manifest-believed",
        FILES,
        "        if sha256(data).hexdigest() != reference.manifest:\n",
        "        if not data:\n",
        f"{_FILES}test_a_manifest_that_is_not_the_one_of_the_entry",
    ),
    _mutant(
        "B18",
        "bulk-manifest-of-another-load",
        FILES,
        "        if (found.id, found.cluster, found.format) != (self.load, self.cluster, FORMAT):\n",
        "        if found.format != FORMAT:\n",
        f"{_FILES}test_a_manifest_of_something_else",
    ),
    _mutant(
        "B18",
        "bulk-system-graphs-believed",
        WRITER,
        "    check_supported_terms(lines)\n",
        "",
        f"{_FILES}test_what_no_worker_may_hold_is_found_again",
    ),
    _mutant(
        "B18",
        "bulk-canonical-believed",
        WRITER,
        "    if same != lines:\n",
        "    if not same:\n",
        f"{_FILES}test_what_no_worker_may_hold_is_found_again",
    ),
    _mutant(
        "B18",
        "bulk-body-kept-for-ever",
        LANE,
        "        if self._load != wanted:\n",
        "        if wanted is not None and self._load != wanted:\n",
        f"{_LANES}test_what_nobody_asks_for_any_more_is_given_up",
    ),
    _mutant(
        "B18",
        "bulk-refused-mark-hidden",
        LANE,
        "if result is ApplyResult.REFUSED else",
        "if result is ApplyResult.CONTENDED else",
        f"{_INTERRUPTIONS}test_a_mark_that_the_store_refuses_is_named",
    ),
    _mutant(
        "B18",
        "bulk-dead-owner-waited-for",
        LANE,
        "        if self._lock is None or self._lock[0] != expected:\n",
        "        if self._lock is None or self._lock[0] is not None:\n",
        f"{_INTERRUPTIONS}test_the_lock_of_a_dead_applier_is_taken_over",
    ),
    _mutant(
        "B18",
        "bulk-asked-by-a-dead-master",
        "txlog/pipeline/progress_reporter.py",
        "    since = time.monotonic() - BULK_ASK_S\n",
        "    since = 0.0\n",
        f"{_INTERRUPTIONS}test_a_master_that_does_not_answer_asks_for_nothing_after_a_while",
    ),
    _mutant(
        "B18",
        "bulk-filler-without-a-limit",
        BODY,
        "missing if is_worth_it and missing * len(line) <= FILL_BYTES_MAX else 0",
        "missing if is_worth_it else 0",
        f"{_INTERRUPTIONS}test_a_last_batch_is_filled_up_by_its_shortest_line",
    ),
    _mutant(
        "B18",
        "bulk-dropped-body-goes-on",
        BODY,
        "                        self._connection.sock.shutdown(socket.SHUT_RDWR)\n",
        "                        self._connection.sock.close()\n",
        f"{_INTERRUPTIONS}test_a_body_that_is_dropped_ends_its_thread",
    ),
    _mutant(
        "B18",
        "bulk-folder-without-a-request",
        FILES,
        '    names = {key[0] for key in keys if key[1:] == ["request.json"]}\n',
        "    names = {key[0] for key in keys}\n",
        f"{_FILES}test_a_folder_without_its_request_is_no_load",
    ),
)
