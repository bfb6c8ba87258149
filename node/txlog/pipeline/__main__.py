"""``python -m txlog.pipeline --config FILE.json``: the Spark application of one data centre."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from pydantic import ValidationError

from txlog.config.process_config import PipelineConfig
from txlog.pipeline.application import run
from txlog.pipeline.kubernetes_executors import DriverPodUnknown
from txlog.telemetry.json_log import install_json_log

WRONG_CONFIG = 64


def main() -> int:
    """Run the application until SIGTERM or its end. Returns the exit code: :data:`WRONG_CONFIG` when it could not
    start."""
    parser = argparse.ArgumentParser(prog="python -m txlog.pipeline", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="a PipelineConfig as JSON")
    install_json_log("pipeline")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    file: Path = parser.parse_args().config
    try:
        config = PipelineConfig.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as wrong:
        logging.error("%s: %s", file, wrong)
        return WRONG_CONFIG
    install_json_log(f"{config.data_center}-pipeline")
    try:
        return run(config)
    except DriverPodUnknown as wrong:
        logging.error("%s", wrong)
        return WRONG_CONFIG


if __name__ == "__main__":
    sys.exit(main())
