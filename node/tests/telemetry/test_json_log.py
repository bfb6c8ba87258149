"""The records of Python's logging as lines that a collector of logs reads like those of a master."""

import json
import logging
from collections.abc import Iterator

import pytest

from txlog.telemetry.event_log import EventLog
from txlog.telemetry.json_log import install_json_log


@pytest.fixture(autouse=True)
def _former_handlers() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_has_the_fields_of_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    install_json_log("uk-pipeline")
    install_json_log("uk-pipeline")
    logging.getLogger("txlog.pipeline").warning("%s is away\nfor good", "uk-1")
    logging.getLogger("txlog.pipeline").debug("not written")
    EventLog("uk-1").warning("Left")
    record, event = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert {**record, "time": ""} == {
        "time": "",
        "level": "warning",
        "node": "uk-pipeline",
        "event": "Log",
        "logger": "txlog.pipeline",
        "message": "uk-1 is away\nfor good",
    }
    assert list(event)[:4] == list(record)[:4]
    assert len(record["time"]) == len(event["time"])


def test_a_stack_trace_is_in_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    install_json_log("operator")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("txlog_operator").exception("it ends")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: broken" in json.loads(line)["error"]
