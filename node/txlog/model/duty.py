"""Merges the duties that the masters of one data centre list. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def merge_repair_duties(answers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By worker, one duty at most: one that every answering master lists, with no other duty. A master that knows of
    an obstacle is enough to wait."""
    if not answers or any(duty["kind"] != "repair" for answer in answers for duty in answer["duties"]):
        return {}
    for duty in answers[0]["duties"]:
        if all(any(each["id"] == duty["id"] for each in other["duties"]) for other in answers):
            return {duty["worker"]: duty}
    return {}


def merge_restore_duties(answers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By worker. Where one master only ``lacks`` a branch, another of the data centre may know it: then the worker
    stays."""
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
