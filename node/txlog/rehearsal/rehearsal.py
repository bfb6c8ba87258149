"""Carries out one rehearsal: the phases of a recovery, one after the other, in a throw-away place.

=========  =====================================================================================================
live       a live worker is read at its place, and the loss at this moment is measured; the archive has to reach it
find       the stream is listed, a base and files are chosen
claim      would the claim be free? none is taken
found      the journal of a new cluster's first master is written, as a copy
start      (level ``cluster``) that master is started, and takes a write
repeat     (level ``cluster``) it refuses another transaction under an archived idempotency key; only where there is one
base       the backup is read
files      the archived entries are read and proved
load       the throw-away store is filled, and executes updates
compare    its content is compared with that of the live worker at the same place
=========  =====================================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from txlog.archive.archive_errors import BeyondArchive, NoArchive
from txlog.archive.file_name import Node
from txlog.archive.moment import parse_moment
from txlog.archive.moment_restore import MomentRequest, plan_restore, restore_to_moment
from txlog.archive.stream import Stream, StreamId
from txlog.archive.stream_reader import StreamReader
from txlog.archive.window_retention import hold_stream
from txlog.backup.chain_check import read_cluster_id
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.pinned_snapshot import read_system_graphs
from txlog.backup.target import BackupTarget
from txlog.client import MasterClient
from txlog.config.process_config import NodeConfig, PeerConfig, RehearsalLevel
from txlog.model.errors import TxLogError
from txlog.rehearsal.live_state import LiveState, read_key_retention_ms, read_live_state
from txlog.rehearsal.phase_clock import PhaseClock
from txlog.rehearsal.rehearsal_errors import NoScratchStore, NotArchivedInTime
from txlog.rehearsal.scratch_cluster import find_repeatable, refuse_forgotten, scratch_master_process, write_first
from txlog.rehearsal.scratch_store import free_loopback_port, scratch_store
from txlog.rehearsal.verdict import (
    NO_BOUNDS,
    Comparison,
    PlacedDigest,
    RehearsalBounds,
    compare_digests,
    find_fault,
    measure_times,
)
from txlog.successor.recovery_claim import find_claim
from txlog.successor.succession import Succession, SuccessionRequest, found_successor
from txlog.successor.successor_errors import AlreadyRecovered
from txlog.wire.rehearsal_report import DIFFERING_SHOWN_MAX, RehearsalReport
from txlog.workers.digest import digest_worker

NODE: Final = "rehearsal-1"
ARCHIVED_S: Final = 60.0
"""How long the archiver may take to come to the place of the live worker."""
_POLL_S: Final = 0.2
LiveReader = Callable[[Sequence[MasterClient], Stream], LiveState]
StoreOpener = Callable[[str, Path], AbstractContextManager[RestoreTarget]]
"""From an engine and a folder to an empty store."""


@dataclass(frozen=True)
class RehearsalRequest:
    """``backups``: where the bases are. ``folder``: an existing one, whose content is the caller's to delete.
    ``archived_s``: bound of the wait for the archiver. ``read_live``: reads what the result is compared with.
    ``change_restored`` plants a fault: it is given the store and what was read
    from it, and returns what counts instead."""

    data_center: str
    masters: Sequence[MasterClient]
    archive: BackupTarget
    backups: BackupTarget
    folder: Path
    bounds: RehearsalBounds = NO_BOUNDS
    base: str | None = None
    level: RehearsalLevel = "data"
    archived_s: float = ARCHIVED_S
    open_store: StoreOpener = scratch_store
    on_phase: Callable[[str], None] = lambda _: None
    read_live: LiveReader = read_live_state
    change_restored: Callable[[RestoreTarget, PlacedDigest], PlacedDigest] = lambda _, found: found


def rehearse(request: RehearsalRequest) -> RehearsalReport:
    """The report, of a good rehearsal or of a failed one. Only programming errors are raised."""
    clock = PhaseClock(request.on_phase)
    run = _Rehearsal(request, clock)
    try:
        run.carry_out()
    except TxLogError as error:
        clock.end()
        run.note(ok=False, phase=clock.current, error=error.name, message=str(error))
    except OSError as error:  # no room, or no rights, for what is throw-away
        clock.end()
        message = f"{request.folder}: {error}; set TMPDIR, or --scratch, to a folder with room"
        run.note(ok=False, phase=clock.current, error=NoScratchStore.__name__, message=message)
    phases = {name: round(seconds, 3) for name, seconds in clock.seconds.items()}
    return msgspec.structs.replace(run.report, phases=phases)


class _Rehearsal:
    """``report``: what is known so far."""

    def __init__(self, request: RehearsalRequest, clock: PhaseClock) -> None:
        self._request = request
        self._clock = clock
        self._key_retention_ms = 0
        self.report = RehearsalReport(at=round(time.time(), 3), ok=False, level=request.level)

    def note(self, **facts: object) -> None:
        """Replaces fields of the report."""
        self.report = msgspec.structs.replace(self.report, **facts)

    def carry_out(self) -> None:
        request, clock = self._request, self._clock
        clock.begin("live")
        cluster = bytes.fromhex(read_cluster_id(request.masters))
        self._key_retention_ms = read_key_retention_ms(request.masters)
        stream = Stream(request.archive, StreamId(cluster, request.data_center))
        if stream.read_start() is None:
            raise NoArchive(f"{stream.location}: stream.json is missing; see txlog archive check")
        self.note(stream=stream.location)
        live = request.read_live(request.masters, stream)
        place = live.held.place
        self.note(
            index=place.index,
            hash=place.hash.hex(),
            engine=live.engine,
            worker=live.worker,
            rpo_seconds=round(live.rpo_s, 3),
        )
        with ExitStack() as closing:
            closing.enter_context(hold_stream(stream))
            moment = MomentRequest(parse_moment(_position_text(place)), request.backups, request.base)
            _wait_until_archived(stream, moment, live.engine, request.archived_s)
            compared = self._recover(stream, moment, live, closing)
        times = measure_times(live.rpo_s, clock.seconds)
        self.note(
            graphs=compared.graphs,
            differing=len(compared.differing),
            differ=list(compared.differing[:DIFFERING_SHOWN_MAX]),
            rto_writes_seconds=round(times.rto_writes_s, 3),
            rto_reads_seconds=round(times.rto_reads_s, 3),
        )
        fault = find_fault(compared, times, request.bounds)
        if fault is not None:
            raise fault
        self.note(ok=True)

    def _recover(self, stream: Stream, moment: MomentRequest, live: LiveState, closing: ExitStack) -> Comparison:
        request, clock = self._request, self._clock
        clock.begin("find")
        reader = StreamReader(stream)
        plan = plan_restore(reader, moment, live.engine)
        self.note(base=plan.base.name if plan.base is not None else "", entries=plan.entries)
        clock.begin("claim")
        _refuse_claimed(request.archive, stream.id)
        clock.begin("found")
        master = scratch_master(request, self._key_retention_ms)
        founded = found_successor(SuccessionRequest(master, request.archive, reader, moment, is_copy=True))
        if request.level == "cluster":
            self._start_cluster(master, founded)
        clock.begin("prepare")
        into = closing.enter_context(request.open_store(live.engine, request.folder))
        clock.begin("base")
        cluster = bytes.fromhex(founded.claim.successor)
        restored = restore_to_moment(reader, moment, into, on_progress=clock.on_progress, cluster=cluster)
        clock.begin("compare")
        self.note(quads=restored.quads)
        found = request.change_restored(into, _read_restored(into))
        compared = compare_digests(live.held, found)
        clock.end()
        return compared

    def _start_cluster(self, master: NodeConfig, founded: Succession) -> None:
        """Only one master is started: another one would learn everything from it. No client reads through it, since the
        store itself is compared."""
        self._clock.begin("start")
        with scratch_master_process(master, self._request.folder) as client:
            write_first(client, master.repository)
            key = find_repeatable(key for key, _ in founded.inherited.keys) if founded.inherited is not None else None
            if key is not None:  # without one, nothing is shown of keys, and the report has no such phase
                self._clock.begin("repeat")
                refuse_forgotten(client, master.repository, key)


def scratch_master(request: RehearsalRequest, key_retention_ms: int) -> NodeConfig:
    """The first master of a cluster that no other process knows: alone, on the loopback address, without a worker.
    ``key_retention_ms``: of the cluster, so that as many keys are read."""
    port = free_loopback_port()
    peer = PeerConfig(node=NODE, data_center=request.data_center, url=f"http://127.0.0.1:{port}")
    return NodeConfig(
        node=NODE,
        data_center=request.data_center,
        repository="rehearsal",
        port=port,
        journal_folder=request.folder / NODE / "journal",
        peer_token_file=request.folder / NODE / "token",
        peers=[peer],
        key_retention_ms=key_retention_ms,
    )


def _position_text(place: Node) -> str:
    return f"position:{place.index}:{place.hash.hex()}"


def _wait_until_archived(stream: Stream, moment: MomentRequest, engine: str, wait_s: float) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            plan_restore(StreamReader(stream), moment, engine)
        except BeyondArchive as error:
            if time.monotonic() >= until:
                raise NotArchivedInTime(f"after {wait_s:g} s: {error}; see the archiver with txlog status") from None
            time.sleep(_POLL_S)
        else:
            return


def _refuse_claimed(archive: BackupTarget, stream: StreamId) -> None:
    """A cluster that took this one's place makes each later recovery refuse, so a rehearsal is no good either."""
    found = find_claim(archive, stream)
    if found is not None:
        raise AlreadyRecovered(
            f"the cluster {found.claim.successor} of {found.claim.node} has taken the place of {stream.cluster.hex()} "
            f"at {found.claim.place}; if that was a mistake, delete {archive.location}/{stream.folder}/recovery"
        )


def _read_restored(into: RestoreTarget) -> PlacedDigest:
    """Read back from the store, its place as well as its content."""
    (marker,) = read_system_graphs(into.adapter, into.transport).markers
    place = Node(marker.position.index, marker.position.hash)
    return PlacedDigest(place, digest_worker(into.adapter, into.transport))
