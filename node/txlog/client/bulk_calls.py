"""A master's API for bulk loads (``/txlog/bulk``)."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from txlog.client.master_client import MasterClient
from txlog.client.responses import BulkProgress, BulkRequest
from txlog.model.bulk_entry import BulkReference

T = TypeVar("T")
ASK_S = 10.0
"""A master that hangs must not take the time in which the others have to be asked again: they forget a load after half
a minute."""
APPEND_ANSWER_S = 60.0
"""A master answers when the entry is stable, or after its write time-out."""


class BulkWorker(msgspec.Struct, frozen=True):
    """A worker of a data centre. ``bulk``: None where its pipeline says nothing of bulk loads. ``index``: of its
    position, 0 where that is not known."""

    name: str
    engine: str = ""
    state: str = "Unknown"
    index: int = 0
    bulk: BulkProgress | None = None


class BulkLoads(msgspec.Struct, frozen=True, rename="camel"):
    """The load that a data centre prepares, and its workers. ``refused``: why its cluster takes none."""

    data_center: str
    preparing: BulkRequest | None
    workers: list[BulkWorker]
    refused: str | None = None


class _Appended(msgspec.Struct, frozen=True):
    transaction: str | None


class BulkCalls(MasterClient):
    """The calls to one master. An earlier version answers with :class:`~txlog.model.errors.NotFound`."""

    def __init__(self, url: str, timeout_s: float = ASK_S) -> None:
        super().__init__(url, timeout_s)

    def describe(self) -> BulkLoads:
        """What is prepared in the master's data centre, and how far its workers are."""
        return self._json.get("/txlog/bulk", BulkLoads)

    def prepare(self, load: BulkReference) -> BulkLoads:
        """Asks the pipelines of the master's data centre to prepare a load, for half a minute."""
        return self._call("PUT", load, BulkLoads, None)

    def give_up(self, load: str) -> BulkLoads:
        """Ends the preparation."""
        return self._json.call("DELETE", f"/txlog/bulk/{load}", BulkLoads, repeatable=True)

    def append(self, load: BulkReference) -> str | None:
        """Appends the load's entry; returns its transaction. None: it is not stable yet, and may become so. It may be
        called again, at any master."""
        return self._call("POST", load, _Appended, APPEND_ANSWER_S).transaction

    def _call(self, method: str, load: BulkReference, kind: type[T], timeout_s: float | None) -> T:
        path, body = f"/txlog/bulk/{load.id}", {"manifest": load.manifest, "quads": load.quads}
        return self._json.call(method, path, kind, body=body, timeout_s=timeout_s, repeatable=True)
