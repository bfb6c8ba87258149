"""What is durable at one master, as the simulator knows it: the record stream, followed without the journal's help.

A mirror is fed each record when its fsync has returned. After a crash the recovered journal must be the mirror, or
the mirror and the first few records behind it: nothing that was durable is lost and nothing is invented.
"""

from __future__ import annotations

from txlog.model.hashes import HASH_BYTES
from txlog.model.ids import Origin
from txlog.model.records import Added, Ceiling, Held, Record, Recovered, Stable, ViewAccepted, ViewInstalled
from txlog.model.view import View

Summary = tuple[object, ...]


class Mirror:
    """``held``: last seq per origin. ``log`` counts entries, ``hash`` is the chain hash at its end. ``members`` are the
    origins of the view's members, by slot."""

    def __init__(self) -> None:
        self.held: dict[Origin, int] = {}
        self.log = 0
        self.hash = b""
        self.stable = 0
        self.ceiling = 0
        self.accepted: View | None = None
        self.members: list[Origin] = []
        self.installed = False

    def apply(self, record: Record) -> None:
        """One more durable record."""
        match record:
            case Held():
                self.held[record.run.origin] = record.run.last_seq
            case Added():
                self.log += len(record.hashes) // HASH_BYTES
                self.hash = record.hashes[-HASH_BYTES:]
                self.stable = record.stable
            case Stable():
                self.stable = record.index
            case Ceiling():
                self.ceiling = record.stamp
            case ViewAccepted():
                self.accepted = record.view
                self.members = [member.origin for member in record.view.members]
                self.installed = False
            case ViewInstalled():
                self.installed = True

    def summary(self) -> Summary:
        """What every single record changes something of."""
        number = self.accepted.number if self.accepted else None
        held = tuple(sorted(self.held.items()))
        return (number, self.installed, self.ceiling, self.stable, self.log, self.hash, held)


def mirror_of(recovered: Recovered) -> Mirror:
    """A mirror of what a disk holds that is not what it was (an old image, a damaged one)."""
    mirror = Mirror()
    _, installed, ceiling, stable, log, value, held = summary_of(recovered)
    mirror.__dict__.update(installed=installed, ceiling=ceiling, stable=stable, log=log, hash=value)
    assert isinstance(held, tuple)
    mirror.held = dict(held)
    mirror.accepted = recovered.accepted
    mirror.members = [member.origin for member in recovered.accepted.members] if recovered.accepted else []
    return mirror


def summary_of(recovered: Recovered) -> Summary:
    """The same of a journal that was read back."""
    held: dict[Origin, int] = {}
    for span in recovered.log_spans:
        held[Origin(span.node, span.birth)] = span.first_seq + span.count - 1
    for meta in recovered.queued:
        if meta.stamps:
            held[Origin(meta.node, meta.birth)] = meta.first_seq + len(meta.stamps) - 1
    hashes = recovered.log_hashes
    number = recovered.accepted.number if recovered.accepted else None
    return (
        number,
        recovered.installed is not None,
        recovered.ceiling,
        recovered.stable,
        len(hashes) // HASH_BYTES,
        bytes(hashes[-HASH_BYTES:]),
        tuple(sorted(held.items())),
    )
