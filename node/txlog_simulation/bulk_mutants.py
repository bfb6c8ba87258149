"""Safeguards of bulk loads, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

LANE = "txlog/pipeline/bulk_lane.py"
FILES = "txlog/bulk/load_files.py"
WRITER = "txlog/bulk/load_writer.py"
RUN = "txlog/bulk/load_run.py"
DOOR = "txlog/server/admin/bulk_loads.py"
SOURCES = "txlog/cli/bulk_sources.py"
OPERATIONS = "txlog/apply/entry_operations.py"
_LANES = "node/tests/pipeline/test_bulk_lanes.py::"
_FILES = "node/tests/bulk/test_load_files.py::"
_RUN = "node/tests/bulk/test_load_run.py::"
_SOURCES = "node/tests/cli/test_bulk_sources.py::"


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
        "bulk-aborted-load-written",
        RUN,
        '    if home.decide("commit", time.time()).decision != "commit":\n',
        '    if home.decide("commit", time.time()).decision == "":\n',
        f"{_RUN}test_an_aborted_load_is_not_written",
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
        "            unknown += [_unknown(site, worker) for worker in found.workers if worker.bulk is None]\n",
        "",
        f"{_RUN}test_each_pipeline_has_to_say_that_it_knows_bulk_loads",
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
        "B16",
        "bulk-aborted-load-continued",
        "txlog/cli/bulk_commands.py",
        ' or (decision is not None and decision.decision == "abort"):\n',
        ":\n",
        "node/tests/cli/test_bulk_commands.py::test_an_aborted_load_is_not_continued",
    ),
    _mutant(
        "B16",
        "bulk-starved-store-counts-as-idle",
        "txlog/local/store_activity.py",
        "        return sorted(busy | {name for name, pid in self._pids.items() if self._has_work(pid)})\n",
        "        return []\n",
        "node/tests/local/test_store_activity.py::test_what_computes_is_busy",
    ),
    # B17: none or all, and nothing behind the marker
    _mutant(
        "B17",
        "bulk-end-before-its-mark",
        LANE,
        "        if not self._replace(due.expected, mark):\n",
        "        body.end()\n        if not self._replace(due.expected, mark):\n",
        f"{_LANES}test_the_mark_is_in_the_worker_before_the_body_is_ended",
    ),
    _mutant(
        "B17",
        "bulk-takeover-without-a-restart",
        LANE,
        "        if not self._witness.has_ended(self._adapter.is_loading(mark)):\n",
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
        "        if wanted is None or self.why_not() is not None:\n",
        "        if self.why_not() is not None:\n",
        f"{_LANES}test_what_nobody_asks_for_any_more_is_given_up",
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
