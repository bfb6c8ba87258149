"""Where one master's time goes: py-spy looks at it from outside while a case runs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from rich.table import Table

from e2e.lib.report import Figure, build_table, console

SAMPLES_PER_S: Final = 200
TOP_ROWS: Final = 20


class Profiler:
    """Records stacks of one process into ``folder``: ``CASE.raw``, lines of ``frame;frame;... count``."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder = folder
        self.pid = pid
        self.files: dict[str, Path] = {}
        self._running: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, case: str, seconds: float) -> None:
        file = self.folder / f"{case}.raw"
        self.files[case] = file
        command = [
            str(Path(sys.executable).with_name("py-spy")),
            *("record", "--format", "raw", "--rate", str(SAMPLES_PER_S), "--duration", str(max(1, round(seconds)))),
            *("--pid", str(self.pid), "--output", str(file)),
        ]
        try:
            self._running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            console.print("[yellow]no py-spy here: make install-dev installs it[/yellow]")

    def end(self) -> None:
        if self._running is not None:
            self._running.wait(60)
            self._running = None

    def tables(self) -> list[Table]:
        """For each case, the functions in which the process itself was found most often."""
        return [
            build_table(f"{case}: where uk-1 is", ("function", "self %"), top_frames(file))
            for case, file in self.files.items()
        ]


def top_frames(file: Path, rows: int = TOP_ROWS) -> list[list[Figure]]:
    """Innermost frames of a raw recording by their share."""
    found: Counter[str] = Counter()
    if file.exists():
        for line in file.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            found[stack.rsplit(";", 1)[-1]] += int(count)
    total = sum(found.values()) or 1
    return [[name, 100 * count / total] for name, count in found.most_common(rows)]
