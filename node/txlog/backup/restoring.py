"""From a backup into a worker. All that can be said against it is said before the worker is touched."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from txlog.backup.chain import OnChain, check_cluster
from txlog.backup.checking import check, contents, manifest_of
from txlog.backup.faults import OtherEngine
from txlog.backup.lease import reading
from txlog.backup.loading import LOCK_S, Expected, Into, begin, fill, finish, refuse_unless_empty
from txlog.backup.manifest import Manifest
from txlog.backup.progress import Told, nobody
from txlog.backup.target import Target
from txlog.workers.base import MarkerPosition


class Restored(NamedTuple):
    """``marker``: where the worker stands now; the pipeline goes on from there."""

    marker: MarkerPosition
    quads: int
    bytes: int


def restore(
    target: Target,
    name: str,
    into: Into,
    cluster: str,
    on_chain: OnChain,
    *,
    again: bool = False,
    fence: int = 1,
    told: Told = nobody,
    lock_s: float = LOCK_S,
    beginning: AbstractContextManager[None] | None = None,
) -> Restored:
    """Into an empty worker. ``again``: into one in which an earlier restore broke off, which is emptied first.
    ``fence``: the number that appliers must find beside the position. ``beginning``: entered until the worker is
    marked as loading (:func:`txlog.backup.rebuilding.taken_out`, for a worker that a pipeline knows).

    Raises, the worker untouched: every fault of the backup, ``OtherCluster``, ``OtherEngine``, ``OffTheChain``,
    ``WorkerNotEmpty``, ``WorkerLoading``. Anything else leaves the worker marked as loading."""
    manifest = manifest_of(target, name)
    refuse_unfit(manifest, into, cluster, on_chain)
    refuse_unless_empty(into, again=again)
    with reading(target, name):
        check(target, name, told)
        return load(
            target,
            manifest,
            into,
            emptying=False,
            again=again,
            fence=fence,
            told=told,
            lock_s=lock_s,
            beginning=beginning,
        )


def refuse_unfit(manifest: Manifest, into: Into, cluster: str, on_chain: OnChain) -> None:
    check_cluster(manifest, cluster)
    if manifest.engine != into.adapter.engine:
        raise OtherEngine(
            f"{manifest.name} is of the engine {manifest.engine}, {into.name} is {into.adapter.engine}; "
            "take a backup of that engine, or let the log fill the worker"
        )
    on_chain(manifest.position)


def load(
    target: Target,
    manifest: Manifest,
    into: Into,
    *,
    emptying: bool,
    fence: int,
    told: Told,
    again: bool = False,
    lock_s: float = LOCK_S,
    beginning: AbstractContextManager[None] | None = None,
) -> Restored:
    """The part of :func:`restore` that touches the worker, for a backup that was checked. ``beginning``: entered until
    the worker is marked as loading."""
    with beginning or nullcontext():
        loading = begin(into, manifest.position, emptying=emptying, again=again, lock_s=lock_s)
    size = fill(into, loading, contents(target, manifest), manifest.quads, told)
    expected = Expected(manifest.position, manifest.quads, manifest.digest)
    return Restored(finish(into, loading, expected, fence, told), manifest.quads, size)
