"""View 1 of a further log, made of the entries of the system log. Every master makes the same one by itself. Pure.

Masters do not agree on it in a bootstrap of its own: the first ``found`` entry is the agreement. So a master that ends
between two steps hinders nothing, and two sides of a split never found one log twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from txlog.model.configuration import Configuration, Master
from txlog.model.view import Member, View, bootstrap_cluster_id, bootstrap_view
from txlog.system.catalogue import FoundingMember, FoundRepository, RepositoryRecord

_BALLOT: Final = 1
MAJORITY: Final = "Majority"


class JournalBirth(NamedTuple):
    """The empty journal of a master for a new log. ``keeps_literals``: its stores for that log can hold literals as
    they are sent. ``level``: of its program."""

    birth: int
    keeps_literals: bool
    level: int


def founding_members(
    births: Collection[str], members: Sequence[str], configuration: Configuration, is_patience_over: bool
) -> list[str]:
    """The masters that found a log: the members of the system log's view. When ``is_patience_over``, those of them
    whose journal is known (``births``), if they have more than half of all votes. The others learn the log later: one
    master with a bad folder hinders no founding."""
    known = [node for node in members if node in births]
    return known if is_patience_over and configuration.has_majority(known) else list(members)


def found_entry(
    number: int, births: Mapping[str, JournalBirth], members: Sequence[str], masters: Sequence[Master]
) -> FoundRepository | None:
    """The entry that founds a log on these masters; None while the journal of one of them is not known. ``masters``:
    all of the cluster, in order of precedence."""
    ordered = [master for master in masters if master.node in members]
    if not ordered or any(master.node not in births for master in ordered):
        return None
    chosen = [births[master.node] for master in ordered]
    founding = tuple(FoundingMember(master.node, one.birth) for master, one in zip(ordered, chosen, strict=True))
    cluster_id = bootstrap_cluster_id(_view_members(founding, masters))
    keeps_literals = all(one.keeps_literals for one in chosen)
    return FoundRepository(number, cluster_id, founding, keeps_literals, min(one.level for one in chosen))


def founding_view(record: RepositoryRecord, masters: Sequence[Master]) -> View | None:
    """View 1 of a founded log; None where the entry does not fit the masters of the system log. ``masters``: those of
    the system log's first configuration."""
    members = _view_members(record.members, masters)
    if len(members) < len(record.members) or bootstrap_cluster_id(members) != record.cluster_id:
        return None
    settings = record.settings
    first = Configuration(
        [Master(one.node, one.data_center, one.weight) for one in masters],
        settings.split_mode == MAJORITY,
        settings.key_retention_ms,
        keeps_literals=record.keeps_literals,
    )
    strategy = settings.split_recovery
    return bootstrap_view(_BALLOT, members[0].node, members, strategy, first, [strategy] * len(members), record.level)


def _view_members(founding: Sequence[FoundingMember], masters: Sequence[Master]) -> list[Member]:
    known = {master.node: master for master in masters}
    return [
        Member(one.node, one.birth, known[one.node].weight, known[one.node].data_center)
        for one in founding
        if one.node in known
    ]
