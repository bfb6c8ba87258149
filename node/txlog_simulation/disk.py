"""The disk of one simulated master, with the bad days a disk can have."""

from __future__ import annotations

from random import Random
from typing import Protocol

from txlog.model.records import Recovered
from txlog.runtime.executor import JournalPort
from txlog_simulation.plain_journal import PlainJournal


class Disk(Protocol):
    """What outlives a master's process."""

    def open(self) -> tuple[JournalPort, Recovered]:
        """A new start of the process reads its journal; may raise ``JournalFault`` or ``Fatal`` by name."""

    def crash(self) -> None:
        """The process ends and the power fails: of what was not synced, chance decides what is left."""

    def wipe(self) -> None:
        """Everything is gone."""

    def image(self) -> object:
        """A copy of the disk as it is now."""

    def restore(self, image: object) -> None:
        """The disk is what it was when the image was made."""

    def flip(self) -> bool:
        """One bit at rest turns; False when there is nothing to turn."""

    def fill(self, full: bool) -> None:
        """No room for new work, or room again."""


class PlainDisk:
    """A list of records in the place of files: no torn writes, no damage."""

    def __init__(self, node: str, rng: Random) -> None:
        self._node = node
        self._rng = rng
        self._journal = PlainJournal(node, rng.getrandbits(64))

    def open(self) -> tuple[JournalPort, Recovered]:
        recovered = self._journal.open()
        return self._journal, recovered

    def crash(self) -> None:
        unsynced = len(self._journal.records) - self._journal.durable
        self._journal.crash(self._rng.randint(0, unsynced))

    def wipe(self) -> None:
        self._journal = PlainJournal(self._node, self._rng.getrandbits(64))

    def image(self) -> object:
        journal = self._journal
        return (journal.birth, journal.start, journal.records[: journal.durable])

    def restore(self, image: object) -> None:
        assert isinstance(image, tuple)
        birth, start, records = image
        self._journal = PlainJournal(self._node, birth)
        self._journal.start = start
        self._journal.records = list(records)
        self._journal.durable = len(records)

    def flip(self) -> bool:
        return False

    def fill(self, full: bool) -> None:
        self._journal.full = full
