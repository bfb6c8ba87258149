"""The backup without which a side of a split does not go on (rule 23): one that is there already, or a new one.

Each master that asks is served by itself: those of one data centre may be on different sides, and its stores follow one
of them. Whether a position helps it is for that master to say, before a store is read and again after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from txlog.backup.catalogue import newest
from txlog.backup.chain import cluster_of
from txlog.backup.creating import Order, create
from txlog.backup.job import READ_S, duties_of, workers_of
from txlog.backup.manifest import Manifest, Place, place_of
from txlog.backup.standing import Source, marker_of
from txlog.backup.target import open_target
from txlog.backup.telling import tell
from txlog.client import MasterClient, Worker
from txlog.config.process import DutyJobConfig, TargetConfig
from txlog.model.errors import NotFound, OffTheLog, TxLogError, Unavailable
from txlog.workers import ADAPTERS
from txlog.workers.transport import HttpTransport

ASK_S: Final = 5.0
"""How long a store may think about where it stands."""


class Standing(NamedTuple):
    worker: Worker
    place: Place


def back_up(config: DutyJobConfig, duty: str) -> dict[str, Any]:
    """Until every master that lists this duty has a verified, held backup that helps it. What was made, or else found.

    Masters that do not answer are passed over; the error of the last one is raised when none does. Raises
    :class:`~txlog.model.errors.OffTheLog` when every store of the data centre follows another order than a
    master's, and nothing that was backed up before helps it; ``Unavailable`` when no store says where it stands."""
    with ExitStack() as closing:
        masters = [closing.enter_context(MasterClient(url)) for url in config.masters]
        fresh: list[Manifest] = []
        served: list[dict[str, Any]] = []
        failed: list[TxLogError] = []
        asking = list(dict.fromkeys(master for master, each in duties_of(masters) if each["id"] == duty))
        for master in asking:
            try:
                served.append(_serve(master, config, duty, masters, fresh, closing))
            except NotFound:
                continue  # it is no duty any more
            except TxLogError as fault:
                failed.append(fault)
        if failed:
            raise failed[0]
        return next((told for told in served if not told.get("already")), served[0] if served else {"already": True})


def _serve(
    master: MasterClient,
    config: DutyJobConfig,
    duty: str,
    masters: Sequence[MasterClient],
    fresh: list[Manifest],
    closing: ExitStack,
) -> dict[str, Any]:
    """One of the masters that ask. Stores are asked themselves: a pipeline that has died reports nothing. ``fresh``:
    what was made for the others."""
    stable = master.status().stable
    if stable.index == 0:  # nothing was ever executed: an empty worker is the backup
        master.duty_done(duty, 0, stable.hash)
        return {"name": "", "index": 0, "hash": stable.hash}
    cluster = cluster_of([master])
    stores, silent = standing(masters)
    found = next((store for store in stores if _helps(master, duty, store.place)), None)
    # The stores of another data centre may be on this master's side, when those of its own are not.
    targets = [config.target] if found is not None else [config.target, *config.others]
    for made in (*fresh, *_held(targets, cluster)):
        near = found is None or made in fresh or made.place.index >= found.place.index
        if near and _helps(master, duty, made.place, done=True):
            return {"name": made.name, **_told(made.place), "already": True}
    if found is None and not stores:
        raise Unavailable("NoWorker", f"no store of {config.data_center} says where it stands: {'; '.join(silent)}")
    if found is None:
        where = ", ".join(f"{store.worker.name} at {store.place.index}" for store in stores)
        raise OffTheLog(
            f"the stores of {config.data_center} follow another order than {master.url} ({where}), and no backup of "
            "before stands on its log; heal the link, or let the silent members go by order (txlog force-view)"
        )
    target = open_target(config.target)
    transport = closing.enter_context(HttpTransport(found.worker.url, READ_S))
    source = Source(found.worker.name, ADAPTERS[found.worker.engine or "oxigraph"], transport, masters)
    made = create(source, target, Order(cluster, config.data_center, "split", "held"))
    tell(target, masters, cluster, config.data_center)
    fresh.append(made)
    master.duty_done(duty, made.place.index, made.place.hash, made.place.epoch)
    return {"name": made.name, **_told(made.place), "quads": made.quads, "bytes": made.stored_bytes}


def standing(masters: Sequence[MasterClient]) -> tuple[list[Standing], list[str]]:
    """Where the data centre's stores stand, the farthest first, and why others do not say it."""
    found: list[Standing] = []
    silent: list[str] = []
    for worker in workers_of(masters):
        with HttpTransport(worker.url, ASK_S) as transport:
            try:
                marker = marker_of(Source(worker.name, ADAPTERS[worker.engine or "oxigraph"], transport))
            except TxLogError as fault:
                silent.append(str(fault))
            else:
                found.append(Standing(worker, place_of(marker.position)))
    return sorted(found, key=lambda store: -store.place.index), silent


def _helps(master: MasterClient, duty: str, place: Place, *, done: bool = False) -> bool:
    """Whether this master can go back to there; ``done``: a verified backup stands there."""
    report = master.duty_done if done else master.duty_begun
    try:
        report(duty, place.index, place.hash, place.epoch)
    except OffTheLog:
        return False
    return True


def _held(targets: Sequence[TargetConfig], cluster: str) -> Iterator[Manifest]:
    """The backups that splits hold, the farthest of each target first. Only the first target has to be there."""
    for at, target in enumerate(targets):
        try:
            listed = newest(open_target(target), cluster)
        except TxLogError:
            if at == 0:
                raise
            continue
        for each in listed:
            if each.manifest and each.held and each.manifest.why == "split":
                yield each.manifest


def _told(place: Place) -> dict[str, Any]:
    return {"index": place.index, "hash": place.hash}
