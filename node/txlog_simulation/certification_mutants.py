"""Safeguards of certification, one each taken out. Imports nothing of ``txlog``.

No master of the simulator certifies yet, so that tests kill them: the model's histories, in which the rule of the
masters is asked for each verdict, a literal reading of the rule, and directed ones.
"""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

CERTIFICATION = "txlog/protocol/certification.py"
PATTERNS = "txlog/model/quad_pattern.py"
WRITES = "txlog/model/declared_writes.py"
READER = "txlog/sparql/analysis/pattern_reader.py"
UPDATES = "txlog/sparql/analysis/update_patterns.py"
_RULE = "node/tests/protocol/test_certification.py::"
_MODEL = _RULE + "test_masters_and_model_say_the_same_in_histories_made_by_hand"
_LITERAL = _RULE + "test_the_verdict_is_what_the_rule_says_literally"
_DECLARED = "node/tests/model/test_declared_writes.py::"
_SPARQL = "node/tests/sparql/test_update_patterns.py::"
_VALUES = _SPARQL + "test_values_narrow_the_triples_of_their_own_group"


def _mutant(name: str, rule: str, file: str, old: str, new: str, test: str = _MODEL) -> Mutant:
    return Mutant(f"certification-{name}", rule, True, (SourceEdit(file, old, new),), test=test)


