"""What stands in a master's log, read as a client reads it."""

from __future__ import annotations

from collections import Counter

from txlog.client import MasterClient


def effects_in_log(url: str) -> Counter[str]:
    """How often each txid takes effect in the log of the master at ``url``, from its first entry on."""
    counts: Counter[str] = Counter()
    at = 0
    with MasterClient(url, 60.0) as master:
        while (page := master.log_page(at)).entries:
            for entry in page.entries:
                at = entry.index
                counts[str(entry.txid)] += not entry.noop
    return counts
