"""``make console-test``: a real Chromium drives every view of the console against a local cluster under load, through a
split and its rejoin. The last line is JSON; the pictures go to ``docs/figures/console``."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.request import Request, urlopen

from e2e.lib.cluster.local import LocalCluster, cluster_up
from e2e.lib.load.requests import write_one
from e2e.lib.report import CannotMeasure
from e2e.scenarios.split_demo import SplitScenario, manifests
from txlog.client import MasterClient
from txlog.model.errors import TxLogError

STATE: Final = Path(".txlog-console")
ROOT: Final = Path(__file__).parents[2]
SHOTS: Final = ROOT / "docs" / "figures" / "console"
DRIVER: Final = ROOT / "console" / "test" / "drive.mjs"
CONSOLES: Final = 10
MEASURED_S: Final = 10.0
LIVE_UPDATE_MS_MAX: Final = 500
WRITE_PAUSE_S: Final = 0.1


class ConsoleBrowser:
    """The process that drives Chromium. ``last``: what it has found so far."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.last: dict[str, Any] = {}

    def perform(self, step: str, **arguments: Any) -> None:
        """Carries out one step of the driver. :class:`CannotMeasure` when it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(f"{step} ...", flush=True)
        self._process.stdin.write(json.dumps({"do": step, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise CannotMeasure(f"the browser's driver ended at {step}")
        before = len(self.last.get("failures", ()))
        self.last = json.loads(line)
        for text in self.last["failures"][before:]:
            print(f"  failed: {text}", flush=True)

    def close(self) -> None:
        with contextlib.suppress(CannotMeasure, OSError):
            self.perform("close")
        self._process.terminate()
        self._process.wait()


@contextmanager
def with_archive(folder: Path) -> Iterator[Path]:
    """The manifests of ``folder`` with backups each minute, which the masters hear of, and an archive."""
    with tempfile.TemporaryDirectory() as target:
        for manifest in folder.glob("*.yaml"):
            text = manifest.read_text()
            manifest.write_text(
                text + f'  backup: {{target: {{folder: {{path: {target}}}}}, schedule: "@every 1m"}}\n  archive: {{}}\n'
            )
        yield folder


def write_files(folder: Path) -> dict[str, Any]:
    """Files for the view that loads them: a plain one, a compressed one, and one that is wrong."""
    lines = "".join(f"<urn:s:{at}> <urn:p> <urn:o:{at % 50}> .\n" for at in range(5000)).encode()
    (folder / "plain.nt").write_bytes(lines)
    (folder / "compressed.nt.gz").write_bytes(gzip.compress(lines.replace(b"urn:s", b"urn:t")))
    (folder / "wrong.ttl").write_text("<urn:a> <urn:b> .")
    files = [str(folder / name) for name in ("plain.nt", "compressed.nt.gz")]
    return {"files": files, "wrong": str(folder / "wrong.ttl")}


@contextmanager
def steady_load(cluster: LocalCluster) -> Iterator[None]:
    """Each master is written to, some ten times a second."""
    over = threading.Event()

    def write(url: str, number: int) -> None:
        at = 0
        while not over.wait(WRITE_PAUSE_S):
            at += 1
            text = f"INSERT DATA {{ GRAPH <urn:load:{number}> {{ <urn:s:{at}> a <urn:class:{at % 7}> }} }}"
            with contextlib.suppress(TxLogError, OSError):
                write_one(url, cluster.repository, text, "accepted")

    threads = [
        threading.Thread(target=write, args=one, daemon=True) for one in zip(cluster.masters, range(9), strict=False)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def processor_pct(pid: int, seconds: float) -> float:
    """The share of one core that a process takes, in percent."""

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, began = ticks(), time.monotonic()
    time.sleep(seconds)
    return 100 * (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


def cost_of_consoles(url: str, pid: int) -> float:
    """What ten open consoles add to the processor of a master, in percent of a core, while nothing else happens."""
    without = processor_pct(pid, MEASURED_S)
    with contextlib.ExitStack() as stack:
        for _ in range(CONSOLES):
            stream = stack.enter_context(urlopen(Request(f"{url}/txlog/live", headers={"Accept": "text/event-stream"})))
            stream.readline()
        return round(max(0.0, processor_pct(pid, MEASURED_S) - without), 2)


def check(cluster: LocalCluster, chromium: str) -> dict[str, Any]:
    """All steps. Returns what was found."""
    story = SplitScenario(cluster)
    url = cluster.masters[0]
    print(f"every worker applies after {cluster.wait_applying(600):.1f} s", flush=True)
    SHOTS.mkdir(parents=True, exist_ok=True)
    cost = cost_of_consoles(url, cluster.pids()[next(iter(cluster.nodes))])
    browser = ConsoleBrowser()
    try:
        with steady_load(cluster):
            text = "INSERT DATA { <urn:s> <urn:p> 1 }"
            txid = write_one(url, cluster.repository, text, "synced")["txlog-transaction"]
            browser.perform("open", url=url, chromium=chromium, shots=str(SHOTS))
            with MasterClient(url) as master:
                masters = len(master.status().members)
            browser.perform("healthy", txid=txid, masters=masters, workers=len(cluster.worker_indexes()))
            browser.perform("recovery", backups=1)
            with tempfile.TemporaryDirectory() as files:
                browser.perform("load", **write_files(Path(files)))
            story.cut()
            browser.perform("split")
            story.heal()
        browser.perform("rejoined")
    finally:
        browser.close()
    found = browser.last
    for name in ("failures", "consoleErrors", "outside", "axe"):
        for line in found[name]:
            print(f"{name}: {line}", flush=True)
    updates = found["updatesMs"]
    return {
        "views": found["views"],
        "checks": found["checks"],
        "failed": len(found["failures"]),
        "console_errors": len(found["consoleErrors"]),
        "requests_outside": len(found["outside"]),
        "axe_violations": len(found["axe"]),
        "first_paint_ms": found["firstPaintMs"],
        "live_update_p50_ms": round(median(updates)) if updates else None,
        "ten_consoles_cpu_pct": cost,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.scenarios.console_check", description="the console in Chromium"
    )
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--running", action="store_true", help="the cluster of --state runs already, and stays")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        if options.running:
            cluster = LocalCluster(options.state)
        else:
            folder = stack.enter_context(with_archive(stack.enter_context(manifests(lag="10s", workers=2))))
            cluster = stack.enter_context(cluster_up(options.state, (folder,), wait_s=600))
        found = check(cluster, options.chromium)
    print(json.dumps(found))
    faults = ("failed", "console_errors", "requests_outside", "axe_violations")
    is_slow = found["live_update_p50_ms"] is None or found["live_update_p50_ms"] > LIVE_UPDATE_MS_MAX
    return 1 if is_slow or any(found[name] for name in faults) else 0


if __name__ == "__main__":
    sys.exit(main())
