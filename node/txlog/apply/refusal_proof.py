"""Whether a worker's refusal proves anything against the transaction that was sent (decision 113)."""

from __future__ import annotations

import re
from typing import Final

from txlog.workers.adapter import WorkerResponse

JUDGEMENTS: Final = frozenset((400, 409, 422, 500))
"""The statuses with which stores refuse an operation. Others (401, 403, 404, 413, 429, 507, ...) come from a proxy, or
are about the request and not about what it says."""
_OF_THE_MACHINE: Final = re.compile(
    rb"\bIO error\b|no space left|quota exceeded|file too large|read-only file system|too many open files"
    rb"|out of memory|OutOfMemoryError",
    re.IGNORECASE,
)
"""What a store writes where its machine cannot execute anything. An operation that is quoted may contain it, too: then
only a person skips the transaction."""


def is_judgement(response: WorkerResponse) -> bool:
    """Whether a refusal may be the store's answer to an operation. A store that cannot write may answer the same, so
    the applier also has to see a trial of the operation refused, and a request without operations executed."""
    return response.status in JUDGEMENTS and not _OF_THE_MACHINE.search(response.body)
