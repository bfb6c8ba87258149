"""``python -m txlog.successor found|fill --master FILE.json --config FILE.json``: a recovery on Kubernetes.

``found`` runs before a master. It writes the journal of the first configured master, and does nothing for any other
one, or where a journal exists. ``fill`` fills the stores of one data centre, then waits until it is ended.

Exit code 0; 1 with the event ``Failed`` on standard output: its fields are ``error`` and ``message``.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from txlog.archive.archive_errors import NoArchive
from txlog.archive.moment import MomentKind, parse_moment
from txlog.archive.moment_restore import MomentRequest
from txlog.archive.stream import find_streams
from txlog.archive.stream_reader import StreamReader
from txlog.backup.chain_check import read_cluster_id
from txlog.backup.dataset_load import RestoreTarget
from txlog.backup.target import BackupTarget, open_target
from txlog.backup.worker_lookup import READ_TIMEOUT_S
from txlog.client import MasterClient
from txlog.config.json_file import read_json_file
from txlog.config.process_config import NodeConfig
from txlog.config.recovery_config import RecoveryConfig
from txlog.model.errors import BadInput, TxLogError
from txlog.successor.recovery_claim import find_claim
from txlog.successor.rescue import lacks_nothing, rescue_branches
from txlog.successor.store_fill import fill_store
from txlog.successor.succession import SuccessionRequest, found_successor, has_journal, recovered_engine
from txlog.successor.successor_errors import AlreadyRecovered
from txlog.telemetry.event_log import EventLog
from txlog.telemetry.json_log import install_json_log
from txlog.workers import ADAPTERS
from txlog.workers.http_transport import HttpTransport

RETRY_S: Final = 5.0
NAMED_MAX: Final = 20
"""Transactions that an event names."""


def found(master: NodeConfig, config: RecoveryConfig, log: EventLog) -> None:
    """Writes the journal, if this is the first master and has none. A master that was in a cluster before learns its
    log from the others, also with an empty volume."""
    first = master.peers[0].node
    if master.node != first or master.last_seen is not None or has_journal(master.journal_folder):
        log.info("NothingToFound", first=first)
        return
    place = open_target(config.archive)
    request = SuccessionRequest(
        master,
        place,
        _open_reader(place, config),
        _restore(place, config, config.to),
        config.is_copy,
        config.supersede,
        config.without_older_keys,
    )
    done = found_successor(request)
    lost = done.inherited.lost if done.inherited is not None else []
    log.info(
        "Founded",
        cluster=done.claim.successor,
        index=done.claim.index,
        hash=done.claim.hash,
        keys=len(done.inherited.keys) if done.inherited is not None else 0,
        lost=sum(span.count for span in lost),
    )


def fill(master: NodeConfig, config: RecoveryConfig, log: EventLog) -> None:
    """Fills every store that the masters of this data centre know. Raises the error of the first one that cannot be
    filled now."""
    urls = [peer.url for peer in master.peers if peer.data_center == master.data_center]
    with ExitStack() as closing:
        cluster = bytes.fromhex(read_cluster_id([closing.enter_context(MasterClient(url)) for url in urls]))
    place = open_target(config.archive)
    moment = _place_of(place, config, cluster)
    for worker in master.workers:
        with HttpTransport(worker.url, READ_TIMEOUT_S) as transport:
            reader, restore = _open_reader(place, config), _restore(place, config, moment)
            engine = recovered_engine(master, reader, restore, worker)
            done = fill_store(reader, restore, RestoreTarget(worker.name, ADAPTERS[engine], transport), cluster)
        if done is not None:
            log.info("StoreFilled", worker=worker.name, quads=done.quads, digest=done.digest)


def rescue(master: NodeConfig, config: RecoveryConfig, log: EventLog) -> None:
    """After a recovery to ``latest``: gives again what other branches of the archive hold."""
    if config.is_copy:
        return
    urls = [peer.url for peer in master.peers if peer.data_center == master.data_center]
    with ExitStack() as closing:
        masters = [closing.enter_context(MasterClient(url)) for url in urls]
        rows = rescue_branches(open_target(config.archive), masters, lambda *_: None)
    counts = Counter(row.state.value for row in rows)
    if rows:
        write = log.info if lacks_nothing(rows) else log.error
        write("Rescued", counts=dict(counts), left=[str(r.candidate.txid) for r in rows if not r.new][:NAMED_MAX])


def _place_of(place: BackupTarget, config: RecoveryConfig, cluster: bytes) -> str:
    """Where the log of this cluster begins, as a moment. A copy has it in its manifest."""
    if config.is_copy:
        if parse_moment(config.to).kind is not MomentKind.POSITION:
            raise BadInput(f"{config.to}: a copy needs position:INDEX:HASH")
        return config.to
    claim = find_claim(place, _open_reader(place, config).stream.id)
    if claim is None or claim.claim.successor != cluster.hex():
        other = f"{claim.claim.successor} has" if claim is not None else "no cluster has"
        raise AlreadyRecovered(
            f"the masters are in the cluster {cluster.hex()}, and {other} taken the place of the lost one; remove "
            "spec.bootstrap if this cluster was not founded from the archive"
        )
    return f"position:{claim.claim.index}:{claim.claim.hash}"


def _open_reader(place: BackupTarget, config: RecoveryConfig) -> StreamReader:
    streams = find_streams(place, config.data_center, config.cluster)
    if len(streams) != 1:
        names = ", ".join(f"{each.id.data_center} of {each.id.cluster.hex()}" for each in streams) or "none"
        raise NoArchive(f"{place.location} holds these archives: {names}; expected one: name cluster and dataCenter")
    return StreamReader(streams[0])


def _restore(place: BackupTarget, config: RecoveryConfig, moment: str) -> MomentRequest:
    backups = open_target(config.backups) if config.backups is not None else place
    return MomentRequest(parse_moment(moment), backups, config.base)


def _fill_and_wait(master: NodeConfig, config: RecoveryConfig, log: EventLog) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        try:
            fill(master, config, log)
            rescue(master, config, log)
        except TxLogError as error:
            log.warning_rate_limited("FillWaits", error.name, error=str(error))
            stop.wait(RETRY_S)
        else:
            log.info("StoresFilled")
            stop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the arguments and does it. Returns the exit code."""
    ways: dict[str, Callable[[NodeConfig, RecoveryConfig, EventLog], Any]] = {"found": found, "fill": _fill_and_wait}
    parser = argparse.ArgumentParser(prog="txlog.successor", description="a cluster from the archive of a lost one")
    parser.add_argument("way", choices=sorted(ways))
    parser.add_argument("--master", type=Path, required=True, help="a NodeConfig as JSON")
    parser.add_argument("--config", type=Path, required=True, help="a RecoveryConfig as JSON")
    options = parser.parse_args(arguments)
    node = "recovery"
    try:
        master = read_json_file(options.master, NodeConfig)
        node = f"{master.node}-recovery"
        install_json_log(node, logging.WARNING)
        ways[options.way](master, read_json_file(options.config, RecoveryConfig), EventLog(node))
    except TxLogError as error:
        EventLog(node, sys.stdout).error("Failed", error=error.name, message=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
