"""Safeguards of further logs (R1, R2, R7), one each taken out. Imports nothing of ``txlog``. A test kills each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_SERVER = "txlog/server"
_LINK = f"{_SERVER}/peers/peer_link.py"
_ROUTER = f"{_SERVER}/peers/envelope_router.py"
_FURTHER = f"{_SERVER}/further_logs.py"
_OPENER = f"{_SERVER}/log_opener.py"
_FOLDERS = f"{_SERVER}/log_folders.py"
_RULES = f"{_SERVER}/system_log_rules.py"
_LINKS_TEST = "node/tests/server/test_log_links.py"
_FOLDERS_TEST = "node/tests/server/test_log_folders.py"
_SEVERAL = "node/tests/server/test_several_repositories.py"
_ENTRIES = "node/tests/system/test_system_entries.py"
_FAULTS = "node/tests/server/test_further_log_faults.py"
_OPENER_TEST = "node/tests/server/test_log_opener.py"
_WANTED_TEST = "node/tests/server/test_wanted_repositories.py"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"logs-{name}", rule, True, (SourceEdit(file, old, new),), test=test)


LOG_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "envelope-in-an-envelope",
        "R1",
        "txlog/wire/envelope.py",
        "    if message[0] == ENVELOPE_FORMAT:\n",
        "    if False:\n",
        "node/tests/wire/test_envelopes.py",
    ),
    _mutant(
        "envelope-of-log-0",
        "R1",
        "txlog/wire/envelope.py",
        "format_byte != ENVELOPE_FORMAT or not number",
        "format_byte != ENVELOPE_FORMAT",
        "node/tests/wire/test_envelopes.py",
    ),
    _mutant(
        "older-program-gets-envelopes",
        "27",
        _LINK,
        "        if number and connection.link_level < LEVEL_ENVELOPES:\n",
        "        if False:\n",
        f"{_LINKS_TEST}::test_what_waited_for_a_peer_that_came_back_older_is_dropped",
    ),
    _mutant(
        "first-log-sends-before-the-others",
        "R1",
        _LINK,
        "            if queue:\n                self._turns.append(number)\n",
        "            if queue:\n                self._turns.appendleft(number)\n",
        f"{_LINKS_TEST}::test_logs_send_in_turn_what_waited",
    ),
    _mutant(
        "queue-of-a-further-log-has-no-end",
        "R1",
        _LINK,
        "while len(queue) > 1 and (len(queue) > most",
        "while len(queue) > 1 and (len(queue) > 1 << 20",
        f"{_LINKS_TEST}::test_each_further_log_keeps_a_bounded_queue",
    ),
    _mutant(
        "any-log-takes-the-message",
        "R1",
        _ROUTER,
        "self._receivers.get(number)",
        "next(iter(self._receivers.values()), None)",
        f"{_LINKS_TEST}::test_a_message_goes_to_the_log_that_its_envelope_names",
    ),
    _mutant(
        "removed-log-is-unknown",
        "R1",
        _ROUTER,
        "self._closed.get(number, DropReason.UNKNOWN_LOG)",
        "DropReason.UNKNOWN_LOG",
        f"{_LINKS_TEST}::test_a_message_goes_to_the_log_that_its_envelope_names",
    ),
    _mutant(
        "first-create-beside-an-older-program",
        "27",
        _RULES,
        "        if older:\n",
        "        if False:\n",
        f"{_SEVERAL}::test_the_first_create_needs_every_master_and_its_program",
    ),
    _mutant(
        "first-create-without-all-masters",
        "R7",
        _RULES,
        "        if away or not self._host.first.context.is_ready:\n",
        "        if False:\n",
        f"{_SEVERAL}::test_the_first_create_needs_every_master_and_its_program",
    ),
    _mutant(
        "failed-log-ends-the-process",
        "R2",
        _FURTHER,
        "        if isinstance(error, JournalBroken):\n",
        "        if True:\n",
        f"{_SEVERAL}::test_a_log_that_fails_is_closed_alone",
    ),
    _mutant(
        "masters-of-one-log-change",
        "R7",
        f"{_SERVER}/admin/configuration.py",
        "        if self._context.fixed_masters():\n",
        "        if False:\n",
        f"{_SEVERAL}::test_masters_are_fixed_while_there_are_several",
    ),
    _mutant(
        "older-folder-is-taken",
        "R7",
        _OPENER,
        "        if before.is_older(recovered.birth, recovered.start):\n",
        "        if False:\n",
        f"{_OPENER_TEST}::test_an_older_journal_stays_refused_and_the_listed_one_opens",
    ),
    _mutant(
        "older-folder-is-taken-later",
        "R7",
        _FOLDERS,
        " or self.start <= self.refused >= start - 1",
        "",
        f"{_OPENER_TEST}::test_an_older_journal_stays_refused_and_the_listed_one_opens",
    ),
    _mutant(
        "lost-folder-founds-again",
        "R7",
        _OPENER,
        '"last_seen": self.folders.last_seen(number)',
        '"last_seen": None',
        f"{_FAULTS}::test_a_lost_folder_is_noticed_at_each_start",
    ),
    _mutant(
        "lost-folder-founds-again-later",
        "R7",
        _OPENER,
        "        if recovered.accepted is None and before.birth not in (0, recovered.birth):\n",
        "        if False:\n",
        f"{_OPENER_TEST}::test_a_lost_journal_stays_known_until_the_log_is_learnt",
    ),
    _mutant(
        "view-1-is-written-again",
        "R7",
        _OPENER,
        "        if self.folders.logs[record.number].birth or not _is_empty(recovered):\n",
        "        if False:\n",
        f"{_OPENER_TEST}::test_view_1_is_written_once",
    ),
    _mutant(
        "master-outside-of-the-founding-founds",
        "R7",
        _OPENER,
        "        elif recovered.accepted is None:\n",
        "        elif False:\n",
        f"{_OPENER_TEST}::test_a_master_that_the_founding_does_not_name_founds_nothing",
    ),
    _mutant(
        "journal-of-another-cluster",
        "R7",
        _OPENER,
        "        if accepted is not None and accepted.cluster_id != record.cluster_id:\n",
        "        if False:\n",
        f"{_OPENER_TEST}::test_a_journal_of_another_cluster_is_refused",
    ),
    _mutant(
        "new-log-in-any-journal",
        "R7",
        _OPENER,
        "        if not _is_empty(storage.recovered):\n",
        "        if False:\n",
        f"{_OPENER_TEST}::test_a_new_log_takes_no_journal_that_has_a_log",
    ),
    _mutant(
        "open-log-of-another-cluster",
        "R7",
        _FURTHER,
        "            if found and found != named:\n",
        "            if False:\n",
        f"{_FAULTS}::test_an_open_log_of_another_cluster_is_closed",
    ),
    _mutant(
        "log-without-a-record",
        "R7",
        _FURTHER,
        " if one != SYSTEM_LOG and one not in records]",
        " if one != SYSTEM_LOG and one not in records and False]",
        f"{_FAULTS}::test_a_log_that_the_system_log_does_not_name_is_closed",
    ),
    _mutant(
        "record-stops-the-others",
        "R2",
        _FURTHER,
        "except Exception as wrong:  # noqa: BLE001 - an error of this program",
        "except ZeroDivisionError as wrong:  # an error of this program",
        f"{_FAULTS}::test_a_record_that_cannot_be_followed_stops_no_other",
    ),
    _mutant(
        "failed-log-is-not-removed",
        "R2",
        _FURTHER,
        "(is_new and record.number in self.failed)",
        "record.number in self.failed",
        f"{_FAULTS}::test_a_log_that_failed_at_every_master_is_removed",
    ),
    _mutant(
        "journal-is-closed-while-it-is-written",
        "29",
        f"{_SERVER}/log_service.py",
        "        if not await self._end_writing(timeout_s):\n",
        "        if await self._end_writing(timeout_s) is None:\n",
        f"{_FAULTS}::test_a_journal_that_is_written_stays_open",
    ),
    _mutant(
        "bad-folder-hinders-every-founding",
        "R7",
        "txlog/system/first_view.py",
        "    return known if is_patience_over and configuration.has_majority(known) else list(members)\n",
        "    return list(members)\n",
        _ENTRIES,
    ),
    _mutant(
        "founded-by-less-than-a-majority",
        "R7",
        "txlog/system/first_view.py",
        "is_patience_over and configuration.has_majority(known)",
        "is_patience_over",
        _ENTRIES,
    ),
    _mutant(
        "stale-proof-counts-for-no-log",
        "R9",
        f"{_SERVER}/admin/views.py",
        "        self._context.proved_down(node, birth, report.start)",
        "        pass",
        f"{_FAULTS}::test_a_proof_that_is_stale_for_the_first_log_counts_for_the_others",
    ),
    _mutant(
        "first-repository-named-as-the-system-log",
        "R7",
        _RULES,
        "        return self._host.first.repository.lower() == SYSTEM_NAME\n",
        "        return False\n",
        f"{_FAULTS}::test_a_first_repository_named_system_stays_alone",
    ),
    _mutant(
        "proof-counts-for-the-first-log-alone",
        "R9",
        f"{_SERVER}/process_notices.py",
        "        for number, log_birth, log_start in self.logs_of(node, birth, start):\n",
        "        for number, log_birth, log_start in ():\n",
        f"{_SEVERAL}::test_a_proof_that_a_process_is_gone_counts_for_each_of_its_logs",
    ),
    _mutant(
        "side-without-a-majority-writes",
        "R7",
        f"{_SERVER}/system_log.py",
        "        return configuration.has_majority([context.config.node, *status.present_peers])\n",
        "        return True\n",
        f"{_SEVERAL}::test_a_side_without_a_majority_creates_nothing",
    ),
    _mutant(
        "list-of-another-master",
        "R7",
        _FOLDERS,
        "        if (found.node, found.birth) != (self._node, self._birth):\n",
        "        if False:\n",
        _FOLDERS_TEST,
    ),
    _mutant(
        "missing-list-is-an-empty-one",
        "R7",
        _FOLDERS,
        "            if numbers := self._numbers():\n",
        "            if numbers := []:\n",
        _FOLDERS_TEST,
    ),
    _mutant(
        "each-master-names-the-first-repository",
        "R7",
        "txlog/system/entries.py",
        "            if self.catalogue is not None:\n",
        "            if False:\n",
        _ENTRIES,
    ),
    _mutant(
        "founded-without-the-journal-of-a-member",
        "R7",
        "txlog/system/first_view.py",
        " or any(master.node not in births for master in ordered)",
        "",
        _ENTRIES,
    ),
    _mutant(
        "founding-of-other-masters",
        "R7",
        "txlog/system/first_view.py",
        " or bootstrap_cluster_id(members) != record.cluster_id",
        "",
        _ENTRIES,
    ),
    _mutant(
        "sail-that-is-more-than-storage",
        "R7",
        f"{_SERVER}/frontdoor/repository_config.py",
        "if prefix not in _PREFIXES or local not in known:",
        "if prefix not in _PREFIXES:",
        "node/tests/server/test_repository_config.py",
    ),
    _mutant(
        "manifest-wants-as-a-request",
        "R7",
        f"{_SERVER}/repository_requests.py",
        'await self._create(names["name"], settings, deadline, by)',
        'await self._create(names["name"], settings, deadline, BY_REQUEST)',
        f"{_WANTED_TEST}::test_a_manifest_creates_a_repository_and_keeps_it",
    ),
    _mutant(
        "manifest-of-no-data-centre",
        "R7",
        f"{_SERVER}/repository_requests.py",
        "        if by not in known:\n",
        "        if False:\n",
        f"{_WANTED_TEST}::test_a_want_that_means_nothing_is_refused",
    ),
)
