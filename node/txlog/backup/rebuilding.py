"""A worker of the cluster made anew, whatever it holds: from a backup, or from another worker, which keeps serving.

Everything that can be said against where it comes from is said first. Then its pipeline is asked to stand still, the
masters are told, so that no read goes there, and one request empties the worker and marks it as loading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress

from txlog.backup.catalogue import newest
from txlog.backup.chain import OnChain
from txlog.backup.checking import check, manifest_of
from txlog.backup.faults import BackupFault, NoSuchBackup, OtherEngine
from txlog.backup.lease import reading
from txlog.backup.loading import Expected, Into, begin, fill, finish
from txlog.backup.manifest import Manifest
from txlog.backup.parts import canonical, gathered
from txlog.backup.progress import Progress, Told, nobody
from txlog.backup.restoring import Restored, load, refuse_unfit
from txlog.backup.standing import Source, hold, lift, snapshot, system_of
from txlog.backup.target import Target
from txlog.client import MasterClient, WorkerReport
from txlog.model.entry import Position
from txlog.model.errors import TxLogError
from txlog.model.hashes import NO_HASH
from txlog.workers.digest import Digester


def rebuild_from_backup(
    target: Target,
    into: Into,
    masters: Sequence[MasterClient],
    cluster: str,
    on_chain: OnChain,
    *,
    name: str | None = None,
    told: Told = nobody,
    onward: int | None = None,
) -> tuple[Manifest, Restored]:
    """From this backup, or from the newest that is sound and on the chain (:class:`NoSuchBackup` names what was wrong
    with each). ``masters``: of the worker's data centre; none for a store that no pipeline knows. ``onward``: its
    pipeline is asked to bring it to this index only; that hold is the caller's to lift."""
    fence = _next_fence(into)
    against = []
    for each in [name] if name is not None else [listed.name for listed in newest(target, cluster)]:
        try:
            manifest = manifest_of(target, each)
            refuse_unfit(manifest, into, cluster, on_chain)
            with ExitStack() as lease:
                lease.enter_context(reading(target, each))
                check(target, each, told)
                kept = lease.pop_all()
        except (BackupFault, NoSuchBackup) as fault:
            if name is not None:
                raise
            against.append(f"{fault.name}: {fault}")
            continue
        with kept:
            out = taken_out(into, masters, told, onward) if masters else None
            return manifest, load(target, manifest, into, emptying=True, fence=fence, told=told, beginning=out)
    said = "; ".join(against) or "there is none of this cluster"
    raise NoSuchBackup(f"no backup on {target.where} can be restored ({said}); copy a live worker")


def rebuild_from_worker(
    source: Source,
    into: Into,
    masters: Sequence[MasterClient],
    on_chain: OnChain,
    *,
    told: Told = nobody,
    onward: int | None = None,
) -> Restored:
    """From another worker, as it is at one position. It goes on serving and applying while it is read. ``onward``: as
    for :func:`rebuild_from_backup`."""
    if source.adapter.engine != into.adapter.engine:
        raise OtherEngine(f"{source.name} is {source.adapter.engine}, {into.name} is {into.adapter.engine}")
    fence = _next_fence(into)
    total = source.adapter.size_in(source.transport.send(source.adapter.size()))
    with snapshot(source, told=lambda said: told(Progress("holding", 0, None, said))) as (marker, chunks):
        on_chain(marker.position)
        with taken_out(into, masters, told, onward) if masters else nullcontext():
            loading = begin(into, marker.position, emptying=True)
        made = Digester()
        pieces = canonical(gathered(chunks), source.name)
        size = fill(into, loading, _digested(pieces, made), total, told)
        found = made.digest()
        expected = Expected(marker.position, found.quads, f"{found.total:032x}")
        return Restored(finish(into, loading, expected, fence, told), found.quads, size)


def _digested(pieces: Iterator[bytes], made: Digester) -> Iterator[bytes]:
    for piece in pieces:
        made.feed(piece)
        yield piece


def _next_fence(into: Into) -> int:
    """Above what any applier of the old content may still expect."""
    return 1 + max((marker.fence for marker in system_of(into.adapter, into.transport).markers), default=0)


@contextmanager
def taken_out(into: Into, masters: Sequence[MasterClient], told: Told, onward: int | None = None) -> Iterator[None]:
    """Its pipeline stands still and no read goes there, until the worker says itself that it is being loaded.
    ``onward``: then it is held at this index instead."""
    told(Progress("emptying", 0, None, into.name))
    hold(masters, into.name, 0)
    try:
        for master in masters:
            with suppress(TxLogError):
                master.report_worker(into.name, WorkerReport(None, "Refused", "Loading: it is being rebuilt"))
        yield
        if onward is not None:
            hold(masters, into.name, onward)
    except BaseException:
        lift(masters, into.name)
        raise
    if onward is None:
        lift(masters, into.name)


def rebuild_empty(
    into: Into, masters: Sequence[MasterClient], *, told: Told = nobody, onward: int | None = None
) -> Restored:
    """With nothing, at the log's beginning: its pipeline carries out the whole log again. Only while the log is kept
    from its first entry on. ``onward``: as for :func:`rebuild_from_backup`."""
    fence = _next_fence(into)
    start = Position(0, 0, NO_HASH)
    with taken_out(into, masters, told, onward):
        loading = begin(into, start, emptying=True)
    return Restored(finish(into, loading, Expected(start, 0, f"{0:032x}"), fence, told), 0, 0)
