"""Safeguards by which an update does the same in each engine, one each taken out. Tests on real engines kill each."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_WORKERS = "txlog/workers"
_REPEATED = "node/tests/workers/test_repeated_variables.py::"
_MINUS = "node/tests/workers/test_minus_in_updates.py::"
_SUBJECTS = "node/tests/workers/test_template_subjects.py::"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"engine-{name}", "18", False, (SourceEdit(f"{_WORKERS}/{file}", old, new),), test=test)


ENGINE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "rdf4j-gets-repeats",
        "rdf4j.py",
        "separate_repeats(isolate_minus(scoped_update(self._dialect(text))))",
        "isolate_minus(scoped_update(self._dialect(text)))",
        f"{_REPEATED}test_a_variable_is_compared_in_both_places",
    ),
    _mutant(
        "graph-is-no-place",
        "rdf4j_repeats.py",
        'seen = {group.graph[1:]} if group.graph[:1] in ("?", "$") else set[str]()',
        "seen = set[str]()",
        f"{_REPEATED}test_a_variable_is_compared_in_both_places",
    ),
    _mutant(
        "path-that-ends-where-it-begins-is-parted",
        "rdf4j_repeats.py",
        "return [] if is_loop else places",
        "return places",
        f"{_REPEATED}test_only_triples_with_a_variable_twice_change",
    ),
    _mutant(
        "minus-sees-what-it-is-joined-with",
        "rdf4j.py",
        "isolate_minus(scoped_update(self._dialect(text)))",
        "scoped_update(self._dialect(text))",
        f"{_MINUS}test_a_minus_compares_the_variables_of_its_parts",
    ),
    _mutant(
        "filter-goes-into-the-sub-select",
        "rdf4j_minus.py",
        'elif word == "FILTER" and is_parted:',
        "elif False:",
        f"{_MINUS}test_a_minus_compares_the_variables_of_its_parts",
    ),
    _mutant(
        "jena-gets-any-subject",
        "fuseki.py",
        "update_texts(operations, _normalise_quads, guard_templates)",
        "update_texts(operations, _normalise_quads)",
        f"{_SUBJECTS}test_a_template_makes_triples_of_rdf",
    ),
    _mutant(
        "subjects-of-triple-terms-are-free",
        "jena_templates.py",
        ", *scan.term_subjects]",
        "]",
        f"{_SUBJECTS}test_a_template_makes_triples_of_rdf",
    ),
    _mutant(
        "a-part-of-a-union-is-certain",
        "jena_templates.py",
        "if group.is_joined else ()",
        "",
        f"{_SUBJECTS}test_only_what_may_be_no_iri_is_guarded",
    ),
)
