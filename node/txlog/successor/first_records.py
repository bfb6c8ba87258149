"""The journal of a new cluster's first master: where the log begins, and the view that goes on from there. Pure.

The master that reads these records is in a view of its own. It takes writes at once, and the other configured masters
join it as empty ones do. The cluster id is new, so no master of the lost cluster is ever taken for one of this.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txlog.model.configuration import Configuration
from txlog.model.ids import Origin
from txlog.model.records import (
    KeyTablePart,
    LogStart,
    LogTrimmed,
    Record,
    SynchronousState,
    ViewAccepted,
    ViewInstalled,
)
from txlog.model.stamp import LOGICAL_BITS
from txlog.model.synchronous_entry import join_spans
from txlog.model.view import Member, View, bootstrap_cluster_id
from txlog.protocol.log.key_table import KeyTable, key_name
from txlog.successor.inheritance import Inheritance
from txlog.wire.protocol_level import PROTOCOL_LEVEL

KEY_PART_BYTES: Final = 1 << 20
"""Bytes of the table of keys in one record."""


class FirstMaster(NamedTuple):
    """``birth``: of its new journal. ``configuration``: of the manifests."""

    node: str
    birth: int
    configuration: Configuration
    strategy: str

    @property
    def member(self) -> Member:
        """As the only member of the first view."""
        found = self.configuration.master(self.node)
        assert found is not None, "the first master is configured"
        return Member(self.node, self.birth, found.weight, found.data_center)

    @property
    def cluster(self) -> bytes:
        """The id of the new cluster: births are random, so no other one shares it."""
        return bootstrap_cluster_id([self.member])


def first_records(inherited: Inheritance, first: FirstMaster) -> list[Record]:
    """In the order in which they are written; all of them have to be durable before the master starts."""
    view = first_view(inherited, first)
    return [
        LogTrimmed(_log_start(inherited, first.configuration)),
        ViewAccepted(view, cut=view.base_index),
        ViewInstalled(*view.number),
    ]


def first_view(inherited: Inheritance, first: FirstMaster) -> View:
    """The view in which the new cluster begins. Its epoch and its stamps are above all that the lost one is known to
    have given out, so no position and no stamp means two things. Its ancestor is the cluster's view 1, the founding
    record of the first master alone: every view but that one descends from another.

    With ``splitMode: Majority`` it counts as forced, for it has no majority: so it may grow until every configured
    master is in it, and nothing after its base is final before that."""
    own = Origin(first.node, first.birth)
    origins = [*inherited.seqs, own]
    majority = first.configuration.majority
    return View(
        max(inherited.epoch, 1) + 1,
        1,
        first.node,
        [first.member],
        first.cluster,
        inherited.place.index,
        inherited.place.hash,
        [(origin.node, origin.birth) for origin in origins],
        [(1, 1, first.node)],
        inherited.highest_stamp,
        first.strategy,
        inherited.place.index if majority else -1,
        known_seqs=[*inherited.seqs.values(), 0],
        strategies=[first.strategy],
        preferred_strategies=[first.strategy],
        bootstrap_configuration=first.configuration,
        majority=majority,
        majority_before=majority,
        level=PROTOCOL_LEVEL,
    )


def _log_start(inherited: Inheritance, configuration: Configuration) -> LogStart:
    place = inherited.place
    return LogStart(
        place.index,
        place.hash,
        (inherited.last.node, inherited.last.birth),
        inherited.stamp,
        [(origin.node, origin.birth, seq) for origin, seq in inherited.seqs.items()],
        [],
        inherited.skips,
        [],
        (place.index, configuration),
        retention=configuration.key_retention_ms << LOGICAL_BITS,
        keys_index=place.index,
        key_table=_key_table(inherited),
        has_first_stamps=inherited.has_first_stamps,
        synchronous=_synchronous_state(inherited),
    )


def _synchronous_state(inherited: Inheritance) -> SynchronousState | None:
    """What was undecided in the lost cluster takes no effect in this one, so it is rolled back."""
    if not inherited.rolled_back:
        return None
    return SynchronousState(inherited.place.index, rolled_back=join_spans(inherited.rolled_back))


def _key_table(inherited: Inheritance) -> list[KeyTablePart]:
    table = KeyTable()
    for key, use in inherited.keys:
        table.add(key_name(key), use)
    snapshot, parts = table.snapshot(), list[KeyTablePart]()
    while not snapshot.is_complete:
        parts.append(snapshot.next_part(KEY_PART_BYTES))
    return parts
