"""Whether a rehearsal was good. Pure: it is good only by a comparison at one place of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from txlog.archive.file_name import Node
from txlog.model.errors import TxLogError
from txlog.rehearsal.rehearsal_errors import NothingCompared, RehearsalDiffers, RpoExceeded, RtoExceeded
from txlog.wire.rehearsal_report import DIFFERING_SHOWN_MAX
from txlog.workers.digest import Digest

FOUNDING_PHASES: Final = ("find", "claim", "found", "start")
"""Until the masters of a new cluster take writes."""
FILLING_PHASES: Final = ("base", "files", "load")
"""Until its stores are filled."""


class PlacedDigest(NamedTuple):
    """What a store held at a place of the log."""

    place: Node
    digest: Digest


class Comparison(NamedTuple):
    """``graphs``: how many were compared. ``differing``: the names of those that are not the same."""

    graphs: int
    differing: tuple[str, ...]


class RehearsalBounds(NamedTuple):
    """Seconds; None: not bounded."""

    rpo_s: float | None = None
    rto_s: float | None = None


NO_BOUNDS: Final = RehearsalBounds()


class MeasuredTimes(NamedTuple):
    """Seconds."""

    rpo_s: float
    rto_writes_s: float
    rto_reads_s: float


def compare_digests(live: PlacedDigest, restored: PlacedDigest) -> Comparison:
    """The graphs that are not the same in both. At two places of the log nothing can be compared."""
    if live.place != restored.place:
        return Comparison(0, ())
    names = live.digest.graphs.keys() | restored.digest.graphs.keys()
    return Comparison(len(names), tuple(live.digest.differs_from(restored.digest)))


def measure_times(rpo_s: float, phases: Mapping[str, float]) -> MeasuredTimes:
    """``phases``: seconds of each phase. Reading the live worker and comparing is no part of a recovery."""
    writes_s = sum(phases.get(name, 0.0) for name in FOUNDING_PHASES)
    return MeasuredTimes(rpo_s, writes_s, writes_s + sum(phases.get(name, 0.0) for name in FILLING_PHASES))


def find_fault(compared: Comparison, times: MeasuredTimes, bounds: RehearsalBounds) -> TxLogError | None:
    """Why the rehearsal was not good; None for a good one."""
    if compared.graphs < 1:
        return NothingCompared(
            "no graph was compared: neither the live worker nor the restored store holds one; write something first"
        )
    if compared.differing:
        names = ", ".join(name or "the default graph" for name in compared.differing[:DIFFERING_SHOWN_MAX])
        return RehearsalDiffers(
            f"{len(compared.differing)} of {compared.graphs} graphs differ from those of the live worker: {names}; run "
            "txlog archive check, txlog backup verify and txlog verify, and take a new backup"
        )
    if bounds.rpo_s is not None and times.rpo_s > bounds.rpo_s:
        return RpoExceeded(
            f"{times.rpo_s:.1f} s of transactions would have been lost, maxRpo is {bounds.rpo_s:g} s; see the archiver"
        )
    if bounds.rto_s is not None and times.rto_reads_s > bounds.rto_s:
        return RtoExceeded(
            f"the stores were filled after {times.rto_reads_s:.1f} s, maxRto is {bounds.rto_s:g} s; take backups more "
            "often"
        )
    return None
