"""What a backup job or a duty job wrote last: its result, or why it failed."""

from __future__ import annotations

import json
from typing import Any, Final

MESSAGE_CHARACTERS_MAX: Final = 500
"""Limit of the plain output in a message. The end counts: a traceback names its error there."""


def parse_job_output(output: str) -> dict[str, Any]:
    """The JSON object in the last line; empty when the job ended before it wrote one."""
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def failure_message(output: str, otherwise: str) -> str:
    """Why a job failed: the error that it named, else its plain output, else ``otherwise``."""
    result = parse_job_output(output)
    if "message" in result and "logger" in result:
        return str(result["message"])  # a line of the log: an error that nothing caught
    if "message" in result:
        return f"{result['error']}: {result['message']}" if "error" in result else str(result["message"])
    return output.strip()[-MESSAGE_CHARACTERS_MAX:] or otherwise
