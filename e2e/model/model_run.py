"""A run of the model: the sizes that the checker explores exhaustively, and the properties that must hold there."""

from __future__ import annotations

from typing import Final, NamedTuple

from e2e.model.tla_source import PROPERTIES_OF_STEPS, properties_of

_DEFAULTS: Final = {
    "N": "3",
    "Writers": "{1, 3}",
    "MaxWrites": "2",
    "Proposals": "{}",
    "Coordinators": "{}",
    "MaxProposals": "0",
    "MaxNumber": "1",
    "Whole": "{TRUE}",
    "Alone": "{FALSE}",
    "MaxCrashes": "0",
    "MaxLost": "0",
    "IsSplit": "FALSE",
    "Majority": "FALSE",
    "Simple": "FALSE",
}
"""Every constant of the module, and its value where a run names none."""


class ModelRun(NamedTuple):
    """``about``: what these sizes reach. ``constants``: values of the module's constants that differ from the
    defaults."""

    name: str
    about: str
    constants: dict[str, str]

    def resized(self, constants: dict[str, str]) -> ModelRun:
        """The same run with other values of these constants."""
        return self._replace(constants={**self.constants, **constants})

    def configuration(self, properties: list[str]) -> str:
        """The checker's configuration file."""
        unknown = set(self.constants) - set(_DEFAULTS)
        assert not unknown, unknown
        lines = ["SPECIFICATION Spec", "CHECK_DEADLOCK FALSE", "CONSTANTS"]
        lines += [f"  {name} = {value}" for name, value in {**_DEFAULTS, **self.constants}.items()]
        lines += [
            f"{'PROPERTY' if name in PROPERTIES_OF_STEPS else 'INVARIANT'} {name}"
            for name in properties or properties_of()
        ]
        return "\n".join(lines) + "\n"


def _views(proposals: str, numbers: int, count: int) -> dict[str, str]:
    return {
        "Proposals": proposals,
        "Coordinators": "{1, 3}",
        "MaxProposals": str(count),
        "MaxNumber": str(numbers),
    }


_MAJORITIES: Final = "{{1, 2}, {2, 3}}"
_REJOIN: Final = {"IsSplit": "TRUE", "Alone": "{TRUE}"}
_LATE: Final = {"Alone": "{TRUE}", "Whole": "{TRUE, FALSE}"}
RUNS: Final = (
    ModelRun(
        "rounds",
        "posts with and without their transactions, relays, silent members",
        {
            "MaxWrites": "1",
            **_LATE,
        },
    ),
    ModelRun(
        "guesses",
        "each master guesses who is present, at each post",
        {
            "Alone": "{TRUE, FALSE}",
        },
    ),
    ModelRun(
        "crashes",
        "two masters, which may crash",
        {
            "N": "2",
            "Writers": "{1, 2}",
            "MaxCrashes": "2",
            "Whole": "{TRUE, FALSE}",
            "Alone": "{TRUE, FALSE}",
        },
    ),
    ModelRun(
        "majority",
        "Majority: two coordinators, each with another half",
        {
            "Majority": "TRUE",
            **_views(_MAJORITIES, 4, 2),
        },
    ),
    ModelRun(
        "crash-in-a-view-change",
        "Majority: a crash at any step of a view change",
        {
            "Majority": "TRUE",
            "MaxWrites": "1",
            "MaxCrashes": "1",
            **_views(_MAJORITIES, 4, 2),
        },
    ),
    ModelRun(
        "lost-disk",
        "Majority: a disk is lost at any step of a view change",
        {
            "Majority": "TRUE",
            "MaxWrites": "1",
            "MaxLost": "1",
            **_views(_MAJORITIES, 4, 2),
        },
    ),
    ModelRun(
        "split",
        "Continue: each side of a split opens its own view",
        {
            "Alone": "{TRUE}",
            **_views("{{1, 2}, {3}}", 3, 2),
        },
    ),
    ModelRun(
        "rejoin-smart",
        "Smart: two sides rejoin",
        {
            **_REJOIN,
            **_views("{{1, 2, 3}}", 6, 3),
        },
    ),
    ModelRun(
        "rejoin-simple",
        "Simple: two sides rejoin",
        {
            **_REJOIN,
            "Simple": "TRUE",
            **_views("{{1, 2, 3}}", 6, 3),
        },
    ),
)
DEEP_RUNS: Final = (
    ModelRun("rounds-of-two-writers", "as rounds, with two transactions", _LATE),
    ModelRun(
        "smart-life",
        "Smart: a split, work on both sides, a rejoin",
        {
            "Alone": "{TRUE}",
            **_views("{{1, 2}, {3}, {1, 2, 3}}", 6, 3),
        },
    ),
    ModelRun(
        "simple-life",
        "Simple: a split, work on both sides, a rejoin",
        {
            "Alone": "{TRUE}",
            "Simple": "TRUE",
            **_views("{{1, 2}, {3}, {1, 2, 3}}", 6, 3),
        },
    ),
)
"""Hours on two cores; ``make model DEEP=1``."""
