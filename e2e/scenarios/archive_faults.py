"""``python -m e2e.scenarios.archive_faults``: two archives of a running cluster, while everything around them fails.

Three masters of two data centres are real processes under load, which trim their logs. The archive of one data centre
is in a real S3 server behind a proxy, that of the other one in a folder. Faults are planted one after the other. Each
must be named where an operator looks: the status of a master, an event, or ``txlog archive check``. At the end the
archives must hold every entry that any master of their data centre ever called stable.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import obstore

from e2e.lib.cluster.archivers import CALLS, ArchiverProcess, kill_at_call
from e2e.lib.cluster.links import LinkControl, linked_masters
from e2e.lib.cluster.masters import BenchMasters
from e2e.lib.cluster.stable_logs import StableLogs
from e2e.lib.load.background_load import BackgroundLoad
from e2e.lib.report import BenchReport, build_table, console, console_for
from e2e.lib.s3_fault_proxy import S3FaultProxy
from e2e.lib.seaweedfs import ACCESS, BUCKET, SECRET, SeaweedProcess
from e2e.lib.wait import NotYet, wait_until
from txlog.archive.archive_errors import FileDamaged
from txlog.archive.path import find_missing, find_paths
from txlog.archive.stream import Stream, find_streams
from txlog.backup.target import BackupTarget, open_target
from txlog.client import MasterClient
from txlog.config.process_config import ArchiverConfig, FolderConfig, S3Config
from txlog.model.errors import TxLogError

STATE: Final = Path(".txlog-archive-faults")
NODES: Final = (("uk-1", "uk"), ("uk-2", "uk"), ("us-1", "us"))
AWAY_S: Final = 300.0
FAULT_S: Final = 12.0
STOPPED_S: Final = 36.0
"""Longer than the 30 s after which masters call an archiver silent."""
CAUGHT_UP_S: Final = 60.0
PATIENCE_S: Final = 240.0
MAX_DELAY_MS: Final = 300
COMPACT_S: Final = 1.0
GRACE_S: Final = 5.0
KILLS_PER_CALL: Final = 2
PREFIX: Final = "archive-faults"
SETTINGS: Final[dict[str, Any]] = {
    "max_peer_lag_ms": 5000,
    "round_timeout_ms": 1000,
    "idle_interval_ms": 300,
    "start_s": PATIENCE_S,
    "archive": {"max_delay_ms": MAX_DELAY_MS},
    "segment_bytes": 1 << 16,
    "trim_interval_ms": 500,
}


class ArchivedSite:
    """A data centre and its archive. ``target``: as no fault can reach it."""

    def __init__(self, name: str, masters: dict[str, str], archiver: ArchiverProcess, target: BackupTarget) -> None:
        self.name = name
        self.masters = masters
        self.archiver = archiver
        self.target = target

    @property
    def stream(self) -> Stream:
        return find_streams(self.target)[0]

    def status(self) -> dict[str, Any]:
        """The stream as the first master of the data centre sees it."""
        with MasterClient(next(iter(self.masters.values())), 10.0) as master:
            streams = (master.status().archive or {}).get("streams", ())
        found: dict[str, Any] = next(each for each in streams if each["dataCenter"] == self.name)
        return found

    def wait_verified(self, deadline_s: float) -> float:
        """The seconds until everything that is stable now is archived and read back."""
        began = time.monotonic()
        for url in self.masters.values():
            with MasterClient(url, 10.0) as master:
                wanted = master.status().stable.index

                def probe(master: MasterClient = master, wanted: int = wanted) -> bool:
                    streams = (master.status().archive or {}).get("streams", ())
                    mine = next(each for each in streams if each["dataCenter"] == self.name)
                    place = mine["verified"]
                    if place is None or place["index"] < wanted:
                        raise NotYet(f"{place} is verified, {wanted} is stable; {mine['state']}: {mine['error']}")
                    return True

                wait_until(f"{self.name} is archived", deadline_s, probe, pause_s=0.1)
        return time.monotonic() - began


class PlantedFault:
    """``is_named``: whether an operator sees it, asked again and again while the fault lasts; None for what the
    archiver must bear without a word."""

    def __init__(
        self,
        name: str,
        site: ArchivedSite,
        plant: Callable[[], Any],
        is_named: Callable[[], bool] | None = None,
        seconds: float = FAULT_S,
    ) -> None:
        self.name = name
        self.site = site
        self.plant = plant
        self.is_named = is_named
        self.seconds = seconds


class ArchiveFaults:
    """Plants faults and keeps the figures."""

    def __init__(self, sites: Sequence[ArchivedSite], logs: StableLogs) -> None:
        self.sites = sites
        self._logs = logs
        self.rows: list[tuple[str, str, str, float]] = []
        self.planted = self.named = 0
        self.caught_up_s = 0.0

    def run(self, fault: PlantedFault) -> None:
        until, seen = time.monotonic() + fault.seconds, False
        with fault.plant():
            while time.monotonic() < until or (fault.is_named and not seen and time.monotonic() < until + FAULT_S):
                seen = seen or self._ask(fault)
                time.sleep(0.2)
        seen = seen or self._ask(fault)
        took = max(site.wait_verified(PATIENCE_S) for site in self.sites)
        self.note(fault.name, fault.site, seen if fault.is_named else None, took)

    def note(self, name: str, site: ArchivedSite, named: bool | None, took_s: float) -> None:
        self.planted += named is not None
        self.named += bool(named)
        self.caught_up_s = max(self.caught_up_s, took_s)
        self.rows.append((name, site.name, {None: "-", True: "yes", False: "NO"}[named], took_s))
        console.print(f"{name} ({site.name}): named {self.rows[-1][2]}, caught up in {took_s:.1f} s", highlight=False)

    def _ask(self, fault: PlantedFault) -> bool:
        if fault.is_named is None:
            return False
        with suppress(TxLogError):
            return fault.is_named()
        return False


def _has_state(site: ArchivedSite, state: str, text: str = "") -> Callable[[], bool]:
    def ask() -> bool:
        found = site.status()
        return found["state"] == state and text in found["error"]

    return ask


def _repairs(site: ArchivedSite, *events: str) -> Callable[[], bool]:
    """By default a file that is damaged, and is written again."""
    before = {event: site.archiver.count(event) for event in events or ("ArchiveFileDamaged", "ArchiveFileRepaired")}
    return lambda: all(site.archiver.count(event) > then for event, then in before.items())


# -- faults of the S3 server


def s3_faults(site: ArchivedSite, proxy: S3FaultProxy, server: SeaweedProcess, away_s: float) -> Iterator[PlantedFault]:
    @contextmanager
    def killed() -> Iterator[None]:
        server.kill()
        try:
            yield
        finally:
            server.start()

    def flip(path: str) -> None:
        key = path.partition(f"/{BUCKET}/")[2]
        store = server.store()
        obstore.put(store, key, _flip_bit(bytes(obstore.get(store, key).bytes())))

    proxy.on_stored = flip  # type: ignore[method-assign]
    yield PlantedFault("store away", site, killed, _has_state(site, "Unreachable"), away_s)
    for fault, state, text in (
        ("unavailable", "Unreachable", "503"),
        ("denied", "Denied", ""),
        ("full", "Full", ""),
        ("away", "Unreachable", ""),
    ):
        yield PlantedFault(f"proxy: {fault}", site, partial(proxy.during, fault), _has_state(site, state, text))
    yield PlantedFault("2 s for each request", site, partial(proxy.during, "slow"), _is_late(site), 2 * FAULT_S)
    yield PlantedFault("answers lost", site, partial(proxy.during, "lost-answer"))
    yield PlantedFault("bit flipped in the store", site, partial(proxy.during, "flip-stored"), _repairs(site))
    yield PlantedFault(
        "bit flipped while it is read", site, partial(proxy.during, "flip-read"), _repairs(site, "ArchiveFileDamaged")
    )


def _is_late(site: ArchivedSite) -> Callable[[], bool]:
    return lambda: (site.status()["delaySeconds"] or 0.0) * 1000 > MAX_DELAY_MS


def _flip_bit(data: bytes, at: int | None = None) -> bytes:
    at = len(data) // 2 if at is None else at
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# -- faults of the folder


def folder_faults(site: ArchivedSite, folder: Path, chance: random.Random) -> Iterator[PlantedFault]:
    @contextmanager
    def renamed() -> Iterator[None]:
        gone = folder.with_name(f"{folder.name}-away")
        folder.rename(gone)
        try:
            yield
        finally:
            gone.rename(folder)

    @contextmanager
    def full() -> Iterator[None]:
        before = resource.prlimit(site.archiver.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(site.archiver.pid, resource.RLIMIT_FSIZE, (16, before[1]))
        try:
            yield
        finally:
            resource.prlimit(site.archiver.pid, resource.RLIMIT_FSIZE, before)

    @contextmanager
    def stopped() -> Iterator[None]:
        os.kill(site.archiver.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(site.archiver.pid, signal.SIGCONT)

    @contextmanager
    def twice() -> Iterator[None]:
        second = ArchiverProcess(site.archiver.log.parent, f"{site.name}-second", site.archiver.config)
        second.start()
        try:
            yield
        finally:
            second.end()

    yield PlantedFault("folder away", site, renamed, _has_state(site, "Unreachable"))
    yield PlantedFault("no room for a file", site, full, _has_state(site, "Full"))
    yield PlantedFault("archiver stopped", site, stopped, _has_state(site, "Silent"), STOPPED_S)
    yield PlantedFault("two archivers", site, twice)
    for _ in range(2):
        with _flipped_later(site, folder, chance) as is_named:
            yield PlantedFault("bit flipped long after it was read back", site, nullcontext, is_named, 0.0)


@contextmanager
def _flipped_later(site: ArchivedSite, folder: Path, chance: random.Random) -> Iterator[Callable[[], bool]]:
    """In a compacted file, of which the masters may have trimmed the entries."""
    verified = site.status()["verified"]["index"]
    # A compacted file stays; a small one may be deleted meanwhile.
    names = [each.name for each in site.stream.list_files() if each.name.level and each.name.last <= verified]
    chosen = chance.choice(names)
    path = folder / site.stream.id.folder / f"log{chosen.level}" / str(chosen)
    sound = path.read_bytes()
    path.write_bytes(_flip_bit(sound, chance.randrange(len(sound))))
    try:
        yield lambda: [each["file"] for each in check_by_command(site)["faults"]] == [path.name]
    finally:
        path.write_bytes(sound)


def check_by_command(site: ArchivedSite) -> dict[str, Any]:
    """``txlog archive check`` of one data centre, in a folder."""
    program = Path(sys.executable).with_name("txlog")
    assert isinstance(site.archiver.config.target, FolderConfig)
    words = ["archive", "check", "--json", "--target", str(site.archiver.config.target.folder)]
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


# -- faults of the archiver and of the cluster


def kill_at_each_call(faults: ArchiveFaults, site: ArchivedSite) -> int:
    """One victim after the other archives under load, until it is killed. Returns the number of kills."""
    site.archiver.end(signal.SIGKILL)
    killed = 0
    for call in CALLS:
        for nth in range(1, KILLS_PER_CALL + 1):
            for after in (False, True) if call == "target create" else (False,):
                killed += kill_at_call(site.archiver.config, call, nth, after=after)
    site.archiver.start()
    faults.note(f"killed {killed} times, at each call", site, None, site.wait_verified(PATIENCE_S))
    return killed


def split(faults: ArchiveFaults, masters: BenchMasters, links: LinkControl) -> None:
    """Both data centres write on, then join. The archiver of a side that loses must name that its log left the path."""
    before = [site.archiver.count("ArchiveBranched") for site in faults.sites]
    one, other = (list(site.masters) for site in faults.sites)
    links.set_faults([{"from": a, "to": b, "cut": True} for x, y in ((one, other), (other, one)) for a in x for b in y])
    _wait_states(masters, ("Isolated", "Split", "Partial"), by_backups=True)
    time.sleep(FAULT_S / 4)
    for site in faults.sites:
        site.wait_verified(PATIENCE_S)
    links.set_faults([])
    _wait_states(masters, ("Joined",))
    took = max(site.wait_verified(PATIENCE_S) for site in faults.sites)
    named = any(site.archiver.count("ArchiveBranched") > then for site, then in zip(faults.sites, before, strict=True))
    faults.note("split and rejoin", faults.sites[1], named, took)


def _wait_states(masters: BenchMasters, states: Sequence[str], *, by_backups: bool = False) -> None:
    """``by_backups``: each side reports the backup for which it waits."""

    def probe() -> bool:
        found = {}
        for node, url in masters.by_node.items():
            with MasterClient(url, 10.0) as master:
                status = master.status()
                found[node] = status.state
                for duty in master.duties() if by_backups else ():
                    with suppress(TxLogError):
                        master.complete_duty(duty["id"], status.stable.index, status.stable.hash)
        if not set(found.values()) <= set(states):
            raise NotYet(str(found))
        return True

    wait_until(f"all are {' or '.join(states)}", PATIENCE_S, probe, pause_s=0.3)


# -- the end


def examine(site: ArchivedSite, logs: StableLogs, report: BenchReport) -> tuple[int, int]:
    """Every file is read and proved. Holes of the stream, and stable entries of its masters that it lacks."""
    stream = site.stream
    start, gaps = stream.read_start(), stream.read_gaps()
    names, damaged, contents = [each.name for each in stream.list_files()], [], {}
    for name in names:
        try:
            contents[name] = {(entry.index, entry.hash) for entry in stream.read_file(name).entries}
        except FileDamaged:
            damaged.append(name)
    paths = find_paths(names, [start] if start is not None else [], damaged)
    on_paths = {name for head in paths.heads for name in paths.path_to(head)}
    archived = set[tuple[int, bytes]]().union(*(contents[name] for name in on_paths))
    report.figure(f"files_{site.name}", len(names))
    report.figure(f"damaged_{site.name}", len(damaged))
    report.at_least(f"compacted_{site.name}", sum(name.level for name in names), 1)
    return len(find_missing(paths)) + len(gaps), len(logs.seen(site.masters) - archived)


@contextmanager
def sites_up(
    folder: Path, masters: BenchMasters, server: SeaweedProcess, proxy: S3FaultProxy
) -> Iterator[list[ArchivedSite]]:
    target = folder / "archive"
    target.mkdir(parents=True)
    credentials = folder / "credentials"
    credentials.mkdir()
    (credentials / "AWS_ACCESS_KEY_ID").write_text(ACCESS)
    (credentials / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)

    def s3(endpoint: str) -> S3Config:
        return S3Config(bucket=BUCKET, prefix=PREFIX, endpoint=endpoint, credentials_folder=credentials, timeout_s=10.0)

    sites = []
    for name, wanted, direct in (
        ("uk", s3(proxy.url), s3(server.url)),
        ("us", FolderConfig(folder=target), FolderConfig(folder=target)),
    ):
        mine = {node: masters.by_node[node] for node, where in NODES if where == name}
        config = ArchiverConfig(
            data_center=name,
            masters=list(mine.values()),
            target=wanted,
            max_delay_ms=MAX_DELAY_MS,
            probe_s=5.0,
            compact_s=COMPACT_S,
            grace_s=GRACE_S,
        )
        sites.append(ArchivedSite(name, mine, ArchiverProcess(folder, f"{name}-archiver", config), open_target(direct)))
    try:
        for site in sites:
            site.archiver.start()
        yield sites
    finally:
        for site in sites:
            site.archiver.end()


def run_faults(folder: Path, seed: int, away_s: float, report: BenchReport) -> None:
    chance = random.Random(seed)
    (folder / "seaweed").mkdir(parents=True)
    server = SeaweedProcess(folder / "seaweed")
    proxy = S3FaultProxy(server.url)
    try:
        with linked_masters(folder / "cluster", NODES, **SETTINGS) as (masters, links):
            logs = StableLogs(masters.by_node)
            load = BackgroundLoad(masters.urls, seed)
            with sites_up(folder, masters, server, proxy) as sites:
                faults = ArchiveFaults(sites, logs)
                try:
                    for site in sites:
                        site.wait_verified(PATIENCE_S)
                    for fault in s3_faults(sites[0], proxy, server, away_s):
                        faults.run(fault)
                    for fault in folder_faults(sites[1], folder / "archive", chance):
                        faults.run(fault)
                    kills = sum(kill_at_each_call(faults, site) for site in sites)
                    for _ in range(2):
                        split(faults, masters, links)
                finally:
                    load.stop()
                _conclude(faults, logs, report, load.written, kills)
    finally:
        proxy.close()
        server.kill()


def _conclude(faults: ArchiveFaults, logs: StableLogs, report: BenchReport, written: int, kills: int) -> None:
    for site in faults.sites:
        site.wait_verified(PATIENCE_S)
    logs.stop()
    exit_codes = [site.archiver.end() for site in faults.sites]
    rows = [(name, where, named, f"{took_s:.1f}") for name, where, named, took_s in faults.rows]
    console_for().print(build_table("faults", ("fault", "archive of", "named", "caught up in s"), rows))
    holes, missing = map(sum, zip(*(examine(site, logs, report) for site in faults.sites), strict=True))
    report.equal("holes", holes, 0)
    report.equal("missing", missing, 0)
    report.equal("named", faults.named, faults.planted)
    report.figure("planted", faults.planted)
    report.at_most("caught_up_s", faults.caught_up_s, CAUGHT_UP_S)
    report.require("archivers end with 0", not any(exit_codes))
    report.at_least("kills", kills, len(CALLS))
    report.at_least("trimmed", logs.trimmed, 1)
    report.figure("written", written)
    report.figure("stable", len(logs.seen(logs.nodes)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.archive_faults", description="archives of a running cluster under faults"
    )
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--away", type=float, default=AWAY_S, help="seconds for which the store is away")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    report = BenchReport("make archive-faults")
    report.figure("seed", seed)
    folder = options.state.absolute()
    return report.end_in_folder("archives under faults", folder, lambda: run_faults(folder, seed, options.away, report))


if __name__ == "__main__":
    sys.exit(main())
