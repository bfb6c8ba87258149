"""One stream for the logs of several repositories: what wakes it, and for whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from store_process import until

from txlog.config.process_config import FolderConfig, PipelineConfig, RepositoryPipelineConfig, WorkerConfig
from txlog.model.errors import NotFound
from txlog.pipeline import repository_bells, worker_lanes
from txlog.pipeline.repository_bells import RepositoryBells
from txlog.pipeline.repository_configs import FIRST_REPOSITORY, repository_config, repository_configs
from txlog.pipeline.spark_settings import spark_master_url
from txlog.pipeline.worker_lanes import ApplyRequest, apply_workers

PATIENCE_S = 10.0


class FakeLog:
    """A log whose end the test moves. Its poller answers when the end is another one."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.end = 0
        self.asked: list[int] = []
        self.hangs = False
        self.error: Exception | None = None

    def move(self, end: int) -> None:
        with self.changed:
            self.end = end
            self.changed.notify_all()

    def wait(self, pos: int, tick: int) -> tuple[int, int]:
        with self.changed:
            self.asked.append(pos)
            if self.error is not None:
                raise self.error
            self.changed.wait_for(lambda: self.end != pos and not self.hangs, 0.05)
            return (self.end, tick + 1) if self.end != pos and not self.hangs else (pos, tick)

    def ranges(self, upto: int) -> list[int]:
        return [upto]


class Logs:
    """Two repositories, and what Spark asks of their bells."""

    def __init__(self) -> None:
        self.first, self.stock = FakeLog(), FakeLog()
        self.bells = RepositoryBells[int]({FIRST_REPOSITORY: self.first, "stock": self.stock})
        self.done = 0

    def next_batch(self, timeout_s: float = PATIENCE_S) -> dict[str, list[int]]:
        """The rows of the next micro-batch; the one before is over."""
        end = self.bells.wait(self.done, timeout_s)
        rows = self.bells.ranges(self.done, end)
        self.done = end
        return rows


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Logs]:
    monkeypatch.setattr(repository_bells, "RETRY_S", 0.01)
    logs = Logs()
    yield logs
    logs.bells.stop()


def test_only_the_repository_that_rang_has_rows(logs: Logs) -> None:
    assert logs.next_batch(0.0) == {}
    logs.stock.move(3)
    assert logs.next_batch() == {"stock": [3]}
    logs.first.move(7)
    assert logs.next_batch() == {FIRST_REPOSITORY: [7]}


def test_logs_that_rang_meanwhile_share_a_batch(logs: Logs) -> None:
    logs.stock.move(1)
    assert logs.next_batch() == {"stock": [1]}
    logs.stock.move(2)
    logs.first.move(5)
    until(lambda: logs.bells.ranges(0, 2).keys() == {FIRST_REPOSITORY, "stock"}, PATIENCE_S)
    assert logs.next_batch() == {FIRST_REPOSITORY: [5]}, "stock waits until its batch is over"
    assert logs.next_batch() == {"stock": [2]}


def test_a_log_is_not_polled_while_its_batch_runs(logs: Logs) -> None:
    logs.stock.move(1)
    until(lambda: logs.bells.ranges(0, 1) == {"stock": [1]}, PATIENCE_S)
    asked = len(logs.stock.asked)
    logs.stock.move(2)
    logs.first.move(1)
    until(lambda: logs.bells.ranges(0, 2) == {FIRST_REPOSITORY: [1], "stock": [1]}, PATIENCE_S)
    assert len(logs.stock.asked) == asked, "its rows stay as they are, also when Spark plans the batch again"


def test_a_log_without_an_answer_delays_no_other(logs: Logs) -> None:
    logs.stock.hangs = True
    for end in (1, 2, 3):
        logs.first.move(end)
        assert logs.next_batch() == {FIRST_REPOSITORY: [end]}


@pytest.mark.parametrize("error", [NotFound("unknown repository stock"), RuntimeError("a bug")])
def test_an_error_of_one_log_ends_no_other_and_is_tried_again(logs: Logs, error: Exception) -> None:
    logs.stock.error = error
    logs.first.move(1)
    assert logs.next_batch() == {FIRST_REPOSITORY: [1]}
    until(lambda: len(logs.stock.asked) > 3, PATIENCE_S)
    logs.stock.error = None
    logs.stock.move(4)
    assert logs.next_batch() == {"stock": [4]}


def test_a_new_process_of_a_query_goes_on_counting(logs: Logs) -> None:
    logs.done = 40
    assert logs.next_batch(0.0) == {}
    logs.stock.move(1)
    assert logs.next_batch() == {"stock": [1]}
    assert logs.done == 41


def configuration(folder: Path) -> PipelineConfig:
    return PipelineConfig(
        data_center="uk",
        masters=["http://uk-1:7300/", "http://uk-2:7300"],
        workers=[WorkerConfig(name="w1", url="http://s1"), WorkerConfig(name="w2", url="http://s2")],
        scratch_folder=folder,
        bulk_target=FolderConfig(folder=folder),
        repositories=[
            RepositoryPipelineConfig(name="stock", workers=[WorkerConfig(name="uk-stock-worker-1", url="http://s3")])
        ],
    )


def test_each_repository_has_the_paths_of_its_log_and_locks_of_its_own(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    assert list(repository_configs(config)) == [FIRST_REPOSITORY, "stock"]
    stock = repository_config(config, "stock")
    assert stock.masters == [f"http://uk-{n}:7300/txlog/repositories/stock" for n in (1, 2)]
    assert ([each.name for each in stock.workers], stock.bulk_target) == (["uk-stock-worker-1"], None)
    assert stock.scratch_folder == tmp_path / "repositories" / "stock"
    first = repository_config(config, FIRST_REPOSITORY)
    assert first == config.model_copy(update={"repositories": []})
    assert repository_config(first, FIRST_REPOSITORY) is first


def test_spark_has_threads_for_every_repository_at_once(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    assert spark_master_url(config) == "local[6,4]"
    assert spark_master_url(repository_config(config, FIRST_REPOSITORY)) == "local[6,4]"
    assert spark_master_url(repository_config(config, "stock")) == "local[4,4]"


class BrokenLanes:
    """Lanes of which one repository's fail."""

    served: ClassVar[list[ApplyRequest]] = []

    def __init__(self, config: PipelineConfig, applier: object) -> None:
        self._is_broken = config.workers[0].name == "w1"

    def apply_workers(self, rows: list[ApplyRequest]) -> None:
        if self._is_broken:
            raise RuntimeError("a bug")
        self.served += rows


def test_an_error_of_one_repository_does_not_end_a_task_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_lanes, "LaneSet", BrokenLanes)
    monkeypatch.setattr(worker_lanes, "_lane_sets", {})
    monkeypatch.setattr(worker_lanes, "install_json_log", lambda node: None)
    config = configuration(tmp_path)
    stock = ApplyRequest("uk-stock-worker-1", 3, "", "stock")
    apply_workers(config.model_dump_json(), [ApplyRequest("w1", 3), stock])
    assert BrokenLanes.served == [stock]
    alone = repository_config(config, FIRST_REPOSITORY)
    with pytest.raises(RuntimeError):
        apply_workers(alone.model_dump_json(), [ApplyRequest("w1", 3)])
