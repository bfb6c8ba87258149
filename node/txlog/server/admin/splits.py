"""What this master saw of splits: ``GET /txlog/splits``, for ``txlog split-report``.

A file beside the journal, for people: nothing is decided by it, and a crash may lose its last line. The agreement
itself is in the journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from txlog.model.view import View
from txlog.runtime.levels import ViewChange
from txlog.runtime.site import Site
from txlog.runtime.web import Request, Response, Route, json_answer
from txlog.server.admin.membership import number_text

FILE = "splits.json"
KEPT = 400
LOOK_S = 0.2
"""How exact the times of states are."""
TOLD = ("Suspected", "Isolated", "Rejoining", "Joined")


class Splits:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._path = site.config.journal_folder / FILE
        self._records = self._read()
        self._state = ""

    def routes(self) -> list[Route]:
        return [Route("GET", "/txlog/splits", self.get)]

    def tasks(self) -> dict[str, Any]:
        """What runs for ever, by name."""
        return {"split-states": self._watch_for_ever()}

    async def get(self, request: Request, _: Mapping[str, str]) -> Response:
        """``{"node", "dataCenter", "records"}``, oldest first: ``state`` (it changed) or ``view`` (accepted)."""
        config = self._site.config
        return json_answer({"node": config.node, "dataCenter": config.data_center, "records": self._records})

    def noticed(self, change: ViewChange) -> None:
        """This master has accepted a view."""
        old, new, kept = change.old, change.new, change.kept
        if not (old.silent or new.silent or kept is not None):
            return  # a leave, a return: nobody was apart
        told = {**_told(new), "brought": self._brought(new)}
        self._add({"view": told, "before": _told(old), "end": change.end, "kept": kept})

    def _brought(self, view: View) -> int | None:
        """The index at which everything stands in the log that this view has brought together: what waits in its queue
        at the accept has stamps below all that comes later. None when this log is trimmed beyond its base."""
        agreement = self._site.loop.agreement
        if agreement is None or not agreement.history.start <= view.base_index <= agreement.history.length:
            return None
        last = {(node, birth): seq for node, birth, seq in agreement.history.seqs_at(view.base_index)}
        waiting = [
            seq - last.get((node, birth), 0) for (node, birth), seq in zip(view.origins, view.known, strict=False)
        ]
        return view.base_index + sum(count for count in waiting if count > 0)

    async def _watch_for_ever(self) -> None:
        while True:
            state = self._site.state
            quiet = not self._records and state == "Joined"
            if state != self._state and state in TOLD and not quiet:
                self._add({"state": state, "was": self._state})
            self._state = state
            await asyncio.sleep(LOOK_S)

    def _add(self, record: dict[str, Any]) -> None:
        self._records = [*self._records, {"at": round(time.time(), 3), **record}][-KEPT:]
        new = self._path.with_name(FILE + ".new")
        try:
            new.write_text(json.dumps(self._records))
            os.replace(new, self._path)
        except OSError as wrong:  # a full disk says so elsewhere
            self._site.log.limited("SplitsNotKept", "splits", error=str(wrong))

    def _read(self) -> list[dict[str, Any]]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        return found if isinstance(found, list) else []


def _told(view: View) -> dict[str, Any]:
    return {
        "number": number_text(view.number),
        "members": [m.node for m in view.members],
        "silent": view.silent,
        "strategy": view.strategy,
        "merged": view.merged,
        "base": view.base_index,
        "apartAt": view.apart_at if view.apart_at >= 0 else None,
    }
