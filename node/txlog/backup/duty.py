"""A duty of a data centre performed, as a process of its own: ``python -m txlog.backup.duty --config FILE.json`` with
``--backup DUTY``, ``--restore WORKER``, ``--unorder WORKER``, ``--repair WORKER`` or ``--release``.

The last line on standard output is JSON: what was done, or ``{"error", "message"}`` with exit code 1. Doing it again
finds what was done and says so: a split backup that helps, a worker that is on the log, one that does not differ.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from txlog.backup.catalogue import COMPLETE, catalogue, release
from txlog.backup.chain import OnChain, chain_of, cluster_of
from txlog.backup.faults import BackupFault, NoSuchBackup
from txlog.backup.job import READ_S, duties_of, say, workers_of
from txlog.backup.loading import Into
from txlog.backup.rebuilding import rebuild_empty, rebuild_from_backup, rebuild_from_worker
from txlog.backup.repairing import Taken, keep_taken, named, repair
from txlog.backup.shown import Shown
from txlog.backup.splitting import back_up
from txlog.backup.standing import Source, choose, lift, system_of
from txlog.backup.target import open_target
from txlog.backup.unordering import unorder
from txlog.client import Divergence, MasterClient, Worker
from txlog.config.process import DutyJobConfig
from txlog.model.entry import Position
from txlog.model.errors import NotFound, TxLogError, Unavailable
from txlog.workers import ADAPTERS
from txlog.workers.base import MarkerPosition
from txlog.workers.transport import HttpTransport

GRAPHS_TOLD: Final = 20
"""To the masters: they show no more."""


def go_back(config: DutyJobConfig, name: str) -> dict[str, Any]:
    """The worker made anew on the log's chain, by the first way that is possible: the newest sound backup of this data
    centre or of another, a copy of a live worker, nothing and the whole log again."""
    with ExitStack() as closing:
        masters = _masters(config.masters, closing)
        found = next((w for w in workers_of(masters) if w.name == name), None)
        if found is None:
            raise NotFound(f"no worker is called {name} in {config.data_center}")
        chain, cluster = chain_of(masters), cluster_of(masters)
        transport = closing.enter_context(HttpTransport(found.url, READ_S))
        into = Into(name, ADAPTERS[found.engine or "oxigraph"], transport)
        shown = Shown(config.shown, _source(found, masters, closing)) if config.shown is not None else None
        if is_on(into, chain):
            if shown is not None:
                shown.abandon()
            return {"worker": name, "from": "nothing: it is on the log already", "already": True}
        if shown is not None:
            shown.remember()
        try:
            gone = _gone_back(config, into, masters, cluster, chain, shown.onward if shown else None, closing)
        except BaseException:
            lift(masters, name)
            raise
        return {**gone, "shown": shown.compare(gone["index"])} if shown is not None else gone


def _gone_back(
    config: DutyJobConfig,
    into: Into,
    masters: Sequence[MasterClient],
    cluster: str,
    chain: OnChain,
    onward: int | None,
    closing: ExitStack,
) -> dict[str, Any]:
    against: list[str] = []
    for target in [config.target, *config.others]:
        try:
            made, done = rebuild_from_backup(open_target(target), into, masters, cluster, chain, onward=onward)
            return _done(into.name, made.name, "backup", done.marker.position.index, done.quads)
        except (NoSuchBackup, BackupFault, OSError) as fault:
            against.append(str(fault))
    for group in [config.masters, *config.elsewhere]:
        other = _live(group, into.name, closing)
        if other is None:
            continue
        try:
            done = rebuild_from_worker(other, into, masters, chain, onward=onward)
            return _done(into.name, other.name, "worker", done.marker.position.index, done.quads)
        except TxLogError as fault:
            against.append(f"{other.name}: {fault}")
    rebuild_empty(into, masters, onward=onward)
    return {**_done(into.name, "nothing", "log", 0, 0), "against": against}


def set_on_log(config: DutyJobConfig, name: str) -> dict[str, Any]:
    """The worker set on the log's chain as it is: its marker names the place that it leaves, and the masters know from
    there what it has executed (``splitRecovery: None``)."""
    with ExitStack() as closing:
        masters = _masters(config.masters, closing)
        duty = next((d for _, d in duties_of(masters) if d["kind"] == "unorder" and d["worker"] == name), None)
        found = next((w for w in workers_of(masters) if w.name == name), None)
        if duty is None or found is None:
            return {"worker": name, "already": True}
        to = Position(duty["to"]["epoch"], duty["to"]["index"], bytes.fromhex(duty["to"]["hash"]))
        transport = closing.enter_context(HttpTransport(found.url, READ_S))
        source = Source(name, ADAPTERS[found.engine or "oxigraph"], transport)
        known = found.position
        was = MarkerPosition(known.position, known.fence, known.paths) if known is not None else None
        new = unorder(source, was, to)
        return {"worker": name, "way": "unordered", "index": to.index, "paths": len(new.unordered)}


def set_right(config: DutyJobConfig, name: str) -> dict[str, Any]:
    """The graphs in which a worker differs copied from one that is known to be right, of this data centre rather than
    of another, while the masters list that. What was taken out and put in is kept in a file, where there is a folder
    for it."""
    with ExitStack() as closing:
        masters = _masters(config.masters, closing)
        duty = next((d for _, d in duties_of(masters) if d["kind"] == "repair" and d["worker"] == name), None)
        found = next((w for w in workers_of(masters) if w.name == name), None)
        known = found.divergence if found is not None else None
        if duty is None or found is None or known is None:
            return {"worker": name, "already": True}
        chain = chain_of(masters)
        center, source = _right(config, known, masters, closing)
        into = _source(found, masters, closing)
        kept: list[Path] = []

        def keep(taken: Taken) -> None:
            if config.repaired is not None:
                kept.append(keep_taken(config.repaired, taken))

        done = repair(source, into, chain, graphs=named(known), before=keep)
        at = done.marker.position
        told = {
            "source": f"{center}/{source.name}",
            "graphs": done.graphs[:GRAPHS_TOLD],
            "graphCount": len(done.graphs),
            "added": done.added,
            "removed": done.removed,
            "index": at.index,
            "fence": done.marker.fence,
        }
        for master in masters:
            with suppress(TxLogError):  # who does not hear of it sees another fence
                master.duty_repaired(duty["id"], {**told, "hash": at.hash.hex(), "epoch": at.epoch})
        return {"worker": name, "way": "repair", **told, "kept": str(kept[-1]) if kept else None}


def _right(
    config: DutyJobConfig, known: Divergence, masters: Sequence[MasterClient], closing: ExitStack
) -> tuple[str, Source]:
    """One that the judgement names and that still works, and its data centre."""
    groups = [masters, *(_masters(urls, closing) for urls in config.elsewhere)]
    for group in groups:
        try:
            workers, center = workers_of(group), _center_of(group)
        except TxLogError:
            continue
        found = choose([worker for worker in workers if f"{center}/{worker.name}" in known.right])
        if found is not None:
            return center, _source(found, group, closing)
    raise Unavailable("NoWorker", f"none of {', '.join(known.right) or 'no worker'} can be copied now")


def _center_of(masters: Sequence[MasterClient]) -> str:
    """Of the first that answers."""
    for master in masters:
        with suppress(TxLogError):
            return master.status().data_center
    raise Unavailable("NoMaster", "no master answers")


def let_go(config: DutyJobConfig) -> dict[str, Any]:
    """All are joined: the split backups of this data centre are like any other from now on."""
    with ExitStack() as closing:
        cluster = cluster_of(_masters(config.masters, closing))
        target = open_target(config.target)
        held = [each for each in catalogue(target) if each.state == COMPLETE and each.held and each.manifest]
        names = [
            made.name
            for each in held
            if (made := each.manifest) is not None
            and (made.cluster, made.data_center, made.why) == (cluster, config.data_center, "split")
        ]
        for name in names:
            release(target, name)
        return {"released": names}


def _done(worker: str, whence: str, way: str, index: int, quads: int) -> dict[str, Any]:
    return {"worker": worker, "from": whence, "way": way, "index": index, "quads": quads}


def _masters(urls: Sequence[str], closing: ExitStack) -> list[MasterClient]:
    return [closing.enter_context(MasterClient(url)) for url in urls]


def _source(worker: Worker, masters: Sequence[MasterClient], closing: ExitStack) -> Source:
    transport = closing.enter_context(HttpTransport(worker.url, READ_S))
    return Source(worker.name, ADAPTERS[worker.engine or "oxigraph"], transport, masters)


def is_on(into: Into, chain: OnChain) -> bool:
    """Whether the worker is whole, on the log's chain, and has executed nothing in another order. One that has
    (``splitRecovery: None``) is made anew when somebody asks for it."""
    system = system_of(into.adapter, into.transport)
    if system.loading or len(system.markers) != 1 or system.markers[0].unordered:
        return False
    try:
        chain(system.markers[0].position)
    except BackupFault:
        return False
    return True


def _live(urls: Sequence[str], but: str, closing: ExitStack) -> Source | None:
    """A worker that can be copied, of the data centre of these masters."""
    masters = _masters(urls, closing)
    try:
        found = choose([w for w in workers_of(masters) if w.name != but])
    except TxLogError:
        return None
    return _source(found, masters, closing) if found is not None else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="txlog.backup.duty", description="a duty of a data centre")
    parser.add_argument("--config", type=Path, required=True, help="a DutyJobConfig as JSON")
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument("--backup", metavar="DUTY")
    ways.add_argument("--restore", metavar="WORKER")
    ways.add_argument("--unorder", metavar="WORKER")
    ways.add_argument("--repair", metavar="WORKER")
    ways.add_argument("--release", action="store_true")
    parser.add_argument("--answer", type=Path, help="the last line goes into this file, too")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        config = DutyJobConfig.model_validate_json(options.config.read_bytes())
        if options.backup:
            told = back_up(config, options.backup)
        elif options.restore:
            told = go_back(config, options.restore)
        elif options.unorder:
            told = set_on_log(config, options.unorder)
        elif options.repair:
            told = set_right(config, options.repair)
        else:
            told = let_go(config)
    except (TxLogError, OSError) as error:
        name = error.name if isinstance(error, TxLogError) else type(error).__name__
        say({"error": name, "message": str(error)}, options.answer)
        return 1
    except KeyboardInterrupt:
        say({"error": "Interrupted", "message": "ended from outside; it is begun again"}, options.answer)
        return 130
    say({**told, "seconds": round(time.monotonic() - began, 3)}, options.answer)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
