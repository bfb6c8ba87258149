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
SEAL = "txlog/sites/link_seal.py"
SWITCHES = "txlog/sites/link_switches.py"
LAG = "txlog/sites/link_lag.py"
WORLD = "node/tests/sites/test_link_simulation.py::test_two_sites_end_equal_with_the_last_write_of_each_key"
BATCH_TEST = "node/tests/sites/test_batches.py::"
UPDATE_TEST = "node/tests/sites/test_link_update.py::"
LINK_TEST = "node/tests/server/test_site_links.py::"
TABLE_TEST = "node/tests/sites/test_version_table.py::"
SEAL_TEST = "node/tests/sites/test_link_seal.py::"
LAG_TEST = "node/tests/sites/test_link_lag.py::"
TRANSFER = "txlog/sites/transfer_steps.py"
TRANSFER_TEST = "node/tests/server/test_site_transfers.py::"
SPOOL_TEST = "node/tests/sites/test_state_spool.py::"
SWITCH_TEST = "node/tests/server/test_site_switches.py::"


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
        "    if begin < book.acknowledged:\n",
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
        "        if offer.change is not None and present == NO_VERSION:\n",
        "        if offer.change is not None:\n",
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
        "        bound = self.acknowledged\n",
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
        "        if not self._is_next(index, record, before, changes):\n            return None\n",
        "",
        f"{UPDATE_TEST}test_a_record_that_is_not_the_next_one_is_a_write_of_a_client",
    ),
    _mutant(
        "believes-any-numbers",
        "A7",
        BOOK,
        "        if not is_sound(record, added.names[0], self.kind, (self.site, self.other)):\n",
        "        if record.number < 0:\n",
        f"{UPDATE_TEST}test_a_record_that_is_not_the_next_one_is_a_write_of_a_client",
    ),
    _mutant(
        "record-covers-what-it-does-not-name",
        "A7",
        BOOK,
        "        return is_next and changes.keys() <= {each.key for each in record.keys}\n",
        "        return is_next\n",
        f"{UPDATE_TEST}test_what_a_client_writes_with_a_record_is_its_own_change",
    ),
    _mutant(
        "continues-the-link-of-another-cluster",
        "A17",
        BOOK,
        "            if self.link_index == 0 and record.site == self.other:\n",
        "            if self.link_index < 0:\n",
        f"{UPDATE_TEST}test_a_link_that_began_from_another_cluster_or_with_other_keys_is_not_continued",
    ),
    _mutant(
        "forged-cluster-stops-the-link",
        "A7",
        BOOK,
        "            if self.link_index == 0 and record.site == self.other:\n",
        "            if record.site == self.other:\n",
        f"{UPDATE_TEST}test_a_record_that_is_not_the_next_one_is_a_write_of_a_client",
    ),
    _mutant(
        "names-are-not-compared",
        "A17",
        "txlog/sites/link_agreement.py",
        "    if not matching:\n",
        "    if not matching and reports:\n        return True\n    if not matching:\n",
        "node/tests/sites/test_link_agreement.py::test_sites_that_do_not_list_one_another_are_named",
    ),
    _mutant(
        "keys-are-not-compared",
        "A17",
        "txlog/sites/link_agreement.py",
        '    if report.get("key", "") not in ("", identity.key):\n',
        '    if report.get("key", "") == "other":\n',
        "node/tests/sites/test_link_agreement.py::test_sites_that_do_not_list_one_another_are_named",
    ),
    _mutant(
        "begins-before-the-sites-agree",
        "A17",
        LINK,
        "        return self._is_agreed or mine.link_index > 0\n",
        "        return True\n",
        f"{LINK_TEST}test_what_a_link_cannot_go_on_with_is_named",
    ),
    _mutant(
        "writes-on-without-effect",
        "A7",
        LINK,
        "        if now < self._pause_until or self._voids.is_blocked(mine.touched):\n",
        "        if now < self._pause_until:\n",
        f"{LINK_TEST}test_a_record_of_a_client_is_in_the_way_until_it_is_dropped",
    ),
    _mutant(
        "reads-on-while-full",
        "A17",
        LINK,
        "            if self._is_full(book) and not self._can_cut(table):\n",
        "            if self._is_full(book):\n",
        f"{LINK_TEST}test_changes_that_were_read_are_imported_before_more_are_read",
    ),
    _mutant(
        "takes-any-line-of-a-site",
        "A17",
        "txlog/sites/peer_lines.py",
        "        if text != line or not _is_writable(quad):\n",
        "        if False:\n",
        "node/tests/sites/test_peer_lines.py::test_what_is_no_line_of_a_log_is_refused",
    ),
    _mutant(
        "takes-quads-of-other-keys",
        "A17",
        "txlog/sites/peer_lines.py",
        "        if key_of(line, kind) != key or not crosses_links(line):\n",
        "        if not crosses_links(line):\n",
        "node/tests/sites/test_peer_lines.py::test_a_value_holds_quads_of_its_key_alone",
    ),
    _mutant(
        "passing-error-discards-the-table",
        "A11",
        TABLE,
        '        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE_CODES\n',
        "        return True\n",
        f"{TABLE_TEST}test_an_error_that_passes_leaves_the_table_as_it_is",
    ),
    _mutant(
        "values-of-another-cluster",
        "A22",
        "txlog/server/feed/key_values.py",
        '        if wanted.cluster not in ("", cluster):\n',
        "        if wanted.index < 0:\n",
        f"{LINK_TEST}test_a_value_is_read_at_a_final_position_and_what_is_wrong_is_refused",
    ),
    _mutant(
        "blank-graphs-stay",
        "A5",
        "txlog/sites/keys.py",
        "    return not split_graph(line)[1].startswith(_OWN_GRAPHS)\n",
        '    return not split_graph(line)[1].startswith(b"<urn:txlog:")\n',
        "node/tests/sites/test_keys.py::test_a_graph_that_a_blank_node_names_crosses",
    ),
    _mutant(
        "passes-over-what-was-not-kept",
        "A17",
        BOOK,
        "        if entry.change.graphs and not self.awaits_anchor:\n",
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
    _mutant(
        "offline-without-a-seal",
        "A7",
        SEAL,
        "        return mine.last_step == StepKind.SEAL and mine.link_index > self._begin\n",
        "        return True\n",
    ),
    _mutant(
        "offline-by-an-earlier-seal",
        "A7",
        SEAL,
        " and mine.link_index > self._begin\n",
        "\n",
        f"{SEAL_TEST}test_a_seal_closes_the_link_that_was_read_up_to_where_it_was_taken_offline",
    ),
    _mutant(
        "offline-before-the-log-was-read",
        "A7",
        SEAL,
        "        if mine.index < self._begin or mine.awaits_anchor:\n",
        "        if mine.awaits_anchor:\n",
        f"{SEAL_TEST}test_without_a_record_nothing_can_take_effect_where_the_log_was_read",
    ),
    _mutant(
        "offline-seal-with-keys",
        "A7",
        BOOK,
        "        if record.step in (StepKind.SEAL, StepKind.END) and record.keys:\n",
        "        if record.step is StepKind.END and record.keys:\n",
        f"{SEAL_TEST}test_a_seal_imports_nothing_and_moves_no_cursor",
    ),
    _mutant(
        "switch-of-its-own-site-alone",
        "A7",
        SWITCHES,
        '        return self._there.name if self._is_offline_there else ""\n',
        '        return ""\n',
        f"{SWITCH_TEST}test_nothing_is_imported_while_a_site_is_offline_and_nothing_is_lost",
    ),
    _mutant(
        "switch-by-the-manifest-at-each-start",
        "A7",
        SWITCHES,
        "overview.manifest_offline(other) != wants:\n",
        "overview.is_offline(other) != wants:\n",
        f"{SWITCH_TEST}test_the_manifest_counts_when_it_changes",
    ),
    _mutant(
        "switch-of-any-name",
        "A7",
        "txlog/server/admin/site_links.py",
        "        if not wanted.by_manifest and name not in linked:\n",
        "        if not wanted.by_manifest and len(name) > 63:\n",
        f"{SWITCH_TEST}test_a_switch_is_an_entry_of_the_log_and_what_is_wrong_is_refused",
    ),
    _mutant(
        "lag-shrinks-while-the-site-is-silent",
        "A16",
        LAG,
        "            since = self._all_read_ms\n",
        "            since = now_ms\n",
        f"{LAG_TEST}test_a_site_that_does_not_answer_may_have_changes",
    ),
    _mutant(
        "lag-of-imports",
        "A16",
        BOOK,
        "        number = sum(1 for _ in self.changed_keys(after)) - len(imports)\n",
        "        number = sum(1 for _ in self.changed_keys(after))\n",
        f"{LAG_TEST}test_entries_of_clients_are_counted_and_imports_are_not",
    ),
    _mutant(
        "lag-of-the-last-report",
        "A16",
        "txlog/server/admin/site_reports.py",
        "            if ago_s > REPORT_EVERY_S:\n",
        "            if ago_s < 0:\n",
        f"{LINK_TEST}test_a_link_that_reports_nothing_more_is_silent",
    ),
    _mutant(
        "transfer-imports-meanwhile",
        "A15",
        BOOK,
        "        if self.needs or (self.is_taking and entry.at > self.anchor):\n",
        "        if self.needs:\n",
        f"{SEAL_TEST}test_no_batch_ends_within_a_transfer",
    ),
    _mutant(
        "transfer-overwrites-clients",
        "A15",
        TRANSFER,
        " for key in keys if present_version(mine, key) == NO_VERSION]",
        " for key in keys]",
    ),
    _mutant(
        "transfer-sends-net-changes",
        "A13",
        BATCHES,
        "    if changes[0].at <= book.whole_until:\n",
        "    if changes[0].at < 0:\n",
    ),
    _mutant(
        "transfer-forgets-what-the-copy-holds",
        "A15",
        DECISIONS,
        "        if not (wins(offer, present) or is_known_there):\n",
        "        if not wins(offer, present):\n",
    ),
    _mutant(
        "transfer-copies-before-the-reset",
        "A15",
        TRANSFER,
        "    return has_both and theirs.cursor == mine.anchor\n",
        "    return mine.anchor > 0\n",
    ),
    _mutant(
        "transfer-page-without-a-transfer",
        "A7",
        BOOK,
        "            is_next = is_next and self.is_taking\n",
        "            is_next = bool(is_next)\n",
        f"{SEAL_TEST}test_a_page_counts_in_a_transfer_only",
    ),
    _mutant(
        "transfer-torn-goes-on",
        "A15",
        TRANSFER,
        "    return _has_missed(mine, theirs) or _has_missed(theirs, mine)\n",
        "    return False\n",
        f"{SEAL_TEST}test_a_reset_after_the_copy_is_named",
    ),
    _mutant(
        "transfer-keeps-what-the-other-site-lacks",
        "A15",
        "txlog/sites/state_spool.py",
        "SELECT key FROM (SELECT key, line FROM here EXCEPT SELECT key, line FROM there)\n",
        "SELECT key FROM (SELECT key, line FROM there EXCEPT SELECT key, line FROM here)\n",
        f"{SPOOL_TEST}test_keys_that_differ_are_found_with_the_values_of_the_other_site",
    ),
    _mutant(
        "transfer-takes-half-a-state",
        "A17",
        "txlog/sites/state_lines.py",
        "    if not ended:\n",
        "    if count < 0:\n",
        f"{SPOOL_TEST}test_a_state_that_is_not_whole_is_refused",
    ),
    _mutant(
        "transfer-state-of-another-cluster",
        "A17",
        "txlog/server/feed/site_state.py",
        '        if cluster not in ("", here):\n',
        '        if cluster == "-":\n',
        f"{TRANSFER_TEST}test_a_state_is_of_one_final_position_and_what_is_wrong_is_refused",
    ),
    _mutant(
        "transfer-though-the-order-was-taken-back",
        "A15",
        "txlog/model/site_switch.py",
        "before._replace(take_at=index if order.takes else 0)",
        "before._replace(take_at=index)",
        "node/tests/model/test_site_switch.py::test_an_order_counts_until_it_is_taken_back",
    ),
)
