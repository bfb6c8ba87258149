"""The archive of Spark's classes: a JVM maps it, and one for which it was not made starts all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark import SparkContext

from txlog.config.process_config import PipelineConfig
from txlog.pipeline import jvm_class_archive, spark_settings
from txlog.pipeline.batch.spark_context import start_spark_context

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each context gets a JVM of its own."""
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    _end_jvm()
    yield
    _end_jvm()


@pytest.fixture
def place(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive's place in an installation's folder of its own."""
    place = tmp_path / "txlog-java" / "spark.jsa"
    monkeypatch.setattr(spark_settings, "CLASS_ARCHIVE", place)
    return place


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


def mapped(folder: Path, name: str) -> bool:
    """Whether the JVM of a context has that file in its memory; the context has to work in either case."""
    config = PipelineConfig.model_validate(
        {
            "data_center": "uk",
            "masters": ["http://127.0.0.1:1"],
            "workers": [{"name": "w1", "url": "http://127.0.0.1:1"}],
            "scratch_folder": folder / "scratch",
        }
    )
    with start_spark_context(config, 1, "512m") as starting:
        context = starting.result()
        assert context.parallelize([1, 2], 1).map(lambda number: number + 1).collect() == [2, 3]
        java = psutil.Process(context._gateway.proc.pid)
        found = any(Path(each.path).name == name for each in java.memory_maps())
    _end_jvm()
    return found


@pytest.mark.long
def test_a_jvm_takes_an_archive_that_was_just_made(place: Path, tmp_path: Path) -> None:
    assert jvm_class_archive.create_archive(place) == place
    assert not place.with_name(place.name + ".new").exists()
    SparkContext._gateway = SparkContext._jvm = None  # that JVM has ended
    assert mapped(tmp_path, place.name)


@pytest.mark.skipif(not spark_settings.CLASS_ARCHIVE.exists(), reason="make test makes it before: make classes")
@pytest.mark.usefixtures("fresh")
def test_a_jvm_takes_the_archive_of_this_installation(tmp_path: Path) -> None:
    assert mapped(tmp_path, spark_settings.CLASS_ARCHIVE.name)


def test_a_jvm_does_without_a_wrong_archive(place: Path, tmp_path: Path) -> None:
    place.parent.mkdir()
    place.write_bytes(b"of another Java")
    assert not mapped(tmp_path, place.name)


def test_java_that_writes_nothing_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        jvm_class_archive,
        "start_spark_context",
        lambda config, tasks, memory, _: start_spark_context(config, 1, "512m", ""),
    )
    with pytest.raises(jvm_class_archive.ArchiveError, match="no classes"):
        jvm_class_archive.create_archive(place)
    assert not place.exists()
    SparkContext._gateway = SparkContext._jvm = None
