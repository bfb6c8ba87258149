"""Safeguards of the catalogue of repositories (R7), one each taken out. Imports nothing of ``txlog``.

The simulator has no system log, so that tests kill them.
"""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit

_CATALOGUE = "txlog/system/catalogue.py"
_TESTS = "node/tests/system/test_repository_catalogue.py"


def _mutant(name: str, old: str, new: str) -> Mutant:
    return Mutant(f"system-{name}", "R7", True, (SourceEdit(_CATALOGUE, old, new),), test=_TESTS)


SYSTEM_MUTANTS: tuple[Mutant, ...] = (
    _mutant("names-differ-by-case", "record.name.lower() == folded)", "record.name == change.name)"),
    _mutant(
        "name-is-free-while-it-is-removed",
        "for record in kept if record.name",
        "for record in kept if record.wanted_by and record.name",
    ),
    _mutant("any-number-is-the-next", "change.number == self.next_number", "change.number not in self.records"),
    _mutant(
        "number-of-a-removed-one",
        "self.records.get(number)\n        return record if record is not None and record.is_kept else None",
        "self.records.get(number)\n        return record",
    ),
    _mutant(
        "last-founding-counts", "record is not None and record.state is RepositoryState.FOUNDED:", "record is None:"
    ),
    _mutant(
        "two-logs-of-one-cluster-id",
        "for other in self.records.values())\n        return CatalogueRefusal.CLUSTER",
        "for other in self.kept())\n        return CatalogueRefusal.CLUSTER",
    ),
    _mutant("founded-without-members", "not change.members or len(", "len("),
    _mutant(
        "one-want-for-all",
        "record.wanted_by | {by} if is_wanted else record.wanted_by - {by}",
        "record.wanted_by | {by} if is_wanted else frozenset()",
    ),
    _mutant(
        "manifest-does-not-hinder-a-removal",
        "CatalogueRefusal.NAMED_BY_MANIFEST if record.is_named_by_manifest else None",
        "None",
    ),
    _mutant("request-hinders-a-removal", "bool(self.wanted_by - {BY_REQUEST})", "bool(self.wanted_by)"),
    _mutant(
        "nothing-is-unwanted", "state is not RepositoryState.REMOVING\n        ]", "is_named_by_manifest\n        ]"
    ),
    _mutant("first-repository-is-removed", "        if record.number == FIRST_LOG:\n", "        if False:\n"),
    _mutant("removed-without-removing", "is_removing = record.state is RepositoryState.REMOVING", "is_removing = True"),
    _mutant(
        "founded-in-its-removal",
        "REMOVING if record.state is RepositoryState.REMOVING else None",
        "REMOVING if not record.name else None",
    ),
    _mutant("more-than-a-master-serves", "len(kept) >= LOGS_MAX", "len(kept) > LOGS_MAX"),
    _mutant("reserved-name", " or folded in _RESERVED", ""),
)
