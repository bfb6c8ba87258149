"""Batches by real Spark into real stores: the command, killed and repeated; the running application by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from feed_stub import FeedStub, StubLog
from store_process import COUNT_ONE, Store, until

from txlog.apply import MasterLog, apply_up_to
from txlog.client import MasterClient
from txlog.model.entry import KIND_UPDATE
from txlog.model.quads import encode_quads
from txlog.workers import ADAPTERS
from txlog.workers.adapter import SystemGraphs
from txlog.workers.digest import Digest, digest_worker
from txlog.workers.http_transport import HttpTransport

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ADAPTER = ADAPTERS["oxigraph"]
WORKERS = ["w1", "w2"]


def quad(number: int) -> bytes:
    return b'<urn:s%d> <urn:p> "number %d" <urn:g%d> .' % (number, number, number % 5)


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = StubLog()
        self.feed = FeedStub(self.log, WORKERS)
        self.stores = {name: Store(folder / name) for name in WORKERS}
        self.started: list[subprocess.Popen[bytes]] = []

    def append(self, first: int, count: int) -> int:
        """Two adds, and one of earlier ones goes."""
        many = [
            encode_quads([quad(2 * n - 9)] if n % 3 == 0 else [], [quad(2 * n), quad(2 * n + 1)])
            for n in range(first, first + count)
        ]
        return self.log.append(*many)

    def start(self, module: str, *more: str, **told: Any) -> subprocess.Popen[bytes]:
        config = {
            "data_center": "uk",
            "masters": [self.feed.url],
            "workers": [{"name": name, "url": store.url} for name, store in self.stores.items()],
            "scratch_folder": str(self.folder / "scratch"),
            "poll_s": 1.0,
            **told,
        }
        file = self.folder / "config.json"
        file.write_text(json.dumps(config))
        command = [sys.executable, "-m", module, "--config", str(file), *more]
        with (self.folder / "log").open("ab") as out:
            self.started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out))
        return self.started[-1]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """The driver at once, and what it leaves behind a moment later, as the kernel would have it."""
        left = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for child in left:
            if child.is_running():
                child.kill()

    def system(self, name: str) -> SystemGraphs:
        with HttpTransport(self.stores[name].url, 60.0) as transport:
            return ADAPTER.parse_system_graphs(transport.send(ADAPTER.read_system()))

    def digest(self, name: str) -> Digest:
        with HttpTransport(self.stores[name].url, 60.0) as transport:
            return digest_worker(ADAPTER, transport)

    def stream(self, name: str) -> None:
        with MasterClient(self.feed.url) as master, HttpTransport(self.stores[name].url, 60.0) as transport:
            apply_up_to(ADAPTER, transport, MasterLog(master), len(self.log.entries), epoch=1, budget_s=100)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                self.kill(process)
        self.feed.stop()
        for store in self.stores.values():
            store.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.mark.long  # a kill at each of its stages follows
def test_the_command_killed_in_the_middle_and_given_again(site: Site) -> None:
    end = site.append(0, 120_000)  # three pieces, one after the other
    process = site.start("txlog.pipeline.batch", "--worker", "w1", "--takeover", "1", "--tasks", "1")
    with HttpTransport(site.stores["w1"].url, 60.0) as transport:
        until(lambda: ADAPTER.parse_size(transport.send(ADAPTER.size())) > 0, what="nothing was loaded")
    site.stores["w1"].freeze()  # else it could be done before it is killed
    site.kill(process)
    site.stores["w1"].thaw()
    (loading,) = site.system("w1").loading
    assert loading.position.index == end
    assert site.feed.state("w1") == "Loading"
    last = site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    again = site.start("txlog.pipeline.batch", "--worker", "w1", "--takeover", "1", "--here")  # by whatever means
    out, _ = again.communicate(timeout=200)
    assert again.returncode == 0, (site.folder / "log").read_text()[-2000:]
    assert json.loads(out.splitlines()[-1])["entries"] == end
    assert not site.system("w1").claims
    assert [m.position.index for m in site.system("w1").markers] == [end]
    site.stream("w1")
    site.stream("w2")
    assert [m.position.index for name in WORKERS for m in site.system(name).markers] == [last, last]
    assert site.digest("w1") == site.digest("w2")


class Stage(NamedTuple):
    """Where the driver is killed: ``reached`` says that it is there. ``again``: by what means it is repeated."""

    name: str
    reached: Callable[[Site], bool]
    again: Sequence[str] = ("--here",)


def _jvm_is_there(site: Site) -> bool:
    for each in psutil.Process(site.started[-1].pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if Path(each.exe()).name == "java" and "org.apache.spark.deploy.SparkSubmit" in each.cmdline():
                return True
    return False


def _is_in_order(site: Site) -> bool:
    return site.stores["w1"].count() == 1


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(Stage("starting", _jvm_is_there, ("--tasks", "1")), marks=pytest.mark.long),
        Stage("marked", lambda site: bool(site.system("w1").loading)),
        pytest.param(Stage("in order", _is_in_order), marks=pytest.mark.long),
    ],
    ids=lambda stage: stage.name,
)
def test_killed_at_a_stage_and_given_again(site: Site, stage: Stage) -> None:
    """Runs of quads with an update between them: read, loaded, carried out in order, loaded again."""
    site.append(0, 40_000)
    site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    end = site.append(40_000, 40_000)
    process = site.start("txlog.pipeline.batch", "--worker", "w1", "--takeover", "1", "--tasks", "1")
    until(lambda: stage.reached(site), what=f"never {stage.name}")
    site.stores["w1"].freeze()  # else it could be done before it is killed
    site.kill(process)
    site.stores["w1"].thaw()
    again = site.start("txlog.pipeline.batch", "--worker", "w1", "--takeover", "1", *stage.again)
    out, _ = again.communicate(timeout=200)
    assert again.returncode == 0, (site.folder / "log").read_text()[-2000:]
    system = site.system("w1")
    assert not system.claims
    assert not system.loading
    # A load that had begun is repeated, and leaves the updates behind it to the stream.
    left_updates = json.loads(out.splitlines()[-1])["left_updates"]
    assert left_updates or stage.name != "marked"
    assert [m.position.index for m in system.markers] == [40_000 if left_updates else end]
    for name in WORKERS:
        site.stream(name)
    assert [m.position.index for name in WORKERS for m in site.system(name).markers] == [end, end]
    assert site.digest("w1") == site.digest("w2")
    assert [store.count() for store in site.stores.values()] == [1, 1]


def test_a_task_and_the_jvm_are_killed(site: Site) -> None:
    """A Python task: Spark tries the task again. The JVM: the driver says so, and the same command repeats the load."""
    end = site.append(0, 80_000)
    process = site.start("txlog.pipeline.batch", "--worker", "w1", "--takeover", "1", "--tasks", "1")
    until(lambda: bool(site.system("w1").loading), what="nothing began")
    until(lambda: bool(_tasks(process)[1]), what="no task of Python")
    jvm, killed = _tasks(process)
    for task in killed:
        task.kill()
    until(lambda: any(each not in killed for each in _tasks(process)[1]), what="the task was not tried again")
    assert jvm is not None
    jvm.kill()
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert json.loads(out.splitlines()[-1])["state"] == "Loading"
    assert site.system("w1").loading
    assert not site.system("w1").claims  # it went, and its lock with it: nobody has to wait
    again = site.start("txlog.pipeline.batch", "--worker", "w1", "--takeover", "1", "--tasks", "1")
    again.communicate(timeout=200)
    assert again.returncode == 0, (site.folder / "log").read_text()[-2000:]
    assert [m.position.index for m in site.system("w1").markers] == [end]
    site.stream("w2")
    assert site.digest("w1") == site.digest("w2")


def _tasks(driver: subprocess.Popen[bytes]) -> tuple[psutil.Process | None, list[psutil.Process]]:
    """The JVM, and the processes that its daemon of Python has forked for tasks."""
    found: list[psutil.Process] = []
    for each in psutil.Process(driver.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if "txlog.pipeline.batch.batch_daemon" in each.cmdline():
                found.append(each)
    above = {each.pid: each.parent() for each in found}
    tasks = [each for each in found if above[each.pid] in found]
    return next((above[each.pid] for each in found if each not in tasks), None), tasks


def test_the_application_gives_a_batch_to_who_is_far_behind(site: Site) -> None:
    site.append(0, 60_000)
    site.start("txlog.pipeline", batch_from=40_000)
    last = site.log.append(COUNT_ONE, kind=KIND_UPDATE)
    until(lambda: all(site.feed.position(name) == last for name in WORKERS), 200, str(site.feed.workers))
    assert [report for _, report in site.feed.reports if report["state"] == "Loading"]
    assert site.digest("w1") == site.digest("w2")
    assert [store.count() for store in site.stores.values()] == [1, 1]
