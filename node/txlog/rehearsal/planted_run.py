"""Rehearses once as it is, then once with each planted fault. An alarm that no fault sets off would prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from txlog.archive.stream import Stream, StreamId
from txlog.backup.chain_check import read_cluster_id
from txlog.client import MasterClient
from txlog.rehearsal.live_state import LiveState
from txlog.rehearsal.planted_faults import FAULTS, NotPlantable, Planting, RehearsalFault, make_planting
from txlog.rehearsal.rehearsal import RehearsalRequest, rehearse
from txlog.wire.rehearsal_report import RehearsalReport


class PlantedResult(msgspec.Struct, frozen=True, rename="camel"):
    """``expected``: the name that had to come. ``error``, ``phase``, ``message``: what came. ``planted``: whether the
    archive had a place for the fault."""

    name: str
    expected: str
    named: bool
    planted: bool = True
    error: str = ""
    phase: str = ""
    message: str = ""


class PlantedRun(msgspec.Struct, frozen=True):
    """``sound``: the rehearsal without a fault."""

    sound: RehearsalReport
    faults: list[PlantedResult]

    @property
    def ok(self) -> bool:
        """Whether the sound one was good, and each fault was named."""
        return self.sound.ok and all(each.named for each in self.faults)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        named = sum(each.named for each in self.faults)
        return {"ok": self.ok, "named": named, "of": len(self.faults), **msgspec.to_builtins(self)}


def rehearse_planted(request: RehearsalRequest, on_fault: Callable[[str], None] = lambda _: None) -> PlantedRun:
    """The faults are planted only after a good rehearsal: otherwise their names would prove nothing."""
    lives: list[LiveState] = []

    def read_once(masters: Sequence[MasterClient], stream: Stream) -> LiveState:
        lives.append(request.read_live(masters, stream))
        return lives[-1]

    sound = rehearse(replace(_in_folder(request, "sound"), read_live=read_once))
    if not sound.ok:
        return PlantedRun(sound, [])
    stream = Stream(request.archive, StreamId(bytes.fromhex(read_cluster_id(request.masters)), request.data_center))
    live = lives[-1]
    planting = make_planting(request, stream, live)
    results = []
    for fault in FAULTS:
        on_fault(fault.name)
        results.append(_plant(planting._replace(request=_in_folder(planting.request, fault.name)), fault))
    return PlantedRun(sound, results)


def _plant(planting: Planting, fault: RehearsalFault) -> PlantedResult:
    try:
        report = rehearse(fault.plant(planting))
    except NotPlantable as error:
        return PlantedResult(fault.name, fault.error, named=False, planted=False, message=str(error))
    named = not report.ok and report.error == fault.error
    return PlantedResult(fault.name, fault.error, named, error=report.error, phase=report.phase, message=report.message)


def _in_folder(request: RehearsalRequest, name: str) -> RehearsalRequest:
    folder = request.folder / name
    with suppress(FileExistsError):
        folder.mkdir()
    return replace(request, folder=folder)
