"""The disk of one simulated master: the real journal on files in memory, with the bad days a disk can have."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from random import Random

from txlog.journal import Journal, MemoryFiles
from txlog.journal.memory import PERISHES, SURVIVES, TEARS
from txlog.model.records import Recovered


class Disk:
    """What outlives a master's process. ``step`` is told of every operation on the files and may end the process
    there. ``met`` counts what befell the files."""

    def __init__(
        self, node: str, rng: Random, segment_bytes: int, met: Counter[str], step: Callable[[str], None]
    ) -> None:
        self._node = node
        self._rng = rng
        self._segment_bytes = segment_bytes
        self._failing = False
        self._met = met
        self._step = step
        self._files = self._hooked(MemoryFiles())
        self.journal: Journal | None = None

    def _hooked(self, files: MemoryFiles) -> MemoryFiles:
        files.hook = self._on_operation
        return files

    def _on_operation(self, operation: str, name: str) -> None:
        if self._failing and operation == "fdatasync":
            self._failing = False
            self._met["disk-error"] += 1
            raise OSError(errno.EIO, "the disk failed", name)
        self._step(operation)

    def open(self) -> tuple[Journal, Recovered]:
        """A new start of the process reads its journal; ``JournalFault`` by name when it cannot."""
        journal, recovered = Journal.open(
            self._files,
            node=self._node,
            draw_birth=lambda: self._rng.getrandbits(64),
            segment_bytes=self._segment_bytes,
            cache_bytes=1 << 14,
        )
        self.journal = journal
        return journal, recovered

    def idle(self) -> None:
        """What the product does between batches: a seal behind the last record, a spare segment ahead."""
        if self.journal is None:
            return
        if self._rng.random() < 0.1:
            self.journal.seal()
        prepare = self.journal.begin_prepare() if self._rng.random() < 0.5 else None
        if prepare is not None:
            prepare.run()
            self.journal.end_prepare(prepare)

    def crash(self) -> None:
        """The process ends and the power fails: of what was not synced, chance decides what is left."""
        self.journal = None
        self._failing = False
        self._files.crash(self._choose)

    def _choose(self, what: str, options: int) -> int:
        chosen = self._rng.randrange(options)
        if what.startswith("write"):
            name = {SURVIVES: "unsynced write kept", PERISHES: "unsynced write lost", TEARS: "torn write"}[chosen]
            self._met[name] += 1
        return chosen

    def fail(self) -> None:
        """The next fsync fails: what it was to make durable is anybody's guess."""
        self._failing = True

    def rest(self) -> None:
        """The process is stopped in order: all is synced and sealed before it goes."""
        if self.journal is not None:
            self.journal.sync()
            self.journal.seal()
        self.journal = None
        self._files.kill()

    def wipe(self) -> None:
        """Everything is gone."""
        self._files = self._hooked(MemoryFiles())

    def image(self) -> dict[str, bytes]:
        """A copy of the disk as it is now."""
        return self._files.dump()

    def restore(self, image: dict[str, bytes]) -> None:
        """The disk is what it was when the image was made."""
        self._files = self._hooked(MemoryFiles.load(image))

    def flip(self) -> bool:
        """One bit at rest turns; False when there is nothing to turn."""
        segments = [(name, data) for name, data in self._files.dump().items() if name.startswith("segment")]
        if not segments:
            return False
        name, data = self._rng.choice(segments)
        used = max(1, len(data.rstrip(b"\0")))
        self._files.flip(name, self._rng.randrange(used), self._rng.randrange(8))
        return True

    def fill(self, full: bool) -> None:
        """No room for another file, or room again."""
        self._files.capacity = sum(len(data) for data in self._files.dump().values()) if full else 1 << 40
