"""The data of a test, where it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyoxigraph as ox

from e2e.lib.cluster.harness import MasterHarness

N_QUADS: Final = "application/n-quads"


def to_nquads(quads: Sequence[ox.Quad]) -> bytes:
    """As N-Quads."""
    return b"".join(f"{quad} .\n".encode() for quad in quads)


def fill_dataset(at: MasterHarness, quads: Sequence[ox.Quad]) -> None:
    """Exactly these are there afterwards, in the stores that are prompt."""
    at.write("PUT", "/statements", to_nquads(quads), N_QUADS)
