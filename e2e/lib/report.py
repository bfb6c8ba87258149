"""What a measuring command prints: a table for people, and as the last line of stdout one line of JSON.

Progress goes to stderr, so that a pipe gets the result alone. A *must* that is missed makes the exit code 1.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from txlog.model.errors import TxLogError

Figure = bool | int | float | str | None

WIDTH = 140
"""Of what goes to a file or a pipe; a terminal has its own."""


def console_for(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=WIDTH)


console = console_for(stderr=True)
"""Progress and remarks."""


class CannotMeasure(Exception):
    """What is to be measured or checked is not there; the message has its last state or error."""


class Requirement(NamedTuple):
    requirement: str
    found: Figure
    wanted: str
    is_met: bool


class BenchReport:
    """Collects figures and musts; :meth:`end` prints them and gives the exit code."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.figures: dict[str, object] = {}
        self.requirements: list[Requirement] = []

    def figure(self, name: str, value: Figure, digits: int = 2) -> None:
        self.figures[name] = _rounded(value, digits)

    def print_figures(self) -> None:
        """All of them as a table, for people."""
        rows = [(name, str(value)) for name, value in self.figures.items()]
        print_table(build_table("what was seen", ("figure", "value"), rows))

    def nested(self, figures: Mapping[str, object]) -> None:
        """Figures that are objects of JSON themselves; the caller has rounded them."""
        self.figures.update(figures)

    def at_most(self, name: str, value: float | None, limit: float) -> None:
        """A figure that must not be above ``limit``; one that could not be measured is a miss."""
        self.figure(name, value)
        self.requirements.append(
            Requirement(name, _rounded(value), f"<= {limit:g}", value is not None and value <= limit)
        )

    def at_least(self, name: str, value: float | None, limit: float) -> None:
        self.figure(name, value)
        self.requirements.append(
            Requirement(name, _rounded(value), f">= {limit:g}", value is not None and value >= limit)
        )

    def equal(self, name: str, value: Figure, wanted: Figure) -> None:
        self.figure(name, value)
        self.requirements.append(Requirement(name, value, f"= {wanted}", value == wanted))

    def require(self, what: str, met: bool, found: Figure = None) -> None:
        """Something that has to be so and is no figure."""
        self.requirements.append(Requirement(what, met if found is None else found, "true", met))

    def failed(self, what: str, why: str) -> None:
        self.requirements.append(Requirement(what, why, "to end", False))

    @contextmanager
    def part(self, what: str, *also: type[Exception]) -> Iterator[None]:
        """A part of the command; one that cannot be measured is a miss, and does not take the other parts' figures with
        it. ``also``: further errors that mean this."""
        expected: tuple[type[Exception], ...] = (CannotMeasure, TxLogError, *also)
        try:
            yield
        except expected as why:
            console.print(f"[red]{what}: {why}[/red]", highlight=False)
            self.failed(what, str(why).splitlines()[0][:300])

    def end_in_folder(self, what: str, folder: Path, run: Callable[[], None]) -> int:
        """A part that keeps its state in a new folder, and the end of the command. The folder stays where something was
        missed. Returns the exit code."""
        with self.part(what, OSError):
            if folder.exists():
                raise CannotMeasure(
                    f"{folder} is there already, of a run that missed something; look at it, then remove it"
                )
            run()
        missed = self.end()
        if not missed:
            shutil.rmtree(folder)
        return missed

    def save(self, file: Path) -> None:
        """The figures as a file, for ``make plots``."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.figures, indent=1) + "\n")

    def end(self) -> int:
        missed = [must for must in self.requirements if not must.is_met]
        out = console_for()
        if self.requirements:
            rows = [
                (must.requirement, format_figure(must.found), must.wanted, "yes" if must.is_met else "NO")
                for must in self.requirements
            ]
            out.print(build_table(self.title, ("must", "found", "wanted", "met"), rows))
        for must in missed:
            console.print(
                f"[red]missed:[/red] {must.requirement}: {format_figure(must.found)}, wanted {must.wanted}",
                highlight=False,
            )
        out.file.flush()
        print(json.dumps(self.figures), flush=True)
        return 1 if missed else 0


def _rounded(value: Figure, digits: int = 2) -> Figure:
    return round(value, digits) if isinstance(value, float) else value


def format_figure(value: Figure) -> str:
    """A figure as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"
    return value


def build_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Figure]]) -> Table:
    """A table for people; the first column is left-aligned, numbers are right-aligned."""
    made = Table(title=title, title_justify="left", title_style="bold", min_width=min(len(title), WIDTH - 20))
    for at, name in enumerate(columns):
        made.add_column(name, justify="left" if at == 0 else "right", overflow="fold")
    for row in rows:
        made.add_row(*(format_figure(cell) for cell in row))
    return made


def print_table(made: Table) -> None:
    """Print a table to stdout, at once."""
    out = console_for()
    out.print(made)
    out.file.flush()


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value below which ``share`` of them lie (nearest rank); None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float | None:
    """Of rounds: the middle one (of an even number the lower of both)."""
    return sorted(values)[(len(values) - 1) // 2] if values else None
