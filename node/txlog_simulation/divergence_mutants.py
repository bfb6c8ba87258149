"""Safeguards of the comparison of workers by cells, one each taken out. Imports nothing of ``txlog``.

No simulated worker has a store whose content can differ, so that tests kill them.
"""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

CELLS = "txlog/divergence/cells.py"
WRITTEN = "txlog/divergence/written_cells.py"
SCHEDULE = "txlog/divergence/cell_schedule.py"
LIST = "txlog/divergence/cell_list.py"
DETECTOR = "txlog/divergence/detector.py"
LOG = "txlog/pipeline/written_log.py"
ROWS = "txlog/workers/cell_rows.py"
SCANNER = "txlog/pipeline/cell_scanner.py"
_READINGS = "node/tests/divergence/test_cells.py::"
_RANDOM = _READINGS + "test_workers_that_executed_the_same_log_never_differ"
_ORDER = "node/tests/divergence/test_cell_schedule.py::"
_STORES = "node/tests/server/test_cell_scanner.py::"
_READER = "node/tests/workers/test_cell_reader.py::"
_ODD = "node/tests/pipeline/test_odd_answers.py::"
_JUDGING = "node/tests/divergence/test_judging.py::"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"cells-{name}", rule, True, (SourceEdit(file, old, new),), test=test)


