"""The clusters that a soak can run: how many masters, where, and which faults and strategies they can have."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.lib.cluster.supervised import SupervisedCluster
from e2e.scenarios.split_demo import manifests
from e2e.soak.fault_log import FaultLog
from e2e.soak.master_faults import LAG_S, LONE_FAULTS, MASTER_FAULTS

STRATEGIES: Final = ("Smart", "Simple", "Majority")
HarmlessFault = Callable[[SupervisedCluster, random.Random, FaultLog], None]


@dataclass(frozen=True)
class ClusterShape:
    """``masters``: by data centre, in the order of precedence. ``workers``: of each data centre."""

    masters: dict[str, int]
    workers: int
    strategies: tuple[str, ...]
    faults: tuple[tuple[int, HarmlessFault], ...]

    @property
    def is_lone(self) -> bool:
        """Whether the cluster has one master: it has no splits, and comparisons of log and workers take their place."""
        return len(self.masters) == 1

    @contextmanager
    def manifest_files(self, strategy: str, graphs: Sequence[Mapping[str, str]] = ()) -> Iterator[Path]:
        """A folder with one manifest for each data centre. ``graphs``: rules for graphs with a quorum."""
        mode, recovery = ("Majority", "Smart") if strategy == "Majority" else ("Continue", strategy)
        with manifests(lag=f"{LAG_S:g}s", mode=mode, recovery=recovery, workers=self.workers, graphs=graphs) as folder:
            for path in folder.iterdir():
                if path.stem not in self.masters:
                    path.unlink()
                else:
                    path.write_text(self._with_masters(path.read_text()))
            yield folder

    def _with_masters(self, manifest: str) -> str:
        def peer(line: re.Match[str]) -> str:
            count = self.masters.get(line["side"], 0)
            return line[0].replace(line["count"], f"masters: {count}") if count else ""

        return re.sub(r"  - \{name: (?P<side>\w+), (?P<count>masters: \d+).*\n", peer, manifest)


SHAPES: Final[dict[int, ClusterShape]] = {
    1: ClusterShape({"uk": 1}, 2, ("Smart",), LONE_FAULTS),
    3: ClusterShape({"uk": 2, "us": 1}, 1, STRATEGIES, MASTER_FAULTS),
    5: ClusterShape({"uk": 3, "us": 2}, 1, STRATEGIES, MASTER_FAULTS),
}
"""By the number of masters."""
