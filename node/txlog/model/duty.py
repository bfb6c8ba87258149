"""What masters of one data centre list as its duties, put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def restores(answers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By worker. What one master ``lacks`` only, another of the data centre may know: then the worker stays."""
    found: dict[str, dict[str, Any]] = {}
    for answer in answers:
        for duty in answer["duties"]:
            if duty["kind"] != "restore":
                continue
            every = all(
                any(d["kind"] == "restore" and d["worker"] == duty["worker"] for d in other["duties"])
                for other in answers
            )
            if every or not duty.get("lacks"):
                found[duty["worker"]] = duty
    return found
