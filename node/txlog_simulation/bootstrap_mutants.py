"""Mutants of what begins a cluster and of whose stores are touched (rules 2 and 30)."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_BOOTSTRAP = "txlog/protocol/membership/bootstrap.py"
_APPLIER = "txlog/apply/applier.py"
_JUDGEMENT = "txlog/runtime/store_judgement.py"
_REGISTRY = "txlog/runtime/worker_registry.py"
_DUTIES = "txlog/server/admin/duties.py"
_DECISIONS = "txlog/server/admin/store_decisions.py"
_JOB = "txlog/backup/duty.py"
_OWNERSHIP = "txlog/backup/store_ownership.py"
_ADOPTION = "txlog/backup/marker_change.py"
_ONCE = "node/tests/protocol/test_founded_once.py::"
_STORES = "node/tests/backup/test_other_stores.py::"
_REFUSED = "node/tests/server/test_refused_stores.py::"
_FORMS = "node/tests/protocol/test_forms_founded.py::"
_LITERALS = "node/tests/server/test_literals_as_written.py::"
_KEPT = "node/tests/server/test_decisions_kept.py::"


def _mutant(name: str, rule: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(name, rule, False, (SourceEdit(path, old, new),), test=test)


BOOTSTRAP_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "a-lost-journal-founds",
        "2",
        _BOOTSTRAP,
        "or self._is_bound or self.must_learn:",
        "or self._is_bound:",
        _ONCE + "test_rule_2_masters_that_lost_their_journals_wait_for_an_order[a]",
    ),
    _mutant(
        "a-lost-journal-accepts-a-founding",
        "2",
        _BOOTSTRAP,
        "if accepted is None and self.must_learn and not forgets:",
        "if False:",
        _ONCE + "test_rule_2_a_new_master_cannot_found_for_one_that_lost_its_journal",
    ),
    _mutant(
        "a-part-of-a-log-founds",
        "2",
        _BOOTSTRAP,
        "(self._recovered_learner or self._has_lost_journal)",
        "self._has_lost_journal",
        _ONCE + "test_a_part_of_a_log_without_its_cluster_founds_nothing",
    ),
    _mutant(
        "an-order-forgets-unasked",
        "2",
        _BOOTSTRAP,
        "if self.must_learn and not forget:",
        "if False:",
        _ONCE + "test_rule_2_an_order_that_forgets_founds_again[a]",
    ),
    _mutant(
        "an-order-to-forget-ends-with-the-process",
        "2",
        _BOOTSTRAP,
        "            if self._has_lost_journal:  # then",
        "            if False:  # then",
        _ONCE + "test_rule_2_an_order_that_forgets_is_carried_out_by_the_next_start",
    ),
    _mutant(
        "a-founding-begun-again-has-the-number-of-the-first",
        "21",
        _BOOTSTRAP,
        "max((v.ballot + 1 for v in accepted), default=1)",
        "max((v.ballot for v in accepted), default=1)",
        _ONCE + "test_rule_2_a_founding_that_its_first_master_alone_installed_is_begun_again_by_order",
    ),
    _mutant(
        "the-waiting-incarnation-is-remembered",
        "2",
        "txlog/supervision/last_seen.py",
        "return is_view_installed or birth == remembered_birth",
        "return True",
        "node/tests/supervision/test_last_seen.py",
    ),
    _mutant(
        "the-marker-gets-no-cluster",
        "30",
        _APPLIER,
        "self.cluster() or before.cluster",
        "before.cluster",
        _STORES + "test_the_marker_carries_the_cluster_from_the_first_apply_on",
    ),
    _mutant(
        "the-cluster-of-the-marker-is-not-compared",
        "30",
        "txlog/apply/log_source.py",
        "if marker.cluster and log and marker.cluster != log:",
        "if False:",
        _STORES + "test_the_cluster_in_the_marker_counts_and_not_the_hash_alone",
    ),
    _mutant(
        "the-hash-at-position-0-is-not-compared",
        "30",
        _APPLIER,
        "after = position if position.index or position.hash != NO_HASH else None",
        "after = position if position.index else None",
        _STORES + "test_a_store_of_another_cluster_is_neither_written_nor_emptied",
    ),
    _mutant(
        "a-marker-of-a-later-version-is-a-lock",
        "30",
        "txlog/workers/marker_names.py",
        "    if unknown is not None:\n",
        "    if False:\n",
        "node/tests/workers/test_marker_names.py::test_a_marker_of_a_later_version_is_refused_by_name",
    ),
    _mutant(
        "another-clusters-store-is-ours",
        "30",
        _JUDGEMENT,
        "    if position.cluster:\n",
        "    if False:\n",
        _REFUSED + "test_a_store_of_another_cluster_is_refused_and_not_restored",
    ),
    _mutant(
        "a-marker-without-a-cluster-is-believed",
        "30",
        _JUDGEMENT,
        "    elif not is_proved:\n",
        "    elif False:\n",
        _REFUSED + "test_a_marker_without_a_cluster_has_to_be_on_the_log",
    ),
    _mutant(
        "a-refused-store-is-restored",
        "30",
        _DUTIES,
        "        if worker.refusal is not None:\n            return self._decided_duties(worker)\n",
        "",
        _REFUSED + "test_a_store_of_another_cluster_is_refused_and_not_restored",
    ),
    _mutant(
        "a-refused-store-counts-as-applied",
        "30",
        _REGISTRY,
        "worker.refusal is not None or self.is_off_chain(worker)",
        "self.is_off_chain(worker)",
        _REFUSED + "test_a_store_of_another_cluster_is_refused_and_not_restored",
    ),
    _mutant(
        "a-refused-store-is-read",
        "30",
        "txlog/server/frontdoor/worker_choice.py",
        "if not worker.is_readable or worker.refusal is not None or worker.is_form_undecided:",
        "if not worker.is_readable or worker.is_form_undecided:",
        _REFUSED + "test_a_store_of_another_cluster_is_refused_and_not_restored",
    ),
    _mutant(
        "a-decision-holds-for-other-content",
        "30",
        _DECISIONS,
        "return None if at is None or _is_content_of(decided, at) else",
        "return None if True else",
        _REFUSED + "test_a_persons_decision_is_a_duty_while_the_store_is_there",
    ),
    _mutant(
        "a-decision-is-answered-before-it-is-durable",
        "30",
        _DECISIONS,
        "                await asyncio.to_thread(write_decisions, self._folder, decided)\n",
        "                self._is_saved = False\n",
        _KEPT + "test_a_decision_is_durable_before_it_is_answered",
    ),
    _mutant(
        "a-decision-is-forgotten-while-the-store-is-loaded",
        "30",
        _DECISIONS,
        "return None if at is None or _is_content_of(decided, at) else",
        "return None if at is not None and _is_content_of(decided, at) else",
        _KEPT + "test_a_decision_is_forgotten_once_the_store_has_moved",
    ),
    _mutant(
        "a-decision-is-inherited-by-a-worker-of-the-same-name",
        "30",
        _DECISIONS,
        'return "the worker was removed" if name in self._registered else None',
        "return None",
        _KEPT + "test_a_decision_is_forgotten_with_its_worker",
    ),
    _mutant(
        "a-decision-holds-for-any-cluster",
        "30",
        _DECISIONS,
        "if cluster and cluster != decided.cluster:",
        "if False:",
        _KEPT + "test_a_decision_for_another_cluster_is_none",
    ),
    _mutant(
        "adopted-beside-other-content",
        "30",
        _DECISIONS,
        "if others and not decision.force:",
        "if False:",
        _REFUSED + "test_other_workers_on_this_log_lack_what_is_adopted",
    ),
    _mutant(
        "adopted-before-a-trimmed-log",
        "30",
        _DECISIONS,
        "        if log.log_index.start:\n",
        "        if False:\n",
        _REFUSED + "test_a_trimmed_log_cannot_follow_on_adopted_content",
    ),
    _mutant(
        "the-job-empties-any-store",
        "30",
        _JOB,
        "            refuse_other_store(into, cluster, chain)\n",
        "            pass\n",
        _REFUSED + "test_a_restore_that_nobody_decided_empties_nothing",
    ),
    _mutant(
        "the-job-discards-undecided",
        "30",
        _JOB,
        '        elif not any(d["kind"] == DutyKind.DISCARD',
        '        elif False and not any(d["kind"] == DutyKind.DISCARD',
        _REFUSED + "test_a_restore_that_nobody_decided_empties_nothing",
    ),
    _mutant(
        "adopted-without-a-question",
        "30",
        _JOB,
        "if duty is None or found is None or found.position is None:",
        "if found is None or found.position is None:",
        _REFUSED + "test_a_restore_that_nobody_decided_empties_nothing",
    ),
    _mutant(
        "adopted-where-nobody-saw-it",
        "30",
        _ADOPTION,
        "if found is None or was is None or found._replace(fence=was.fence) != was:",
        "if found is None:",
        _STORES + "test_what_a_person_did_not_see_is_not_adopted",
    ),
    _mutant(
        "the-log-alone-replaces-adopted-content",
        "30",
        _OWNERSHIP,
        "    if based:\n",
        "    if False:\n",
        _REFUSED + "test_an_adopted_store_is_brought_back_to_work",
    ),
    _mutant(
        "a-trimmed-log-fills-an-empty-store",
        "30",
        _OWNERSHIP,
        '        raise LogIncomplete(f"{wrong}; the log alone cannot fill a store") from wrong\n',
        "        return Position(1, 0, bytes(16))\n",
        _STORES + "test_the_log_alone_fills_no_store_where_it_is_not_all",
    ),
    _mutant(
        "the-content-before-the-log-is-not-backed-up",
        "30",
        "txlog/backup/backup_writer.py",
        "base=base.hex() if base else msgspec.UNSET,",
        "base=msgspec.UNSET,",
        _STORES + "test_the_content_that_came_before_the_log_goes_with_copies_and_backups",
    ),
    _mutant(
        "the-accepted-founding-is-discarded-for-what-grew-from-it",
        "2",
        _BOOTSTRAP,
        "if mine is not None and mine.cluster_id == view.cluster_id and mine.number in view.ancestors:",
        "if False:",
        _ONCE + "test_a_master_that_accepted_the_founding_view_knows_the_log_though_others_went_on",
    ),
    _mutant(
        "one-founder-decides-the-form-of-literals",
        "20",
        _BOOTSTRAP,
        "keeps_literals=mine.keeps_literals and all(others)",
        "keeps_literals=mine.keeps_literals",
        _FORMS + "test_rule_20_literals_are_kept_where_the_stores_of_every_founder_can",
    ),
    _mutant(
        "the-form-of-literals-follows-the-manifest",
        "20",
        "txlog/runtime/literal_form.py",
        "return self._named or (self._can_keep and self.founded_with is True)",
        "return self._can_keep",
        _LITERALS + "test_a_cluster_goes_on_as_it_was_founded",
    ),
    _mutant(
        "a-store-is-filled-in-an-unknown-form",
        "20",
        "txlog/runtime/worker_state.py",
        "        if self.is_form_undecided:\n",
        "        if False:\n",
        _LITERALS + "test_a_master_that_does_not_know_its_cluster_gives_nothing_to_its_stores",
    ),
    _mutant(
        "a-store-is-read-in-an-unknown-form",
        "20",
        "txlog/server/frontdoor/worker_choice.py",
        " or worker.is_form_undecided:",
        ":",
        _LITERALS + "test_a_master_that_does_not_know_its_cluster_gives_nothing_to_its_stores",
    ),
)
