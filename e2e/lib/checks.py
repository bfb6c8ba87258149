"""After a measurement: is what was acknowledged really in every log?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from e2e.lib.load.closed import AcknowledgedSample
from txlog.client import MasterClient
from txlog.model.durability import Durability


class ReadBack(NamedTuple):
    """``checked`` samples were looked up in every log; ``missing`` names what was not as acknowledged."""

    checked: int
    missing: list[str]


def read_back(masters: Sequence[str], samples: Sequence[AcknowledgedSample], timeout_s: float = 60.0) -> ReadBack:
    """Every sample in the log of every master: asked by its name for its position, and read there."""
    missing: list[str] = []
    for url in masters:
        with MasterClient(url, timeout_s) as master:
            for sample in samples:
                at = master.transaction(sample.txid, 30.0, Durability.SYNCED).position
                if at is None:
                    missing.append(f"{url} gives {sample.txid} no position")
                    continue
                page = master.log_page(at.index - 1, upto=at.index)
                found = [entry for entry in page.entries if str(entry.txid) == sample.txid]
                if not found or b"/%012d>" % sample.number not in found[0].payload:
                    missing.append(f"{url} has something else at {at.index} than {sample.txid}")
    return ReadBack(len(samples), missing)


def same_log(masters: Sequence[str]) -> tuple[bool, list[int]]:
    """Whether the logs of all masters are one (the hashes agree at the shortest one's end), and their lengths."""
    ends = []
    for url in masters:
        with MasterClient(url) as master:
            ends.append(master.status().stable)
    shortest = min(ends, key=lambda end: end.index)
    agree = True
    for url in masters:
        with MasterClient(url, 30.0) as master:
            page = master.log_page(shortest.index - 1, upto=shortest.index)
            agree = agree and bool(page.entries) and page.entries[0].hash.hex() == shortest.hash
    return agree, [end.index for end in ends]
