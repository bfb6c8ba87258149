"""The splits that this master has seen: ``GET /txlog/splits``, for ``txlog split-report``.

A file next to the journal, for people. TxLog decides nothing by it, and a crash may lose its last line. The agreement
itself is in the journal.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from txlog.http.router import Request, Response, Route, json_response
from txlog.model.view import View
from txlog.runtime.master_context import MasterContext
from txlog.runtime.master_listener import ViewTransition
from txlog.server.admin.kept_file import keep
from txlog.server.admin.rejoin_decisions import find_undecided, follow_decisions
from txlog.server.admin.views import format_view_number

FILE = "splits.json"
RECORDS_MAX = 400
POLL_S = 0.2
"""Poll interval, in seconds; the precision of the recorded times of states."""
RECORDED_STATES = ("Suspected", "Isolated", "Rejoining", "Joined")


class SplitHistory:
    """Records the states and views of this master, and serves ``/txlog/splits``."""

    def __init__(self, site: MasterContext) -> None:
        self._context = site
        self._path = site.config.journal_folder / FILE
        self._records = self._read()
        self._state = ""

    def routes(self) -> list[Route]:
        """The paths of this handler."""
        return [Route("GET", "/txlog/splits", self.get)]

    def tasks(self) -> dict[str, Any]:
        """The tasks that run until the process ends, by name."""
        return {"split-states": self._record_states()}

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"node", "dataCenter", "records"}``, oldest first. A record is a ``state`` that changed, or a ``view`` that
        was accepted; that of a rejoin has the synchronous transactions that it found ``undecided``, and those of them
        that are ``committed`` or ``rolledBack`` since."""
        config = self._context.config
        return json_response({"node": config.node, "dataCenter": config.data_center, "records": self._records})

    def on_view_changed(self, change: ViewTransition) -> None:
        """Records a view that this master has accepted."""
        old, new, kept = change.old, change.new, change.common_index
        if not (old.silent_members or new.silent_members or kept is not None):
            return  # a leave or a return: no master was partitioned
        described = {**_to_dict(new), "brought": self._merged_until(new)}
        record = {"view": described, "before": _to_dict(old), "end": change.end, "kept": kept}
        log = self._context.status.log_state
        is_rejoin = any(new.member(node) is not None for node in old.silent_members)
        if is_rejoin and log is not None and (undecided := find_undecided(log.synchronous)):
            record["undecided"] = undecided
        self._append_record(record)

    def _merged_until(self, view: View) -> int | None:
        """The index at which the log contains everything that this view has merged. What waits in its queue at the
        accept has stamps below all later ones. None if this log is trimmed beyond the view's base."""
        agreement = self._context.status.log_state
        if agreement is None or not agreement.log_index.start <= view.base_index <= agreement.log_index.length:
            return None
        last = {(node, birth): seq for node, birth, seq in agreement.log_index.seqs_at(view.base_index)}
        waiting = [
            seq - last.get((node, birth), 0) for (node, birth), seq in zip(view.origins, view.known_seqs, strict=False)
        ]
        return view.base_index + sum(count for count in waiting if count > 0)

    async def _record_states(self) -> None:
        while True:
            state = self._context.state
            quiet = not self._records and state == "Joined"
            if state != self._state and state in RECORDED_STATES and not quiet:
                self._append_record({"state": state, "was": self._state})
            self._state = state
            self._follow_decisions()
            await asyncio.sleep(POLL_S)

    def _follow_decisions(self) -> None:
        """Adds to the records what was decided about transactions that a rejoin found undecided."""
        log, stable = self._context.status.log_state, self._context.durability.stable.value
        if log is None or not any(record.get("undecided") for record in self._records):
            return
        changed = [follow_decisions(each, log, stable) if each.get("undecided") else None for each in self._records]
        if any(changed):
            self._write([new or old for new, old in zip(changed, self._records, strict=True)])

    def _append_record(self, record: dict[str, Any]) -> None:
        self._write([*self._records, {"at": round(time.time(), 3), **record}][-RECORDS_MAX:])

    def _write(self, records: list[dict[str, Any]]) -> None:
        self._records = records
        keep(self._path, json.dumps(self._records).encode(), self._context.log, "SplitsNotKept")

    def _read(self) -> list[dict[str, Any]]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        return found if isinstance(found, list) else []


def _to_dict(view: View) -> dict[str, Any]:
    return {
        "number": format_view_number(view.number),
        "members": [m.node for m in view.members],
        "silent": view.silent_members,
        "strategy": view.strategy,
        "merged": view.merged,
        "base": view.base_index,
        "apartAt": view.diverged_index if view.diverged_index >= 0 else None,
    }
