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
_LINKS_TEST = "node/tests/server/test_log_links.py"
_FOLDERS_TEST = "node/tests/server/test_log_folders.py"
_SEVERAL = "node/tests/server/test_several_repositories.py"
_ENTRIES = "node/tests/system/test_system_entries.py"


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
        _FURTHER,
        "        if older:\n",
        "        if False:\n",
        f"{_SEVERAL}::test_the_first_create_needs_every_master_and_its_program",
    ),
    _mutant(
        "first-create-without-all-masters",
        "R7",
        _FURTHER,
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
        '"last_seen": self._folders.last_seen(number)',
        '"last_seen": None',
        f"{_SEVERAL}::test_an_older_folder_is_refused_without_other_masters",
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
)
