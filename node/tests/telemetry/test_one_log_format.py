"""One line of each kind of process, as a collector of logs reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from txlog.config.process_config import PipelineConfig, WorkerConfig
from txlog.pipeline.spark_settings import build_spark_settings

COMMON = ["time", "level", "node", "event"]
"""The first fields of every line, in their order."""
LEVELS = ("debug", "info", "warning", "error", "critical")
NOWHERE = "http://127.0.0.1:1"
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": NOWHERE}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}
CRASH = "from txlog.telemetry.json_log import install_json_log; install_json_log('uk-lanes'); "


def read_lines(output: bytes) -> list[dict[str, Any]]:
    """Each line as JSON; the common fields are checked."""
    found = [json.loads(line) for line in output.splitlines()]
    assert found, "it wrote nothing"
    for line in found:
        assert list(line)[:4] == COMMON
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
        assert line["level"] in LEVELS
    return found


def run(command: Sequence[str], **environment: str) -> list[dict[str, Any]]:
    """The lines of a process that ends by itself, on both of its outputs."""
    program = [sys.executable, *command]
    ended = subprocess.run(program, env={**os.environ, **environment}, capture_output=True, timeout=60, check=False)
    assert ended.returncode, "each of them fails here"
    return read_lines(ended.stdout + ended.stderr)


def written(folder: Path, content: dict[str, Any]) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(content))
    return str(file)


def test_a_master(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    config = {
        "node": "uk-1",
        "data_center": "uk",
        "repository": "r",
        "host": "203.0.113.1",  # no address of this machine
        "port": 7300,
        "journal_folder": str(tmp_path / "journal"),
        "peer_token_file": str(token),
        "peers": [{"node": "uk-1", "data_center": "uk", "url": NOWHERE}],
    }
    lines = run(["-m", "txlog.server", "--config", written(tmp_path, config)])
    assert (lines[-1]["node"], lines[-1]["event"], lines[-1]["level"]) == ("uk-1", "CannotListen", "error")


@pytest.mark.parametrize("way", ["--release", "--restore=uk-worker-1"])
def test_a_job(tmp_path: Path, way: str) -> None:
    config = {"data_center": "uk", "masters": [NOWHERE], "target": {"folder": str(tmp_path)}}
    answer = tmp_path / "answer"
    file = written(tmp_path, config)
    (line,) = run(["-m", "txlog.backup.duty", "--config", file, way, f"--answer={answer}"])
    assert (line["node"], line["event"], line["level"]) == ("duty", "JobEnded", "error")
    assert line["result"] == json.loads(answer.read_text())


@pytest.mark.parametrize("module", ["backup", "rehearsal"])
def test_a_job_of_a_schedule(tmp_path: Path, module: str) -> None:
    config = {"data_center": "uk", "masters": [NOWHERE], "target": {"folder": str(tmp_path)}}
    lines = run(["-m", f"txlog.{module}", "--config", written(tmp_path, config), f"--answer={tmp_path / 'answer'}"])
    assert (lines[-1]["node"], lines[-1]["event"]) == (module, "JobEnded")


def test_the_archiver(tmp_path: Path) -> None:
    (line,) = run(["-m", "txlog.archive", "--config", written(tmp_path, {"data_center": "uk"})])
    assert (line["node"], line["event"], line["error"]) == ("archiver", "Failed", "BadInput")


def test_a_recovery(tmp_path: Path) -> None:
    file = written(tmp_path, {"data_center": "uk"})
    (line,) = run(["-m", "txlog.successor", "found", "--master", file, "--config", file])
    assert (line["node"], line["event"], line["error"]) == ("recovery", "Failed", "BadInput")


def test_the_operator(tmp_path: Path) -> None:
    kubeconfig = written(tmp_path, KUBECONFIG)
    program = [sys.executable, "-m", "txlog_operator", "--namespace=graphs", "--image=txlog", "--metrics-port=0"]
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    running = subprocess.Popen(
        [*program, "--liveness=http://127.0.0.1:0/healthz"], env=environment, stderr=subprocess.PIPE
    )
    try:
        assert running.stderr is not None
        (line,) = read_lines(running.stderr.readline())
    finally:
        running.kill()
        running.communicate()
    assert (line["node"], line["event"]) == ("operator", "Log")
    assert line["logger"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise ValueError('it broke')", "ValueError: it broke"),
        (
            "from threading import Thread; t = Thread(target=lambda: 1 / 0, name='lane'); t.start(); t.join(); exit(1)",
            "lane: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_an_error_that_nothing_caught(how: str, message: str) -> None:
    (line,) = run(["-c", CRASH + how])
    assert (line["node"], line["message"]) == ("uk-lanes", message)
    assert "Traceback" in line["error"]


@pytest.mark.spark
def test_the_jvm_of_the_pipeline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    worker = WorkerConfig(name="w1", url=NOWHERE)
    config = PipelineConfig(data_center="uk", masters=[NOWHERE], workers=[worker], scratch_folder=tmp_path)
    conf = SparkConf(loadDefaults=False).setAll(list(build_spark_settings(config, tmp_path).items()))
    gateway = launch_gateway(conf, {"stdin": subprocess.PIPE})
    try:
        capfd.readouterr()
        jvm: Any = gateway.jvm
        log = jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.Some")
        log.info("not written")
        log.error("a task failed\nin two lines", jvm.java.lang.IllegalStateException("broken"))
        (line,) = read_lines(capfd.readouterr().err.encode())
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
    assert (line["node"], line["event"], line["level"]) == ("uk-pipeline", "Log", "error")
    assert (line["logger"], line["message"]) == ("org.apache.spark.Some", "a task failed\nin two lines")
    assert "IllegalStateException: broken" in line["error"]
