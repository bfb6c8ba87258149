"""Safeguards of links between two sites, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

BOOK = "txlog/sites/site_book.py"
BATCHES = "txlog/sites/batches.py"
DECISIONS = "txlog/sites/decisions.py"
UPDATE = "txlog/sites/link_update.py"
TABLE = "txlog/sites/version_table.py"
LINK = "txlog/sites/site_link.py"
WORLD = "node/tests/sites/test_link_simulation.py::test_two_sites_end_equal_with_the_last_write_of_each_key"
BATCH_TEST = "node/tests/sites/test_batches.py::"
UPDATE_TEST = "node/tests/sites/test_link_update.py::"
LINK_TEST = "node/tests/server/test_site_links.py::"
TABLE_TEST = "node/tests/sites/test_version_table.py::"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str = WORLD) -> Mutant:
    return Mutant(f"site-{name}", rule, False, (SourceEdit(file, old, new),), test=test)


SITE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "sends-what-it-imported",
        "A6",
        BATCHES,
        "    if version.site != book.site or not any(row.is_local for row in changes):\n        return None\n",
        "",
    ),
    _mutant("acknowledges-acknowledgements", "A6", BATCHES, "    if not touched:\n        return None\n", ""),
    _mutant(
        "batch-ends-where-a-key-waits", "A5", BOOK, "            if begin <= index <= end:\n", "            if False:\n"
    ),
    _mutant(
        "batch-from-forgotten-changes",
        "A8",
        BATCHES,
        "    if begin < book.heard:\n",
        "    if begin < 0:\n",
        f"{BATCH_TEST}test_no_batch_begins_where_changes_are_forgotten",
    ),
    _mutant(
        "net-change-over-an-import",
        "A13",
        BATCHES,
        "    if any(not row.is_local for row in changes):\n        return Offer(key, version, None)\n",
        "",
        f"{BATCH_TEST}test_a_key_that_was_imported_in_between_is_sent_whole",
    ),
    _mutant(
        "net-change-on-another-value",
        "A13",
        DECISIONS,
        "        change = offer.change if present == NO_VERSION else None\n",
        "        change = offer.change\n",
    ),
    _mutant("last-to-arrive-wins", "A9", DECISIONS, "    return offer.version >= present\n", "    return True\n"),
    _mutant(
        "own-write-wins",
        "A9",
        DECISIONS,
        "    return offer.version >= present\n",
        "    return present == NO_VERSION or (offer.version >= present and present.site == offer.version.site)\n",
    ),
    _mutant(
        "clock-ignores-the-other-site",
        "A9",
        BOOK,
        "            self.clock = max(self.clock, record.clock + 1)\n",
        "            self.clock = max(self.clock, 0)\n",
    ),
    _mutant(
        "forgets-by-its-own-log",
        "A8",
        BOOK,
        "        bound = self.heard\n",
        "        bound = self.link_index\n",
    ),
    _mutant(
        "sees-no-window",
        "A10",
        BOOK,
        "            if last is None or last.at <= record.decided:\n",
        "            if last is None or last.at < index:\n",
    ),
    _mutant(
        "ignores-what-waits",
        "A10",
        DECISIONS,
        "    return version if need is None else max(version, need.version)\n",
        "    return version\n",
        f"{BATCH_TEST}test_an_older_write_does_not_beat_a_value_that_waits",
    ),
    _mutant(
        "window-keeps-the-import",
        "A10",
        BOOK,
        "            if last.version > item.version:\n",
        "            if last.version > item.version and last.at < 0:\n",
    ),
    _mutant(
        "corrects-nothing",
        "A10",
        DECISIONS,
        "    if mine.needs and (",
        "    if mine.record is None and mine.needs and (",
    ),
    _mutant(
        "entry-without-its-condition",
        "A7",
        UPDATE,
        'f"{each} WHERE {{ {there} }}"',
        'f"{each} WHERE {{ }}"',
        f"{UPDATE_TEST}test_an_entry_counts_after_the_one_before_it_and_once",
    ),
    _mutant(
        "begins-over-a-record",
        "A7",
        UPDATE,
        " {absent} }}",
        " }}",
        f"{UPDATE_TEST}test_a_record_that_a_client_takes_away_is_begun_again",
    ),
    _mutant(
        "believes-any-record",
        "A7",
        BOOK,
        "        if not is_next or record.site != self.other:\n",
        "        if record.site != self.other:\n",
        f"{UPDATE_TEST}test_a_record_that_is_not_the_next_one_is_refused",
    ),
    _mutant(
        "passes-over-what-was-not-kept",
        "A17",
        BOOK,
        "        if entry.change.graphs:\n",
        "        if entry.change.graphs and entry.at < 0:\n",
        f"{UPDATE_TEST}test_a_change_that_was_too_large_to_be_kept_needs_a_copy",
    ),
    _mutant(
        "table-forgets-what-waits",
        "A11",
        TABLE,
        '        many("INSERT INTO need VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _need_rows(book, keys))\n',
        "",
        f"{TABLE_TEST}test_books_are_as_they_were_saved",
    ),
    Mutant(
        "site-table-is-saved-in-parts",
        "A11",
        False,
        (
            SourceEdit(TABLE, '        self._connection.execute("BEGIN IMMEDIATE")\n        try:\n', "        try:\n"),
            SourceEdit(TABLE, '            self._connection.execute("COMMIT")\n', ""),
        ),
        test=f"{TABLE_TEST}test_a_kill_at_each_statement_leaves_a_whole_table",
    ),
    _mutant(
        "imports-ahead-of-time",
        "A9",
        LINK,
        "        if ahead_ms > self._config.max_clock_skew_ms:\n",
        "        if ahead_ms > 1 << 60:\n",
        f"{LINK_TEST}test_a_site_whose_clock_is_ahead_is_waited_for",
    ),
    _mutant(
        "value-of-another-position",
        "A22",
        "txlog/sites/key_values.py",
        "    _take_back(present, after, request.kind)\n",
        "",
        "node/tests/sites/test_key_values.py::test_a_value_is_what_the_key_had_at_the_position",
    ),
)
