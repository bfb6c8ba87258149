"""Safeguards of the front door, one each taken out. Imports nothing of ``txlog``. A test of the room kills each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_ROOM = "txlog/server/frontdoor"
_DOOR = f"{_ROOM}/synchronous_door.py"
_REPEATS = "node/tests/server/test_synchronous_repeats.py"
_UNUSUAL = "node/tests/server/test_unusual_requests.py"
_LONG = "node/tests/server/test_long_requests.py"
_TWO_LOGS = "node/tests/server/test_two_logs_one_door.py"
_FAST_READS = "node/tests/server/test_fast_reads.py"
_STATEMENTS = "node/tests/server/test_fast_statements.py"
_BACK = "node/tests/server/test_back_from_http.py"
_HEADS = "node/tests/server/test_head_templates.py"
_WHO = "node/tests/server/test_who_may_do_what.py"
_DIRECTORY = "txlog/server/repository_directory.py"
_PROCESS = "txlog/server/master_process.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"door-{name}", "16", False, (SourceEdit(file, old, new),), test=test)


FRONT_DOOR_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "loop-reads-a-long-query",
        f"{_ROOM}/off_loop.py",
        "    if size < OFF_LOOP_SPARQL:\n",
        "    if size < OFF_LOOP_SPARQL << 10:\n",
        f"{_LONG}::test_a_long_request_leaves_the_loop_to_others",
    ),
    _mutant(
        "loop-prepares-all-lines-in-one-turn",
        f"{_ROOM}/ndjson_writes.py",
        "            if time.monotonic() - began > LOOP_TURN_S:\n",
        "            if False:\n",
        f"{_LONG}::test_a_long_request_leaves_the_loop_to_others",
    ),
    _mutant(
        "fast-path-takes-a-long-update",
        f"{_ROOM}/plain_heads.py",
        "    if length >= OFF_LOOP_SPARQL and media_type.lower().startswith(UPDATE_MEDIA_TYPE):\n",
        "    if False:\n",
        f"{_LONG}::test_a_long_update_of_a_low_level_leaves_the_fast_path",
    ),
    _mutant(
        "form-without-end",
        f"{_ROOM}/off_loop.py",
        ", max_num_fields=FORM_FIELDS_MAX",
        "",
        f"{_LONG}::test_a_form_has_no_more_fields_than_a_master_can_hold",
    ),
    _mutant(
        "commit-under-another-key-is-another-commit",
        f"{_ROOM}/rdf4j_transactions.py",
        "key = one.commit_key if one.committing else asked.key or",
        "key = asked.key or",
        f"{_REPEATS}::test_a_commit_that_is_repeated_under_another_key_is_the_same_commit",
    ),
    _mutant(
        "other-terms-are-another-body",
        _DOOR,
        "    return isinstance(answer, KeyTaken)\n",
        "    return False\n",
        f"{_REPEATS}::test_a_commit_that_is_repeated_with_other_terms_is_answered_about_the_first",
    ),
    _mutant(
        "rule-that-has-changed-takes-the-key",
        _DOOR,
        "item.payload != one.payload or _ordinary_kind(item.kind) != _ordinary_kind(one.kind):\n",
        "item.payload != one.payload or item.kind != one.kind:\n",
        f"{_REPEATS}::test_a_key_is_answered_after_its_rule_has_changed",
    ),
    _mutant(
        "another-body-is-a-repeat-with-other-terms",
        _DOOR,
        "    if item is None or item.payload != one.payload or",
        "    if item is None or",
        f"{_REPEATS}::test_a_key_is_answered_after_its_rule_has_changed",
    ),
    _mutant(
        "less-than-a-client-asks-for-is-its-repeat",
        _DOOR,
        "    if not _meets(item, request):\n",
        "    if False:\n",
        f"{_REPEATS}::test_a_key_is_answered_after_a_rule_has_come",
    ),
    _mutant(
        "key-of-the-log-is-shown-to-a-client",
        "txlog/runtime/executor.py",
        "key_taken(idempotency_key_of(one.kind, one.key) or one.key, answer.txid)",
        "key_taken(one.key, answer.txid)",
        f"{_REPEATS}::test_a_body_whose_hash_begins_alike_is_told_from_the_first",
    ),
    _mutant(
        "beginning-of-a-hash-is-a-body",
        _DOOR,
        "    if isinstance(answer, Unavailable) and one.content",
        "    if one.content",
        f"{_REPEATS}::test_a_body_whose_hash_begins_alike_is_told_from_the_first",
    ),
    _mutant(
        "wrong-host-is-a-mistake-of-the-master",
        "txlog/http/router.py",
        "    if found is None or int(found[1] or 0) > PORT_MAX:\n",
        "    if False:\n",
        f"{_UNUSUAL}::test_a_wrong_host_is_refused_where_the_answer_needs_it",
    ),
    _mutant(
        "header-outside-utf-8-is-a-mistake-of-the-master",
        "txlog/http/router.py",
        'text.encode("utf-8", "replace")',
        "text.encode()",
        f"{_UNUSUAL}::test_a_header_outside_utf_8_is_refused_by_name",
    ),
    _mutant(
        "only-the-first-preference",
        "txlog/http/write_options.py",
        'return None if given is None else ", ".join(given)',
        "return None if given is None else given[0]",
        f"{_UNUSUAL}::test_preferences_may_come_in_several_headers",
    ),
    _mutant(
        "body-that-stalls-for-ever",
        "txlog/http/router.py",
        "async with asyncio.timeout(BODY_IDLE_S):",
        "async with asyncio.timeout(None):",
        f"{_UNUSUAL}::test_a_body_that_stalls_ends_its_request",
    ),
    _mutant(
        "client-that-reads-nothing-keeps-a-worker",
        f"{_ROOM}/answer_stream.py",
        "async with asyncio.timeout(CLIENT_IDLE_S) as limit:",
        "async with asyncio.timeout(None) as limit:",
        f"{_UNUSUAL}::test_a_client_that_reads_nothing_gives_its_worker_back",
    ),
    _mutant(
        "page-may-not-ask-for-a-quorum",
        "txlog/http/cors.py",
        "txlog-synchronous, ",
        "",
        "node/tests/server/test_browsers.py::test_a_page_may_send_every_header_of_a_write",
    ),
    _mutant(
        "empty-file-removes-all-rules",
        "txlog/config/graph_rules_file.py",
        "        if found is None:",
        "        found = found or []\n        if found is None:",
        "node/tests/config/test_graph_rules.py",
    ),
    _mutant(
        "rules-are-removed-without-a-question",
        "txlog/cli/peer_commands.py",
        "    if rules == [] and not yes:\n",
        "    if False:\n",
        "node/tests/cli/test_commands.py::test_rules_of_graphs_are_all_removed_only_on_purpose",
    ),
    _mutant(
        "bodies-fill-the-memory",
        "txlog/http/router.py",
        "        if self.size + count > LONG_BODIES_BYTES_MAX:\n",
        "        if False:\n",
        f"{_UNUSUAL}::test_bodies_that_are_read_at_a_time_are_bounded",
    ),
    _mutant(
        "body-that-broke-off-counts-for-ever",
        "txlog/http/router.py",
        "        long_bodies.size -= counted\n",
        "        pass\n",
        f"{_UNUSUAL}::test_bodies_that_are_read_at_a_time_are_bounded",
    ),
    _mutant(
        "open-transactions-fill-the-memory",
        f"{_ROOM}/rdf4j_transactions.py",
        "        if waiting + len(part.payload) > self.open_bytes_max:\n",
        "        if False:\n",
        "node/tests/server/test_open_transactions.py::test_open_transactions_hold_no_more_than_the_memory",
    ),
    _mutant(
        "commit-that-is-over-is-refused",
        f"{_ROOM}/rdf4j_transactions.py",
        "            if action != self._commit or not over.ended.is_committed:\n",
        "            if True:\n",
        "node/tests/server/test_open_transactions.py::test_a_commit_whose_answer_was_lost_is_answered_again",
    ),
    _mutant(
        "repeated-commit-claims-a-level",
        f"{_ROOM}/write_handler.py",
        "        return await self._ordinary_outcome(answer, asked, False)\n",
        "        return self._success_response(txid, asked.level)\n",
        "node/tests/server/test_open_transactions.py::test_a_commit_whose_answer_was_lost_is_answered_again",
    ),
    _mutant(
        "readers-keep-writers-waiting",
        f"{_ROOM}/off_loop.py",
        "_query_pool if is_query else _update_pool, work",
        "_update_pool, work",
        f"{_LONG}::test_long_queries_keep_no_update_waiting",
    ),
    _mutant(
        "unknown-repository-is-the-first",
        _DIRECTORY,
        '        return (self._unknown, {"id": name}) if known is None else (known, NO_PARAMETERS)\n',
        "        return known or next(iter(self._logs.values())), NO_PARAMETERS\n",
        f"{_TWO_LOGS}::test_names_that_no_log_has",
    ),
    _mutant(
        "one-log-has-paths-by-name",
        _DIRECTORY,
        "len(self._logs) + len(self._refused) > 1 and path",
        "path",
        f"{_TWO_LOGS}::test_a_process_with_one_log_has_no_paths_by_name",
    ),
    _mutant(
        "strangers-learn-which-repositories-exist",
        _DIRECTORY,
        "self._unknown = _tables(with_roles(refusing, self._guard))",
        "self._unknown = _tables(refusing)",
        f"{_WHO}::test_strangers_do_not_learn_which_repositories_exist",
    ),
    _mutant(
        "every-answer-leads-to-the-first-log",
        _PROCESS,
        "api_path = API_PATH if number == FIRST_LOG else",
        "api_path = API_PATH if number >= FIRST_LOG else",
        f"{_TWO_LOGS}::test_answers_lead_to_the_log_that_they_are_about",
    ),
    _mutant(
        "only-the-first-log-leaves-its-view",
        _PROCESS,
        "        logs = list(self.logs.values())\n",
        "        logs = [self.first]\n",
        f"{_TWO_LOGS}::test_the_journals_are_apart",
    ),
    _mutant(
        "an-answer-counts-down-at-the-first-log",
        f"{_ROOM}/fast_path.py",
        "            self._log.loop.in_flight -= 1\n",
        "            next(iter(self._fast_path._logs.values())).loop.in_flight -= 1\n",
        f"{_TWO_LOGS}::test_one_connection_writes_to_both_on_the_short_way",
    ),
    _mutant(
        "metrics-of-the-first-log-alone",
        "txlog/server/admin/metric_families.py",
        "            if known is not family:\n",
        "            if known is None:\n",
        f"{_TWO_LOGS}::test_the_process_knows_all_its_logs",
    ),
    _mutant(
        "a-closed-log-hides-the-others",
        "txlog/server/admin/health.py",
        "next((site for site in sites if site.is_ready), sites[0])",
        "sites[0]",
        f"{_TWO_LOGS}::test_the_process_knows_all_its_logs",
    ),
    _mutant(
        "fast-read-of-a-stranger",
        f"{_ROOM}/fast_path.py",
        "            if guard is not None and not guard.may_read(head.authorization):\n",
        "            if False:\n",
        f"{_FAST_READS}::test_only_known_readers_are_answered",
    ),
    _mutant(
        "fast-read-at-a-moved-position",
        f"{_ROOM}/fast_reads.py",
        "return None if digest and durability.position_at(index).hash.hex() != digest else index",
        "return index",
        f"{_FAST_READS}::test_a_read_after_a_write_waits_on_the_ordinary_path_only",
    ),
    _mutant(
        "fast-read-forgets-the-time-out",
        f"{_ROOM}/plain_queries.py",
        "if asked.level or asked.seconds is not None or (made",
        "if asked.level or (made",
        f"{_FAST_READS}::test_what_is_not_plain_is_left_to_the_ordinary_path[time-out]",
    ),
    _mutant(
        "fast-read-answers-with-rows-for-a-plan",
        f"{_ROOM}/plain_queries.py",
        "if asked.level or asked.seconds",
        "if asked.seconds",
        f"{_FAST_READS}::test_what_is_not_plain_is_left_to_the_ordinary_path[plan]",
    ),
    _mutant(
        "fast-read-shows-inner-names",
        f"{_ROOM}/fast_reads.py",
        'if self._steps.converts or may_change(body) or b"\\r" in body:',
        "if self._steps.converts:",
        f"{_FAST_READS}::test_both_paths_give_one_answer",
    ),
    _mutant(
        "template-of-a-prefix",
        "txlog/sparql/rewrite/query_template.py",
        " or any(_DECLARES.search(part) for part in parts[::2])",
        "",
        f"{_FAST_READS}::test_what_is_no_ordinary_name_stays_in_the_query",
    ),
    _mutant(
        "template-of-a-name-with-a-meaning",
        "txlog/sparql/rewrite/query_template.py",
        "        if not iri.startswith(RESERVED_IRIS):\n",
        "        if True:\n",
        f"{_FAST_READS}::test_what_is_no_ordinary_name_stays_in_the_query",
    ),
    _mutant(
        "template-takes-a-clients-placeholder",
        "txlog/sparql/rewrite/query_template.py",
        " or _PLACEHOLDER in text",
        "",
        f"{_FAST_READS}::test_what_is_no_ordinary_name_stays_in_the_query",
    ),
    _mutant(
        "head-template-takes-another-parameter",
        f"{_ROOM}/head_templates.py",
        ' and b"&" not in target',
        "",
        f"{_HEADS}::test_an_iri_in_another_parameter_belongs_to_no_template",
    ),
    _mutant(
        "head-template-forgets-the-headers",
        f"{_ROOM}/head_templates.py",
        "    parts.append(headers)\n",
        '    parts.append(b"")\n',
        f"{_HEADS}::test_credentials_belong_to_what_heads_share",
    ),
    _mutant(
        "reads-leave-their-worker-while-the-log-grows",
        f"{_ROOM}/worker_choice.py",
        "        is_growing = end > self._reads.applied_history.lower_bound()\n",
        "        is_growing = False\n",
        "node/tests/server/test_reads_by_load.py::test_clients_of_one_address_wait_for_no_write_of_others",
    ),
    _mutant(
        "fast-read-of-a-closing-connection-is-lost",
        f"{_ROOM}/fast_reads.py",
        "        if connection.was_used and not connection.status:\n",
        "        if False:\n",
        f"{_FAST_READS}::test_a_worker_that_closed_idle_connections_is_asked_again",
    ),
    _mutant(
        "fast-read-takes-a-part-for-the-whole",
        f"{_ROOM}/fast_reads.py",
        "            self._break_off()\n        else:",
        '            self._finish(b"0\\r\\n\\r\\n")\n        else:',
        f"{_FAST_READS}::test_a_worker_that_breaks_off_in_a_long_answer_breaks_it_off",
    ),
    _mutant(
        "fast-read-goes-on-without-its-client",
        f"{_ROOM}/fast_path.py",
        "            read.cancel()\n",
        "            pass\n",
        f"{_FAST_READS}::test_a_client_that_leaves_stops_its_query",
    ),
    _mutant(
        "fast-read-waits-for-a-refusal-for-ever",
        f"{_ROOM}/fast_reads.py",
        "connection.status == 200 or now",
        "connection.status or now",
        f"{_FAST_READS}::test_a_worker_that_stops_in_its_head_or_in_a_refusal_is_given_up",
    ),
    _mutant(
        "fast-statements-are-not-converted",
        f"{_ROOM}/fast_reads.py",
        "self._read.build, media)._replace(convert=self._read.convert)",
        "self._read.build, media)",
        f"{_STATEMENTS}::test_both_paths_give_one_answer",
    ),
    _mutant(
        "fast-statements-of-one-subject-of-two",
        f"{_ROOM}/plain_statements.py",
        "    if len(fields) - (_CONTEXT in fields) + len(contexts) != len(given):\n",
        "    if False:\n",
        f"{_STATEMENTS}::test_what_is_not_plain_is_left_to_the_ordinary_path",
    ),
    _mutant(
        "fast-path-takes-half-a-head",
        f"{_ROOM}/http_connection.py",
        "            if self._missing == 0 and self._take_back",
        "            if self._take_back",
        f"{_BACK}::test_the_rest_of_a_head_is_no_head",
    ),
    _mutant(
        "fast-path-takes-a-connection-of-an-unanswered-request",
        f"{_ROOM}/http_connection.py",
        "        if transport is not None and self._server.is_between_requests:",
        "        if transport is not None:",
        f"{_BACK}::test_a_mixture_in_any_pieces_is_answered_in_order",
    ),
    _mutant(
        "connection-changes-sides-for-each-request",
        f"{_ROOM}/fast_path.py",
        "self._switch_to_http(stays=self._was_with_http)",
        "self._switch_to_http()",
        f"{_BACK}::test_a_connection_does_not_change_sides_for_each_request",
    ),
    _mutant(
        "aiohttp-closes-what-it-gave-back",
        "txlog/http/aiohttp_server.py",
        "        self.transport = None\n        self.connection_lost",
        "        self.connection_lost",
        f"{_BACK}::test_a_plain_request_after_any_other_is_answered_on_the_fast_path",
    ),
    _mutant(
        "fast-read-fills-the-memory",
        f"{_ROOM}/fast_reads.py",
        "                            await client.drain(self._door.client_idle_s)\n",
        "",
        f"{_FAST_READS}::test_a_client_that_reads_nothing_holds_little_memory",
    ),
)
