"""The whole pipeline: real Spark, real stores, a stand-in for the masters' feed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from feed_stub import FeedStub, StubLog
from store_process import COUNT_ONE, COUNTED, Store, until

sys.path.append(str(Path(__file__).parents[1] / "telemetry"))
from otlp_receiver import OtlpReceiver

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.application import EXIT_QUERY_FAILED, spark_session, start_query
from txlog.pipeline.doorbell_source import RECHECK_S
from txlog.pipeline.spark_settings import TASK_ATTEMPTS, build_spark_settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
WORKERS = ["w1", "w2"]


class DataCentre:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = StubLog()
        self.feeds = [FeedStub(self.log, WORKERS), FeedStub(self.log, WORKERS)]
        self.stores = {name: Store(folder / name) for name in WORKERS}

    def config(self, scratch: str = "scratch") -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "data_center": "uk",
                "masters": [feed.url for feed in self.feeds],
                "workers": [{"name": name, "url": store.url} for name, store in self.stores.items()],
                "scratch_folder": self.folder / scratch,
                "spark_master": f"local[8,{TASK_ATTEMPTS}]",
                "poll_s": 1.0,
            }
        )

    def count_one(self, times: int = 1) -> int:
        return self.log.append(*[COUNT_ONE] * times, kind=COUNTED)

    def wait_for(self, index: int, *workers: str, feed: int = 0) -> None:
        names = workers or WORKERS
        until(
            lambda: all(self.feeds[feed].position(name) == index for name in names),
            what=f"not at {index}: {self.feeds[feed].workers}",
        )

    def counts(self) -> list[int]:
        return [store.count() for store in self.stores.values()]

    def close(self) -> None:
        for feed in self.feeds:
            feed.stop()
        for store in self.stores.values():
            store.kill()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[DataCentre]:
    site = DataCentre(tmp_path)
    yield site
    site.close()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    told = {
        "data_center": "uk",
        "masters": ["http://127.0.0.1:1"],
        "workers": [{"name": "w1", "url": "http://127.0.0.1:1"}],
        "scratch_folder": tmp_path_factory.mktemp("spark"),
        "spark_master": f"local[8,{TASK_ATTEMPTS}]",
    }
    with spark_session(PipelineConfig.model_validate(told)) as spark:
        yield spark


@pytest.fixture
def query(spark: Any, site: DataCentre) -> Iterator[Any]:
    query = start_query(spark, site.config())
    yield query
    assert query.isActive, query.exception()
    query.stop()


def test_what_is_appended_is_applied_to_every_worker_and_reported(site: DataCentre, query: Any) -> None:
    for times in (1, 5, 200):
        site.wait_for(site.count_one(times))
    site.wait_for(206, feed=1)
    assert site.counts() == [206, 206]


def test_what_sparks_tasks_execute_is_traced(site: DataCentre, spark: Any) -> None:
    receiver, traceparent = OtlpReceiver(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    traces = {"endpoint": receiver.url, "sample_ratio": 0.0}
    query = start_query(spark, PipelineConfig.model_validate({**site.config().model_dump(), "traces": traces}))
    try:
        site.wait_for(site.count_one())
        for feed in site.feeds:
            feed.traceparents[2] = traceparent
        site.wait_for(site.count_one())
        until(lambda: len(receiver.named("execute")) == 2)
    finally:
        query.stop()
        receiver.close()
    assert sorted(each.attributes["txlog.worker"] for each in receiver.spans) == WORKERS
    assert {(each.trace, each.parent) for each in receiver.spans} == {tuple(traceparent.split("-")[1:3])}


def test_workers_and_masters_come_and_go(site: DataCentre, query: Any) -> None:
    site.wait_for(site.count_one())

    # a worker that is killed holds up nobody, and catches up without a new transaction
    site.stores["w2"].kill()
    last = site.count_one(5)
    site.wait_for(last, "w1")
    until(lambda: site.feeds[0].state("w2") == "Unreachable")
    site.stores["w2"].start()
    site.wait_for(last)

    # the nearest master dies: the second rings and gives the log; back, it learns where the workers are
    site.feeds[0].stop()
    last = site.count_one(2)
    site.wait_for(last, feed=1)
    site.feeds[0].start()
    site.wait_for(last)

    # no master at all for a while
    for feed in site.feeds:
        feed.stop()
    for feed in site.feeds:
        feed.start()
    site.wait_for(site.count_one())

    # a store that was put back to an older copy
    site.stores["w1"].copy_to(site.folder / "copy")
    site.wait_for(site.count_one(3))
    site.stores["w1"].put_back(site.folder / "copy")
    site.wait_for(site.count_one())
    assert site.counts() == [13, 13]

    # the same while nothing new arrives: long before everybody is looked at anyway
    site.stores["w1"].put_back(site.folder / "copy")
    until(lambda: site.counts() == [13, 13], RECHECK_S / 2)


def test_poison_and_hold_stop_one_worker_only(site: DataCentre, query: Any) -> None:
    site.feeds[0].hold("w1", 1)
    site.count_one(2)
    site.wait_for(2, "w2")
    site.wait_for(1, "w1")
    site.feeds[0].hold("w1", None)
    site.wait_for(2)

    site.stores["w2"].update("CREATE GRAPH <urn:g>")
    poison = site.log.append(b"CREATE GRAPH <urn:g>", kind=COUNTED)
    last = site.count_one()
    site.wait_for(last, "w1")
    until(lambda: site.feeds[0].state("w2") == "Blocked")
    assert site.feeds[0].position("w2") == poison - 1
    site.log.skip(poison)
    site.wait_for(last + 1)
    assert site.counts() == [3, 3]


def test_a_lost_checkpoint_and_a_second_application_apply_nothing_twice(site: DataCentre, spark: Any) -> None:
    first = start_query(spark, site.config())
    site.wait_for(site.count_one(10))
    first.stop()
    shutil.rmtree(site.folder / "scratch")
    first, second = start_query(spark, site.config()), start_query(spark, site.config("second"))
    for _ in range(20):
        site.wait_for(site.count_one(3), "w1")
    site.wait_for(70)
    assert site.counts() == [70, 70]
    for query in (first, second):
        assert query.isActive, query.exception()
        query.stop()


def jvm_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    (jvm,) = [c for c in psutil.Process(process.pid).children(recursive=True) if "java" in c.name()]
    return jvm


class TestProcess:
    """``python -m txlog.pipeline`` as a supervisor runs it."""

    @pytest.fixture
    def start(self, site: DataCentre) -> Iterator[Any]:
        started: list[subprocess.Popen[bytes]] = []

        def start() -> subprocess.Popen[bytes]:
            file = site.folder / "pipeline.json"
            told = site.config().model_copy(update={"spark_master": None})
            file.write_text(told.model_dump_json())
            with (site.folder / "log").open("wb") as out:
                command = [sys.executable, "-m", "txlog.pipeline", "--config", str(file)]
                started.append(subprocess.Popen(command, stderr=out))
            return started[-1]

        yield start
        for process in started:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
                process.wait()

    def test_it_waits_for_a_master_follows_the_log_and_ends_when_told(self, site: DataCentre, start: Any) -> None:
        for feed in site.feeds:
            feed.stop()
        process = start()
        until(lambda: "waiting for a master of uk" in (site.folder / "log").read_text())
        for feed in site.feeds:
            feed.start()
        site.wait_for(site.count_one(3))
        (told,) = [a for a in jvm_of(process).cmdline() if a.startswith("-Djava.io.tmpdir=")]
        sockets = Path(told.partition("=")[2])
        assert sockets.is_dir()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert not sockets.exists()
        assert site.counts() == [3, 3]

    def test_it_ends_with_an_error_when_the_query_dies(self, site: DataCentre, start: Any) -> None:
        process = start()
        site.wait_for(site.count_one())
        jvm_of(process).kill()
        assert process.wait(20) == EXIT_QUERY_FAILED

    def test_a_wrong_configuration_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "p.json").write_text(json.dumps({"data_centre": "uk"}))
        command = [sys.executable, "-m", "txlog.pipeline", "--config", str(tmp_path / "p.json")]
        ended = subprocess.run(command, stderr=subprocess.PIPE, timeout=30, check=False)
        assert ended.returncode == 64
        assert b"data_centre" in ended.stderr


def test_spark_is_told_what_the_configuration_says(site: DataCentre) -> None:
    settings = build_spark_settings(site.config().model_copy(update={"spark_master": None}), Path("/tmp/x"))
    assert settings["spark.master"] == "local[6,4]"
    assert settings["spark.driver.memory"] == "512m"
    assert settings["spark.python.unix.domain.socket.dir"] == "/tmp/x"
