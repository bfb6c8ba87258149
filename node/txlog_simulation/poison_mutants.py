"""Safeguards of the skip of a transaction that no worker survives, one each taken out. Imports nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

SUSPECT = "txlog/apply/suspect.py"
APPLIER = "txlog/apply/applier.py"
REFUSALS = "txlog/apply/refusal_proof.py"
LIMITS = "txlog/apply/request_limits.py"
SUSPECT_CHECK = "txlog/apply/suspect_check.py"
CATCH_UP = "txlog/pipeline/batch/catch_up.py"
WORKERS = "txlog/runtime/worker_state.py"
SKIPS = "txlog/server/admin/skip_transaction.py"
_JUDGED = "node/tests/apply/test_suspect.py::"
_IN_COMMITS = "node/tests/apply/test_harmful_in_a_commit.py::"
_UNFIT = "node/tests/apply/test_unfit_stores.py::"
_LIMITS = "node/tests/apply/test_request_limits.py::"
_OVERLAP = "node/tests/pipeline/test_batch_overlap.py::"
_NO_END = "node/tests/apply/test_requests_without_an_end.py::"
_BESIDE = "node/tests/pipeline/test_batch_beside_others.py::"
_UNANSWERED = "node/tests/pipeline/test_unanswered_requests.py::"
_DUTY = "node/tests/server/test_skipping_on_duty.py::"
_REAL = "node/tests/server/test_passed_over.py::"

POISON_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "one-end-is-a-verdict",
        "30",
        False,
        (SourceEdit(SUSPECT, "ENDED_MIN: Final = 3", "ENDED_MIN: Final = 1"),),
        test=_JUDGED + "test_three_ends_are_a_verdict_and_two_of_them_alone",
    ),
    Mutant(
        "the-closed-connections-of-a-manifest-do-not-count",
        "30",
        False,
        (SourceEdit(SUSPECT_CHECK, 'else "", fault, now, ended_min)', 'else "", fault, now)'),),
        test=_JUDGED + "test_a_manifest_says_how_many_ends_are_a_verdict[6]",
    ),
    Mutant(
        "the-keys-of-a-manifest-do-not-count",
        "32",
        False,
        (
            SourceEdit(
                "txlog/config/process_config_builder.py",
                "            keys_max=spec.limits.keys_max,\n",
                "",
            ),
        ),
        test="node/tests/config/test_limits.py::test_the_keys_that_a_manifest_allows_are_those_of_the_core",
    ),
    Mutant(
        "a-verdict-without-a-request-alone",
        "30",
        False,
        (SourceEdit(SUSPECT, " and self.ended_alone >= ENDED_ALONE_MIN", ""),),
        test=_JUDGED + "test_three_ends_are_a_verdict_and_two_of_them_alone",
    ),
    Mutant(
        "one-stall-is-a-verdict",
        "30",
        False,
        (SourceEdit(SUSPECT, "STALLED_MIN: Final = 2", "STALLED_MIN: Final = 1"),),
        test=_JUDGED + "test_two_stalls_are_a_verdict_and_the_last_one_alone",
    ),
    Mutant(
        "failures-of-another-transaction-count",
        "30",
        False,
        (SourceEdit(SUSPECT, "    if txid != found.txid:\n", "    if False:\n"),),
        test=_JUDGED + "test_another_transaction_begins_anew",
    ),
    Mutant(
        "a-retry-is-not-announced",
        "30",
        False,
        (SourceEdit(SUSPECT, "age_s < RETRY_S - ANNOUNCE_S", "True"),),
        test=_JUDGED + "test_what_is_reported_at_which_time",
    ),
    Mutant(
        "skipped-while-a-worker-may-execute-it",
        "30",
        False,
        (SourceEdit(SKIPS, "if any(w.may_execute for w in workers):", "if False:"),),
        test=_DUTY + "test_not_while_one_may_execute_it_yet",
    ),
    Mutant(
        "skipped-while-one-has-not-rejected-it",
        "30",
        False,
        (SourceEdit(SKIPS, "len(refused) != 1 or None in refused", "not (refused := refused - {None})"),),
        test=_DUTY + "test_not_what_another_one_survives",
    ),
    Mutant(
        "skipped-though-one-out-of-reach-has-executed-it",
        "30",
        False,
        (SourceEdit(SKIPS, "if any(w.index > before for w in workers):", "if False:"),),
        test=_DUTY + "test_not_what_another_one_survives",
    ),
    Mutant(
        "a-block-without-an-answer-is-a-verdict",
        "30",
        False,
        (SourceEdit(WORKERS, "if self.status is not None or self.fault is not None else None", ""),),
        test=_DUTY + "test_a_report_of_an_older_pipeline_is_no_verdict",
    ),
    Mutant(
        "a-judged-transaction-is-sent-again",
        "30",
        False,
        (SourceEdit(SUSPECT_CHECK, "    if suspect.is_held(now):", "    if False:"),),
        test=_REAL + "test_one_that_ends_every_worker",
    ),
    Mutant(
        "of-a-commit-the-first-one-is-blamed",
        "30",
        False,
        (SourceEdit(SUSPECT_CHECK, "    if len(harmful) == 1 and len(txids) > 1:\n", "    if False:\n"),),
        test=_IN_COMMITS + "test_the_others_take_effect_once_the_harmful_one_is_skipped[2]",
    ),
    Mutant(
        "of-a-commit-one-is-blamed-before-the-others-were-survived",
        "30",
        False,
        (SourceEdit(SUSPECT, 'txid = txids[fatal - 1] if fatal - survived == 1 else ""', "txid = txids[fatal - 1]"),),
        test=_IN_COMMITS + "test_each_place_is_found_with_few_failures",
    ),
    Mutant(
        "a-coincidence-is-no-reason-to-search-again",
        "30",
        False,
        (SourceEdit(SUSPECT, "    if prefix >= suspect.fatal:\n", "    if prefix > suspect.fatal:\n"),),
        test=_IN_COMMITS + "test_a_prefix_that_failed_once_and_is_answered_ends_the_search",
    ),
    Mutant(
        "a-repetition-blames-another-one",
        "30",
        False,
        (SourceEdit(SUSPECT, "(known.survived, min(known.fatal, prefix))", "(known.survived, prefix)"),),
        test=_IN_COMMITS + "test_a_repetition_after_the_verdict_counts_for_the_same_one",
    ),
    Mutant(
        "trials-without-a-failure",
        "30",
        False,
        (SourceEdit(SUSPECT, "not suspect.searched or suspect.searched != count", "suspect.searched != count"),),
        test=_IN_COMMITS + "test_nothing_is_tried_before_a_commit_alone_has_failed",
    ),
    Mutant(
        "a-proxy-that-refuses-is-a-refusal",
        "30",
        False,
        (SourceEdit(REFUSALS, "response.status in JUDGEMENTS and ", ""),),
        test=_UNFIT + "test_what_a_proxy_refuses_blames_no_transaction[429]",
    ),
    Mutant(
        "a-refusal-without-a-trial-counts",
        "30",
        False,
        (SourceEdit(APPLIER, " or self._try_prefix(operations[: at + 1]) is None", ""),),
        test=_UNFIT + "test_a_store_that_executes_nothing_at_all_blames_no_transaction",
    ),
    Mutant(
        "a-store-that-commits-nothing-refuses",
        "30",
        False,
        (SourceEdit(APPLIER, " or not self._can_commit():", ":"),),
        test=_UNFIT + "test_a_store_that_executes_nothing_at_all_blames_no_transaction",
    ),
    Mutant(
        "a-full-disk-is-another-applier",
        "30",
        False,
        (
            SourceEdit(
                APPLIER,
                "        if self.adapter.parse_apply_result(response) is ApplyResult.REFUSED:\n",
                "        if False:\n",
            ),
        ),
        test=_UNFIT + "test_a_full_disk_blames_no_transaction[False]",
    ),
    Mutant(
        "an-owner-that-waits-is-taken-for-dead",
        "30",
        False,
        (SourceEdit(LIMITS, "max(0.0, time_limit_s([entry], execution_s) - EXECUTION_S)", "0.0"),),
        test=_LIMITS + "test_a_lock_is_left_to_an_owner_that_may_still_wait",
    ),
    Mutant(
        "a-request-that-a-proxy-lost-has-ended",
        "30",
        False,
        (
            SourceEdit(
                APPLIER,
                "if self.token is not None and (not self.requests.may_run or not self.transport.settled()):",
                "if self.token is not None:",
            ),
        ),
        test=_NO_END + "test_the_lock_of_a_request_that_a_proxy_gave_up_counts_as_that_of_another",
    ),
    Mutant(
        "an-error-instead-of-the-position-ends-the-request",
        "30",
        False,
        (SourceEdit(APPLIER, "        except (Unreachable, UnexpectedAnswer):\n", "        except Unreachable:\n"),),
        test=_NO_END + "test_an_error_instead_of_the_position_releases_no_lock",
    ),
    Mutant(
        "a-batch-takes-its-position-from-a-log-that-it-has-not-read",
        "30",
        False,
        (
            SourceEdit(
                CATCH_UP,
                "return min(befores, default=end, key=lambda position: position.index), cuts",
                "return (self._position_at(cuts[0] - 1) if cuts else end), cuts",
            ),
        ),
        test=_BESIDE + "test_what_was_loaded_is_not_taken_for_another_log",
    ),
    Mutant(
        "a-batch-takes-what-a-late-master-lacks-for-a-hash",
        "30",
        False,
        (SourceEdit(CATCH_UP, "return None if index and page.after.hash == NO_HASH else page", "return page"),),
        test=_BESIDE + "test_a_master_that_lags_makes_no_worker_diverged",
    ),
    Mutant(
        "a-batch-believes-a-master-of-another-branch",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/batch/log_range_reader.py",
                "                final = final or off\n",
                "                raise\n",
            ),
        ),
        test=_BESIDE + "test_a_master_of_another_branch_makes_no_worker_diverged",
    ),
    Mutant(
        "a-load-that-broke-off-is-read",
        "30",
        False,
        (SourceEdit(CATCH_UP, "if at is None and is_marked and state in _TRANSIENT_STATES:", "if False:"),),
        test=_BESIDE + "test_no_master_takes_a_worker_for_readable_whose_load_broke_off",
    ),
    Mutant(
        "a-store-in-the-middle-of-a-load-is-read",
        "30",
        False,
        (SourceEdit(WORKERS, "self.held_prefix and self.state in READABLE_STATES", "self.state in READABLE_STATES"),),
        test="node/tests/server/test_reads_of_half_loaded_stores.py::"
        "test_a_worker_that_cannot_be_reached_is_not_read_where_it_held_no_prefix[Loading]",
    ),
    Mutant(
        "a-batch-takes-an-owner-that-waits-for-dead",
        "30",
        False,
        (SourceEdit(CATCH_UP, "self._wait_s, silent_s)", "self._wait_s)"),),
        test=_BESIDE + "test_the_lock_of_an_applier_that_may_still_wait_for_an_answer_is_left_to_it",
    ),
    Mutant(
        "a-batch-beside-the-lane-that-keeps-its-worker",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/batch/batch_scheduler.py", "            if not is_ours:\n", "            if False:\n"
            ),
        ),
        test="node/tests/pipeline/test_batch_planner.py::test_no_batch_beside_a_lane_that_keeps_its_worker",
    ),
    Mutant(
        "an-error-of-the-store-ends-the-heartbeats",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/batch/load_session.py",
                "                except (Unreachable, UnexpectedAnswer):\n",
                "                except Unreachable:\n",
            ),
        ),
        test=_OVERLAP + "test_an_error_of_the_store_ends_no_heartbeats",
    ),
    Mutant(
        "a-batch-releases-the-lock-of-its-running-request",
        "30",
        False,
        (SourceEdit("txlog/pipeline/batch/load_session.py", " and not self._may_still_run:", ":"),),
        test=_OVERLAP + "test_the_lock_stays_while_a_request_of_the_batch_may_still_be_executed",
    ),
    Mutant(
        "a-load-beside-a-marker-is-no-overlap",
        "30",
        False,
        (
            SourceEdit(
                "txlog/apply/stored_marker.py",
                "len(system.markers) + len(system.loading) > 1",
                "len(system.markers) > 1",
            ),
        ),
        test=_OVERLAP + "test_two_records_tell_of_an_overlap",
    ),
    Mutant(
        "a-repeated-load-executes-updates-again-and-again",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/batch/catch_up.py",
                "                    if self._repeats_load:\n",
                "                    if False:\n",
            ),
        ),
        test="node/tests/pipeline/test_batch_catching_up.py::test_an_update_at_which_the_worker_ends_is_left_to_who_judges_it",
    ),
    Mutant(
        "the-next-batch-does-not-wait-for-the-stream",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/batch/batch_scheduler.py", "        if ended.left_updates:\n", "        if False:\n"
            ),
        ),
        test="node/tests/pipeline/test_batch_planner.py::test_after_a_load_that_broke_off_the_stream_has_time_for_the_updates",
    ),
    Mutant(
        "the-lane-lets-others-send-beside-its-request",
        "30",
        False,
        (SourceEdit("txlog/pipeline/worker_lanes.py", "            if done.awaits:\n", "            if False:\n"),),
        test=_UNANSWERED + "test_another_process_sends_nothing_while_the_request_of_one_runs",
    ),
    Mutant(
        "a-proxy-that-gave-up-has-seen-the-end",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/worker_applier.py",
                "0.0 if self._transport.settled() else outcome.suspect.running_since",
                "outcome.suspect.running_since",
            ),
        ),
        test=_UNANSWERED + "test_a_request_that_a_proxy_gave_up_counts_as_running",
    ),
    Mutant(
        "a-proxy-that-gave-up-is-an-end-of-the-store",
        "30",
        False,
        (
            SourceEdit(
                "txlog/workers/http_transport.py", "(TimeoutError(why) if answer.status == 504 else None)", "None"
            ),
        ),
        test=_UNANSWERED + "test_a_request_that_a_proxy_gave_up_counts_as_running",
    ),
    Mutant(
        "a-master-that-is-gone-holds-workers-for-ever",
        "32",
        False,
        (
            SourceEdit(
                "txlog/pipeline/progress_reporter.py",
                "return None if is_gone else self._pauses.get(worker)",
                "return self._pauses.get(worker)",
            ),
        ),
        test="node/tests/pipeline/test_late_reports.py::test_a_pause_of_a_master_that_is_gone_ends",
    ),
    Mutant(
        "a-report-is-sent-however-old-it-is",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/progress_reporter.py",
                "                    if time.monotonic() - made_at < RESEND_S:\n",
                "                    if True:\n",
            ),
        ),
        test="node/tests/pipeline/test_late_reports.py::test_a_report_of_long_ago_is_not_sent",
    ),
    Mutant(
        "a-batch-keeps-the-epoch-of-the-marker",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/batch/catch_up.py",
                "place = Position(page.stable.epoch, last.index, last.hash)",
                "place = Position(at.position.epoch, last.index, last.hash)",
            ),
        ),
        test="node/tests/pipeline/test_batch_catching_up.py::test_the_marker_behind_updates_has_the_epoch_in_which_they_were_read",
    ),
    Mutant(
        "a-refusal-of-a-long-body-is-an-end-of-the-store",
        "30",
        False,
        (
            SourceEdit(
                "txlog/workers/http_transport.py",
                "                return self._early_refusal(sock, request, closed)\n",
                "                raise closed\n",
            ),
        ),
        test="node/tests/workers/test_worker_transport.py::test_a_refusal_before_the_whole_body_was_sent_is_an_answer",
    ),
    Mutant(
        "what-is-known-of-a-store-is-known-of-the-next-one",
        "30",
        False,
        (
            SourceEdit(
                "txlog/pipeline/worker_lanes.py", "blake2b(url.encode(), digest_size=8)", "blake2b(digest_size=8)"
            ),
        ),
        test="node/tests/pipeline/test_lanes.py::test_a_store_at_another_url_is_probed_too",
    ),
)