DIVERGENCE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "a-text-writes-nothing",
        "C16",
        LOG,
        "            yield from find_text_writes(effect.payload)\n",
        "            continue\n",
        _RANDOM,
    ),
    _mutant(
        "a-write-is-forgotten",
        "C16",
        WRITTEN,
        "return index >= self.floor and (index == at or self.last_write(cell) <= index)",
        "return index >= self.floor",
        _RANDOM,
    ),
    _mutant(
        "a-gap-wrote-nothing",
        "C16",
        WRITTEN,
        "return index >= self.floor and (index == at or",
        "return (index == at or",
        _READINGS + "test_what_came_before_the_followed_log_never_counts",
    ),
    _mutant(
        "any-graph-is-no-graph",
        "C16",
        WRITTEN,
        "                self._by_predicate[predicate] = self._in_any_graph = index\n",
        "                self._in_any_graph = index\n",
        _READINGS + "test_a_reading_counts_until_an_entry_may_have_written_to_its_cell",
    ),
    _mutant(
        "another-branch-is-compared",
        "C16",
        CELLS,
        "return is_before_all or self._written.hash_at(reading.log_index) == reading.hash",
        "return True",
        _READINGS + "test_a_reading_that_is_not_on_the_followed_log_proves_nothing",
    ),
    _mutant(
        "a-repair-is-a-change",
        "C16",
        CELLS,
        "if was is None or was.fence != reading.fence or was.content == reading.content:",
        "if was is None or was.content == reading.content:",
        _READINGS + "test_a_worker_that_changed_without_a_write_is_the_wrong_one",
    ),
    _mutant(
        "counts-alone",
        "C17",
        CELLS,
        "        return self.quads, self.total\n",
        "        return self.quads, 0\n",
        _STORES + "test_one_quad_exchanged_in_a_cell_that_nothing_touches_is_found_within_a_pass",
    ),
    _mutant(
        "only-what-is-touched",
        "C17",
        SCHEDULE,
        '        self._queue.extend(sorted(self._cells, key=lambda cell: (cell.graph, cell.predicate or "")))\n',
        "        self._queue.extend(cell for cell in self._cells if self._cells[cell].read_at is None)\n",
        _STORES + "test_one_quad_exchanged_in_a_cell_that_nothing_touches_is_found_within_a_pass",
    ),
    _mutant(
        "touched-waits-for-its-pass",
        "C17",
        SCHEDULE,
        "        return self._group(due, is_urgent=True) if due else None\n",
        "        return None\n",
        _STORES + "test_a_difference_in_a_cell_that_entries_touch_is_found_within_a_minute",
    ),
    _mutant(
        "a-hot-cell-is-always-read",
        "C17",
        SCHEDULE,
        "return due if state.read_at is None else max(due, state.read_at + pause_s)",
        "return due",
        _ORDER + "test_a_cell_that_is_written_all_the_time_is_read_once_in_a_while_and_in_time",
    ),
    _mutant(
        "what-differs-waits-like-what-is-written",
        "C17",
        SCHEDULE,
        "pause_s = SUSPECT_REREAD_S if state.is_suspect and state.quads <= SUSPECT_QUADS else REREAD_S",
        "pause_s = REREAD_S",
        _ORDER + "test_a_cell_that_differs_is_read_again_until_it_does_not",
    ),
    _mutant(
        "a-large-cell-that-differs-is-always-read",
        "C17",
        SCHEDULE,
        "pause_s = SUSPECT_REREAD_S if state.is_suspect and state.quads <= SUSPECT_QUADS else REREAD_S",
        "pause_s = SUSPECT_REREAD_S if state.is_suspect else REREAD_S",
        _ORDER + "test_a_large_cell_that_differs_is_read_as_seldom_as_a_written_one",
    ),
    _mutant(
        "sums-wait-for-the-end-of-a-finding",
        "C17",
        SCANNER,
        "            if self.schedule.is_up_to_date and not any(self._differing.values()):\n",
        "            if self.schedule.is_settled:\n",
        _STORES + "test_other_data_centres_see_that_a_store_holds_again_what_it_held",
    ),
    _mutant(
        "a-change-stays-wrong-though-sums-are-equal",
        "C16",
        DETECTOR,
        "            self._end_what_sums_contradict(group)\n",
        "",
        _JUDGING + "test_a_cell_that_changed_outside_the_log_is_no_finding_once_the_sums_are_equal_again",
    ),
    _mutant(
        "equal-sums-of-before-end-a-finding",
        "C16",
        DETECTOR,
        'next((look for look in reversed(subject.digests) if look.kind != "counts"), None)',
        'next((look for look in reversed(subject.digests) if look.kind == "sums"), None)',
        _JUDGING + "test_a_cell_that_changed_outside_the_log_is_no_finding_once_the_sums_are_equal_again",
    ),
    _mutant(
        "written-cells-first-always",
        "C17",
        SCANNER,
        "        if is_pass_due and self._owed_s > 0:\n",
        "        if is_pass_due and self._owed_s < 0:\n",
        _STORES + "test_a_pass_goes_on_while_more_is_written_than_can_be_read_in_time",
    ),
    _mutant(
        "never-paused",
        "C16",
        SCHEDULE,
        "        aligned = self._cells[cells[0]].misses >= MISSES_MAX\n",
        "        aligned = self._cells[cells[0]].misses > 1000\n",
        _STORES + "test_a_cell_that_never_rests_is_compared_with_workers_paused_at_one_index",
    ),
    _mutant(
        "new-cells-are-not-listed",
        "C17",
        SCANNER,
        "                self.schedule.add_listed(found)\n",
        "",
        _STORES + "test_a_quad_of_a_new_predicate_is_found_in_a_store_alone",
    ),
    _mutant(
        "a-new-cell-was-there-before",
        "C16",
        CELLS,
        "was = before.get(name) or self._listed_before.find_empty(name, cell)",
        "was = before.get(name)",
        _STORES + "test_a_quad_of_a_new_predicate_is_found_in_a_store_alone",
    ),
    _mutant(
        "a-large-graph-in-one-query",
        "C17",
        LIST,
        "        if sum(found.values()) >= LIST_QUADS:\n",
        "        if sum(found.values()) > 10 * LIST_QUADS:\n",
        _READINGS + "test_a_listing_asks_for_large_graphs_alone_and_in_parts",
    ),
    _mutant(
        "rows-as-they-come",
        "C16",
        ROWS,
        '        if start == b"\\t" or _ODD.search(rows) is None:\n',
        "        if True:\n",
        _READER + "test_cells_have_the_sums_of_a_reading_of_everything",
    ),
    _mutant(
        "cells-are-mixed",
        "C16",
        DETECTOR,
        "    mine = [each for each in looks if each.scope == look.scope]\n",
        "    mine = [each for each in looks if each.kind == look.kind]\n",
        "node/tests/server/test_divergence.py::test_a_difference_is_named_by_cell",
    ),
    _mutant(
        "a-finding-of-before-is-forgotten",
        "C16",
        SCANNER,
        "                    self.schedule.suspect(cell, now)\n",
        "                    pass\n",
        _STORES + "test_a_finding_from_before_a_restart_of_the_pipeline_ends",
    ),
    _mutant(
        "a-failed-read-counts",
        "C17",
        SCANNER,
        "            self.schedule.on_failed(read, self._clock())\n",
        "",
        _STORES + "test_no_pass_ends_while_no_store_answers",
    ),
    _mutant(
        "added-predicates-wait",
        "C17",
        LOG,
        "find_additions(entry) if is_wide else ()",
        "()",
        _STORES + "test_cells_that_a_text_adds_are_compared_soon",
    ),
    _mutant(
        "what-a-listing-showed-was-empty",
        "C16",
        CELLS,
        "return None if is_shown else self.begun.get(worker)",
        "return self.begun.get(worker)",
        _STORES + "test_nothing_differs_where_cells_become_graphs",
    ),
    _mutant(
        "predicates-stay-beside-their-graphs",
        "C16",
        SCANNER,
        "            readings.forget_predicates()\n",
        "",
        _STORES + "test_nothing_differs_where_cells_become_graphs",
    ),
    _mutant(
        "an-error-ends-the-comparison",
        "C16",
        SCANNER,
        "            except Exception:  # a bug must not end the comparison\n",
        "            except KeyError:\n",
        _ODD + "test_no_error_ends_a_comparison[cells]",
    ),
    _mutant(
        "a-part-of-an-answer-is-one",
        "C16",
        "txlog/workers/sparql_http.py",
        ' or not response.body.endswith(b"\\r\\n")',
        "",
        _ODD + "test_no_parser_takes_it_for_an_answer",
    ),
    _mutant(
        "a-part-of-a-row-is-left-out",
        "C16",
        ROWS,
        "        if rest or is_first:\n",
        "        if False:\n",
        _ODD + "test_no_parser_takes_it_for_an_answer",
    ),
)