CERTIFICATION_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "one-marker",
        "C1",
        CERTIFICATION,
        "return base.index_after < before and log.hash_at(base.index_after) == base.hash_after",
        "return base.log_index < before and log.hash_at(base.log_index) == base.hash",
    ),
    _mutant(
        "a-base-is-an-index",
        "C2",
        CERTIFICATION,
        "    on_chain = is_on_chain(base, log, log_index)\n",
        "    on_chain = True\n",
    ),
    _mutant(
        "refused-count-as-writes",
        "C2",
        CERTIFICATION,
        "if entry.counts and sets_meet(",
        "if sets_meet(",
    ),
    _mutant(
        "seen-may-be-absent",
        "C2",
        CERTIFICATION,
        "any(log.last_seq(origin) < seq for origin",
        "any(seq < 0 for origin",
    ),
    _mutant(
        "text-may-move",
        "C2",
        CERTIFICATION,
        "        return EffectRefusal.TEXT\n",
        "        return EffectRefusal.NONE\n",
    ),
    _mutant(
        "seen-may-fall",
        "C2",
        CERTIFICATION,
        "        return EffectRefusal.FALLEN\n",
        "        return EffectRefusal.NONE\n",
    ),
    _mutant("seen-may-rise", "C2", CERTIFICATION, "        return EffectRefusal.RISEN\n", "        pass\n"),
    _mutant(
        "keys-of-others-do-not-matter",
        "C2",
        CERTIFICATION,
        "or (entry.key and log.has_other_with_key(entry.key, entry.txid)):",
        "or False:",
    ),
    _mutant(
        "later-tries-stay",
        "C6",
        CERTIFICATION,
        "if was_judged or entry.is_retry or (",
        "if was_judged or (",
        _RULE + "test_a_later_try_may_have_risen",
    ),
    _mutant("order-does-not-matter", "C2", CERTIFICATION, "        order.add(entry)\n", "        pass\n"),
    _mutant(
        "judged-from-the-base-on",
        "C2",
        CERTIFICATION,
        "first = (base.log_index if on_chain else base.final_index) + 1",
        "first = base.log_index + 1",
    ),
    _mutant(
        "one-rises-by-anothers-fall",
        "C2",
        CERTIFICATION,
        "        if not sets_meet(entry.writes.patterns(), reads):\n",
        "        is_nothing = not (entry.counts or base.has_seen(entry.txid))\n"
        "        if is_nothing or not sets_meet(entry.writes.patterns(), reads):\n",
    ),
    _mutant(
        "any-age", "C7", CERTIFICATION, "        return EffectVerdict(EffectRefusal.OLD)\n", "        pass\n", _LITERAL
    ),
    _mutant(
        "a-whole-window-for-another-branch",
        "C7",
        CERTIFICATION,
        "window if on_chain else window.halved()",
        "window",
        _LITERAL,
    ),
    _mutant(
        "age-without-bytes",
        "C7",
        CERTIFICATION,
        "        payload_bytes += entry.payload_bytes\n",
        "",
        _RULE + "test_age_is_bounded_by_bytes_of_what_was_not_seen_and_by_half_for_another_branch",
    ),
    _mutant(
        "decided-behind-a-log-start",
        "C7",
        CERTIFICATION,
        "    if first < log.first_index:\n",
        "    first = max(first, log.first_index)\n    if first < 0:\n",
        _RULE + "test_a_log_that_begins_too_late_decides_nothing",
    ),
    _mutant(
        "any-value-is-another-one-in-the-order",
        "C2",
        CERTIFICATION,
        "values = by_value if quad.value is None else (quad.value, None)",
        "values = (quad.value,)",
        _RULE + "test_a_literal_that_stores_may_write_otherwise_is_any_in_the_order",
    ),
    _mutant(
        "literals-as-written",
        "C4",
        PATTERNS,
        '    return text if is_simple and b"\\n" not in text and b"\\r" not in text else None\n',
        "    return text\n",
        _DECLARED + "test_forms_of_one_literal_meet",
    ),
    _mutant(
        "too-many-patterns-are-dropped",
        "C4",
        PATTERNS,
        "                self._insert(self._widen(each))\n",
        "                self._insert(self._widen(each)) if len(self._patterns) < self._count_max else None\n",
        _DECLARED + "test_what_was_added_stays_covered_within_the_bounds",
    ),
    _mutant(
        "values-into-groups",
        "C4",
        READER,
        "                at = self.read_group(at, _fixed(graphs))\n            elif mark",
        "                at = self.read_group(at, _fixed(graphs), blocks)\n            elif mark",
        _VALUES,
    ),
    _mutant(
        "a-graphs-name-into-groups",
        "C4",
        READER,
        "    return [None if isinstance(slot, str) else slot for slot in graphs]\n",
        "    return list(graphs)\n",
        _VALUES,
    ),
    _mutant(
        "computed-predicates-are-data",
        "C4",
        READER,
        "self._found.add(EVERY_QUAD if is_computed else",
        "self._found.add(EVERY_QUAD if False else",
        _SPARQL + "test_what_is_not_known_reads_everything",
    ),
    _mutant(
        "steps-of-a-path-by-its-ends",
        "C4",
        READER,
        "            self._add((graph, None, step, None), blocks)\n",
        "            self._add((graph, _slot(subject), step, _slot(value)), blocks)\n",
        _SPARQL + "test_what_a_where_reads",
    ),
    _mutant(
        "negations-are-not-read",
        "C4",
        READER,
        '        while self._word_at(at) in ("NOT", "EXISTS"):\n',
        '        if self._word_at(at) == "NOT":\n            return self._group(at + 2, ())\n'
        '        while self._word_at(at) in ("NOT", "EXISTS"):\n',
        _SPARQL + "test_what_a_where_reads",
    ),
    _mutant(
        "a-graph-that-may-match-without-a-quad",
        "C4",
        READER,
        "            self._add((slot, None, None, None), blocks)\n",
        "            pass\n",
        _SPARQL + "test_what_a_where_reads",
    ),
    _mutant(
        "a-template-is-in-the-default-graph",
        "C5",
        UPDATES,
        "            reader.read_template(at, [parts.target])\n",
        "            reader.read_template(at, [DEFAULT_GRAPH])\n",
        _SPARQL + "test_what_an_update_may_write",
    ),
    _mutant(
        "text-writes-nothing",
        "C5",
        WRITES,
        "return WRITES_ANYTHING if declared is None else",
        "return WRITES_NOTHING if declared is None else",
        _DECLARED + "test_the_writes_of_each_kind",
    ),
    _mutant(
        "any-version-of-a-declaration",
        "C5",
        WRITES,
        "    if end < 0 or not payload.startswith(_TAG):\n",
        '    if end < 0 or not payload.startswith(b"#w"):\n',
        _DECLARED + "test_any_other_comment_declares_nothing",
    ),
)
