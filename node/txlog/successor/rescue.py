"""Gives again what a survivor of a lost cluster holds, and its successor lacks.

Everything is read and compared before anything is written. Each transaction is given under a key that makes the whole
repeatable: a rescue that broke off is begun again, and finds what it has given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any, Final, NamedTuple, Protocol

from txlog.archive.stream import find_streams
from txlog.backup.target import BackupTarget
from txlog.client import MasterClient, MasterUnreachable
from txlog.client.rescue_calls import RescueCalls
from txlog.client.responses import WriteResult
from txlog.model.durability import Durability
from txlog.model.errors import JournalDamaged, NotFound, TxLogError, Unavailable
from txlog.model.ids import Origin, Txid
from txlog.successor.archived_branches import ArchivedBranches
from txlog.successor.recovery_lineage import Lineage, find_lineage
from txlog.successor.rescue_plan import (
    RescueCandidate,
    RescueRow,
    RescueState,
    leave_bulk_load,
    plan_rescue,
    wanted_keys,
)
from txlog.successor.rescued_keys import OnStep, UsedKeys

GIVE_S: Final = 60.0
"""How long one transaction may take, at all masters together."""
_WAIT_S: Final = 10.0
_PAUSE_S: Final = 0.2
_JOINED: Final = "Joined"
LATEST: Final = "latest"
"""The moment of a recovery that was meant to lose nothing."""
_STABLE: Final = (Durability.SYNCED, Durability.APPLIED, Durability.APPLIED_ALL, Durability.ARCHIVED)


class RescueSource(Protocol):
    """What holds transactions of the lost cluster."""

    def highest(self) -> dict[Origin, int]: ...

    def skipped(self) -> set[str]: ...

    def candidates(self, known: Mapping[Origin, int]) -> list[RescueCandidate]: ...

    def payload(self, txid: Txid) -> bytes: ...


class RescueGiver(Protocol):
    """A master, as far as transactions are given to it: :class:`~txlog.client.rescue_calls.RescueCalls`."""

    def give(self, txid: str, kind: int, key: str, payload: bytes, wait_s: float) -> WriteResult: ...


class SuccessorMasters(NamedTuple):
    """``masters``: those of the new cluster that are in its view, so that they know its whole log."""

    cluster: bytes
    masters: list[MasterClient]


def find_successor(masters: Sequence[MasterClient]) -> SuccessorMasters:
    """:class:`Unavailable` when none of these masters is in a view."""
    found: dict[str, list[MasterClient]] = {}
    states: list[str] = []
    for master in masters:
        try:
            status = master.status()
        except (MasterUnreachable, Unavailable) as error:
            states.append(f"{master.url}: {error}")
            continue
        states.append(f"{status.node}: {status.state}")
        if status.state == _JOINED and status.cluster_id:
            found.setdefault(status.cluster_id, []).append(master)
    if len(found) != 1:
        raise Unavailable("NoMaster", f"expected the masters of one cluster, in their view: {'; '.join(states)}")
    [(cluster, joined)] = found.items()
    return SuccessorMasters(bytes.fromhex(cluster), joined)


def find_last_known(highest: Mapping[Origin, int], has: Callable[[Txid], bool]) -> dict[Origin, int]:
    """The last seq of each origin of the lost cluster that the new one has. Its log has the first ones of each, without
    a gap. ``has``: whether a master of the new cluster knows a transaction."""
    known: dict[Origin, int] = {}
    for origin, last in highest.items():
        low, high = 0, last
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if has(Txid(origin, middle)) else (low, middle - 1)
        known[origin] = low
    return known


def has_transaction(masters: Sequence[MasterClient], txid: Txid) -> bool:
    """As the first master says that answers."""
    last: TxLogError | None = None
    for master in masters:
        try:
            return master.transaction(str(txid)).state != "unknown"
        except NotFound:
            return False
        except (MasterUnreachable, Unavailable) as error:
            last = error
    raise Unavailable("NoMaster", f"no master answers whether it has {txid}: {last}; see txlog status")


def read_rescue(
    target: BackupTarget, successor: SuccessorMasters, lineage: Lineage, source: RescueSource, on_step: OnStep
) -> list[RescueRow]:
    """What the new cluster lacks of ``source``, and what becomes of it. Nothing is written.

    Raises the errors of the masters, the target and the archives, and
    :class:`~txlog.successor.successor_errors.KeysUncertain`."""
    known = find_last_known(source.highest(), lambda txid: has_transaction(successor.masters, txid))
    candidates = source.candidates(known)
    used = UsedKeys(wanted_keys(candidates), on_step)
    if candidates:
        used.read_archived(lineage.streams, lineage.claim.place)
        own = find_streams(target, cluster=successor.cluster.hex())
        used.read_new(successor.masters, own, lineage.claim.place)
    return plan_rescue(candidates, source.skipped(), used.found)


def give_again(
    rows: Sequence[RescueRow],
    source: RescueSource,
    masters: Sequence[RescueGiver],
    on_done: Callable[[int, int], None],
    give_s: float = GIVE_S,
) -> list[RescueRow]:
    """Gives the lacking ones, in order, each when the one before is stable. It stops at the first one of which that is
    not known, since a later one must not overtake it; to begin again is harmless."""
    done: list[RescueRow] = []
    total = sum(row.state is RescueState.LACKING for row in rows)
    given, is_stopped = 0, False
    for row in rows:
        if row.state is not RescueState.LACKING or is_stopped:
            done.append(row)
            continue
        done.append(_give_row(row, source, masters, give_s))
        is_stopped = done[-1].state is RescueState.UNKNOWN
        given += 1
        on_done(given, total)
    return done


def _give_row(row: RescueRow, source: RescueSource, masters: Sequence[RescueGiver], give_s: float) -> RescueRow:
    try:
        payload = source.payload(row.candidate.txid)
    except JournalDamaged as wrong:
        return row._replace(state=RescueState.LEFT, note=f"unreadable: {wrong}")
    bulk = leave_bulk_load(row, payload)
    if bulk is not None:
        return bulk
    until, note, at = time.monotonic() + give_s, "", 0
    while True:
        try:
            result = _give(row.candidate, payload, masters[at % len(masters)])
        except (MasterUnreachable, Unavailable) as error:
            note = str(error)
        except TxLogError as error:
            return row._replace(state=RescueState.REFUSED, note=f"{error.name}: {error}")
        else:
            if result.txid and result.durability in _STABLE:
                return row._replace(state=RescueState.GIVEN, new=result.txid)
            note = f"{result.txid or 'no answer'} reached {result.durability or 'nothing'}"
        at += 1
        if time.monotonic() > until:
            return row._replace(state=RescueState.UNKNOWN, note=f"{note}; repeat this command")
        time.sleep(_PAUSE_S)


def _give(one: RescueCandidate, payload: bytes, master: RescueGiver) -> WriteResult:
    return master.give(str(one.txid), one.kind, one.new_key, payload, _WAIT_S)


def give_to_masters(
    rows: Sequence[RescueRow], source: RescueSource, successor: SuccessorMasters, on_done: Callable[[int, int], None]
) -> list[RescueRow]:
    """:func:`give_again` to the masters of the new cluster."""
    with ExitStack() as closing_all:
        givers = [closing_all.enter_context(closing(RescueCalls(each.url))) for each in successor.masters]
        return give_again(rows, source, givers, on_done)


def rescue_branches(target: BackupTarget, masters: Sequence[MasterClient], on_step: OnStep) -> list[RescueRow]:
    """After a recovery to ``latest``: gives again what other branches of the archive hold. So what was answered as
    ``archived`` is in the new cluster. After one to another moment it gives nothing: a person chose what to lose.

    Repeating it is harmless. Raises what :func:`open_lineage` and :func:`read_rescue` raise."""
    successor, lineage = open_lineage(target, masters)
    if lineage.claim.moment != LATEST:
        return []
    source = ArchivedBranches(lineage.streams, lineage.claim.place, on_step)
    rows = read_rescue(target, successor, lineage, source, on_step)
    rows = give_to_masters(rows, source, successor, lambda done, of: on_step("giving transactions again", done, of))
    record_rescue(lineage, rows, time.time())
    return rows


def record_rescue(lineage: Lineage, rows: Sequence[RescueRow], at: float) -> None:
    """Writes the old and new ids beside the archive, for people. A target that takes nothing now is passed over: a
    repeated rescue finds the same again."""
    moved = [(str(row.candidate.txid), row.new) for row in rows if row.new]
    with suppress(TxLogError):
        lineage.stream.record_rescue(at, lineage.claim.successor, moved)


def row_to_dict(row: RescueRow) -> dict[str, Any]:
    """As JSON."""
    one = row.candidate
    return {
        "transaction": str(one.txid),
        "kind": one.kind,
        "key": one.key or None,
        "bytes": one.size,
        "state": row.state.value,
        "new": row.new or None,
        "note": row.note or None,
    }


def lacks_nothing(rows: Collection[RescueRow]) -> bool:
    """Whether nothing is left to be given again."""
    return not any(row.state in (RescueState.LACKING, RescueState.UNKNOWN, RescueState.REFUSED) for row in rows)


def open_lineage(target: BackupTarget, masters: Sequence[MasterClient]) -> tuple[SuccessorMasters, Lineage]:
    """The new cluster, and whose place it has taken."""
    successor = find_successor(masters)
    return successor, find_lineage(target, successor.cluster)
