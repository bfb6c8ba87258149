"""``python -m txlog.pipeline.batch --config FILE.json --worker NAME``: one worker, once, with a Spark of its own.

Exit codes: 0 the worker is at the requested index, or as far as a batch is worth it; 1 it is not, and the reason is
printed; 64 wrong configuration. The same command after an interruption repeats the interrupted load.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from txlog.apply import WorkerState
from txlog.client import WorkerReport
from txlog.config.process_config import PipelineConfig
from txlog.pipeline.batch.catch_up import CatchUp
from txlog.pipeline.batch.spark_context import start_spark_context
from txlog.pipeline.batch.task_runner import InProcessRunner, SparkRunner, TaskRunner
from txlog.pipeline.progress_reporter import ProgressReporter
from txlog.telemetry.json_log import install_json_log
from txlog.workers.adapter import TAKEOVER_S

WRONG_CONFIG = 64
log = logging.getLogger("txlog.pipeline.batch")


def main() -> int:
    """Bring one worker to an index of the log, and print a line of JSON with the figures. Returns the exit code: 0 when
    the worker is there, :data:`WRONG_CONFIG` when the batch could not start."""
    parser = argparse.ArgumentParser(prog="python -m txlog.pipeline.batch", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the PipelineConfig of the data centre, as JSON")
    parser.add_argument("--worker", required=True, help="its name there")
    parser.add_argument("--upto", type=int, help="an index of the log; default: the stable one")
    parser.add_argument("--tasks", type=int, default=os.cpu_count() or 2, help="at once")
    parser.add_argument("--memory", default="1g", help="of Spark's driver")
    parser.add_argument("--takeover", type=float, default=TAKEOVER_S, help="seconds until a silent owner is dead")
    parser.add_argument("--here", action="store_true", help="without Spark: a log that fits into memory")
    options = parser.parse_args()
    install_json_log("batch")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        config = PipelineConfig.model_validate_json(options.config.read_bytes())
    except (OSError, ValidationError) as wrong:
        log.error("%s: %s", options.config, wrong)
        return WRONG_CONFIG
    if options.worker not in [worker.name for worker in config.workers]:
        log.error("no worker %s in %s; there are %s", options.worker, options.config, [w.name for w in config.workers])
        return WRONG_CONFIG
    reports = ProgressReporter(config.masters)

    def report_progress(report: WorkerReport) -> None:
        log.info("%s", report.error)
        reports.send(options.worker, report)

    def run(engine: TaskRunner | Callable[[], TaskRunner]) -> int:
        batch = CatchUp(
            config, options.worker, engine, report_progress, tasks=options.tasks, takeover_s=options.takeover
        )
        ended = batch.run(options.upto)
        log.info("%s", ended)
        figures = {
            "state": ended.state,
            "seconds": round(ended.seconds, 3),
            "adds": ended.adds,
            "entries": ended.entries,
            "left_updates": ended.left_updates,
            "stages": {name: round(seconds, 3) for name, seconds in ended.stages.items()},
        }
        print(json.dumps(figures), flush=True)
        return 0 if ended.state is WorkerState.WORKING and ended.error is None else 1

    if options.here:
        return run(InProcessRunner())
    with start_spark_context(config, options.tasks, options.memory) as context:
        return run(lambda: SparkRunner(context.result(), options.tasks))


if __name__ == "__main__":
    sys.exit(main())
